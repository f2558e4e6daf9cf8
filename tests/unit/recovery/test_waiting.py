"""A run names the nodes that it waits for: voters without whom nothing counts, replica nodes without which a state
cannot be rebuilt.
"""

from typing import Any

from agiledart_kernel.instants import MILLISECOND, SECOND, Instant
from agiledart_kernel.machine import Completed, Received, Send, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.attempts.coordinator import Coordinator
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import RequestEffect, VoterFile
from agiledart_recovery.wire.events import Booted, HostBack
from agiledart_recovery.wire.names import Ballot, CheckpointId, Stamp
from agiledart_recovery.wire.register_value import RunState
from tests.unit.recovery.bench import RUN, peer, value


class World:
    """Node 1, a voter; others answer as a test says."""

    def __init__(self, *voters: int) -> None:
        self.machine = RecoveryMachine(peer(1), RecoveryConfig(), RandomStream(1), lambda observation: None)
        self.voters, self.now = voters, Instant(0)
        self.lacks: tuple[NodeId, ...] = ()
        self.silent: tuple[int, ...] = ()
        self.attempts: dict[int, None] = {}
        kept = VoterFile(
            RUN, 1, Ballot(1, NodeId(1), 1), Stamp(Ballot(1, NodeId(1), 1), 1), value(1, CheckpointId(1, 1))
        )
        self.carry_out(self.machine.step(Booted((kept,)), self.now))

    @property
    def coordinator(self) -> Coordinator:
        return self.machine.coordinators[RUN]

    def carry_out(self, effects: Any) -> None:
        queue = list(effects)
        while queue:
            effect = queue.pop(0)
            if isinstance(effect, Send):
                answer = self.answer(effect.to, effect.message)
                if answer is not None:
                    queue += self.machine.step(Received(effect.to, answer), self.now)
            elif isinstance(effect, RequestEffect):
                queue += self.machine.step(Completed(effect.request), self.now)

    def answer(self, to: Peer, asked: Any) -> Any:
        voter_slot = int(to.node)
        if isinstance(asked, wire.Prepare | wire.Accept | wire.LeaderAnnounced):
            if voter_slot not in self.voters:
                return None
            if isinstance(asked, wire.Prepare):
                return wire.Promise(RUN, asked.ballot, voter_slot, Stamp(), None)
            if isinstance(asked, wire.Accept):
                return wire.Accepted(RUN, asked.stamp, voter_slot)
            return wire.LeaderAcknowledged(RUN, asked.ballot, voter_slot)
        if isinstance(asked, wire.Reset) and voter_slot not in self.silent:
            self.attempts[asked.value.attempt] = None
            if voter_slot == 2:
                return wire.ResetRefused(RUN, asked.value.attempt, "too few fragments", self.lacks)
            return wire.ResetOk(RUN, asked.value.attempt, asked.value.committed.epoch, ())
        return None

    def run(self, seconds: float) -> None:
        until = self.now + int(seconds * SECOND)
        while self.now < until:
            self.now = Instant(self.now + 500 * MILLISECOND)
            self.carry_out(self.machine.step(TimerFired((RUN, "tick")), self.now))


def test_a_voter_without_a_majority_reports_which_voters_it_waits_for() -> None:
    world = World()
    world.run(20)
    progress = world.coordinator.progress
    assert (progress.phase, progress.waits_for) == ("waiting", (NodeId(4), NodeId(5)))
    assert world.coordinator.known is not None
    assert not world.attempts


def test_a_leader_reports_silent_voters_and_continues_when_they_are_back() -> None:
    world = World(4, 5)
    world.run(20)
    assert world.coordinator.progress.waits_for != (NodeId(4), NodeId(5))
    world.voters = ()
    world.run(10)
    progress = world.coordinator.progress
    assert (progress.phase, progress.waits_for) == ("waiting", (NodeId(4), NodeId(5)))
    world.voters = (5,)
    world.run(10)
    assert world.coordinator.progress.waits_for != (NodeId(4), NodeId(5))


def test_an_unrecoverable_state_is_waited_for_and_uses_no_attempt() -> None:
    """Ten attempts in ten minutes are the end of a run whose code breaks; not of one whose fragments are away."""
    world = World(4, 5)
    world.lacks = (NodeId(6), NodeId(7))
    world.run(1_200)
    progress = world.coordinator.progress
    assert (progress.phase, progress.waits_for) == ("waiting", world.lacks)
    assert world.coordinator.value.state is RunState.RUNNING
    attempts = len(world.attempts)
    assert 10 < attempts < 30  # one a minute, not one a second
    world.carry_out(world.machine.step(HostBack(peer(6)), world.now))
    world.run(2)
    assert len(world.attempts) == attempts + 1


def test_replica_nodes_of_a_state_are_named_although_other_hosts_cannot_answer() -> None:
    """They wait for the addresses of that host's instances."""
    world = World(4, 5)
    world.lacks, world.silent = (NodeId(6), NodeId(7)), (3,)
    world.run(40)
    progress = world.coordinator.progress
    assert (progress.phase, progress.waits_for) == ("waiting", world.lacks)
    assert len(world.attempts) < 3
