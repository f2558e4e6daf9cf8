"""Choice of the member from which a join starts: the nearest of the seeds, and of the members that they lead to.

The join takes its neighbourhood set and its first row from that member, so a near one gives near tables. All seeds are probed at
once; the first answer is the nearest. Its leaves are a sample of the ring, because their places are independent of their ids:
some are probed, and the search continues from a nearer one. A round lasts as long as the best round trip so far: later answers
come from farther nodes.

Source: [Pastry proximity] (finding a nearby node); the project's overlay specification §5, step 1.
"""

from collections.abc import Callable

from agiledart_kernel.instants import MILLISECOND, Instant
from agiledart_kernel.peer import Peer
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.messages import LeafRequest, LeafState, PeerProbe

_LEAST_NS = 1 * MILLISECOND
"""Round trips shorter than this are all near: no further search. Also the least length of a round."""


class Bootstrap:
    """Search of one joiner; calls `chosen` once, with the member to start from."""

    __slots__ = ("_asked", "_chosen", "_nearest", "_nearest_ns", "_rounds", "_sent_at", "_tried", "_view")

    def __init__(self, view: View, chosen: Callable[[Peer], None]) -> None:
        self._view = view
        self._chosen = chosen
        self._rounds = 0
        self._sent_at = Instant(0)
        self._nearest: Peer | None = None
        self._nearest_ns = 0
        self._asked: Peer | None = None
        self._tried: dict[int, None] = {}

    def begin(self, *, is_hurried: bool) -> None:
        """Begin after the seeds were probed; hurried: take the first one that answers."""
        view = self._view
        view.cancel_timer("nearer")
        self._rounds = 0 if is_hurried else view.config.bootstrap_rounds
        self._sent_at = view.now
        self._nearest = self._asked = None
        self._tried.clear()

    def stop(self) -> None:
        """Stop: the joiner needs no member any more."""
        self._nearest = self._asked = None
        self._view.cancel_timer("nearer")

    def on_member(self, sender: Peer) -> None:
        """Take a member's answer to a probe."""
        view = self._view
        took = view.now - self._sent_at
        if self._nearest is None:
            self._nearest, self._nearest_ns = sender, took
            self._tried[sender.node] = None
            self._request_leaves()
        elif took < self._nearest_ns:
            self._nearest, self._nearest_ns = sender, took

    def _request_leaves(self) -> None:
        """Ask the nearest member so far for its leaves, or choose it."""
        view = self._view
        assert self._nearest is not None
        if self._rounds <= 0 or self._nearest_ns < _LEAST_NS:
            self._choose()
            return
        self._rounds -= 1
        self._asked = self._nearest
        view.send(self._asked, LeafRequest(view.number(), view.refutations, joined=False))
        view.set_timer("nearer", view.now + 4 * self._nearest_ns)

    def on_leaf_state(self, sender: Peer, message: LeafState) -> None:
        """Probe some leaves of the nearest member."""
        view = self._view
        if self._asked is None or sender.node != self._asked.node:
            return
        strangers = [
            sighting.peer
            for sighting in message.sightings
            if sighting.peer.node not in self._tried and sighting.peer != view.me
        ]
        view.random.shuffle(strangers)
        self._sent_at = view.now
        for peer in strangers[: view.config.bootstrap_probes]:
            self._tried[peer.node] = None
            view.send(peer, PeerProbe(view.number(), view.refutations, joined=False))
        view.set_timer("nearer", view.now + max(_LEAST_NS, self._nearest_ns))

    def on_timer(self) -> None:
        """End a round: continue from a nearer member, or choose the present one."""
        if self._nearest is None:
            return
        if self._asked is not None and self._nearest.node != self._asked.node:
            self._request_leaves()
        else:
            self._choose()

    def _choose(self) -> None:
        nearest = self._nearest
        self.stop()
        if nearest is not None:
            self._chosen(nearest)

    def violations(self) -> list[str]:
        """Check that a round of the search ends by a timer."""
        return self._view.missing_timer("nearer") if self._asked is not None else []
