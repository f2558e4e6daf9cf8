"""What an old instance hands over at a change's barrier: its element, told to each host of the new term until it has it.

It is told when it lies on this disk: nobody waits until it is safe but the commit. Who could not fetch it here is told of its
holders.
"""

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.desk import Desk
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import Party, Run
from agiledart_recovery.wire.value import Plan, Saved


class Handing:
    """Words of this host's old instances that not everybody has acknowledged."""

    def __init__(self, desk: Desk, run: Run) -> None:
        self._desk, self._run = desk, run
        self._owed: dict[tuple[NodeId, Party], tuple[Peer, wire.Handed]] = {}
        self._told: dict[tuple[int, Party], None] = {}

    def hand_over(self, life: int, epoch: int, saved: Saved, after: Plan) -> None:
        """A party's element of the change's barrier is here, or safe; when its stage changes, it has stopped for good."""
        stage, party = saved.party.stage, saved.party
        if all(change.stage != stage for change in after.changes):
            return
        message = wire.Handed(self._run, life, epoch, after.digest, saved)
        is_first = (epoch, party) not in self._told
        self._told[epoch, party] = None
        for each in after.stage(stage):
            if is_first or (each.host.node, party) in self._owed:
                self._owed[each.host.node, party] = (each.host, message)
        self.repeat()

    def repeat(self) -> None:
        """Tell whoever has not acknowledged it."""
        for peer, message in tuple(self._owed.values()):
            self._desk.send(peer, message)

    def on_ok(self, sender: Peer, message: wire.HandedOk) -> None:
        """A host has it."""
        known = self._owed.get((sender.node, message.party))
        if known is not None and (known[1].life, known[1].epoch) == (message.life, message.epoch):
            del self._owed[sender.node, message.party]

    def forget(self) -> None:
        """A new life hands nothing over."""
        self._owed, self._told = {}, {}
