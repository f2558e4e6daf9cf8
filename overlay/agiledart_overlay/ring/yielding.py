"""The successor's side of an admission: it stops for the joiner's keys, offers them, and waits for what comes of it.

    settled   Yield of the predecessor →     yielded: stops for the joiner's keys; Place → joiner
    yielded   the same Yield again →         Place again
    yielded   Renew of the joiner →          settled: the joiner is the predecessor now
    yielded   Unyield of guardian or joiner → settled: the keys are its own again; Unyielded back
    yielded   time over →                    asks guardian and joiner every round. It never takes back on its own, so that
                                             guardian and successor cannot disagree about who is between them
    yielded   guardian dead, both silent `dead_after` after the time was over → settled: its predecessor is dead

Source: the project's overlay specification §5, step 7 c and e.
"""

from agiledart_kernel.peer import Peer
from agiledart_overlay.state.agreement import Yielded
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.ring_messages import Place, Renew, Unyield, Unyielded, WhatOfYield, Yield


def settle(view: View, sender: Peer, refutations: int) -> None:
    """A node speaks as this one's predecessor: if this node yielded to it, its guardian has confirmed it, and so it is."""
    agreed = view.agreed
    yielded = agreed.yielded
    if yielded is None or yielded.joiner.node != sender.node or yielded.joiner.incarnation != sender.incarnation:
        return
    agreed.finish(yielded.ticket)
    # It promised when it took the offer, which was after this node had yielded.
    agreed.predecessor.settle(sender, view.now, yielded.lease, view.now + view.config.lease_ns)
    agreed.yielded = None
    agreed.stirred = True
    view.meet(sender, refutations)
    if yielded.lease < view.now + view.config.lease_beat_ns:
        # Its promise as a joiner may end before this node asks it in its next round.
        view.send(sender, Renew(to_predecessor=True, at=view.now, refutations=view.refutations, name=agreed.name))


class Yielding:
    """Admissions between this node and its predecessor."""

    __slots__ = ("_view",)

    def __init__(self, view: View) -> None:
        self._view = view

    def on_yield(self, sender: Peer, message: Yield) -> None:
        """The predecessor lets somebody in."""
        view = self._view
        agreed = view.agreed
        if not agreed.is_fit(view.now):
            return
        settle(view, sender, 0)
        ticket, joiner = message.ticket, message.joiner
        if ticket[0] != sender.node or agreed.finished.get(sender.node, ticket) > ticket:
            return
        if agreed.finished.get(sender.node) == ticket or agreed.predecessor.is_dead:
            return
        is_ours = agreed.predecessor.is_life(sender) and agreed.is_between(sender, joiner.node, view.me)
        if not is_ours or (agreed.yielded is not None and agreed.yielded.ticket != ticket):
            return
        if agreed.yielded is None:
            admission_ns = view.config.admission_ns
            until, lease = view.now + admission_ns, view.now + agreed.held(admission_ns)
            agreed.yielded = Yielded(ticket, joiner, sender, until, lease)
        view.send(joiner, Place(ticket, view.refutations, view.leaf_sightings()))

    def on_unyield(self, sender: Peer, message: Unyield) -> None:
        """That admission came to nothing."""
        agreed = self._view.agreed
        ticket = message.ticket
        yielded = agreed.yielded
        if yielded is not None and yielded.ticket == ticket:
            if sender.node not in (yielded.guardian.node, yielded.joiner.node):
                return
            agreed.yielded = None
            agreed.stirred = True
            agreed.finish(ticket)
        elif ticket[0] == sender.node:
            agreed.finish(ticket)
        self._view.send(sender, Unyielded(ticket))

    def on_round(self) -> None:
        """The time is over: ask what came of it, or give both up."""
        view = self._view
        agreed, yielded = view.agreed, view.agreed.yielded
        if yielded is None or view.now <= yielded.until:
            return
        if agreed.predecessor.is_dead and view.now > yielded.until + view.config.dead_after_ns:
            agreed.finish(yielded.ticket)
            agreed.yielded = None
            agreed.stirred = True
            return
        for peer in (yielded.guardian, yielded.joiner):
            view.send(peer, WhatOfYield(yielded.ticket, yielded.joiner))
