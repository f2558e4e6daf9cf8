"""The distributed planner's costs to go converge to those of the shortest path, whatever was lost before."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.cost_exchange import MAX_DESTINATIONS, CostExchange
from agiledart_shuffle.distributed import DistributedPlanner
from agiledart_shuffle.graph import UNREACHABLE, LinkGraph
from agiledart_shuffle.policies.kl import KlIndex
from agiledart_shuffle.policy import Journey

NODES = 7
LINKS = st.sets(
    st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)).filter(lambda pair: pair[0] != pair[1]),
    min_size=3,
    max_size=20,
).map(sorted)
COSTS = st.lists(st.floats(1.0, 50.0), min_size=20, max_size=20)


def planner(links: list[tuple[int, int]], loss: float = 0.0) -> tuple[LinkGraph, DistributedPlanner]:
    graph = LinkGraph(NODES, links)
    return graph, DistributedPlanner(graph, NODES - 1, KlIndex(1.0), RandomStream(1, "ties"), loss=loss)


def same(found: float, right: float) -> bool:
    return found == right or math.isclose(found, right, rel_tol=1e-9)


@given(LINKS, st.lists(COSTS, min_size=1, max_size=5))
@settings(max_examples=150, deadline=None)
def test_repeated_reports_converge_to_the_shortest_path(
    links: list[tuple[int, int]], rounds: list[list[float]]
) -> None:
    graph, one = planner(links)
    for costs in rounds:
        one.costs[:] = costs[: graph.links]
        one.exchange()
        right = graph.cost_to_go(one.costs, NODES - 1)
        found = [one.cost_to_go(node) for node in range(NODES)]
        assert all(map(same, found, right)), (found, right)


@given(LINKS, st.lists(COSTS, min_size=2, max_size=5), st.floats(0.1, 0.9))
@settings(max_examples=100, deadline=None)
def test_lost_reports_are_harmless_once_repeated(
    links: list[tuple[int, int]], rounds: list[list[float]], loss: float
) -> None:
    graph, one = planner(links, loss)
    bound = graph.hops_to_go(NODES - 1)
    for costs in rounds:
        one.costs[:] = costs[: graph.links]
        one.exchange()
        assert all(one.cost_to_go(node) >= bound[node] for node in range(NODES)), "optimism: never below what hops cost"
    one._loss = 0.0
    one.exchange()
    assert all(map(same, (one.cost_to_go(node) for node in range(NODES)), graph.cost_to_go(one.costs, NODES - 1)))


@given(LINKS, COSTS, st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_no_packet_visits_a_node_twice_however_stale_the_costs(
    links: list[tuple[int, int]], costs: list[float], seed: int
) -> None:
    graph, one = planner(links)
    random = RandomStream(seed, "claims")
    for node in range(NODES):
        for link in graph.leaving[node]:  # whatever they say of themselves
            one.tables[node].receive(graph.heads[link], [(NODES - 1, random.choice([0.0, 3.0, 1e300, UNREACHABLE]))])
    one.costs[:] = costs[: graph.links]
    journey, path = Journey(0), [0]
    while journey.node != NODES - 1 and (taken := one.next_link(journey, 10)) is not None:
        journey.move(graph.heads[taken])
        path.append(journey.node)
    assert len(path) == len(dict.fromkeys(path))


@pytest.mark.parametrize(
    ("neighbour", "claims"),
    [
        (9, [(5, 1.0)]),
        (1, [(5, math.nan)]),
        (1, [(5, -1.0)]),
        (1, [(5, -math.inf)]),
        (1, [(number, 1.0) for number in range(MAX_DESTINATIONS + 1)]),
    ],
)
def test_invalid_reports_are_refused_completely(neighbour: int, claims: list[tuple[int, float]]) -> None:
    table = CostExchange({1: {5: 2.0}})
    with pytest.raises(RemoteProtocolError):
        table.receive(neighbour, [(5, 7.0), *claims][-MAX_DESTINATIONS - 1 :])
    assert table.to_go(5, {1: 1.0}) == (3.0, 1, UNREACHABLE)


def test_claims_below_hop_costs_or_beyond_bounds_are_corrected() -> None:
    table = CostExchange({1: {5: 2.0}, 2: {5: 4.0}})
    table.receive(1, [(5, 0.0), (77, 1.0)])
    assert table.received_cost(1, 5) == 2.0
    assert table.received_cost(1, 77) == UNREACHABLE
    table.receive(1, [(5, 1e300)])
    assert table.to_go(5, {1: 1.0, 2: 1.0}) == (5.0, 2, UNREACHABLE)


def test_the_next_hop_receives_the_cost_by_other_neighbours() -> None:
    table = CostExchange({1: {5: 2.0}, 2: {5: 4.0}})
    assert table.announcement(1, {1: 1.0, 2: 1.0}) == ((5, 5.0),)
    assert table.announcement(2, {1: 1.0, 2: 1.0}) == ((5, 3.0),)
    assert table.announcement(1, {1: 1.0}) == ((5, UNREACHABLE),)


def test_a_change_for_the_next_hop_is_sent_at_once() -> None:
    table = CostExchange({1: {5: 2.0}, 2: {5: 4.0}})
    links = {1: 1.0, 2: 1.0}
    table.mark_announced(links)
    table.receive(2, [(5, 9.0)])
    assert table.to_go(5, links).cost == 3.0
    assert table.is_due(links)


def test_a_change_of_a_tenth_is_sent_at_once_and_less_is_not() -> None:
    table = CostExchange({1: {5: 9.0}})
    assert table.is_due({1: 1.0})
    table.mark_announced({1: 1.0})
    assert not table.is_due({1: 1.9})
    assert table.is_due({1: 2.2})
    table.receive(1, [(5, UNREACHABLE)])
    assert table.is_due({1: 1.0})
