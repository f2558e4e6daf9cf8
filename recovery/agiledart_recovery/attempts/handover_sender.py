"""Sender of hand-overs: an old instance's snapshot at a change's barrier, sent to each host of the new generation until
acknowledged.

The snapshot is announced as soon as it lies on this disk: only the commit waits until it is safely replicated. A host that
could not fetch it from here is sent the names of its replica nodes.
"""

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import InstanceId, RunId
from agiledart_recovery.wire.register_value import Plan, SavedState


class HandoverSender:
    """Hand-over messages of this host's old instances that some hosts have not acknowledged."""

    def __init__(self, context: RecoveryContext, run: RunId) -> None:
        self._context, self._run = context, run
        self._owed: dict[tuple[NodeId, InstanceId], tuple[Peer, wire.StateHandedOver]] = {}
        self._announced: dict[tuple[int, InstanceId], None] = {}

    def hand_over(self, attempt: int, epoch: int, saved: SavedState, after: Plan) -> None:
        """Announce an instance's snapshot of the change's barrier. If its stage changes, the instance has stopped for good."""
        stage, instance = saved.instance.stage, saved.instance
        if all(change.stage != stage for change in after.changes):
            return
        message = wire.StateHandedOver(self._run, attempt, epoch, after.digest, saved)
        is_first = (epoch, instance) not in self._announced
        self._announced[epoch, instance] = None
        for assignment in after.stage(stage):
            if is_first or (assignment.host.node, instance) in self._owed:
                self._owed[assignment.host.node, instance] = (assignment.host, message)
        self.repeat()

    def repeat(self) -> None:
        """Send the hand-over again to hosts that have not acknowledged it."""
        for peer, message in tuple(self._owed.values()):
            self._context.send(peer, message)

    def on_ok(self, sender: Peer, message: wire.StateHandedOverOk) -> None:
        """Note that a host has the snapshot."""
        known = self._owed.get((sender.node, message.instance))
        if known is not None and (known[1].attempt, known[1].epoch) == (message.attempt, message.epoch):
            del self._owed[sender.node, message.instance]

    def forget(self) -> None:
        """Drop all hand-overs: a new attempt hands nothing over."""
        self._owed, self._announced = {}, {}
