"""The majority of a run's voters is gone for ever: the rest, the refusals, and that the old side stops."""

import msgspec
import pytest

from agiledart_kernel.machine import Message, Send
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observation
from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.coordinator import Coordinator, Phase
from agiledart_recovery.register.quorum_recovery import (
    QuorumRecoveryCheck,
    check_quorum_recovery,
    choose_new_voters,
    leader_of,
    recovered_value,
)
from agiledart_recovery.register.voter_slot import VoterSlot
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import StoreVoter, VoterFile
from agiledart_recovery.wire.names import Ballot, CheckpointId, Stamp, Voter
from agiledart_recovery.wire.observations import VoterExcluded
from agiledart_recovery.wire.register_status import RegisterStatus
from agiledart_recovery.wire.register_value import RegisterValue
from tests.unit.recovery.bench import RUN, context, peer, value

OLD = value(2, CheckpointId(2, 7))
NEWER = value(2, CheckpointId(2, 8))
LATEST = value(3, CheckpointId(2, 8))
NOW = Ballot(4, NodeId(4), 1)


def votes(
    number: int, of: RegisterValue | None, ballot: Ballot = NOW, acknowledged_value: RegisterValue | None = None
) -> tuple[Peer, RegisterStatus]:
    return peer(number), RegisterStatus(number, ballot, Stamp(ballot, 1), of, acknowledged_value)


def hosts(number: int, acknowledged_value: RegisterValue | None = None) -> tuple[Peer, RegisterStatus]:
    return peer(number), RegisterStatus(acknowledged_value=acknowledged_value)


def judge(*left: tuple[Peer, RegisterStatus], without: tuple[int, ...] = (4, 5)) -> QuorumRecoveryCheck:
    return check_quorum_recovery(RUN, left, [NodeId(number) for number in without], lambda node: f"pi{int(node)}")


def test_one_of_three_voters_is_left() -> None:
    found = judge(votes(1, OLD), hosts(2), hosts(3))
    assert not found.refusal
    assert found.value == OLD
    assert [voter.voter_slot for voter in found.silent] == [4, 5]


@pytest.mark.parametrize(
    ("left", "without", "why"),
    [
        ([votes(1, OLD), votes(4, OLD)], (5,), "a majority of its voters answers (pi1, pi4)"),
        ([votes(1, OLD), votes(4, OLD)], (4, 5), "a majority of its voters answers"),
        ([votes(1, OLD)], (4,), "pi5 does not answer either, and was not named"),
        ([votes(1, OLD)], (1, 4, 5), "pi1 answers, and is not lost"),
        ([votes(1, OLD), hosts(2)], (4, 5, 9), "pi9 does not vote on it"),
        ([hosts(2)], (1, 4, 5), "no voter of taxi is left, and no host knows its register's value"),
    ],
)
def test_invalid_quorum_recovery_requests_are_rejected(
    left: list[tuple[Peer, RegisterStatus]], without: tuple[int, ...], why: str
) -> None:
    assert why in judge(*left, without=without).refusal


def test_a_voter_that_lost_its_disk_is_counted_as_lost() -> None:
    found = judge(votes(1, OLD), (peer(4), RegisterStatus(44)), without=(4, 5))
    assert not found.refusal
    assert [voter.peer.node for voter in found.silent] == [NodeId(4), NodeId(5)]


def test_the_highest_ballot_identifies_the_newest_value() -> None:
    five = msgspec.structs.replace(OLD, voters=tuple(Voter(peer(n), n) for n in (1, 4, 5, 6, 7)))
    six = msgspec.structs.replace(five, committed=CheckpointId(2, 8))
    left = votes(1, six, Ballot(9, NodeId(1), 1)), votes(6, five)
    assert judge(*left, without=(4, 5, 7)).value == six


@pytest.mark.parametrize(
    ("acknowledged_value", "newest"), [(NEWER, NEWER), (LATEST, LATEST), (None, OLD), (value(1), OLD)]
)
def test_a_value_that_a_host_received_counts_when_it_is_newer(
    acknowledged_value: RegisterValue | None, newest: RegisterValue
) -> None:
    found = judge(votes(1, OLD), hosts(2, acknowledged_value))
    assert found.value == newest
    assert found.is_from_host is (newest is not OLD)


def test_hosts_alone_suffice_for_quorum_recovery() -> None:
    found = judge(hosts(2, NEWER), hosts(3, OLD), without=(1, 4, 5))
    assert not found.refusal
    assert found.value == NEWER


def test_recovery_chooses_its_proposer_and_the_next_voters() -> None:
    left = votes(1, OLD), hosts(2), hosts(3), hosts(6)
    found = judge(*left)
    leader = leader_of(RUN, found, left)
    assert leader == peer(1), "a voter that is left"
    assert choose_new_voters(found, left, leader) == (peer(1), peer(6), peer(2)), "those first that host nothing"
    assert choose_new_voters(found, left[:2], leader) == (peer(1),), "two are no better than one"


def test_a_new_configuration_is_numbered_above_all_earlier_ones() -> None:
    ballot = Ballot(77, NodeId(5), 3)
    left = votes(1, OLD, ballot), hosts(2)
    after, below = recovered_value(judge(*left), left, (Voter(peer(1), 1),), "an admin")
    assert after.quorum_generation == OLD.quorum_generation + 1
    assert after.attempt > OLD.attempt + 100_000
    assert below > ballot
    assert after.configuration == below.configuration == 1
    assert after.is_first_of_configuration
    assert (after.committed, after.saved) == (OLD.committed, OLD.saved)
    assert after.left == (NodeId(4), NodeId(5))
    again, above = recovered_value(
        judge(votes(1, after, below), without=()), [votes(1, after, below)], after.voters, "again"
    )
    assert again.configuration == above.configuration == 2


class VoterSlotMade:
    """A voter of the old side, and what it says."""

    def __init__(self) -> None:
        self.observed: list[Observation] = []
        self.context = context(1, self.observed)
        self.voter_slot = VoterSlot(self.context, VoterFile(RUN, 1, NOW, Stamp(NOW, 1), OLD))
        self.coordinator = Coordinator(self.context, self.voter_slot)
        self.files: list[VoterFile] = []
        self.said()

    def said(self) -> list[Message]:
        """Since the last look."""
        acknowledged_value: list[Message] = []
        while self.context.effects or self.context.outbox:
            effects, self.context.effects = self.context.effects, []
            acknowledged_value += [
                effect.message for effect in effects if isinstance(effect, Send)
            ] + self.context.outbox
            self.context.outbox = []
            for effect in effects:
                if isinstance(effect, StoreVoter):
                    self.files.append(effect.file)
                    self.context.answered(effect.request, None, "")
        return acknowledged_value

    def takes_over(self) -> bool:
        """Whether it asks voters, after a minute of silence."""
        self.context.now += 60_000_000_000  # type: ignore[assignment]
        self.coordinator.on_tick()
        return any(isinstance(one, wire.Prepare) for one in self.said())


def later() -> tuple[RegisterValue, Ballot]:
    left = votes(6, OLD), hosts(2)
    after, below = recovered_value(judge(*left, without=(1, 4, 5)), left, (Voter(peer(6), 6),), "an admin")
    return after, Ballot(below.round + 1, NodeId(6), 1)


def test_a_removed_voter_stops_when_it_is_refused() -> None:
    side = VoterSlotMade()
    assert side.takes_over()
    _, ballot = later()
    side.coordinator.leadership.on_refused(peer(6), wire.BallotRefused(RUN, side.coordinator.proposer.ballot, ballot))
    side.said()
    assert side.coordinator.phase is Phase.FOLLOWING
    assert [one.reported_by for one in side.observed if isinstance(one, VoterExcluded)] == [NodeId(6)]
    assert not side.takes_over()
    assert side.files[-1].promised == ballot, "also after a restart"
    side.voter_slot.on_prepare(peer(4), wire.Prepare(RUN, Ballot(99, NodeId(4), 1)))
    assert side.said() == [wire.BallotRefused(RUN, Ballot(99, NodeId(4), 1), ballot)], "and tells its like"


def test_a_leader_notifies_a_removed_voter() -> None:
    side = VoterSlotMade()
    _, ballot = later()
    side.coordinator.leadership.on_leader_announced(peer(6), wire.LeaderAnnounced(RUN, ballot))
    assert not side.takes_over()
    side.coordinator.leadership.on_leader_announced(peer(4), wire.LeaderAnnounced(RUN, Ballot(99, NodeId(4), 1)))
    assert side.said()[-1] == wire.BallotRefused(RUN, Ballot(99, NodeId(4), 1), ballot)


def test_another_nodes_ballot_ends_nothing() -> None:
    side = VoterSlotMade()
    side.coordinator.leadership.on_leader_announced(peer(7), wire.LeaderAnnounced(RUN, later()[1]))
    assert side.voter_slot.promised == NOW, "it was not the owner of the ballot"


def test_a_voter_takes_no_value_of_an_older_generation() -> None:
    side = VoterSlotMade()
    after, ballot = later()
    side.voter_slot.on_accept(peer(6), wire.Accept(RUN, Stamp(ballot, 1), after))
    side.voter_slot.on_accept(peer(4), wire.Accept(RUN, Stamp(Ballot(ballot.round + 5, NodeId(4), 1), 1), NEWER))
    assert side.voter_slot.value == after
