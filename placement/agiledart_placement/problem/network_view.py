"""Links between nodes, as a strategy sees them: delay, availability, bandwidth, loss, and where these figures come from."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf, sqrt
from typing import Protocol

from agiledart_kernel.node_id import NodeId


class FigureSource(Enum):
    """Origin of the figures of a link."""

    GIVEN = "given"
    """A file or a user said so."""
    MEASURED = "measured"
    ESTIMATED = "estimated"
    """Computed from positions."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """Figures of one directed link.

    Args:
        delay_ms: one way.
        availability: share of the time that the link works, 0 to 1.
        bandwidth: bytes/s; infinite: unlimited.
        loss: share of messages that are lost.
        source: origin of the figures.
        age_s: seconds since the measurement; 0 for figures that do not age.
    """

    delay_ms: float
    availability: float = 1.0
    bandwidth: float = inf
    loss: float = 0.0
    source: FigureSource = FigureSource.GIVEN
    age_s: float = 0.0


LOOP = LinkFigures(0.0)
"""Link of a node to itself: perfect."""


@dataclass(frozen=True, slots=True)
class SpacePosition:
    """Place of a node in a space of latencies: a point and the height of its access link, in ms."""

    point: tuple[float, float, float]
    height_ms: float = 0.0


def estimated_delay_ms(a: SpacePosition, b: SpacePosition) -> float:
    """Return the guessed one-way delay: the distance of the points and both heights."""
    (ax, ay, az), (bx, by, bz) = a.point, b.point
    return sqrt((ax - bx) ** 2 + (ay - by) ** 2 + (az - bz) ** 2) + a.height_ms + b.height_ms


def _distances(a: SpacePosition, others: Sequence[SpacePosition]) -> list[float]:
    """Return `estimated_delay_ms` to many places."""
    (x, y, z), height = a.point, a.height_ms
    return [
        sqrt((x - p[0]) ** 2 + (y - p[1]) ** 2 + (z - p[2]) ** 2) + height + other.height_ms
        for other in others
        for p in (other.point,)
    ]


class NetworkView(Protocol):
    """Links of a request's nodes."""

    def link(self, a: NodeId, b: NodeId) -> LinkFigures:
        """Return the figures of the link from `a` to `b`; of a node to itself `LOOP`."""
        ...

    def delays_ms(self, a: NodeId, to: Sequence[NodeId]) -> "array[float]":
        """Return the delays of the links from `a`, as `link` has them, in one array."""
        ...

    def links(self) -> Mapping[tuple[NodeId, NodeId], LinkFigures]:
        """Return the links that have more than a delay."""
        ...

    def position(self, node: NodeId) -> SpacePosition | None:
        """Return the place of the node in a space of latencies; None: unknown."""
        ...


class TableNetwork:
    """Network with figures for chosen pairs; other pairs have a default, a table of delays, or a guess by positions.

    Args:
        links: figures by directed pair.
        positions: places of nodes.
        default: figures of a pair without link.
        table: one-way delays, row = from, column = to, in the order of `order`.
        order: nodes of the table.
    """

    def __init__(
        self,
        links: Mapping[tuple[NodeId, NodeId], LinkFigures],
        positions: Mapping[NodeId, SpacePosition] | None = None,
        default: LinkFigures | None = None,
        table: Sequence["array[float]"] = (),
        order: Sequence[NodeId] = (),
    ) -> None:
        self._links, self._positions, self._default = dict(links), dict(positions or {}), default
        self._from: dict[NodeId, dict[NodeId, float]] = {}
        """Delays of the links of each node, by the node at their other end."""
        for (a, b), figures in self._links.items():
            self._from.setdefault(a, {})[b] = figures.delay_ms
        self._table, self._row = table, {node: row for row, node in enumerate(order)}

    def link(self, a: NodeId, b: NodeId) -> LinkFigures:
        """Return the figures of a link; see `NetworkView`. Raises KeyError for a pair of which nothing is known."""
        if a == b:
            return LOOP
        given = self._links.get((a, b))
        if given is not None:
            return given
        if self._table and a in self._row and b in self._row:
            return LinkFigures(self._table[self._row[a]][self._row[b]], source=FigureSource.MEASURED)
        if self._default is not None:
            return self._default
        if a in self._positions and b in self._positions:
            guess = estimated_delay_ms(self._positions[a], self._positions[b])
            return LinkFigures(guess, source=FigureSource.ESTIMATED)
        raise KeyError((a, b))

    def delays_ms(self, a: NodeId, to: Sequence[NodeId]) -> "array[float]":
        """Return the delays from `a`; see `NetworkView`. Raises KeyError as `link` does."""
        if self._table and a in self._row and all(node in self._row for node in to):
            row, index = self._table[self._row[a]], self._row
            delays = [row[index[node]] for node in to]
        elif self._default is not None:
            delays = [self._default.delay_ms] * len(to)
        elif a in self._positions and all(node in self._positions for node in to):
            delays = _distances(self._positions[a], [self._positions[node] for node in to])
        else:
            return array("d", [self.link(a, node).delay_ms for node in to])
        given = self._from.get(a, {})
        for number, node in enumerate(to):
            if node == a:
                delays[number] = 0.0
            elif node in given:
                delays[number] = given[node]
        return array("d", delays)

    def links(self) -> Mapping[tuple[NodeId, NodeId], LinkFigures]:
        """Return the links with figures of their own; see `NetworkView`."""
        return self._links

    def is_measured(self, a: NodeId, b: NodeId) -> bool:
        """Return whether the table has the delay of this pair."""
        return bool(self._table) and a in self._row and b in self._row

    @property
    def default(self) -> LinkFigures | None:
        """Return the figures of pairs without link; None: there are none."""
        return self._default

    def position(self, node: NodeId) -> SpacePosition | None:
        """Return the place of a node; see `NetworkView`."""
        return self._positions.get(node)
