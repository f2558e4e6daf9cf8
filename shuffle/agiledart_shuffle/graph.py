"""Links that a planner knows, and the cost from each node to the destination."""

import heapq
import math
from collections.abc import Iterable, Sequence

from agiledart_kernel.errors import ConfigurationError

UNREACHABLE = math.inf


class LinkGraph:
    """Nodes 0 … nodes-1 and directed links 0 … links-1 between them.

    Attributes:
        tails, heads: the node where each link begins, where it ends.
        leaving, entering: numbers of the links that leave each node, that enter it.
    """

    __slots__ = ("_into", "entering", "heads", "leaving", "nodes", "tails")

    def __init__(self, nodes: int, links: Iterable[tuple[int, int]]) -> None:
        """Build the graph. Raises ConfigurationError for a link from or to an unknown node, or back to its own start."""
        pairs = tuple(links)
        for tail, head in pairs:
            if not (0 <= tail < nodes and 0 <= head < nodes) or tail == head:
                raise ConfigurationError(f"link {tail} → {head}: it must join two of the nodes 0 to {nodes - 1}")
        self.nodes = nodes
        self.tails = tuple(tail for tail, _ in pairs)
        self.heads = tuple(head for _, head in pairs)
        leaving: list[list[int]] = [[] for _ in range(nodes)]
        into: list[list[tuple[int, int]]] = [[] for _ in range(nodes)]
        for link, (tail, head) in enumerate(pairs):
            leaving[tail].append(link)
            into[head].append((link, tail))
        self.leaving = tuple(tuple(links) for links in leaving)
        self.entering = tuple(tuple(link for link, _ in links) for links in into)
        self._into = tuple(tuple(links) for links in into)

    @property
    def links(self) -> int:
        """Number of links."""
        return len(self.tails)

    def cost_to_go(self, costs: Sequence[float], sink: int) -> list[float]:
        """Return J: the least cost of a walk from each node to the sink; `UNREACHABLE` where there is none.

        All costs are positive, so the cheapest walk has no loop, and J is the minimum over loop-free paths that the paper defines,
        without listing them: Dijkstra on the reversed links.

        Source: [AgileDART] §V, Algorithm 1, J.
        """
        togo = [UNREACHABLE] * self.nodes
        togo[sink] = 0.0
        heap = [(0.0, sink)]
        into, push, pop = self._into, heapq.heappush, heapq.heappop
        while heap:
            cost, node = pop(heap)
            if cost > togo[node]:
                continue
            for link, tail in into[node]:
                longer = cost + costs[link]
                if longer < togo[tail]:
                    togo[tail] = longer
                    push(heap, (longer, tail))
        return togo

    def hops_to_go(self, sink: int) -> list[float]:
        """Return the least number of links from each node to the sink: a lower bound of J, since no link costs less than 1."""
        return self.cost_to_go([1.0] * self.links, sink)

    def cost_within(self, costs: Sequence[float], reach: Sequence[float], hops: int) -> list[float]:
        """Return J of the next `hops` links only: 0 beyond them, and at the sink.

        Args:
            costs: of each link, in slots.
            reach: `hops_to_go` of the sink.
            hops: number of links ahead.

        Source: [AgileDART] §VII-F, figure 17c.
        """
        togo = [UNREACHABLE if far == UNREACHABLE else 0.0 for far in reach]
        heads = self.heads
        for _ in range(hops):
            togo = [
                min([costs[link] + togo[heads[link]] for link in self.leaving[node]])
                if 0.0 < far < UNREACHABLE
                else before
                for node, (far, before) in enumerate(zip(reach, togo, strict=True))
            ]
        return togo

    def cheapest_path(self, costs: Sequence[float], source: int, sink: int) -> list[int]:
        """Return the links of one cheapest path; empty when source and sink are one. Raises ValueError when there is none."""
        togo = self.cost_to_go(costs, sink)
        if togo[source] == UNREACHABLE:
            raise ValueError(f"no path leads from {source} to {sink}")
        path: list[int] = []
        node = source
        while node != sink:
            path.append(min(self.leaving[node], key=lambda link: costs[link] + togo[self.heads[link]]))
            node = self.heads[path[-1]]
        return path
