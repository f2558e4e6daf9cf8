"""Quorum loss: an admin believes that two of three voters are gone for ever, and continues the run without them. Later they are
back.

Either they have died, or they are only cut off, which the admin cannot tell.
"""

from collections.abc import Sequence

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.register.quorum_recovery import (
    QuorumRecoveryCheck,
    RegisterStatuses,
    check_quorum_recovery,
    choose_new_voters,
    leader_of,
    recovered_value,
)
from agiledart_recovery.wire.events import MakeVoterSlot, RecoverQuorum
from agiledart_recovery.wire.names import RunId, Voter
from agiledart_recovery.wire.register_value import RegisterValue, RunState
from agiledart_simulation.pipeline.recovery_host import SIGNED_COMMAND
from agiledart_simulation.runs.protocol_run import ProtocolRun

_AWAY_S = 40


class QuorumLoss:
    """Fault that takes a majority of the voters away, once in a run."""

    def __init__(self, run: ProtocolRun, about: RunId) -> None:
        self._run, self._about, self._is_done = run, about, False

    def lose_quorum(self) -> bool:
        """Apply the fault; return false when it can't happen now."""
        run, value = self._run, self._run.ledger.newest
        if self._is_done or value is None or value.state is not RunState.RUNNING or not value.attempt:
            return False
        voters = [voter.peer.node for voter in value.voters]
        if len(voters) != 3 or value.old_voters:
            return False
        run.random.shuffle(voters)
        lost = voters[:2]
        if run.random.index(2):
            self._admin(lost, "premature")  # nothing has happened yet, so the command must be refused
        self._is_done = True
        self._part(lost)
        for node in run.ids:
            if node not in lost:
                run.start(node)
        run.wait((3 + run.random.index(6)) * SECOND)
        return self._admin(lost, "quorum recovered")

    def _part(self, lost: Sequence[NodeId]) -> None:
        run = self._run
        run.world.heal()
        if run.random.index(2) or self._goes_on(lost):
            for node in lost:
                if run.world.nodes[node].is_up:
                    run.crash(node, is_power=bool(run.random.index(2)))
                run.stays_down[node] = run.world.now + run.random.index(_AWAY_S) * SECOND
        else:
            for node in lost:
                run.start(node)
            run.world.network.partition(tuple(lost))
            run.world.call((10 + run.random.index(_AWAY_S)) * SECOND, run.world.heal)

    def _goes_on(self, lost: Sequence[NodeId]) -> bool:
        """Return whether these, a majority, would continue the run by themselves.

        Of two runs one deletes what the other needs; no protocol helps an admin who declares such voters lost.
        """
        value = self._run.ledger.newest
        return value is not None and all(
            assignment.host.node in lost for assignment in value.plan.assignments if assignment.is_pinned
        )

    def _statuses(self, lost: Sequence[NodeId], *, is_parted: bool) -> RegisterStatuses:
        """Return the statuses that reach the admin: of all nodes that are up, except those that are cut off."""
        run = self._run
        cut = [node for node in lost if any(run.world.network.is_cut(node, other) for other in run.ids)]
        return [
            (host.me, host.machine.register_status(self._about))
            for host in run.hosts
            if run.world.now >= run.world.nodes[host.me.node].paused_until and not (is_parted and host.me.node in cut)
        ]

    def _admin(self, lost: Sequence[NodeId], what: str) -> bool:
        run = self._run
        statuses = self._statuses(lost, is_parted=what == "quorum recovered")
        check = check_quorum_recovery(self._about, statuses, lost, lambda node: node.short)
        leader = leader_of(self._about, check, statuses)
        if check.refusal or leader is None or check.value is None or not self._is_whole(check.value):
            run.reached(f"{what}: refused")
            return False
        self._watch(check)
        chosen = choose_new_voters(check, statuses, leader)
        for peer in chosen:
            run.world.inject(peer.node, MakeVoterSlot(self._about))
        run.world.run_for(20 * MILLISECOND)
        voter_slots = [run.world.nodes[peer.node].machine.machine.voter_slots.get(self._about) for peer in chosen]
        voters = tuple(
            Voter(peer, voter_slot.voter_slot)
            for peer, voter_slot in zip(chosen, voter_slots, strict=True)
            if voter_slot is not None
        )
        value, below = recovered_value(check, statuses, voters, "without those", SIGNED_COMMAND)
        run.world.inject(leader.node, RecoverQuorum(value, below))
        run.reached(what)
        if check.is_from_host:
            run.reached("known from a host")
        return True

    def _is_whole(self, value: RegisterValue) -> bool:
        """Return whether all that this value needs still exists: epochs that only lost voters know may have deleted it."""
        newest = self._run.ledger.newest
        return newest is not None and newest.committed.epoch <= value.committed.epoch + 1

    def _watch(self, found: QuorumRecoveryCheck) -> None:
        """Check R1: no run continues without voters of which a majority answers."""
        run, newest = self._run, self._run.ledger.newest
        assert newest is not None
        up = [host.me.node for host in run.hosts if run.world.now >= run.world.nodes[host.me.node].paused_until]
        cut = [node for node in up if any(run.world.network.is_cut(node, other) for other in run.ids)]
        voter_slots = {
            host.me.node: voter_slot.voter_slot
            for host in run.hosts
            if (voter_slot := host.machine.voter_slots.get(self._about)) is not None
        }
        # A node that lost its disk is up, but no longer that voter.
        mine = [voter for voter in newest.voters if voter_slots.get(voter.peer.node) == voter.voter_slot]
        there = [voter for voter in mine if voter.peer.node in up and voter.peer.node not in cut]
        if 2 * len(there) > len(newest.voters):
            run.ledger.complain(
                f"R1: {len(there)} of {len(newest.voters)} voters answer, and the run continues without them"
            )
