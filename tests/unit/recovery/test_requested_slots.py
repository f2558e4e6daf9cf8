"""Voter slots that have no value yet: they believe the voters of the value whose coordinator asked for them."""

import msgspec

from agiledart_kernel.machine import Message, Received
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.register.proposer import Phase, Proposer
from agiledart_recovery.register.voter_slot import MAX_RESERVED
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import AttemptFile, StoreVoter, VoterFile
from agiledart_recovery.wire.events import Booted
from agiledart_recovery.wire.names import Ballot, RunId, Stamp, Voter
from agiledart_recovery.wire.register_value import RegisterValue, RunState
from tests.unit.recovery.bench import RUN, context, peer, value
from tests.unit.recovery.test_machine import ZERO, machine, told

ASKER, THIEF = peer(4), peer(9)


def asked(made: RecoveryMachine, by: Peer, voters: tuple[Voter, ...]) -> int:
    """Return the number of the slot that a node makes at a request."""
    (answer,) = told(made, by, wire.RequestVoterSlot(RUN, voters))
    assert isinstance(answer, wire.VoterSlotMade)
    return answer.voter_slot


def naming(number: int, attempt: int = 1) -> RegisterValue:
    """A value with this node's slot among the voters."""
    before = value(attempt)
    return msgspec.structs.replace(before, voters=(Voter(peer(7), number), *before.voters[1:]))


def accept(by: Peer, written: RegisterValue, round_: int = 3) -> wire.Accept:
    return wire.Accept(RUN, Stamp(Ballot(round_, by.node, 1), 1), written)


def kinds(said: list[Message]) -> list[type]:
    return [type(message) for message in said]


def test_a_slot_takes_its_first_value_from_its_requesters_only() -> None:
    made = machine(7)
    number = asked(made, ASKER, value().voters)
    forged = msgspec.structs.replace(naming(number), voters=(Voter(THIEF, 9),))
    assert set(kinds(told(made, THIEF, accept(THIEF, forged)))) == {wire.QueryVoters}
    assert made.voter_slots[RUN].value is None
    assert kinds(told(made, peer(5), accept(peer(5), naming(number)))) == [wire.Accepted], "the next coordinator"
    assert made.voter_slots[RUN].value == naming(number)


def test_a_stranger_that_asks_later_gets_another_slot_and_takes_none() -> None:
    made = machine(7)
    number = asked(made, ASKER, value().voters)
    assert asked(made, peer(5), value().voters) == number, "another voter that continues the change"
    other = asked(made, THIEF, (Voter(THIEF, 9),))
    assert other != number
    assert asked(made, ASKER, value().voters) == number
    assert kinds(told(made, ASKER, accept(ASKER, naming(number)))) == [wire.Accepted]
    assert asked(made, THIEF, (Voter(THIEF, 9),)) == other
    assert made.voter_slots[RUN].voter_slot == number, "a slot with a value stays"


def test_a_stranger_that_asked_first_delays_no_coordinator() -> None:
    made = machine(7)
    theirs = asked(made, THIEF, (Voter(THIEF, 9),))
    mine = asked(made, ASKER, value().voters)
    assert mine != theirs
    assert kinds(told(made, ASKER, accept(ASKER, naming(mine)))) == [wire.Accepted]
    assert made.voter_slots[RUN].value == naming(mine)


def test_a_reserved_slot_promises_after_a_restart() -> None:
    """Both halves of a change of voters may need its promise: the change is written, but has not arrived here."""
    made = machine(7)
    asked(made, THIEF, (Voter(THIEF, 9),))
    effects = made.step(Received(ASKER, wire.RequestVoterSlot(RUN, value().voters)), ZERO)
    store = next(effect for effect in effects if isinstance(effect, StoreVoter))
    again = machine(7)
    again.step(Booted((store.file,)), ZERO)
    (promise,) = told(again, peer(5), wire.Prepare(RUN, Ballot(3, peer(5).node, 1)))
    assert isinstance(promise, wire.Promise)
    assert promise.voter_slot == store.file.reserved[0].voter_slot


def test_strangers_fill_no_memory_with_requests() -> None:
    made = machine(7)
    asked(made, ASKER, value().voters)
    for number in range(20, 40):
        asked(made, peer(number), ())
    assert len(made.voter_slots[RUN].reserved) == MAX_RESERVED


def filled_by_thief(made: RecoveryMachine, voters: tuple[Voter, ...]) -> int:
    """Let a thief ask first and write an end of the run. Return the number of the slot."""
    number = asked(made, THIEF, (Voter(THIEF, 9),))
    forged = msgspec.structs.replace(naming(number), voters=(*voters, Voter(peer(7), number)), state=RunState.FINISHED)
    assert kinds(told(made, THIEF, accept(THIEF, forged, 99))) == [wire.Accepted]
    return number


def test_a_slot_that_a_stranger_has_filled_is_named_by_no_register() -> None:
    made = machine(7)
    theirs = filled_by_thief(made, tuple(value().voters[1:]))
    mine = asked(made, ASKER, value().voters)
    assert mine != theirs
    assert asked(made, ASKER, value().voters) == mine, "the same again is the same number"
    assert kinds(told(made, ASKER, accept(ASKER, naming(mine)))) == [wire.Accepted], "the forged value names the asker"
    assert made.voter_slots[RUN].voter_slot == mine
    assert set(kinds(told(made, THIEF, accept(THIEF, naming(mine), 999)))) == {wire.QueryVoters}
    assert made.voter_slots[RUN].value == naming(mine)


def test_a_filled_slot_that_names_strangers_only_costs_the_vote_and_forges_nothing() -> None:
    made = machine(7)
    filled_by_thief(made, (Voter(THIEF, 9), Voter(peer(8), 8)))
    mine = asked(made, ASKER, value().voters)
    said = told(made, ASKER, accept(ASKER, naming(mine)))
    assert set(kinds(said)) == {wire.QueryVoters}, "no vote under the number that the register names"
    assert told(made, THIEF, wire.VotersKnown(RUN, 1, (Voter(THIEF, 9),))) == []
    assert kinds(told(made, ASKER, accept(ASKER, naming(mine)))) == [wire.Accepted], (
        "the thief itself said that it is out"
    )


def test_a_stranger_displaces_no_slot_that_votes() -> None:
    made = machine(7)
    number = asked(made, ASKER, value().voters)
    told(made, ASKER, accept(ASKER, naming(number)))
    other = asked(made, THIEF, (Voter(THIEF, 9),))
    forged = msgspec.structs.replace(naming(other), voters=(Voter(peer(7), other), Voter(THIEF, 9), Voter(peer(8), 8)))
    told(made, THIEF, accept(THIEF, forged, 99))
    told(made, ASKER, wire.VotersKnown(RUN, 1, naming(number).voters))
    told(made, THIEF, accept(THIEF, forged, 99))
    assert (made.voter_slots[RUN].voter_slot, made.voter_slots[RUN].value) == (number, naming(number))


def test_a_former_voter_votes_again_once_its_old_slot_is_out() -> None:
    made = machine(7)
    number = asked(made, ASKER, value().voters)
    told(made, ASKER, accept(ASKER, naming(number)))
    now = (Voter(peer(11), 11), Voter(peer(12), 12), Voter(peer(5), 5))
    mine = asked(made, peer(11), now)
    again = msgspec.structs.replace(naming(mine, 2), voters=(Voter(peer(7), mine), *now[:2]))
    assert set(kinds(told(made, peer(11), accept(peer(11), again)))) == {wire.QueryVoters}
    told(made, peer(5), wire.VotersKnown(RUN, 2, now))
    assert kinds(told(made, peer(11), accept(peer(11), again))) == [wire.Accepted]


def test_a_restarted_voter_keeps_the_requesters_of_its_slot() -> None:
    made = machine(7)
    effects = made.step(Received(ASKER, wire.RequestVoterSlot(RUN, value().voters)), ZERO)
    store = next(effect for effect in effects if isinstance(effect, StoreVoter))
    again = machine(7)
    again.step(Booted((store.file,)), ZERO)
    told(again, THIEF, accept(THIEF, naming(store.file.voter_slot)))
    assert again.voter_slots[RUN].value is None
    told(again, ASKER, accept(ASKER, naming(store.file.voter_slot)))
    assert again.voter_slots[RUN].value is not None


def test_a_promise_of_a_slot_that_the_register_does_not_name_brings_no_value() -> None:
    here = context(1)
    proposer = Proposer(here, RUN)
    proposer.begin(value())
    forged = msgspec.structs.replace(value(3), voters=(Voter(THIEF, 9),))
    high = Stamp(Ballot(99, THIEF.node, 1), 1)
    proposer.on_promise(peer(5), wire.Promise(RUN, proposer.ballot, 55, high, forged))
    for number in (4, 1):
        proposer.on_promise(peer(number), wire.Promise(RUN, proposer.ballot, number, Stamp(), None))
    assert proposer.phase is Phase.CONFIRMING
    for number in (1, 4):
        proposer.on_accepted(peer(number), wire.Accepted(RUN, Stamp(proposer.ballot, 1), number))
    assert proposer.value == value()


def test_a_restarted_host_believes_the_voters_that_its_newer_slot_names() -> None:
    """Its file names former voters, which know of nothing newer than the value of its own slot."""
    run = RunId(RUN.app, RUN.version)
    before = tuple(Voter(peer(number), number) for number in (6, 7, 8))
    newer = msgspec.structs.replace(value(2), voters=(Voter(peer(2), 22), *value().voters[1:]))
    made = machine(2)
    slot = VoterFile(run, 22, Ballot(3, NodeId(4), 1), Stamp(Ballot(3, NodeId(4), 1), 1), newer)
    made.step(Booted((slot,), (AttemptFile(run, 1, b"", before),)), ZERO)
    told(made, peer(5), wire.Reset(run, Ballot(4, NodeId(5), 1), newer))
    assert made.participants[run].attempt == 2
