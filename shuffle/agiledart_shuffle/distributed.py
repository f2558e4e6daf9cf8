"""Planner as nodes run it: each node knows its own links and its neighbours' announcements, and no node knows all links.

`PathPlanner` with an exchange before every packet is its ideal: there J is the shortest path over all present links. Without loss,
and with announcements until nothing moves, this planner gives the same J; with fewer announcements, stale costs cost detours.
"""

from collections.abc import Iterable

from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.cheapest import cheapest_link
from agiledart_shuffle.cost_exchange import CHANGE, CostExchange
from agiledart_shuffle.estimates import STATIONARY, EstimateMemory, Estimates
from agiledart_shuffle.graph import LinkGraph
from agiledart_shuffle.policy import Journey, LinkIndex


class DistributedPlanner:
    """Path policy made of a link index, with one table of costs for each node.

    Attributes:
        estimates: record of each node's own links.
        tables: of each node.
        announcements: number of announcements sent.
    """

    def __init__(
        self,
        graph: LinkGraph,
        sink: int,
        index: LinkIndex,
        random: RandomStream,
        *,
        memory: EstimateMemory = STATIONARY,
        exchange_every: int = 10,
        change: float | None = CHANGE,
        loss: float = 0.0,
    ) -> None:
        """Create the planner.

        Args:
            random: decides between links of equal cost, and which announcements are lost.
            exchange_every: packets from one round of announcements to the next; 0: acknowledgements alone carry costs to go.
            change: share by which a cost must move to be announced at once; None: none is announced at once.
            loss: share of announcements that are lost; acknowledgements come with the packet that they acknowledge.
        """
        self.estimates = Estimates(graph.links, memory)
        self.costs = [1.0] * graph.links
        self.announcements = 0
        self._graph, self._sink, self._index, self._random = graph, sink, index, random
        self._every, self._change, self._loss = exchange_every, change, loss
        hops = graph.hops_to_go(sink)
        self.tables = [
            CostExchange({graph.heads[link]: {sink: hops[graph.heads[link]]} for link in leaving})
            for leaving in graph.leaving
        ]
        for node in range(graph.nodes):
            self.tables[node].mark_announced(self._links(node))
        self._packets = 0

    def _links(self, node: int) -> dict[int, float]:
        heads = self._graph.heads
        return {heads[link]: self.costs[link] for link in self._graph.leaving[node]}

    def cost_to_go(self, node: int) -> float:
        """Return J of a node as the node itself sees it."""
        return 0.0 if node == self._sink else self.tables[node].to_go(self._sink, self._links(node)).cost

    def start_packet(self, slot: int) -> None:
        """Begin a packet; see `PathPolicy.start_packet`."""
        if self._every and self._packets % self._every == 0:
            self._index.survey(self.estimates)
            self._index.refresh(self.costs, range(self._graph.links), self.estimates, slot)
            self.exchange()
        self._packets += 1

    def exchange(self) -> None:
        """Announce the costs of every node to its neighbours, and again wherever a cost moves, until none does."""
        self._announce_from(range(self._graph.nodes), 0.0)

    def _announce_from(self, nodes: Iterable[int], change: float) -> None:
        """Announce the costs of these nodes upstream; a node whose own costs move by that announces at once, too."""
        waiting = dict.fromkeys(nodes)
        left = (
            8 * self._graph.nodes * self._graph.nodes
        )  # a bound: stale costs may count up slowly where no path leads to the sink
        while waiting and left:
            left -= 1
            node = next(iter(waiting))
            del waiting[node]
            if node == self._sink:
                continue
            links, table = self._links(node), self.tables[node]
            table.mark_announced(links)
            for link in self._graph.entering[node]:
                tail = self._graph.tails[link]
                self.announcements += 1
                if tail == self._sink or (self._loss and self._random.uniform() < self._loss):
                    continue
                self.tables[tail].receive(node, table.announcement(tail, links))
                if self.tables[tail].is_due(self._links(tail), change):
                    waiting[tail] = None

    def next_link(self, journey: Journey, slot: int) -> int | None:
        """Return the link to take; see `PathPolicy.next_link`."""
        graph, sink, table = self._graph, self._sink, self.tables[journey.node]
        leaving = graph.leaving[journey.node]
        self._index.refresh(self.costs, leaving, self.estimates, slot)
        heads = (graph.heads[link] for link in leaving)
        beyond = {head: 0.0 if head == sink else table.received_cost(head, sink) for head in heads}
        return cheapest_link(graph, journey, self.costs, beyond, self._random)

    def record(self, link: int, attempts: int, *, arrived: bool) -> None:
        """Record the outcome of a link; see `PathPolicy.record`.

        The acknowledgement of a packet carries the cost to go of the node at which it arrived.
        """
        self.estimates.record(link, attempts, arrived=arrived)
        tail, head = self._graph.tails[link], self._graph.heads[link]
        if arrived and head != self._sink:
            self.tables[tail].receive(head, self.tables[head].announcement(tail, self._links(head)))
        if self._every and self._change is not None and self.tables[tail].is_due(self._links(tail), self._change):
            self._announce_from((tail,), self._change)

    def end_packet(self) -> None:
        """End the packet; see `PathPolicy.end_packet`."""
        self.estimates.end_packet()
