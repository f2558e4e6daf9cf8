"""What an old instance hands over at a change's barrier: its element, told to each host of the new term until it has it.

It is told when it lies on this disk: nobody waits until it is safe but the commit. Who could not fetch it here is told of its
holders.
"""

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import InstanceId, RunId
from agiledart_recovery.wire.register_value import Plan, SavedState


class HandoverSender:
    """Words of this host's old instances that not everybody has acknowledged."""

    def __init__(self, context: RecoveryContext, run: RunId) -> None:
        self._context, self._run = context, run
        self._owed: dict[tuple[NodeId, InstanceId], tuple[Peer, wire.StateHandedOver]] = {}
        self._announced: dict[tuple[int, InstanceId], None] = {}

    def hand_over(self, attempt: int, epoch: int, saved: SavedState, after: Plan) -> None:
        """A party's element of the change's barrier is here, or safe; when its stage changes, it has stopped for good."""
        stage, instance = saved.instance.stage, saved.instance
        if all(change.stage != stage for change in after.changes):
            return
        message = wire.StateHandedOver(self._run, attempt, epoch, after.digest, saved)
        is_first = (epoch, instance) not in self._announced
        self._announced[epoch, instance] = None
        for each in after.stage(stage):
            if is_first or (each.host.node, instance) in self._owed:
                self._owed[each.host.node, instance] = (each.host, message)
        self.repeat()

    def repeat(self) -> None:
        """Tell whoever has not acknowledged it."""
        for peer, message in tuple(self._owed.values()):
            self._context.send(peer, message)

    def on_ok(self, sender: Peer, message: wire.StateHandedOverOk) -> None:
        """A host has it."""
        known = self._owed.get((sender.node, message.instance))
        if known is not None and (known[1].attempt, known[1].epoch) == (message.attempt, message.epoch):
            del self._owed[sender.node, message.instance]

    def forget(self) -> None:
        """A new life hands nothing over."""
        self._owed, self._announced = {}, {}
