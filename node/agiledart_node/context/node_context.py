"""What the parts of one node share: who it is, its overlay, its conversations, and where effects go."""

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
from agiledart_node.context.peer_clocks import PeerClocks
from agiledart_node.context.pending_requests import PendingRequests
from agiledart_node.wire.effects import Replied
from agiledart_overlay.overlay_machine import OverlayMachine
from agiledart_overlay.records.record_store import Merge
from agiledart_overlay.wire.events import UnwatchPeer, WatchPeer


class DeliverToOverlay(Effect, frozen=True, gc=False):
    """Inside the node only: an event for the overlay, taken in its turn among the effects."""

    event: Event


class CommandRefused(OperationFailed):
    """A user's request cannot be carried out; ends its conversation. The text is for the user."""

    def __init__(self, text: str, exit_code: int = 1) -> None:
        super().__init__(text)
        self.text, self.exit_code = text, exit_code


class NotAllowed(CommandRefused):
    """Who asks may not; `reason` is one of `permissions.REFUSALS`."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


CLOCK_JUMP_MS = 1_000
"""A clock that goes by more than this between two looks, beside the monotonic one, was set."""


class NodeContext:
    """Shared by the parts of one node; holds no state of an application.

    Attributes:
        clocks: of the nodes that it heard of.
        others: nodes that know another form of specifications than this one, as far as it heard of them.
        is_leaving: the node is about to leave and takes nothing new; `is_draining`: it was told to take nothing, and may stay.
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
        self.others: dict[NodeId, bool] = {}

    @property
    def now(self) -> Instant:
        """Instant of the step under way."""
        return self.requests.now

    @property
    def no_work_reason(self) -> str:
        """Why this node takes no work, `is leaving`; empty: it takes some."""
        return "is leaving" if self.is_leaving else "is being drained" if self.is_draining else ""

    def read_clock(self, wall_ms: int) -> None:
        """Learn the wall time at this instant. When it was set meanwhile, other clocks are measured anew."""
        if self._clock is not None and abs(wall_ms - self.wall_ms) > CLOCK_JUMP_MS:
            self.clocks.forget_all()
        self._clock = (wall_ms, self.now)

    @property
    def wall_ms(self) -> int:
        """Wall time now, milliseconds; 0 when nobody told."""
        if self._clock is None:
            return 0
        told, at = self._clock
        return told + (self.now - at) // 1_000_000

    @property
    def common_ms(self) -> int:
        """As `wall_ms`, by which orders are judged: with a clock that is far off this node goes by that of most others."""
        return self.clocks.common_ms(self.wall_ms)

    @property
    def wall_text(self) -> str:
        """Time of day now for people, `21:14:03 UTC`; empty when nobody told."""
        return f"{datetime.fromtimestamp(self.wall_ms / 1000, UTC):%H:%M:%S} UTC" if self._clock else ""

    def emit(self, effect: Effect) -> None:
        """Have something done."""
        self.requests.effects.append(effect)

    def reply(self, request: int, body: msgspec.Struct) -> None:
        """Answer a user's request."""
        self.emit(Replied(request, msgspec.to_builtins(body)))

    def send(self, to: Peer, message: Message) -> None:
        """Send once; may be lost."""
        self.emit(Send(to, message))

    def deliver_to_overlay(self, event: Event) -> None:
        """Hand an event to the overlay after what was emitted so far."""
        self.emit(DeliverToOverlay(event))

    def drop(self, reason: str) -> None:
        """Count a message that was ignored."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def ask_driver(self, request: int, effect: Effect, timeout: int) -> "Awaitable[dict[int, Completed | Failed]]":
        """Have the driver do something and wait for its answer under this number."""
        self.emit(effect)
        return self.requests.answers({request: None}, Duration(timeout))

    def watch(self, peer: Peer) -> None:
        """Have the overlay probe a peer until `unwatch` was called as often."""
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
        """This node and the live peers that it knows, sorted by id."""
        return tuple(sorted((self.me, *self.overlay.known_peers()), key=lambda peer: peer.node))

    def nearest_of(self, peers: tuple[Peer, ...]) -> tuple[Peer, ...]:
        """Peers in the order of their cost from here: measured round trips first, then the others by id."""
        far = 1 << 62
        return tuple(sorted(peers, key=lambda peer: (self.overlay.rtt_ns(peer.node) or far, peer.node)))

    def node_named(self, text: str) -> Peer:
        """The live node that a user means, by its name or its id. Raises CommandRefused."""
        peers = self.known()
        shown = display_names(peers)
        found = [peer for peer in peers if text in (peer.name, shown[peer.node], peer.node.hex)]
        if len(found) == 1:
            return found[0]
        names = sorted(shown.values())
        if found:
            alike = ", ".join(sorted(shown[peer.node] for peer in found))
            raise CommandRefused(f"{len(found)} nodes are called {text!r}: say which one, {alike}.", 2)
        raise CommandRefused(
            f"No node {text!r} in the ring.{did_you_mean(text, names)} Nodes: {', '.join(names[:20])}", 2
        )

    def names(self) -> dict[NodeId, str]:
        """Names for people of everybody known."""
        return display_names(self.known())

    def is_watched(self, peer: Peer) -> bool:
        """Whether a peer's death would be told; always that of this node itself."""
        return peer.node in self._watched or peer.node == self.me.node

    def violations(self) -> list[str]:
        """Whom a part wants to be watched the overlay watches, as far as it has room."""
        found = self.requests.violations()
        watched = self.overlay.watched
        is_full = len(watched) >= self.config.overlay.max_watched
        for node, count in self._watched.items():
            if count < 1 or (node not in watched and not is_full):
                found.append(f"watch: {node.short} is wanted {count} times, and not watched")
        return found


def did_you_mean(word: str, known: list[str]) -> str:
    """` Did you mean pi2?` or nothing."""
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    return f" Did you mean {close[0]}?" if close else ""
