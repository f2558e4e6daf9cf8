"""The planner as nodes run it: each knows its own links and what its neighbours have told, and nobody knows all.

`PathPlanner` with an exchange before every packet is its ideal: there J is the shortest path over all links as they are now.
Without loss, and told until nothing moves, this one gives the same J; told less often it costs what stale figures cost.
"""

from collections.abc import Iterable

from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.cheapest import cheapest_link
from agiledart_shuffle.cost_exchange import CHANGE, CostExchange
from agiledart_shuffle.estimates import STATIONARY, EstimateMemory, Estimates
from agiledart_shuffle.graph import LinkGraph
from agiledart_shuffle.policy import Journey, LinkIndex


class DistributedPlanner:
    """A policy out of a link index, with one table of costs for each node.

    Attributes:
        estimates: what each node has learnt of its own links.
        tables: of each node.
        announcements: how many were sent.
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
        """Args:
        random: decides between links of equal cost, and which announcements are lost.
        exchange_every: packets from one round of announcements to the next; 0: acknowledgements alone carry costs to go.
        change: share by which a cost must move to be told at once; None: nothing is told at once.
        loss: share of announcements that are lost; acknowledgements come with what they acknowledge.
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
        """J of a node as it sees it."""
        return 0.0 if node == self._sink else self.tables[node].to_go(self._sink, self._links(node))[0]

    def start_packet(self, slot: int) -> None:
        """See `PathPolicy.start_packet`."""
        if self._every and self._packets % self._every == 0:
            self._index.survey(self.estimates)
            self._index.refresh(self.costs, range(self._graph.links), self.estimates, slot)
            self.exchange()
        self._packets += 1

    def exchange(self) -> None:
        """Every node tells its neighbours, and who moved by that tells again, until nothing moves."""
        self._announce_from(range(self._graph.nodes), 0.0)

    def _announce_from(self, nodes: Iterable[int], change: float) -> None:
        """These nodes tell who sends through them; who is moved by it tells at once, and so on."""
        waiting = dict.fromkeys(nodes)
        left = (
            8 * self._graph.nodes * self._graph.nodes
        )  # stale costs may count up slowly where nothing leads to the sink
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
        """See `PathPolicy.next_link`."""
        graph, sink, table = self._graph, self._sink, self.tables[journey.node]
        leaving = graph.leaving[journey.node]
        self._index.refresh(self.costs, leaving, self.estimates, slot)
        heads = (graph.heads[link] for link in leaving)
        beyond = {head: 0.0 if head == sink else table.received_cost(head, sink) for head in heads}
        return cheapest_link(graph, journey, self.costs, beyond, self._random)

    def record(self, link: int, attempts: int, *, arrived: bool) -> None:
        """See `PathPolicy.record`. What arrives is acknowledged with the cost to go of the node that it came to."""
        self.estimates.record(link, attempts, arrived=arrived)
        tail, head = self._graph.tails[link], self._graph.heads[link]
        if arrived and head != self._sink:
            self.tables[tail].receive(head, self.tables[head].announcement(tail, self._links(head)))
        if self._every and self._change is not None and self.tables[tail].is_due(self._links(tail), self._change):
            self._announce_from((tail,), self._change)

    def end_packet(self) -> None:
        """See `PathPolicy.end_packet`."""
        self.estimates.end_packet()
