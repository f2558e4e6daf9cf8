"""Words about a run from a node that neither votes on it nor hosts any of it: refused by role, and counted.

A table lists the permitted senders of each message. A message without a row fails the test, so none is added without a rule.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import msgspec
import pytest

from agiledart_kernel.machine import Received, Send
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observation
from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.coordinator import Phase
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.events import BootstrapRun, MakeVoterSlot
from agiledart_recovery.wire.key_share import KeyShare
from agiledart_recovery.wire.names import Ballot, CheckpointId, InstanceId, RunId, Stamp
from agiledart_recovery.wire.observations import MessageIgnored
from agiledart_recovery.wire.register_value import RegisterValue, ReplacedFragment, RunState, SavedState
from tests.unit.recovery.bench import RUN, peer, plan, value
from tests.unit.recovery.test_machine import ZERO, carry_out, machine

STRANGER = peer(9)
LATER = CheckpointId(1, 7)
UNKNOWN = RunId("another", 1)


class Rule(NamedTuple):
    """A stranger's message, and the reason under which it is counted; "": it is nothing, and there is nothing to count."""

    says: Callable[[RegisterValue, Ballot], wire.RunMessage]
    counted: str


def _later(known: RegisterValue) -> RegisterValue:
    return msgspec.structs.replace(known, attempt=2)


def _over(known: RegisterValue) -> RegisterValue:
    return msgspec.structs.replace(known, committed=LATER, state=RunState.FINISHED)


PREPARED = wire.Prepared(RUN, 1, 1, InstanceId("stage"), SavedState(InstanceId("stage")))
CHANGED = plan(stage=7)

RULES: dict[type[wire.RunMessage], Rule] = {
    # owner of the ballot
    wire.Prepare: Rule(lambda known, ballot: wire.Prepare(RUN, ballot), "ballot"),
    wire.Accept: Rule(lambda known, ballot: wire.Accept(RUN, Stamp(ballot, 9), known), "ballot"),
    wire.LeaderAnnounced: Rule(lambda known, ballot: wire.LeaderAnnounced(RUN, ballot), "ballot"),
    # voters, as the value names them, or as is known here
    wire.Reset: Rule(lambda known, ballot: wire.Reset(RUN, ballot, _later(known)), "reset"),
    wire.Committed: Rule(lambda known, ballot: wire.Committed(RUN, 1, _over(known)), "committed"),
    wire.Start: Rule(lambda known, ballot: wire.Start(RUN, 1), "coordinator"),
    wire.Begin: Rule(lambda known, ballot: wire.Begin(RUN, 1, 1, known.plan.digest), "coordinator"),
    wire.QueryPrepared: Rule(lambda known, ballot: wire.QueryPrepared(RUN, 1, 0), "coordinator"),
    wire.Sync: Rule(lambda known, ballot: wire.Sync(RUN, 1, 1), "coordinator"),
    wire.ProposeGeneration: Rule(
        lambda known, ballot: wire.ProposeGeneration(RUN, 1, Stamp(ballot, 1), known.plan, CHANGED), "coordinator"
    ),
    wire.GenerationDropped: Rule(lambda known, ballot: wire.GenerationDropped(RUN, 1, CHANGED.digest), "coordinator"),
    # nodes asked for a vote
    wire.Promise: Rule(lambda known, ballot: wire.Promise(RUN, ballot, 9, Stamp(), None), "voter"),
    wire.Accepted: Rule(lambda known, ballot: wire.Accepted(RUN, Stamp(ballot, 2), 9), "voter"),
    wire.BallotRefused: Rule(
        lambda known, ballot: wire.BallotRefused(RUN, ballot, Ballot(3, STRANGER.node, 1)), "voter"
    ),
    wire.LeaderAcknowledged: Rule(lambda known, ballot: wire.LeaderAcknowledged(RUN, ballot, 9), "voter"),
    wire.VoterSlotMade: Rule(lambda known, ballot: wire.VoterSlotMade(RUN, 9), "voter_slot"),
    # hosts of an instance
    wire.ResetOk: Rule(lambda known, ballot: wire.ResetOk(RUN, 1, 1 << 40, (PREPARED,)), "host"),
    wire.ResetRefused: Rule(lambda known, ballot: wire.ResetRefused(RUN, 2, "no"), "host"),
    wire.Prepared: Rule(lambda known, ballot: PREPARED, "host"),
    wire.RowsPassed: Rule(lambda known, ballot: wire.RowsPassed(RUN, 1), "host"),
    wire.Synced: Rule(lambda known, ballot: wire.Synced(RUN, 1, 1), "host"),
    wire.CommittedOk: Rule(lambda known, ballot: wire.CommittedOk(RUN, 1, LATER), "host"),
    wire.NewAttemptNeeded: Rule(lambda known, ballot: wire.NewAttemptNeeded(RUN, 1, "I want one"), "host"),
    wire.AttemptProgress: Rule(lambda known, ballot: wire.AttemptProgress(RUN, 1, "fetch", 1, 2), "host"),
    wire.FragmentsReplaced: Rule(
        lambda known, ballot: wire.FragmentsReplaced(
            RUN, 1, (ReplacedFragment(InstanceId("stage"), LATER, 0, STRANGER.node),)
        ),
        "host",
    ),
    wire.GenerationReady: Rule(lambda known, ballot: wire.GenerationReady(RUN, 1, CHANGED.digest, "I cannot"), "host"),
    wire.GenerationProgress: Rule(lambda known, ballot: wire.GenerationProgress(RUN, 1, CHANGED.digest, 1, 2), "host"),
    wire.StateHandedOver: Rule(
        lambda known, ballot: wire.StateHandedOver(RUN, 1, 1, b"", SavedState(InstanceId("stage"))), "host"
    ),
    # receivers and senders of a transfer
    wire.StateHandedOverOk: Rule(lambda known, ballot: wire.StateHandedOverOk(RUN, 1, 1, InstanceId("stage")), ""),
    wire.NeededFragments: Rule(
        lambda known, ballot: wire.NeededFragments(RUN, 1, InstanceId("other"), LATER, (), is_over=True), ""
    ),
    wire.HeldFragments: Rule(lambda known, ballot: wire.HeldFragments(RUN, InstanceId("stage"), ()), "replica_node"),
    wire.QueryVoters: Rule(lambda known, ballot: wire.QueryVoters(RUN), "voter"),
    wire.VotersKnown: Rule(lambda known, ballot: wire.VotersKnown(RUN, 9, known.voters), "voter"),
    # hosts of the value that is held
    wire.QueryRunKey: Rule(lambda known, ballot: wire.QueryRunKey(RUN), "host"),
    wire.KeyShareDealt: Rule(lambda known, ballot: wire.KeyShareDealt(RUN, KeyShare(b"deal", 1, bytes(32))), "host"),
    wire.RunKeyParts: Rule(lambda known, ballot: wire.RunKeyParts(RUN, bytes(32)), "voter"),
    # any node: it makes a file, and nothing counts because of it
    wire.RequestVoterSlot: Rule(lambda known, ballot: wire.RequestVoterSlot(RUN), ""),
}


class Leader(NamedTuple):
    """A node that coordinates the run, hosts its source, and keeps a fragment for another node."""

    machine: RecoveryMachine
    observed: list[Observation]

    def hear(self, sender: Peer, message: wire.RunMessage) -> list[Send]:
        return carry_out(self.machine, self.machine.step(Received(sender, message), ZERO))

    def state(self) -> tuple[Any, ...]:
        """State that a message could have changed."""
        coordinator, part, voter_slot = (
            self.machine.coordinators[RUN],
            self.machine.participants[RUN],
            self.machine.voter_slots[RUN],
        )
        commit_protocol = coordinator.commit_protocol
        return (
            (coordinator.phase, coordinator.proposer.phase, coordinator.proposer.ballot, coordinator.value),
            (
                commit_protocol.epochs.begun,
                dict(commit_protocol._acknowledged),
                dict(commit_protocol._synced),
                commit_protocol.generation_change.step,
            ),
            (coordinator.leader, dict(coordinator.voter_replacement._voter_slots)),
            (voter_slot.promised, voter_slot.accepted, voter_slot.value),
            (part.phase, part.attempt, part.begun, part.value, part.generation_preparation.plan),
            (
                self.machine.fragment_store.held_for(RUN, InstanceId("other")),
                len(self.machine.participants),
                len(self.machine.voter_slots),
            ),
        )


def _answer(to: Send) -> wire.RunMessage | None:
    """Messages of an honest voter or host."""
    match to.message:
        case wire.Prepare(run, ballot):
            return wire.Promise(run, ballot, int(to.to.node), Stamp(), None)
        case wire.Accept(run, stamp):
            return wire.Accepted(run, stamp, int(to.to.node))
        case wire.Reset(run, _, known):
            return wire.ResetOk(run, known.attempt, 0, ())
    return None


@pytest.fixture
def leader() -> Leader:
    observed: list[Observation] = []
    made = machine(1, observed)
    made.step(MakeVoterSlot(RUN), ZERO)
    first = value(0)
    voters = (msgspec.structs.replace(first.voters[0], voter_slot=made.voter_slots[RUN].voter_slot), *first.voters[1:])
    said = carry_out(made, made.step(BootstrapRun(msgspec.structs.replace(first, voters=voters)), ZERO))
    found = Leader(made, observed)
    while said:
        said = [one for each in said if (answer := _answer(each)) is not None for one in found.hear(each.to, answer)]
    assert made.coordinators[RUN].phase is Phase.RUNNING
    made.fragment_store.put(FragmentKey(RUN, InstanceId("other"), CheckpointId(1, 1), 0), NodeId(8))
    observed.clear()
    return found


def test_each_message_has_a_rule_and_a_place_on_the_wire() -> None:
    kinds = set(wire.RunMessage.__subclasses__())
    assert kinds == set(get_args(wire.RecoveryMessage)), "a message outside the union cannot be decoded"
    assert kinds == set(RULES), "which senders are permitted?"


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.__name__)
def test_a_message_of_neither_voter_nor_host_changes_nothing_and_is_counted(
    leader: Leader, kind: type[wire.RunMessage]
) -> None:
    coordinator = leader.machine.coordinators[RUN]
    message = RULES[kind].says(coordinator.value, coordinator.proposer.ballot)
    assert type(message) is kind
    before = leader.state()
    said = leader.hear(STRANGER, message)
    assert leader.state() == before
    assert [type(each.message) for each in said] == ([wire.VoterSlotMade] if kind is wire.RequestVoterSlot else [])
    counted = [each for each in leader.observed if isinstance(each, MessageIgnored)]
    assert counted == ([MessageIgnored(STRANGER.node, reason)] if (reason := RULES[kind].counted) else [])


@pytest.mark.parametrize(
    ("kind", "counted"),
    [(wire.Begin, "run"), (wire.Prepared, "coordinator"), (wire.Prepare, "voter_slot"), (wire.Reset, "reset")],
)
def test_a_message_about_an_unknown_run_starts_nothing(
    leader: Leader, kind: type[wire.RunMessage], counted: str
) -> None:
    """RESET opens a run, but only where its value names this node, and the sender votes."""
    coordinator = leader.machine.coordinators[RUN]
    message = RULES[kind].says(coordinator.value, coordinator.proposer.ballot)
    leader.hear(STRANGER, msgspec.structs.replace(message, run=UNKNOWN))
    assert [each.reason for each in leader.observed if isinstance(each, MessageIgnored)] == [counted]
    assert UNKNOWN not in leader.machine.participants
