"""Hop-by-hop planner that all index policies share: it follows the cheapest path that is still plausible.

A packet's next link is the one with the least ω + J: its own cost as the index sees it now, and the cost to go beyond it as of
the last exchange. With an exchange before every packet all nodes agree and J falls by at least 1 with each hop, so no path
has a loop. Otherwise J may be stale, and the packet's list of visited nodes keeps it from going in circles.
"""

from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.cheapest import cheapest_link
from agiledart_shuffle.estimates import STATIONARY, EstimateMemory, Estimates
from agiledart_shuffle.graph import LinkGraph
from agiledart_shuffle.policy import Journey, LinkIndex


class PathPlanner:
    """Path policy made of a link index.

    Attributes:
        index: computes the costs of links.
        estimates: record of the links.
        costs: of each link, in slots, as last refreshed.
        cost_to_go: J of each node, as of the last exchange.

    Source: [AgileDART] §V, Algorithm 1.
    """

    def __init__(
        self,
        graph: LinkGraph,
        sink: int,
        index: LinkIndex,
        random: RandomStream,
        *,
        memory: EstimateMemory = STATIONARY,
        exchange_every: int = 1,
        lookahead: int | None = None,
        looks_again: bool = False,
    ) -> None:
        """Create the planner.

        Args:
            random: decides between links of equal cost.
            exchange_every: packets from one exchange of J to the next; in between each node refreshes its own links alone.
            lookahead: links that J looks ahead; None: all links to the sink.
            looks_again: whether a node also refreshes its own links at each decision right after an exchange: for callers that
                decide again after every failed attempt.
        """
        self.estimates = Estimates(graph.links, memory)
        self.costs = [1.0] * graph.links
        self.cost_to_go = self._hops = graph.hops_to_go(sink)
        self._graph, self._sink, self.index, self._random = graph, sink, index, random
        self._every, self._lookahead = exchange_every, lookahead
        self._all_links = range(graph.links)
        self._packets = 0
        self._looks_again = looks_again
        self._is_stale = looks_again

    def start_packet(self, slot: int) -> None:
        """Begin a packet; see `PathPolicy.start_packet`."""
        exchanges = self._packets % self._every == 0
        self._is_stale = self._looks_again or not exchanges
        self._packets += 1
        if exchanges:
            self.index.survey(self.estimates)
            self.index.refresh(self.costs, self._all_links, self.estimates, slot)
            if self._lookahead is None:
                self.cost_to_go = self._graph.cost_to_go(self.costs, self._sink)
            else:
                self.cost_to_go = self._graph.cost_within(self.costs, self._hops, self._lookahead)

    def next_link(self, journey: Journey, slot: int) -> int | None:
        """Return the link to take; see `PathPolicy.next_link`."""
        leaving = self._graph.leaving[journey.node]
        if self._is_stale:
            self.index.refresh(self.costs, leaving, self.estimates, slot)
        return cheapest_link(self._graph, journey, self.costs, self.cost_to_go, self._random)

    def record(self, link: int, attempts: int, *, arrived: bool) -> None:
        """Record the outcome of a link; see `PathPolicy.record`."""
        self.estimates.record(link, attempts, arrived=arrived)

    def end_packet(self) -> None:
        """End the packet; see `PathPolicy.end_packet`."""
        self.estimates.end_packet()
