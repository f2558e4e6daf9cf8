"""The path of someone who knows every link: what all others are measured against."""

from collections.abc import Sequence

from agiledart_shuffle.graph import LinkGraph
from agiledart_shuffle.policy import Journey


class Optimal:
    """Knows the success rates, and always takes the cheapest way from where the packet is.

    Source: [AgileDART] §VII-F.
    """

    def __init__(self, graph: LinkGraph, sink: int, rates: Sequence[float]) -> None:
        self._graph, self._sink = graph, sink
        self.learn(rates)

    def learn(self, rates: Sequence[float]) -> None:
        """The links have changed to these rates."""
        self._costs = [1.0 / rate if rate > 0.0 else float("inf") for rate in rates]
        self._cost_to_go = self._graph.cost_to_go(self._costs, self._sink)

    def start_packet(self, slot: int) -> None:
        """Nothing to prepare."""

    def next_link(self, journey: Journey, slot: int) -> int | None:
        """See `PathPolicy.next_link`."""
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
        """Nothing to learn."""

    def end_packet(self) -> None:
        """Nothing to do."""
