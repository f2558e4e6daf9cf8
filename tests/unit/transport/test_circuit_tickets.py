"""Tickets for circuits: once, in time, and never more than there may be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart_kernel.errors import Refused
from agiledart_transport.circuit_tickets import MAX_CIRCUITS, MAX_CIRCUITS_OF_PEER, TICKET_NS, Booking, CircuitTickets
from agiledart_transport.circuits import PREFACE, TICKET_BYTES, preface, ticket_of


def ticket(number: int) -> bytes:
    return number.to_bytes(TICKET_BYTES, "big")


def booking(requester_key: int = 0) -> Booking:
    return Booking(requester_key.to_bytes(2, "big"), "10.0.0.9", 9464)


def test_a_ticket_is_valid_once() -> None:
    tickets = CircuitTickets()
    tickets.book(ticket(1), booking(), 0)
    assert tickets.redeem(ticket(1), 1) == booking()
    with pytest.raises(Refused, match="ticket"):
        tickets.redeem(ticket(1), 2)
    assert tickets.open == 1


@pytest.mark.parametrize(("number", "at"), [(2, 1), (1, TICKET_NS)])
def test_an_unknown_or_late_ticket_is_invalid(number: int, at: int) -> None:
    tickets = CircuitTickets()
    tickets.book(ticket(1), booking(), 0)
    with pytest.raises(Refused, match="ticket"):
        tickets.redeem(ticket(number), at)
    assert tickets.open == 0


def test_ten_thousand_circuits_of_one_peer_hold_its_share_of_slots() -> None:
    tickets = CircuitTickets()
    for number in range(MAX_CIRCUITS_OF_PEER):
        tickets.book(ticket(number), booking(), number)
    for number in range(MAX_CIRCUITS_OF_PEER, 10_000):
        with pytest.raises(Refused, match="quota"):
            tickets.book(ticket(number), booking(), number)
    assert tickets.held == MAX_CIRCUITS_OF_PEER
    tickets.book(ticket(1), booking(1), 0)  # another peer is not kept out


def test_many_peers_together_hold_no_more_than_the_relays_slots() -> None:
    tickets = CircuitTickets()
    for number in range(MAX_CIRCUITS):
        tickets.book(ticket(number), booking(number), 0)
    with pytest.raises(Refused, match="quota"):
        tickets.book(ticket(999), booking(9_999), 0)
    tickets.book(ticket(1_000), booking(9_999), TICKET_NS)  # the others came too late


@given(st.lists(st.tuples(st.sampled_from(("book", "redeem", "end", "wait")), st.integers(0, 9)), max_size=200))
def test_held_slots_equal_booked_ones_and_are_neither_late_nor_over(actions: list[tuple[str, int]]) -> None:
    tickets, now, number = CircuitTickets(5, 2), 0, 0
    waiting: dict[int, tuple[int, int]] = {}
    opened: list[Booking] = []
    for action, value in actions:
        waiting = {one: told for one, told in waiting.items() if now < told[0]}
        if action == "book":
            number += 1
            held = len(waiting) + len(opened)
            of_peer = sum(requester_key == value for _, requester_key in waiting.values()) + sum(
                one.requester_key[1] == value for one in opened
            )
            if held < 5 and of_peer < 2:
                tickets.book(ticket(number), booking(value), now)
                waiting[number] = now + TICKET_NS, value
            else:
                with pytest.raises(Refused):
                    tickets.book(ticket(number), booking(value), now)
        elif action == "redeem" and waiting:
            chosen = sorted(waiting)[value % len(waiting)]
            opened.append(tickets.redeem(ticket(chosen), now))
            del waiting[chosen]
        elif action == "end" and opened:
            tickets.ended(opened.pop(value % len(opened)))
        elif action == "wait":
            now += value * TICKET_NS // 8
        tickets._forget_late(now)
        assert tickets.held == len(opened) + sum(now < until for until, _ in waiting.values())


@pytest.mark.parametrize("head", [b"", PREFACE, preface(bytes(15)), preface(bytes(17)), b"\0ADT\x02" + bytes(16)])
def test_half_a_preface_or_another_version_is_invalid(head: bytes) -> None:
    with pytest.raises(Refused, match="ticket"):
        ticket_of(head)
