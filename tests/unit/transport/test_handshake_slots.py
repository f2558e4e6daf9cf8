"""Places of unproven callers: few, few of them for one address, and the one seated longest gives way."""

import pytest

from agiledart_transport.handshake_slots import MIN_SLOT_SECONDS, HandshakeSlots, UnverifiedCaller, block_of


def slot_granted(places: HandshakeSlots, callers: list[UnverifiedCaller], now: float) -> None:
    for one in callers:
        assert places.arrive(one) is None
        places.request_slot(one)
    assert places.assign(now).granted == callers


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
    ],
)
def test_addresses_are_grouped_by_prefix(one: str, other: str, same: bool) -> None:
    assert (block_of(one) == block_of(other)) is same


def test_an_address_gets_few_slots_and_other_addresses_keep_theirs() -> None:
    places = HandshakeSlots(total=6, per_address_block=2, max_without_slot=10)
    slot_granted(places, [UnverifiedCaller("a"), UnverifiedCaller("a")], 0.0)
    third, other = UnverifiedCaller("a"), UnverifiedCaller("b")
    for one in (third, other):
        places.arrive(one)
        places.request_slot(one)
    turns = places.assign(0.5)
    assert turns.granted == [other]
    assert turns.evicted == []
    assert turns.next_check_in == MIN_SLOT_SECONDS - 0.5


def test_the_oldest_handshake_yields_to_a_waiting_one_after_its_time() -> None:
    places = HandshakeSlots(total=9, per_address_block=2, max_without_slot=10)
    first, second, third = UnverifiedCaller("a"), UnverifiedCaller("a"), UnverifiedCaller("a")
    slot_granted(places, [first], 0.0)
    slot_granted(places, [second], 1.0)
    places.arrive(third)
    places.request_slot(third)
    turns = places.assign(MIN_SLOT_SECONDS)
    assert (turns.granted, turns.evicted) == ([], [first])
    assert places.assign(MIN_SLOT_SECONDS).evicted == []  # it was notified, and is on its way
    places.leave(first)
    assert places.assign(MIN_SLOT_SECONDS).granted == [third]


def test_an_outgoing_handshake_does_not_yield() -> None:
    places = HandshakeSlots(total=1, per_address_block=1, max_without_slot=10)
    judged = UnverifiedCaller("a")
    slot_granted(places, [judged], 0.0)
    judged.is_being_verified = True
    places.arrive(late := UnverifiedCaller("b"))
    places.request_slot(late)
    assert places.assign(9.0) == ([], [], None)


def test_silent_handshakes_yield_before_those_that_have_sent() -> None:
    places = HandshakeSlots(total=1, per_address_block=1, max_without_slot=3)
    slot_granted(places, [UnverifiedCaller("a")], 0.0)
    spoke, mute, later = UnverifiedCaller("a"), UnverifiedCaller("b"), UnverifiedCaller("c")
    for one in (spoke, mute, later):
        assert places.arrive(one) is None
    places.request_slot(spoke)
    assert places.arrive(UnverifiedCaller("d")) is mute
    assert places.count == 4


def test_when_all_have_sent_the_longest_waiting_one_yields() -> None:
    places = HandshakeSlots(total=0, per_address_block=1, max_without_slot=2)
    first, second = UnverifiedCaller("a"), UnverifiedCaller("b")
    for one in (first, second):
        places.arrive(one)
        places.request_slot(one)
    assert places.arrive(UnverifiedCaller("c")) is first


def test_an_ended_handshake_leaves_nothing() -> None:
    places = HandshakeSlots(total=2, per_address_block=1, max_without_slot=4)
    callers = [UnverifiedCaller("a"), UnverifiedCaller("b"), UnverifiedCaller("c")]
    slot_granted(places, callers[:2], 0.0)
    places.arrive(callers[2])
    for one in [*callers, *callers]:  # leaving twice is no error
        places.leave(one)
    assert places.count == 0
    assert places._by_block == {}
    assert places.assign(99.0) == ([], [], None)
