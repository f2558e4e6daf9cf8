"""Baseline that looks at one link only: ε-greedy by the mean delay observed."""

from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.graph import UNREACHABLE, LinkGraph
from agiledart_shuffle.policy import Journey


class NextHop:
    """Policy that takes the link of least mean delay; at a node's N-th decision, with probability 1/N, any link.

    An untried link counts as without delay, so that each is tried once. Links from which the sink cannot be reached are left
    out, else packets would be lost.

    Source: [AgileDART] §VII-F, Algorithm 3; [Bhorkar et al. 2012].

    Departs: the paper calls both branches exploitation; the second explores.
    """

    def __init__(self, graph: LinkGraph, sink: int, random: RandomStream) -> None:
        self._graph, self._random = graph, random
        self._reach = graph.hops_to_go(sink)
        self._decisions = [0] * graph.nodes
        self._attempts = [0] * graph.links
        self._crossings = [0] * graph.links

    def start_packet(self, slot: int) -> None:
        """Do nothing: there is nothing to prepare."""

    def next_link(self, journey: Journey, slot: int) -> int | None:
        """Return the link to take; see `PathPolicy.next_link`."""
        graph = self._graph
        open_links = [
            link
            for link in graph.leaving[journey.node]
            if graph.heads[link] not in journey.visited
            and link not in journey.closed
            and self._reach[graph.heads[link]] < UNREACHABLE
        ]
        if not open_links:
            return None
        made = self._decisions[journey.node]
        self._decisions[journey.node] += 1
        if exploits(made, self._random.uniform()):
            return min(open_links, key=self._delay)
        return self._random.choice(open_links)

    def record(self, link: int, attempts: int, *, arrived: bool) -> None:
        """Count the attempts of a link; see `PathPolicy.record`."""
        self._attempts[link] += attempts
        self._crossings[link] += arrived

    def end_packet(self) -> None:
        """Do nothing: `record` has counted all."""

    def _delay(self, link: int) -> float:
        """Return the mean delay in slots. A link that only failed so far is as slow as its failures."""
        return self._attempts[link] / max(1, self._crossings[link])


def exploits(decisions: int, drawn: float) -> bool:
    """Return whether a node takes the best known link at its next decision: ε ≤ 1 - 1/N.

    Args:
        decisions: number of its earlier decisions, N.
        drawn: uniform random number in [0, 1].
    """
    return decisions > 0 and drawn <= 1.0 - 1.0 / decisions
