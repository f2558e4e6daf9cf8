"""Belief in proposers by the voters of the held value, and by what this node's own slot has seen."""

from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pytest

from agiledart_kernel.instants import Instant
from agiledart_kernel.peer import Peer
from agiledart_recovery.register.voter_trust import ASK_AGAIN_NS, MAX_CONFIRMED, VoterTrust, voters_known
from agiledart_recovery.wire.events import MakeVoterSlot
from agiledart_recovery.wire.messages import Accept, Committed, QueryVoters, Reset, ResetOk, Start, VotersKnown
from agiledart_recovery.wire.names import Ballot, Stamp, Voter
from agiledart_recovery.wire.register_value import RegisterValue
from tests.unit.recovery.bench import RUN, peer, value
from tests.unit.recovery.test_machine import machine, told

ME, OTHER, THIRD = peer(1), peer(2), peer(3)


@dataclass
class Context:
    """The part of a recovery context that trust uses."""

    me: Peer = ME
    now: Instant = field(default_factory=lambda: Instant(0))
    unreachable: set[Any] = field(default_factory=set)
    sent: list[tuple[Peer, Any]] = field(default_factory=list)

    def send(self, to: Peer, message: Any) -> None:
        self.sent.append((to, message))

    def can_reach(self, node: Any) -> bool:
        return node not in self.unreachable


def held_by(*voters: Peer) -> RegisterValue:
    return msgspec.structs.replace(value(), voters=tuple(Voter(voter, number) for number, voter in enumerate(voters)))


@pytest.fixture
def context() -> Context:
    return Context()


@pytest.fixture
def trust(context: Context) -> VoterTrust:
    return VoterTrust(cast(Any, context), RUN)


def test_a_host_believes_the_voters_that_its_own_slot_names(trust: VoterTrust, context: Context) -> None:
    """The only voter hosts the run, and its vote moves to another node before its participant hears of it."""
    held = held_by(ME)
    assert not trust.believes(held, OTHER.node)
    trust.ask(held)
    assert context.sent == [(ME, QueryVoters(RUN))]
    newer = held_by(OTHER)
    assert trust.on_voters(newer, ME, voters_known(RUN, newer))
    assert trust.believes(held, OTHER.node)
    assert not trust.believes(held, THIRD.node)


def test_a_host_without_its_own_slot_believes_the_value_in_the_message(trust: VoterTrust) -> None:
    held = held_by(ME)
    assert trust.on_voters(held, ME, VotersKnown(RUN, 0, ()))
    assert trust.believes(held, OTHER.node)


def test_a_stranger_is_not_believed_while_a_held_voter_can_be_asked(trust: VoterTrust, context: Context) -> None:
    held = held_by(OTHER)
    assert not trust.believes(held, THIRD.node)
    assert not trust.on_voters(held, THIRD, voters_known(RUN, held_by(THIRD)))
    context.unreachable.add(OTHER.node)
    assert trust.believes(held, THIRD.node)


def test_questions_are_a_second_apart(trust: VoterTrust, context: Context) -> None:
    held = held_by(OTHER)
    for _ in range(2):
        trust.ask(held)
    assert len(context.sent) == 1
    context.now = Instant(ASK_AGAIN_NS)
    trust.ask(held)
    assert len(context.sent) == 2


def test_an_answer_about_an_earlier_attempt_names_former_voters(trust: VoterTrust) -> None:
    held = held_by(ME, OTHER)
    assert trust.on_voters(held, OTHER, VotersKnown(RUN, held.attempt, (Voter(THIRD, 3),)))
    assert trust.confirms(held, THIRD.node)
    later = msgspec.structs.replace(held, attempt=held.attempt + 1)
    assert not trust.confirms(later, THIRD.node)
    assert not trust.on_voters(later, THIRD, VotersKnown(RUN, later.attempt, (Voter(peer(9), 9),)))


def test_a_node_remembers_the_voters_that_were_named_last(trust: VoterTrust) -> None:
    held = held_by(ME, OTHER)
    for number in range(10, 10 + 2 * MAX_CONFIRMED):
        trust.on_voters(held, OTHER, VotersKnown(RUN, held.attempt, (Voter(peer(number), number),)))
    confirmed = [number for number in range(10, 10 + 2 * MAX_CONFIRMED) if trust.confirms(held, peer(number).node)]
    assert confirmed == list(range(10 + MAX_CONFIRMED, 10 + 2 * MAX_CONFIRMED))


def test_a_voter_that_was_replaced_in_the_same_attempt_is_believed_no_more(trust: VoterTrust) -> None:
    held = held_by(ME, OTHER)
    assert trust.on_voters(held, OTHER, VotersKnown(RUN, held.attempt, (Voter(THIRD, 3),)))
    same = msgspec.structs.replace(held)
    trust.renew(held, same)
    assert trust.confirms(same, THIRD.node), "the voters are the same"
    later = held_by(ME, peer(9))
    trust.renew(held, later)
    assert not trust.confirms(later, THIRD.node)


def test_a_host_that_gave_its_slot_away_follows_the_coordinator() -> None:
    """The slot holds the value that removed it, and learns of no later change in the same attempt."""
    made = machine(2)
    made.step(MakeVoterSlot(RUN), Instant(0))
    before = held_by(peer(1), peer(4), peer(5))
    told(made, peer(1), Accept(RUN, Stamp(Ballot(1, peer(1).node, 1), 1), before))
    told(made, peer(1), Reset(RUN, Ballot(1, peer(1).node, 1), before))
    after = held_by(peer(1), peer(4), peer(6))
    told(made, peer(1), Start(RUN, before.attempt))
    told(made, peer(1), Committed(RUN, after.attempt, after))
    forged = msgspec.structs.replace(before, attempt=before.attempt + 1)
    said = told(made, peer(5), Reset(RUN, Ballot(2, peer(5).node, 1), forged))
    assert made.participants[RUN].attempt == before.attempt, "a former voter begins no attempt"
    assert not any(isinstance(message, ResetOk) for message in said)
