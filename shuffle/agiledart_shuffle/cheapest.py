"""Choice of a link that all planners by link costs share: the link with the least cost of the remaining path."""

from collections.abc import Mapping, Sequence

from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.graph import UNREACHABLE, LinkGraph
from agiledart_shuffle.policy import Journey


def cheapest_link(
    graph: LinkGraph,
    journey: Journey,
    costs: Sequence[float],
    beyond: Sequence[float] | Mapping[int, float],
    random: RandomStream,
) -> int | None:
    """Return the link that leaves the journey's node with the least ω + J; None where no eligible one leads on.

    Args:
        graph: the known links.
        journey: state of the packet.
        costs: ω of each link.
        beyond: J of each node that a link leads to.
        random: decides between links of equal cost.

    Source: [AgileDART] §V, Algorithm 1.
    """
    heads, visited, closed = graph.heads, journey.visited, journey.closed
    best, chosen, ties = UNREACHABLE, None, 1
    for link in graph.leaving[journey.node]:
        head = heads[link]
        if head in visited or link in closed:
            continue
        cost = costs[link] + beyond[head]
        if cost < best:
            best, chosen, ties = cost, link, 1
        elif cost == best < UNREACHABLE:
            # Reservoir sampling: each of the tied links is equally likely, whatever their number.
            ties += 1
            if random.index(ties) == 0:
                chosen = link
    return chosen
