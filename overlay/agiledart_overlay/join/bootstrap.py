"""From which member a join starts: the nearest of the seeds, and of the members that it leads to.

The join takes its neighbourhood set and its first row from that member, so a near one gives near tables. All seeds are probed at
once; the first answer is the nearest. Then its leaves, whose places have nothing to do with their ids, are a sample of the ring:
some are probed, and the search goes on from one that is nearer. A round lasts as long as the best round trip so far: whoever
answers later is not nearer.

Source: [Pastry proximity] (finding a nearby node); the project's overlay specification §5, step 1.
"""

from collections.abc import Callable

from agiledart_kernel.instants import MILLISECOND, Instant
from agiledart_kernel.peer import Peer
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.messages import LeafRequest, LeafState, PeerProbe

_LEAST_NS = 1 * MILLISECOND
"""Round trips shorter than this are all near: no further search, and the least length of a round."""


class Bootstrap:
    """The search of one joiner; asks for `chosen` once, with the member to start from."""

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
        """Seeds have just been probed; hurried: take the first that answers."""
        view = self._view
        view.cancel_timer("nearer")
        self._rounds = 0 if is_hurried else view.config.bootstrap_rounds
        self._sent_at = view.now
        self._nearest = self._asked = None
        self._tried.clear()

    def stop(self) -> None:
        """The joiner needs no member any more."""
        self._nearest = self._asked = None
        self._view.cancel_timer("nearer")

    def on_member(self, sender: Peer) -> None:
        """A member answered a probe."""
        view = self._view
        took = view.now - self._sent_at
        if self._nearest is None:
            self._nearest, self._nearest_ns = sender, took
            self._tried[sender.node] = None
            self._request_leaves()
        elif took < self._nearest_ns:
            self._nearest, self._nearest_ns = sender, took

    def _request_leaves(self) -> None:
        """Ask the nearest so far for its leaves, or be content with it."""
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
        """Its leaves: probe some of them."""
        view = self._view
        if self._asked is None or sender.node != self._asked.node:
            return
        strangers = [
            each.peer for each in message.sightings if each.peer.node not in self._tried and each.peer != view.me
        ]
        view.random.shuffle(strangers)
        self._sent_at = view.now
        for peer in strangers[: view.config.bootstrap_probes]:
            self._tried[peer.node] = None
            view.send(peer, PeerProbe(view.number(), view.refutations, joined=False))
        view.set_timer("nearer", view.now + max(_LEAST_NS, self._nearest_ns))

    def on_timer(self) -> None:
        """A round is over: go on from a nearer one, or be content."""
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
        """A round of the search ends by itself."""
        return self._view.missing_timer("nearer") if self._asked is not None else []
