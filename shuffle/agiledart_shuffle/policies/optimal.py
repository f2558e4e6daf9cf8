"""Optimal path with full knowledge of every link: the yardstick of all other policies."""

from collections.abc import Sequence

from agiledart_shuffle.graph import LinkGraph
from agiledart_shuffle.policy import Journey


class Optimal:
    """Policy that knows the success rates, and always takes the cheapest path from the packet's node.

    Source: [AgileDART] §VII-F.
    """

    def __init__(self, graph: LinkGraph, sink: int, rates: Sequence[float]) -> None:
        self._graph, self._sink = graph, sink
        self.learn(rates)

    def learn(self, rates: Sequence[float]) -> None:
        """Replace the success rates of the links."""
        self._costs = [1.0 / rate if rate > 0.0 else float("inf") for rate in rates]
        self._cost_to_go = self._graph.cost_to_go(self._costs, self._sink)

    def start_packet(self, slot: int) -> None:
        """Do nothing: there is nothing to prepare."""

    def next_link(self, journey: Journey, slot: int) -> int | None:
        """Return the link to take; see `PathPolicy.next_link`."""
        graph, togo = self._graph, self._cost_to_go
        open_links = [
            link
            for link in graph.leaving[journey.node]
            if graph.heads[link] not in journey.visited
            and link not in journey.closed
            and togo[graph.heads[link]] < float("inf")
        ]
        return min(open_links, key=lambda link: self._costs[link] + togo[graph.heads[link]], default=None)

    def record(self, link: int, attempts: int, *, arrived: bool) -> None:
        """Do nothing: there is nothing to learn."""

    def end_packet(self) -> None:
        """Do nothing."""
