"""Order of a node's incarnations: a later one ends the earlier; an earlier one is notified that it is over.

Incarnations are ordered by (incarnation, refutations); see `peer_book`. Every message passes here before any part receives it.
"""

from agiledart_kernel.machine import Message
from agiledart_kernel.peer import Peer
from agiledart_overlay.liveness.checks import Checks
from agiledart_overlay.state.view import View
from agiledart_overlay.wire import messages as wire
from agiledart_overlay.wire import ring_messages

_SELF_CLAIMS = (
    wire.PeerProbe,
    wire.ProbeAck,
    wire.LeafRequest,
    wire.LeafState,
    wire.Announce,
    wire.Announced,
    wire.LeafDigest,
    wire.Refute,
    ring_messages.InviteJoiner,
    ring_messages.OfferRange,
    ring_messages.RangeTaken,
    ring_messages.RenewLease,
    ring_messages.ProposeNeighbour,
    ring_messages.NeighbourAccepted,
    ring_messages.SeekPredecessor,
    ring_messages.RingProbe,
    ring_messages.RingState,
)
"""Messages that carry the sender's own refutations."""


class Incarnations:
    """Filter of all messages of one node."""

    __slots__ = ("_checks", "_view")

    def __init__(self, view: View, checks: Checks) -> None:
        self._view, self._checks = view, checks

    def accepts(self, sender: Peer, message: Message) -> bool:
        """Decide which incarnation of the sender speaks, before any part receives the message."""
        view = self._view
        known = view.book.alive.get(sender.node)
        if known is not None:
            if sender.incarnation == known.peer.incarnation:
                known.last_received_at = view.now
                self._checks.note_alive(sender.node)
                return True
            if sender.incarnation < known.peer.incarnation:
                self._refuse(sender, message, wire.JoinRefused(0, "incarnation", known.peer.incarnation))
                return False
            self._checks.mark_dead(known.peer, "restarted")
        tombstone = view.book.tombstone(sender.node)
        if tombstone is None or sender.incarnation > tombstone.peer.incarnation:
            return True
        if sender.incarnation < tombstone.peer.incarnation or tombstone.has_left:
            reason = "incarnation" if sender.incarnation < tombstone.peer.incarnation else "left"
            self._refuse(sender, message, wire.JoinRefused(0, reason, tombstone.peer.incarnation))
            return False
        refutations = message.refutations if isinstance(message, _SELF_CLAIMS) else 0
        is_due = tombstone.accused_at is None or view.now - tombstone.accused_at >= view.config.probe_timeout_ns
        if refutations <= tombstone.refutations and view.joined and is_due:
            tombstone.accused_at = view.now
            view.send(sender, wire.Accused(tombstone.refutations, tombstone.peer.incarnation))
        return True

    def _refuse(self, sender: Peer, message: Message, refusal: wire.JoinRefused) -> None:
        """Drop a message that is too late, or from a node restored from an old disk image, and notify its sender."""
        view = self._view
        view.drop("old-life")
        if view.joined and isinstance(message, _SELF_CLAIMS):
            view.send(sender, refusal)
