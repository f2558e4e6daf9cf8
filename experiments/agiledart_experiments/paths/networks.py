"""Networks with lossy links, drawn from a seed."""

import math
from dataclasses import dataclass

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.graph import LinkGraph

SIZES = {25: (5, 32), 36: (6, 64), 64: (8, 128), 144: (12, 256)}
"""Side of the grid and number of links, by number of nodes. Source: AgileDART §VII-F and appendix F."""

DELAYS_MS = (100.0, 500.0)
"""Range of the mean delays of links in milliseconds, from appendix F; a slot is the least delay."""


@dataclass(frozen=True, slots=True)
class PathNetwork:
    """Network with lossy links, a source and a sink.

    Attributes:
        graph, source, sink: the links, and the nodes where packets enter and leave.
        rates: the share of attempts that succeed on each link; 1/rate is its mean delay in slots.
    """

    graph: LinkGraph
    source: int
    sink: int
    rates: tuple[float, ...]

    @property
    def costs_to_go(self) -> list[float]:
        """Return V: the least mean delay from each node to the sink, in slots."""
        return self.graph.cost_to_go([1.0 / rate for rate in self.rates], self.sink)

    @property
    def best_path(self) -> list[int]:
        """Return the links of the path with the least mean delay."""
        return self.graph.cheapest_path([1.0 / rate for rate in self.rates], self.source, self.sink)


def grid(side: int, links: int, random: RandomStream) -> LinkGraph:
    """Draw a grid of `links` links: right and down, with links removed or diagonals added to reach the number.

    The paper prints no topology. Each node but the last keeps an outgoing link, and each but the first an incoming link. So every
    node lies on a path from corner to corner.
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
    """Draw a network on a grid, from corner to corner, with uniform mean delays; a slot is the least delay."""
    graph = grid(side, links, random)
    least, most = delays_ms
    return PathNetwork(graph, 0, side * side - 1, tuple(least / random.between(least, most) for _ in range(links)))


def shape_of(nodes: int) -> tuple[int, int]:
    """Return the side and the number of links of a network of `nodes` nodes: as published, else a full grid.

    Raises:
        ConfigurationError: the number of nodes is not a square.
    """
    side = math.isqrt(nodes)
    if side * side != nodes:
        raise ConfigurationError(f"--sizes {nodes}: networks are squares, of 4, 9, 16, 25 … nodes.")
    return SIZES.get(nodes, (side, 2 * side * (side - 1)))


def grid_of_nodes(nodes: int, seed: int, number: int) -> PathNetwork:
    """Draw the network with this number among those of a size."""
    side, links = shape_of(nodes)
    return lossy_grid(side, links, DELAYS_MS, RandomStream(seed, "network", nodes, number))
