"""A state of the committed epoch is lost for ever: with its host, and with every fragment of what it saved last.

Only where the run may go back and the epoch before is whole, and while nothing newer was saved: what is looked at is the way back,
not whether more is lost than can be. Nor is it a host with a part of a sink: away when the run ends, it does not hear up to where
that is committed, which is a stated limit of sinks that move.
"""

from collections.abc import Iterator

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_recovery.wire.names import CheckpointId, RunId
from agiledart_recovery.wire.register_value import Assignment, InstanceRole, RegisterValue, RunState
from agiledart_simulation.runs.protocol_run import ProtocolRun

_MOMENTS = 200
"""Looks at the run, 20 ms apart, for a moment in which nothing newer was saved."""

_AWAY_S = 20


class StateLoss:
    """Destroys elements of stages."""

    def __init__(self, run: ProtocolRun, about: RunId) -> None:
        self._run, self._about = run, about

    def lose(self) -> bool:
        """Let it happen; false when it can't now."""
        run = self._run
        if len(run.hosts) <= len(run.ids) - run.scenario.max_down:
            return False
        for _ in range(_MOMENTS):
            value = run.ledger.newest
            found = list(self._destructible(value)) if value is not None else []
            if found:
                self._destroy(*run.random.choice(found))
                return True
            run.world.run_for(20 * MILLISECOND)
        return False

    def _destructible(self, value: RegisterValue) -> Iterator[tuple[Assignment, CheckpointId]]:
        """Parties, with what they saved last, without which the epoch before is as whole as it was."""
        if value.state is not RunState.RUNNING or value.fallback_checkpoint is None or value.rolled_back_to is not None:
            return
        disks, parts = self._run.disks, [end.host for end in value.parts]
        free = [host.me.node for host in self._run.hosts if host.me.node not in parts]
        kept = {(saved.instance, snapshot.checkpoint): snapshot for saved in value.before for snapshot in saved.chain}
        newest = {saved.instance: saved.chain[-1] for saved in value.saved if saved.chain}
        if any(key in self._run.ledger.destroyed for key in value.needed):
            return
        for (instance, _), snapshot in kept.items():
            if any(snapshot.replica_nodes) and self._run.ledger.fragments(self._about, instance, snapshot) < snapshot.m:
                return
        for each in value.plan.of(InstanceRole.STAGE):
            last = newest.get(each.instance)
            if last is None or (each.instance, last.checkpoint) in kept or each.host.node not in free:
                continue
            is_newer = any(
                instance == each.instance and checkpoint.epoch > value.committed.epoch
                for disk in disks.values()
                for instance, checkpoint in disk.snapshots
            )
            if not is_newer:
                yield each, last.checkpoint

    def _destroy(self, each: Assignment, checkpoint: CheckpointId) -> None:
        run, node = self._run, each.host.node
        run.crash(node, is_power=bool(run.random.index(2)))
        run.stays_down[node] = run.world.now + run.random.index(_AWAY_S) * SECOND
        run.ledger.destroyed[each.instance, checkpoint] = None
        for disk in run.disks.values():
            disk.snapshots.pop((each.instance, checkpoint), None)
            for key in [key for key in disk.fragments if (key.instance, key.checkpoint) == (each.instance, checkpoint)]:
                del disk.fragments[key]
                disk.owners.pop(key, None)
