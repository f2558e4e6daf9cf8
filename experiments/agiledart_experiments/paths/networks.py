"""Networks with lossy links, drawn from a seed."""

import math
from dataclasses import dataclass

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.graph import LinkGraph

SIZES = {25: (5, 32), 36: (6, 64), 64: (8, 128), 144: (12, 256)}
"""By nodes: the side of the grid, and the links. AgileDART §VII-F and appendix F."""

DELAYS_MS = (100.0, 500.0)
"""Mean delays of links in appendix F; a slot is the least of them."""


@dataclass(frozen=True, slots=True)
class PathNetwork:
    """What packets cross.

    Attributes:
        graph, source, sink: the links, and where packets enter and leave.
        rates: of each link, the share of attempts that succeed; 1/rate is its mean delay in slots.
    """

    graph: LinkGraph
    source: int
    sink: int
    rates: tuple[float, ...]

    @property
    def costs_to_go(self) -> list[float]:
        """V: the least mean delay from each node to the sink, in slots."""
        return self.graph.cost_to_go([1.0 / rate for rate in self.rates], self.sink)

    @property
    def best_path(self) -> list[int]:
        """The links of the path of least mean delay."""
        return self.graph.cheapest_path([1.0 / rate for rate in self.rates], self.source, self.sink)


def grid(side: int, links: int, random: RandomStream) -> LinkGraph:
    """Links right and down; some taken away, or diagonals added, until there are so many.

    The paper prints no topology. Each node but the last keeps a link out, each but the first a link in, so that all lie on the way
    from corner to corner.
    """
    across = [(v, v + 1) for v in range(side * side) if v % side < side - 1]
    down = [(v, v + side) for v in range(side * (side - 1))]
    arcs = across + down
    diagonals = [(v, v + side + 1) for v in range(side * (side - 1)) if v % side < side - 1]
    random.shuffle(diagonals)
    arcs += diagonals[: max(0, links - len(arcs))]
    while len(arcs) > links:
        at = random.index(len(arcs))
        tail, head = arcs[at]
        if sum(arc[0] == tail for arc in arcs) > 1 and sum(arc[1] == head for arc in arcs) > 1:
            del arcs[at]
    return LinkGraph(side * side, sorted(arcs))


def lossy_grid(side: int, links: int, delays_ms: tuple[float, float], random: RandomStream) -> PathNetwork:
    """A grid from corner to corner whose links have uniform mean delays; a slot is the least of them."""
    graph = grid(side, links, random)
    least, most = delays_ms
    return PathNetwork(graph, 0, side * side - 1, tuple(least / random.between(least, most) for _ in range(links)))


def shape_of(nodes: int) -> tuple[int, int]:
    """Side and links of a network of so many nodes: as published, else a full grid.

    Raises:
        ConfigurationError: no square has so many nodes.
    """
    side = math.isqrt(nodes)
    if side * side != nodes:
        raise ConfigurationError(f"--sizes {nodes}: networks are squares, of 4, 9, 16, 25 … nodes.")
    return SIZES.get(nodes, (side, 2 * side * (side - 1)))


def grid_of_nodes(nodes: int, seed: int, number: int) -> PathNetwork:
    """The so-many-th network of a size."""
    side, links = shape_of(nodes)
    return lossy_grid(side, links, DELAYS_MS, RandomStream(seed, "network", nodes, number))
