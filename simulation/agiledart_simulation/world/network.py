"""Network of the virtual world: how long messages take between nodes, and which ones are lost.

Links keep order, as TCP does, unless `reorder` is set. A link that was silent for a while is forgotten, as an idle connection
is closed. So the memory of a node is bounded by its current peers, not by all that it ever met.
"""

from dataclasses import dataclass

from agiledart_kernel.instants import MICROSECOND, MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_simulation.world.latency_models import Latency, Plane

_IDLE_NS = 30 * SECOND
_LINKS_KEPT = 96
"""Links of one node that are kept however long they are silent."""


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Settings of a network; durations are nanoseconds, chances are 0 to 1.

    Args:
        base_ns: least time of a message.
        span_ns: time added across the whole unit square.
        jitter_ns: most time added at random.
        loss: chance that a message is lost.
        duplicate: chance that it arrives twice.
        reorder: chance that it may overtake others, being late by up to `reorder_ns`.
        burst_start: chance per message that a burst of losses begins on its link (Gilbert and Elliott).
        burst_end: chance per message that the burst ends.
        spike: chance that a message, and with it all behind it on the link, is late by up to `spike_ns`.
        host_rate: bytes a second into and out of one node; 0: no limit.
        link_rate: the same of one link.
        queue_bytes: bytes that a rate lets wait; more are lost.
    """

    base_ns: int = 200 * MICROSECOND
    span_ns: int = 2 * MILLISECOND
    jitter_ns: int = 100 * MICROSECOND
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_ns: int = 20 * MILLISECOND
    burst_start: float = 0.0
    burst_end: float = 0.3
    spike: float = 0.0
    spike_ns: int = 0
    host_rate: int = 0
    link_rate: int = 0
    queue_bytes: int = 256 << 10


class Network:
    """Delays and partitions; one random stream for all of it.

    Args:
        config: its settings.
        random: its stream.
        latency: places of nodes; the default is a plane with the settings of `config`.

    Attributes:
        lost: messages that never arrive.
        reached: how often each thing happened to a message.
    """

    def __init__(self, config: NetworkConfig, random: RandomStream, latency: Latency | None = None) -> None:
        self._config = config
        self.latency = latency or Plane(config.base_ns, config.span_ns)
        self.lost = 0
        self.reached: dict[str, int] = {}
        self._draw = random.uniform
        self._sides: dict[NodeId, int] = {}
        self._clogged: dict[tuple[NodeId, NodeId], None] = {}
        self._mute: dict[NodeId, None] = {}
        self._deaf: dict[NodeId, None] = {}
        self._held: dict[tuple[NodeId, NodeId], int] = {}
        self._bad: dict[tuple[NodeId, NodeId], None] = {}
        self._free_at: dict[object, int] = {}
        self._links: dict[NodeId, dict[NodeId, int]] = {}
        self._has_cuts = False
        self._look()

    @property
    def config(self) -> NetworkConfig:
        """Return the settings; they may be replaced while time passes."""
        return self._config

    @config.setter
    def config(self, config: NetworkConfig) -> None:
        self._config = config
        self._look()

    def place(self, node: NodeId, zone: str = "") -> None:
        """Give a new node its place; a known one keeps its own."""
        self.latency.place(node, zone, self._draw)
        self._links.setdefault(node, {})

    def distance_ns(self, a: NodeId, b: NodeId) -> int:
        """Return the time of one message without jitter, in nanoseconds."""
        return self.latency.distance_ns(a, b)

    def has_link(self, a: NodeId, b: NodeId) -> bool:
        """Return whether one of the two sent something to the other recently."""
        return b in self._links[a] or a in self._links[b]

    def forget_links(self, node: NodeId) -> None:
        """Close all connections of a node."""
        self._links[node] = {}

    # ---- partitions

    def partition(self, *sides: tuple[NodeId, ...]) -> None:
        """Partition the network: nodes of different sides receive nothing of each other; unnamed nodes are on side 0."""
        self._sides = {node: index for index, side in enumerate(sides, start=1) for node in side}
        self._look()

    def clog(self, source: NodeId, target: NodeId) -> None:
        """Cut one direction of one link."""
        self._clogged[source, target] = None
        self._look()

    def unclog(self, source: NodeId, target: NodeId) -> None:
        """Undo `clog` of one direction of one link."""
        self._clogged.pop((source, target), None)
        self._look()

    def mute(self, node: NodeId) -> None:
        """Lose all messages that a node sends; it receives everything."""
        self._mute[node] = None
        self._look()

    def deafen(self, node: NodeId) -> None:
        """Lose all messages to a node; it can send."""
        self._deaf[node] = None
        self._look()

    def restore(self, node: NodeId) -> None:
        """Undo `mute` and `deafen` of a node."""
        self._mute.pop(node, None)
        self._deaf.pop(node, None)
        self._look()

    def hold(self, source: NodeId, target: NodeId, until: int) -> None:
        """Let messages in one direction of one link wait until an instant, as in a connection that retransmits."""
        self._held[source, target] = until

    def held(self, now: int) -> dict[tuple[NodeId, NodeId], None]:
        """Return the directions of links in which messages wait now."""
        return {link: None for link, until in self._held.items() if until > now}

    def release_held(self, source: NodeId, target: NodeId, at: int) -> int:
        """Return when a message that waited for a link until now arrives at the latest; later messages come after it."""
        at += self.latency.distance_ns(source, target)
        self._links[source][target] = at
        return at

    def heal(self, but: tuple[NodeId, ...] = ()) -> None:
        """Undo all partitions, except those that concern these nodes alone. See `World.heal` for messages that held links kept
        back.
        """
        self._sides.clear()
        self._clogged = {pair: None for pair in self._clogged if pair[0] in but and pair[1] in but}
        self._mute = {node: None for node in self._mute if node in but}
        self._deaf = {node: None for node in self._deaf if node in but}
        self._held.clear()
        self._bad.clear()
        self._look()

    def _look(self) -> None:
        """Compute once what every message needs."""
        config = self._config
        self._has_cuts = bool(self._sides or self._clogged or self._mute or self._deaf)
        self._is_fair = not (
            self._has_cuts
            or config.loss
            or config.burst_start
            or config.host_rate
            or config.link_rate
            or config.spike
            or config.reorder
            or config.duplicate
        )

    def is_cut(self, source: NodeId, target: NodeId) -> bool:
        """Return whether messages of this direction are lost."""
        return self._has_cuts and (
            self._sides.get(source, 0) != self._sides.get(target, 0)
            or (source, target) in self._clogged
            or source in self._mute
            or target in self._deaf
        )

    def is_open(self, a: NodeId, b: NodeId, until: int) -> bool:
        """Return whether two nodes receive each other, or will before an instant, as far as is known now."""
        if self._has_cuts and (self.is_cut(a, b) or self.is_cut(b, a)):
            return False
        return not self._held or max(self._held.get((a, b), 0), self._held.get((b, a), 0)) <= until

    # ---- messages

    def arrivals(self, source: NodeId, target: NodeId, now: int, size: int = 0) -> tuple[int, ...]:
        """Return when a message of so many bytes that is sent now arrives: never, once or twice."""
        config, draw = self._config, self._draw
        if self._is_fair and not self._held:
            at = now + self.latency.distance_ns(source, target)
            if config.jitter_ns:
                at += int(config.jitter_ns * draw())
            return (self._in_order(source, target, now, at),)
        if self._has_cuts and self.is_cut(source, target):
            return self._lose("cut")
        if config.loss and draw() < config.loss:
            return self._lose("loss")
        if config.burst_start and self._is_in_burst(source, target):
            return self._lose("burst")
        at = now + self.latency.distance_ns(source, target)
        if config.jitter_ns:
            at += int(config.jitter_ns * draw())
        if config.host_rate or config.link_rate:
            wait = self._queueing_ns(source, target, now, size)
            if wait is None:
                return self._lose("queue")
            at += wait
        if config.spike and draw() < config.spike:
            self._count("spike")
            at += int(config.spike_ns * draw())
        if self._held:
            until = self._held.get((source, target), 0)
            if until > at:
                self._count("held")
                at = until
        if config.reorder and draw() < config.reorder:
            self._count("reorder")
            at += int(config.reorder_ns * draw())
            self._links[source].setdefault(target, now)
        else:
            at = self._in_order(source, target, now, at)
        if config.duplicate and draw() < config.duplicate:
            self._count("duplicate")
            return at, at + int(config.reorder_ns * draw())
        return (at,)

    def _in_order(self, source: NodeId, target: NodeId, now: int, at: int) -> int:
        links = self._links[source]
        last = links.get(target)
        if last is not None:
            if at < last:
                return last
            links[target] = at
            return at
        links[target] = at
        if len(links) > _LINKS_KEPT and not len(links) % 32:
            for other in [other for other, used_at in links.items() if used_at < now - _IDLE_NS]:
                del links[other]
        return at

    def _count(self, what: str) -> None:
        self.reached[what] = self.reached.get(what, 0) + 1

    def _lose(self, why: str) -> tuple[int, ...]:
        self.lost += 1
        self._count(why)
        return ()

    def _is_in_burst(self, source: NodeId, target: NodeId) -> bool:
        link = (source, target)
        if link in self._bad:
            if self._draw() < self.config.burst_end:
                del self._bad[link]
                return False
            return True
        if self._draw() < self.config.burst_start:
            self._bad[link] = None
            return True
        return False

    def _queueing_ns(self, source: NodeId, target: NodeId, now: int, size: int) -> int | None:
        """Return the time spent in the queues of the sender, the link and the receiver; None: one of them is full."""
        config = self.config
        waited = 0
        for place, rate in (
            ((source, "up"), config.host_rate),
            ((source, target), config.link_rate),
            ((target, "down"), config.host_rate),
        ):
            if not rate:
                continue
            free_at = max(self._free_at.get(place, 0), now)
            if (free_at - now) * rate > config.queue_bytes * SECOND:
                return None
            self._free_at[place] = free_at + size * SECOND // rate
            waited += self._free_at[place] - now
        return waited
