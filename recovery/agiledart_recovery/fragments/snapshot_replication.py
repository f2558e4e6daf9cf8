"""Replication of one snapshot, on the owner's side: n fragments to n replica nodes, at the same time.

| state | trigger |
|---|---|
| SENDING | each acknowledgement; a replica node that fails is replaced at once while there is another candidate |
| SAFE | all n acknowledged; or `ack_timeout` passed and at least m + 1 have (degraded: `survives` says how many losses) |
| LOST | `ack_timeout` passed, fewer have, and none is on its way any more |

The awkward case: an acknowledgement after the snapshot became SAFE. It still counts for repair (`snapshot` names the replica
node from then on). The register's record has what was known when the instance sent PREPARED: it never promises more than was
true.
"""

from collections.abc import Callable
from enum import Enum

from agiledart_kernel.node_id import NodeId
from agiledart_recovery.fragments.arithmetic import is_safe
from agiledart_recovery.fragments.placement import FragmentPlacement, replacements
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire.effects import FragmentKey, SendFragment
from agiledart_recovery.wire.names import CheckpointId, InstanceId, RunId
from agiledart_recovery.wire.register_value import InstanceSnapshot


class ReplicationOutcome(Enum):
    """Outcome of a replication; the module's head has the table."""

    SENDING = "sending"
    SAFE = "safe"
    LOST = "lost"


class SnapshotReplication:
    """Replication of one snapshot. `then` is called once, when the outcome is known."""

    def __init__(
        self,
        context: RecoveryContext,
        run: RunId,
        instance: InstanceId,
        snapshot: InstanceSnapshot,
        spread: FragmentPlacement,
        then: Callable[["SnapshotReplication"], None],
    ) -> None:
        self._context, self.run, self.instance, self._spread, self._then = context, run, instance, spread, then
        self.outcome = ReplicationOutcome.SENDING
        self._is_late = False
        self._sending = 0
        self._to = list(spread.replica_nodes)
        self._have: list[NodeId] = [NodeId(0)] * len(spread.replica_nodes)
        self._failed: dict[NodeId, None] = {}
        self._about = snapshot
        for index in range(len(self._to)):
            self._send(index)
        self._look()

    @property
    def snapshot(self) -> InstanceSnapshot:
        """Return the snapshot with the replica nodes that have acknowledged."""
        about = self._about
        return InstanceSnapshot(about.checkpoint, about.digest, about.length, self._spread.m, tuple(self._have))

    @property
    def checkpoint(self) -> CheckpointId:
        """Return the checkpoint of the snapshot."""
        return self._about.checkpoint

    def _send(self, index: int) -> None:
        self._sending += 1
        replica_node = self._to[index]
        key = FragmentKey(self.run, self.instance, self.checkpoint, index)
        snapshot = InstanceSnapshot(
            self.checkpoint, self._about.digest, self._about.length, self._spread.m, self._spread.replica_nodes
        )
        self._context.ask(
            self.run,
            lambda request: SendFragment(request, replica_node, key, snapshot, self.checkpoint.attempt),
            lambda _, reason: self._answered(index, replica_node, reason),
        )

    def _answered(self, index: int, replica_node: NodeId, reason: str) -> None:
        self._sending -= 1
        if not reason:
            self._have[index] = replica_node
        else:
            self._failed[replica_node] = None
            other = replacements(self._context.me, self._to, tuple(self._failed), self._context.candidates).get(index)
            if other is not None:
                self._to[index] = other
                self._send(index)
        self._look()

    def on_timeout(self) -> None:
        """Finish the replication because `ack_timeout` has passed, or as soon as enough have acknowledged."""
        self._is_late = True
        self._look()

    def _look(self) -> None:
        if self.outcome is not ReplicationOutcome.SENDING:
            return
        # A node that knows no other host has only its own disk, and the epoch's record says so: it survives no loss.
        safe = is_safe(self.snapshot, self._spread.m) if self._to else True
        if all(self._have) or (self._is_late and (safe or not self._sending)):
            self.outcome = ReplicationOutcome.SAFE if safe else ReplicationOutcome.LOST
            self._then(self)
