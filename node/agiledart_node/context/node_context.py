"""Context shared by the parts of one node: its identity, its overlay, its pending requests, and the queue of effects."""

from collections.abc import Awaitable
from datetime import UTC, datetime
from difflib import get_close_matches

import msgspec

from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.instants import Duration, Instant
from agiledart_kernel.machine import Completed, Effect, Event, Failed, Message, Send
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observer
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.config import NodeConfig
from agiledart_node.context.display_names import display_names
from agiledart_node.context.node_labels import NodeLabels
from agiledart_node.context.peer_clocks import PeerClocks
from agiledart_node.context.pending_requests import PendingRequests
from agiledart_node.wire.effects import Replied
from agiledart_overlay.overlay_machine import OverlayMachine
from agiledart_overlay.records.record_store import Merge
from agiledart_overlay.wire.events import UnwatchPeer, WatchPeer


class DeliverToOverlay(Effect, frozen=True, gc=False):
    """Internal effect: an event for the overlay, delivered in order with the other effects."""

    event: Event


class CommandRefused(OperationFailed):
    """Error that ends a user's request: it cannot be carried out. The text is for the user."""

    def __init__(self, text: str, exit_code: int = 1) -> None:
        super().__init__(text)
        self.text, self.exit_code = text, exit_code


class NotAllowed(CommandRefused):
    """Refusal for lack of a permission; `reason` is one of `permissions.REFUSALS`."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


CLOCK_JUMP_MS = 1_000
"""Difference between the wall clock and the monotonic clock above which the wall clock counts as set."""


class NodeContext:
    """Context of the parts of one node; holds no state of an application.

    Attributes:
        clocks: clocks of the nodes that it received answers from.
        labels: of nodes that have reported their load.
        incompatible_nodes: known nodes with another form of specifications than this one.
        is_leaving: the node is about to leave and takes no new work; `is_draining`: a user drained it, and it may stay.
    """

    def __init__(self, me: Peer, config: NodeConfig, random: RandomStream, observe: Observer, merge: Merge) -> None:
        self.me, self.config, self.observe = me, config, observe
        self.overlay = OverlayMachine(me, config.overlay, RandomStream(random.bits(64), "overlay"), observe, merge)
        self.requests = PendingRequests(random, Duration(config.resend_ns), config.max_conversations)
        self.is_leaving = self.is_draining = False
        self.dropped: dict[str, int] = {}
        self._watched: dict[NodeId, int] = {}
        self._clock: tuple[int, Instant] | None = None
        self.clocks = PeerClocks(me)
        self.incompatible_nodes: dict[NodeId, bool] = {}
        self.labels = NodeLabels()

    @property
    def now(self) -> Instant:
        """Instant of the current step."""
        return self.requests.now

    @property
    def no_work_reason(self) -> str:
        """Return why this node takes no work, `is leaving`; empty: it takes work."""
        return "is leaving" if self.is_leaving else "is being drained" if self.is_draining else ""

    def read_clock(self, wall_ms: int) -> None:
        """Record the wall time at this instant. After a clock jump, drop the measurements of other clocks."""
        if self._clock is not None and abs(wall_ms - self.wall_ms) > CLOCK_JUMP_MS:
            self.clocks.forget_all()
        self._clock = (wall_ms, self.now)

    @property
    def wall_ms(self) -> int:
        """Wall time now, milliseconds; 0 when unknown."""
        if self._clock is None:
            return 0
        known_ms, at = self._clock
        return known_ms + (self.now - at) // 1_000_000

    @property
    def common_ms(self) -> int:
        """Wall time to which signed commands are compared: a node whose clock is far off uses the majority's time."""
        return self.clocks.common_ms(self.wall_ms)

    @property
    def wall_text(self) -> str:
        """Time of day now for people, `21:14:03 UTC`; empty when unknown."""
        return f"{datetime.fromtimestamp(self.wall_ms / 1000, UTC):%H:%M:%S} UTC" if self._clock else ""

    def emit(self, effect: Effect) -> None:
        """Append an effect to those of this step."""
        self.requests.effects.append(effect)

    def reply(self, request: int, body: msgspec.Struct) -> None:
        """Answer a user's request."""
        self.emit(Replied(request, msgspec.to_builtins(body)))

    def send(self, to: Peer, message: Message) -> None:
        """Send a message once; it may be lost."""
        self.emit(Send(to, message))

    def deliver_to_overlay(self, event: Event) -> None:
        """Deliver an event to the overlay after the effects emitted so far."""
        self.emit(DeliverToOverlay(event))

    def drop(self, reason: str) -> None:
        """Count an ignored message by reason."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def ask_driver(self, request: int, effect: Effect, timeout: int) -> "Awaitable[dict[int, Completed | Failed]]":
        """Emit an effect and wait for the driver's answer under this number."""
        self.emit(effect)
        return self.requests.answers({request: None}, Duration(timeout))

    def watch(self, peer: Peer) -> None:
        """Make the overlay probe a peer until `unwatch` was called as often."""
        if peer.node == self.me.node:
            return
        count = self._watched.get(peer.node, 0)
        self._watched[peer.node] = count + 1
        if count == 0:
            self.deliver_to_overlay(WatchPeer(peer))

    def unwatch(self, peer: Peer) -> None:
        """Undo one `watch`."""
        count = self._watched.get(peer.node, 0)
        if count > 1:
            self._watched[peer.node] = count - 1
        elif count == 1:
            del self._watched[peer.node]
            self.deliver_to_overlay(UnwatchPeer(peer.node))

    def known(self) -> tuple[Peer, ...]:
        """Return this node and the live peers that it knows, sorted by id."""
        return tuple(sorted((self.me, *self.overlay.known_peers()), key=lambda peer: peer.node))

    def nearest_of(self, peers: tuple[Peer, ...]) -> tuple[Peer, ...]:
        """Sort peers by their cost from here: measured round trips first, then the others by id."""
        far = 1 << 62
        return tuple(sorted(peers, key=lambda peer: (self.overlay.rtt_ns(peer.node) or far, peer.node)))

    def node_named(self, text: str) -> Peer:
        """Return the live node with this name or id. Raises CommandRefused."""
        peers = self.known()
        names_by_id = display_names(peers)
        matches = [peer for peer in peers if text in (peer.name, names_by_id[peer.node], peer.node.hex)]
        if len(matches) == 1:
            return matches[0]
        names = sorted(names_by_id.values())
        if matches:
            alike = ", ".join(sorted(names_by_id[peer.node] for peer in matches))
            raise CommandRefused(f"{len(matches)} nodes have the name {text!r}. Use one of: {alike}.", 2)
        raise CommandRefused(
            f"No node {text!r} in the ring.{did_you_mean(text, names)} Nodes: {', '.join(names[:20])}", 2
        )

    def names(self) -> dict[NodeId, str]:
        """Return the names for people of all known nodes."""
        return display_names(self.known())

    def is_watched(self, peer: Peer) -> bool:
        """Return whether this node would learn of a peer's death; always true of itself."""
        return peer.node in self._watched or peer.node == self.me.node

    def violations(self) -> list[str]:
        """Return violated invariants: the overlay watches every peer that a part watches, as far as its limit permits."""
        broken = self.requests.violations()
        watched = self.overlay.watched
        is_full = len(watched) >= self.config.overlay.max_watched
        for node, count in self._watched.items():
            if count < 1 or (node not in watched and not is_full):
                broken.append(f"watch: {node.short} is wanted {count} times, and not watched")
        return broken


def did_you_mean(word: str, known: list[str]) -> str:
    """Return ` Did you mean pi2?`, or an empty text without a close match."""
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    return f" Did you mean {close[0]}?" if close else ""
