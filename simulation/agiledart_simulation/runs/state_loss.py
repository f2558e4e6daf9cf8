"""State loss: a state of the committed epoch is lost for ever, with its host and every fragment of its last snapshot.

It happens only where the run may roll back and the previous epoch is complete, and while nothing newer was saved. The run tests
the roll-back, not whether more is lost than possible. Hosts with a part of a sink are excluded: one that is away when the run
ends does not learn up to where its part is committed, which is a stated limit of sinks that move.
"""

from collections.abc import Iterator

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_recovery.wire.names import CheckpointId, RunId
from agiledart_recovery.wire.register_value import Assignment, InstanceRole, RegisterValue, RunState
from agiledart_simulation.runs.protocol_run import ProtocolRun

_MOMENTS = 200
"""Checks of the run, 20 ms apart, for a moment in which nothing newer was saved."""

_AWAY_S = 20


class StateLoss:
    """Fault that destroys snapshots of stages."""

    def __init__(self, run: ProtocolRun, about: RunId) -> None:
        self._run, self._about = run, about

    def lose(self) -> bool:
        """Apply the fault; return false when it can't happen now."""
        run = self._run
        if len(run.hosts) <= len(run.ids) - run.scenario.max_down:
            return False
        for _ in range(_MOMENTS):
            value = run.ledger.newest
            candidates = list(self._destructible(value)) if value is not None else []
            if candidates:
                self._destroy(*run.random.choice(candidates))
                return True
            run.world.run_for(20 * MILLISECOND)
        return False

    def _destructible(self, value: RegisterValue) -> Iterator[tuple[Assignment, CheckpointId]]:
        """Return instances and their last snapshots without which the previous epoch is as complete as it was."""
        if value.state is not RunState.RUNNING or value.fallback_checkpoint is None or value.rolled_back_to is not None:
            return
        disks, parts = self._run.disks, [end.host for end in value.parts]
        free = [host.me.node for host in self._run.hosts if host.me.node not in parts]
        previous_snapshots = {
            (saved.instance, snapshot.checkpoint): snapshot for saved in value.before for snapshot in saved.chain
        }
        newest = {saved.instance: saved.chain[-1] for saved in value.saved if saved.chain}
        if any(key in self._run.ledger.destroyed for key in value.needed):
            return
        for (instance, _), snapshot in previous_snapshots.items():
            if any(snapshot.replica_nodes) and self._run.ledger.fragments(self._about, instance, snapshot) < snapshot.m:
                return
        for assignment in value.plan.of(InstanceRole.STAGE):
            last = newest.get(assignment.instance)
            if (
                last is None
                or (assignment.instance, last.checkpoint) in previous_snapshots
                or assignment.host.node not in free
            ):
                continue
            is_newer = any(
                instance == assignment.instance and checkpoint.epoch > value.committed.epoch
                for disk in disks.values()
                for instance, checkpoint in disk.snapshots
            )
            if not is_newer:
                yield assignment, last.checkpoint

    def _destroy(self, assignment: Assignment, checkpoint: CheckpointId) -> None:
        run, node = self._run, assignment.host.node
        run.crash(node, is_power=bool(run.random.index(2)))
        run.stays_down[node] = run.world.now + run.random.index(_AWAY_S) * SECOND
        run.ledger.destroyed[assignment.instance, checkpoint] = None
        for disk in run.disks.values():
            disk.snapshots.pop((assignment.instance, checkpoint), None)
            for key in [
                key for key in disk.fragments if (key.instance, key.checkpoint) == (assignment.instance, checkpoint)
            ]:
                del disk.fragments[key]
                disk.owners.pop(key, None)
