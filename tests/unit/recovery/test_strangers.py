"""Words about a run from a node that neither votes on it nor hosts any of it: refused by role, and counted.

A table says of each message who may say it. A message without a row fails the test, so nobody adds one without a rule.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import msgspec
import pytest

from agiledart_kernel.machine import Received, Send
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observe import Observation
from agiledart_kernel.peer import Peer
from agiledart_recovery.lives.coordinator import Phase
from agiledart_recovery.machine import RecoveryMachine
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.events import FoundRun, MakeSeat
from agiledart_recovery.wire.names import Ballot, Party, Run, Snapshot, Stamp
from agiledart_recovery.wire.observations import MessageIgnored
from agiledart_recovery.wire.value import MadeAgain, Saved, State, Value
from tests.unit.recovery.bench import RUN, peer, plan, value
from tests.unit.recovery.test_machine import ZERO, carry_out, machine

STRANGER = peer(9)
LATER = Snapshot(1, 7)
UNKNOWN = Run("another", 1)


class Rule(NamedTuple):
    """What a stranger says, and under which reason it is counted; "": it is nothing, and there is nothing to count."""

    says: Callable[[Value, Ballot], wire.RunMessage]
    counted: str


def _later(known: Value) -> Value:
    return msgspec.structs.replace(known, life=2)


def _over(known: Value) -> Value:
    return msgspec.structs.replace(known, committed=LATER, state=State.FINISHED)


PREPARED = wire.Prepared(RUN, 1, 1, Party("stage"), Saved(Party("stage")))
CHANGED = plan(stage=7)

RULES: dict[type[wire.RunMessage], Rule] = {
    # who holds the ballot
    wire.Prepare: Rule(lambda known, ballot: wire.Prepare(RUN, ballot), "ballot"),
    wire.Accept: Rule(lambda known, ballot: wire.Accept(RUN, Stamp(ballot, 9), known), "ballot"),
    wire.Leading: Rule(lambda known, ballot: wire.Leading(RUN, ballot), "ballot"),
    # who votes, as the value says, or as is known here
    wire.Reset: Rule(lambda known, ballot: wire.Reset(RUN, ballot, _later(known)), "reset"),
    wire.Committed: Rule(lambda known, ballot: wire.Committed(RUN, 1, _over(known)), "committed"),
    wire.Start: Rule(lambda known, ballot: wire.Start(RUN, 1), "coordinator"),
    wire.Begin: Rule(lambda known, ballot: wire.Begin(RUN, 1, 1, known.plan.digest), "coordinator"),
    wire.Ask: Rule(lambda known, ballot: wire.Ask(RUN, 1, 0), "coordinator"),
    wire.Sync: Rule(lambda known, ballot: wire.Sync(RUN, 1, 1), "coordinator"),
    wire.PrepareTerm: Rule(
        lambda known, ballot: wire.PrepareTerm(RUN, 1, Stamp(ballot, 1), known.plan, CHANGED), "coordinator"
    ),
    wire.TermLetGo: Rule(lambda known, ballot: wire.TermLetGo(RUN, 1, CHANGED.digest), "coordinator"),
    # who was asked for a vote
    wire.Promise: Rule(lambda known, ballot: wire.Promise(RUN, ballot, 9, Stamp(), None), "voter"),
    wire.Accepted: Rule(lambda known, ballot: wire.Accepted(RUN, Stamp(ballot, 2), 9), "voter"),
    wire.Refused: Rule(lambda known, ballot: wire.Refused(RUN, ballot, Ballot(3, STRANGER.node, 1)), "voter"),
    wire.Following: Rule(lambda known, ballot: wire.Following(RUN, ballot, 9), "voter"),
    wire.Seat: Rule(lambda known, ballot: wire.Seat(RUN, 9), "seat"),
    # who hosts something
    wire.ResetOk: Rule(lambda known, ballot: wire.ResetOk(RUN, 1, 1 << 40, (PREPARED,)), "host"),
    wire.ResetRefused: Rule(lambda known, ballot: wire.ResetRefused(RUN, 2, "no"), "host"),
    wire.Prepared: Rule(lambda known, ballot: PREPARED, "host"),
    wire.Synced: Rule(lambda known, ballot: wire.Synced(RUN, 1, 1), "host"),
    wire.CommittedOk: Rule(lambda known, ballot: wire.CommittedOk(RUN, 1, LATER), "host"),
    wire.NeedLife: Rule(lambda known, ballot: wire.NeedLife(RUN, 1, "I want one"), "host"),
    wire.Entering: Rule(lambda known, ballot: wire.Entering(RUN, 1, "fetch", 1, 2), "host"),
    wire.Remade: Rule(
        lambda known, ballot: wire.Remade(RUN, 1, (MadeAgain(Party("stage"), LATER, 0, STRANGER.node),)), "host"
    ),
    wire.TermReady: Rule(lambda known, ballot: wire.TermReady(RUN, 1, CHANGED.digest, "I cannot"), "host"),
    wire.TermProgress: Rule(lambda known, ballot: wire.TermProgress(RUN, 1, CHANGED.digest, 1, 2), "host"),
    wire.Handed: Rule(lambda known, ballot: wire.Handed(RUN, 1, 1, b"", Saved(Party("stage"))), "host"),
    # whom something was given, or who gave it
    wire.HandedOk: Rule(lambda known, ballot: wire.HandedOk(RUN, 1, 1, Party("stage")), ""),
    wire.Kept: Rule(lambda known, ballot: wire.Kept(RUN, 1, Party("other"), LATER, (), is_over=True), ""),
    wire.Holds: Rule(lambda known, ballot: wire.Holds(RUN, Party("stage"), ()), "holder"),
    # anybody: it makes a file, and nothing counts because of it
    wire.AskSeat: Rule(lambda known, ballot: wire.AskSeat(RUN), ""),
}


class Leader(NamedTuple):
    """A node that coordinates the run, hosts its source, and keeps a fragment for somebody."""

    machine: RecoveryMachine
    observed: list[Observation]

    def hear(self, sender: Peer, message: wire.RunMessage) -> list[Send]:
        return carry_out(self.machine, self.machine.step(Received(sender, message), ZERO))

    def state(self) -> tuple[Any, ...]:
        """What a word could have moved."""
        coordinator, part, seat = (
            self.machine.coordinators[RUN],
            self.machine.participants[RUN],
            self.machine.seats[RUN],
        )
        committing = coordinator.committing
        return (
            (coordinator.phase, coordinator.proposer.phase, coordinator.proposer.ballot, coordinator.value),
            (committing.epochs.begun, dict(committing._told), dict(committing._synced), committing.changing.step),
            (coordinator.leader, dict(coordinator.replacing._seats)),
            (seat.promised, seat.accepted, seat.value),
            (part.phase, part.life, part.begun, part.value, part.readying.plan),
            (self.machine.shelf.held_for(RUN, Party("other")), len(self.machine.participants), len(self.machine.seats)),
        )


def _answer(to: Send) -> wire.RunMessage | None:
    """What an honest voter or host says."""
    match to.message:
        case wire.Prepare(run, ballot):
            return wire.Promise(run, ballot, int(to.to.node), Stamp(), None)
        case wire.Accept(run, stamp):
            return wire.Accepted(run, stamp, int(to.to.node))
        case wire.Reset(run, _, known):
            return wire.ResetOk(run, known.life, 0, ())
    return None


@pytest.fixture
def leader() -> Leader:
    observed: list[Observation] = []
    made = machine(1, observed)
    made.step(MakeSeat(RUN), ZERO)
    first = value(0)
    voters = (msgspec.structs.replace(first.voters[0], seat=made.seats[RUN].seat), *first.voters[1:])
    said = carry_out(made, made.step(FoundRun(msgspec.structs.replace(first, voters=voters)), ZERO))
    found = Leader(made, observed)
    while said:
        said = [one for each in said if (answer := _answer(each)) is not None for one in found.hear(each.to, answer)]
    assert made.coordinators[RUN].phase is Phase.RUNNING
    made.shelf.put(FragmentKey(RUN, Party("other"), Snapshot(1, 1), 0), NodeId(8))
    observed.clear()
    return found


def test_each_message_has_a_rule_and_a_place_on_the_wire() -> None:
    kinds = set(wire.RunMessage.__subclasses__())
    assert kinds == set(get_args(wire.RecoveryMessage)), "what is not in the union cannot be read by anybody"
    assert kinds == set(RULES), "who may say it?"


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.__name__)
def test_the_word_of_who_neither_votes_nor_hosts_moves_nothing_and_is_counted(
    leader: Leader, kind: type[wire.RunMessage]
) -> None:
    coordinator = leader.machine.coordinators[RUN]
    message = RULES[kind].says(coordinator.value, coordinator.proposer.ballot)
    assert type(message) is kind
    before = leader.state()
    said = leader.hear(STRANGER, message)
    assert leader.state() == before
    assert [type(each.message) for each in said] == ([wire.Seat] if kind is wire.AskSeat else [])
    counted = [each for each in leader.observed if isinstance(each, MessageIgnored)]
    assert counted == ([MessageIgnored(STRANGER.node, reason)] if (reason := RULES[kind].counted) else [])


@pytest.mark.parametrize(
    ("kind", "counted"),
    [(wire.Begin, "run"), (wire.Prepared, "coordinator"), (wire.Prepare, "seat"), (wire.Reset, "reset")],
)
def test_what_is_said_of_a_run_of_which_nothing_is_here_begins_nothing(
    leader: Leader, kind: type[wire.RunMessage], counted: str
) -> None:
    """RESET opens a run, but only where its value names this node, and the sender votes."""
    coordinator = leader.machine.coordinators[RUN]
    message = RULES[kind].says(coordinator.value, coordinator.proposer.ballot)
    leader.hear(STRANGER, msgspec.structs.replace(message, run=UNKNOWN))
    assert [each.reason for each in leader.observed if isinstance(each, MessageIgnored)] == [counted]
    assert UNKNOWN not in leader.machine.participants
