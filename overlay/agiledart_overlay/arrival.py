"""What a new member does once it is in: it presents itself to all who should have it in their tables, until they answer.

Called from one place after the node has become a member (`begin`), and again when others hold it for dead (`on_accused`).

Source: [Pastry] §2.4 (node arrival); the project's overlay specification §5, steps 4 and 6.
"""

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.messages import Accused, Announce, LeafState
from agiledart_overlay.view import View

_TRIES = 3
"""Times an announcement is sent before its receiver counts as silent."""


class Announcement:
    """One peer that was told and has not answered yet."""

    __slots__ = ("number", "peer", "sent_at", "tries")

    def __init__(self, peer: Peer, number: int, sent_at: Instant) -> None:
        self.peer, self.number, self.sent_at, self.tries = peer, number, sent_at, 1


class Arrival:
    """Announcements of one node, both sides."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._waiting: dict[NodeId, Announcement] = {}

    def begin(self, others: tuple[Peer, ...] = ()) -> None:
        """This node is a member now: tell all known peers, and some others that the join told of."""
        self.announce(others)

    def stop(self) -> None:
        """This node is no member any more."""
        self._waiting.clear()
        self._view.cancel_timer("announce")

    def announce(self, others: tuple[Peer, ...] = ()) -> None:
        """Tell all known peers, and some others, that this node is a member; repeated to those that do not answer."""
        view = self._view
        for peer in {peer.node: peer for peer in (*view.known(), *others)}.values():
            self._tell(peer)
        if self._waiting:
            view.set_timer("announce", view.now + 2 * view.config.probe_timeout_ns)

    def _tell(self, peer: Peer) -> None:
        announcement = Announcement(peer, self._view.number(), self._view.now)
        self._waiting[peer.node] = announcement
        self._send(announcement)

    def _send(self, announcement: Announcement) -> None:
        """Leaves get the leaf set with it; to the others, whose leaves are far away, it would say nothing."""
        view = self._view
        state = view.leaf_sightings() if announcement.peer.node in view.leaf_set else ()
        view.send(announcement.peer, Announce(announcement.number, view.refutations, state))

    def on_timer(self) -> None:
        """Announce again to those that did not answer."""
        view = self._view
        for announcement in list(self._waiting.values()):
            if announcement.tries >= _TRIES or view.book.is_dead(announcement.peer, 0):
                del self._waiting[announcement.peer.node]
            else:
                announcement.tries += 1
                self._send(announcement)
        if self._waiting:
            view.set_timer("announce", view.now + 2 * view.config.probe_timeout_ns)

    def on_leaf_state(self, sender: Peer, message: LeafState) -> None:
        """Somebody answered an announcement."""
        announcement = self._waiting.get(sender.node)
        if announcement is not None and announcement.number == message.number:
            del self._waiting[sender.node]
            self._view.measure(sender.node, announcement.sent_at)

    def on_announce(self, sender: Peer, message: Announce) -> None:
        """A new member, or one back from the dead; the caller has put it into the tables."""
        view = self._view
        view.hear_of(message.sightings)
        leaves = view.leaf_sightings() if sender.node in view.leaf_set else ()
        view.send(sender, LeafState(message.number, view.refutations, joined=True, sightings=leaves))

    def on_accused(self, sender: Peer, message: Accused) -> None:
        """Somebody holds this node for dead: refute, and announce to all, because others will too."""
        view = self._view
        if message.refutations >= view.refutations:
            view.refutations = message.refutations + 1
            self.announce((sender,))
        elif sender.node not in self._waiting:
            self._tell(sender)
            view.set_timer_by("announce", view.now + 2 * view.config.probe_timeout_ns)
