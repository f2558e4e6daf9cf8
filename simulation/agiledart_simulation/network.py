"""How long messages take between nodes of the virtual world, and which ones never arrive.

Nodes are points in a unit square; a message takes a base time, the distance, and some jitter. Links keep order, as
TCP does,
unless `reorder` is set.
"""

from dataclasses import dataclass

from agiledart_kernel.instants import MICROSECOND, MILLISECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Figures of a network; durations are nanoseconds, chances are 0 to 1.

    Args:
        base_ns: least time of a message.
        span_ns: time added across the whole unit square.
        jitter_ns: most time added at random.
        loss: chance that a message is lost.
        duplicate: chance that it arrives twice.
        reorder: chance that it may overtake others, being late by up to `reorder_ns`.
    """

    base_ns: int = 200 * MICROSECOND
    span_ns: int = 2 * MILLISECOND
    jitter_ns: int = 100 * MICROSECOND
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_ns: int = 20 * MILLISECOND


class Network:
    """Delays and cuts; one random stream for all of it."""

    def __init__(self, config: NetworkConfig, random: RandomStream) -> None:
        self.config = config
        self._random = random
        self._places: dict[NodeId, tuple[float, float]] = {}
        self._sides: dict[NodeId, int] = {}
        self._clogged: dict[tuple[NodeId, NodeId], None] = {}
        self._last: dict[tuple[NodeId, NodeId], int] = {}
        self.lost = 0

    def place(self, node: NodeId) -> None:
        """Give a new node its point; a known one keeps its own."""
        if node not in self._places:
            self._places[node] = (self._random.uniform(), self._random.uniform())

    def distance_ns(self, a: NodeId, b: NodeId) -> int:
        """Time of one message without jitter."""
        (ax, ay), (bx, by) = self._places[a], self._places[b]
        # Manhattan distance: no square root, whose last bit could differ between platforms.
        return self.config.base_ns + int(self.config.span_ns * (abs(ax - bx) + abs(ay - by)) / 2)

    def partition(self, *sides: tuple[NodeId, ...]) -> None:
        """Cut the world: nodes of different sides hear nothing of each other; unnamed nodes are on side 0."""
        self._sides = {node: index for index, side in enumerate(sides, start=1) for node in side}

    def clog(self, source: NodeId, target: NodeId) -> None:
        """Cut one direction of one link."""
        self._clogged[source, target] = None

    def heal(self) -> None:
        """Undo all cuts."""
        self._sides.clear()
        self._clogged.clear()

    def is_cut(self, source: NodeId, target: NodeId) -> bool:
        """Whether messages of this direction are thrown away."""
        return self._sides.get(source, 0) != self._sides.get(target, 0) or (source, target) in self._clogged

    def arrivals(self, source: NodeId, target: NodeId, now: int) -> tuple[int, ...]:
        """When a message sent now arrives: never, once or twice."""
        config, random = self.config, self._random
        if self.is_cut(source, target) or (config.loss and random.uniform() < config.loss):
            self.lost += 1
            return ()
        at = now + self.distance_ns(source, target) + int(config.jitter_ns * random.uniform())
        if config.reorder and random.uniform() < config.reorder:
            at += int(config.reorder_ns * random.uniform())
        else:
            at = max(at, self._last.get((source, target), 0))
            self._last[source, target] = at
        if config.duplicate and random.uniform() < config.duplicate:
            return at, at + int(config.reorder_ns * random.uniform())
        return (at,)
