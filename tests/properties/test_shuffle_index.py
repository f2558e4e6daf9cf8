"""The optimistic cost against bisection and its own laws; cost to go against all paths; estimates against a slow reference."""

import math
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.divergence import COST_MAX, divergence, upper_exponent, upper_rate
from agiledart_shuffle.draws import beta
from agiledart_shuffle.estimates import EstimateMemory, Estimates
from agiledart_shuffle.graph import UNREACHABLE, LinkGraph
from agiledart_shuffle.simple_paths import SimplePaths
from tests.reference.optimistic_cost import optimistic_cost

RATES = st.one_of(
    st.floats(1e-12, 1 - 1e-12),
    st.floats(1e-9, 1e-3).map(lambda x: 1.0 - x),
    st.floats(1e-9, 1e-3),
)
NATS = st.floats(-12, 2.5).map(lambda x: 10.0**x)


def bisected(rate: float, nats: float) -> float:
    """-ln(1-u) by halving: near u = 1 it says more than u does."""

    def excess(y: float) -> float:
        u = -math.expm1(-y)
        return rate * math.log(rate / u) + (1.0 - rate) * (math.log1p(-rate) + y) - nats

    low = -math.log1p(-rate)
    high = low + 1.0
    while excess(high) < 0.0:
        high = low + 2.0 * (high - low)
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if excess(middle) <= 0.0 else (low, middle)
    return low


@given(RATES, NATS, st.floats(0.0, 50.0))
def test_newton_agrees_with_bisection_from_any_start(rate: float, nats: float, start: float) -> None:
    """Rounding of the divergence at its flat bottom, some 1e-16, moves u by its square root at most."""
    found = upper_exponent(rate, nats, start)
    slack = 1e-9 + 1e-15 / nats
    assert found == pytest.approx(bisected(rate, nats), rel=slack, abs=1e-9)
    u = -math.expm1(-found)
    assert u == pytest.approx(-math.expm1(-bisected(rate, nats)), abs=1e-8)


@given(RATES, st.floats(0.5, 300.0))
def test_a_large_budget_brings_u_to_1_without_an_error(rate: float, nats: float) -> None:
    assert rate <= upper_rate(rate, nats) <= 1.0


@given(st.integers(0, 2000), st.integers(0, 2000), st.floats(0, 20), st.floats(0, 5))
@example(1, 75, 2.220446049250313e-16, 2.220446049250313e-16)
@example(1, 1999, 9.9e-11, 2e-11)
def test_the_cost_obeys_its_laws(passed: int, failed: int, nats: float, more: float) -> None:
    tried = passed + failed
    cost = optimistic_cost(passed, tried, nats)
    assert 1.0 <= cost <= (tried / passed * (1 + 1e-12) if passed else COST_MAX)
    assert optimistic_cost(passed, tried, nats + more) <= cost * (1 + 1e-9)


def test_the_ends_of_the_range_are_handled() -> None:
    assert upper_rate(1.0, 0.3) == 1.0
    assert upper_rate(0.0, 0.3) == pytest.approx(1 - math.exp(-0.3))
    assert upper_rate(0.4, 0.0) == 0.4
    assert upper_rate(0.4, math.inf) == 1.0
    assert divergence(0.4, 1.0) == divergence(0.4, 0.0) == math.inf
    assert divergence(0.0, 0.0) == divergence(1.0, 1.0) == 0.0


@given(st.floats(0.3, 40), st.floats(0.3, 40), st.integers(0, 5))
def test_beta_draws_have_the_moments_of_the_distribution(first: float, second: float, seed: int) -> None:
    """Within five standard errors of 2,000 draws; the bound of the variance is that of its largest kurtosis."""
    stream, count = RandomStream(seed, "beta"), 2000
    draws = [beta(stream, first, second) for _ in range(count)]
    mean = first / (first + second)
    variance = mean * (1.0 - mean) / (first + second + 1.0)
    assert all(0.0 <= draw <= 1.0 for draw in draws)
    assert sum(draws) / count == pytest.approx(mean, abs=5.5 * math.sqrt(variance / count))
    spread = sum((draw - mean) ** 2 for draw in draws) / count
    assert spread == pytest.approx(variance, rel=0.5)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[LinkGraph, list[float]]:
    nodes = draw(st.integers(2, 6))
    pairs = [(a, b) for a in range(nodes) for b in range(nodes) if a != b]
    links = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=14))
    costs = [draw(st.floats(1.0, 9.0)) for _ in links]
    return LinkGraph(nodes, links), costs


def paths(graph: LinkGraph, node: int, sink: int, visited: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """All loop-free paths, by trying."""
    if node == sink:
        yield ()
        return
    for link in graph.leaving[node]:
        if graph.heads[link] not in visited:
            for rest in paths(graph, graph.heads[link], sink, (*visited, node)):
                yield (link, *rest)


def loop_free(graph: LinkGraph, source: int, sink: int) -> list[tuple[int, ...]]:
    return [
        path
        for path in paths(graph, source, sink)
        if source not in [graph.heads[link] for link in path] or source == sink
    ]


@given(graphs())
def test_cost_to_go_is_the_least_over_all_loop_free_paths(case: tuple[LinkGraph, list[float]]) -> None:
    graph, costs = case
    found = graph.cost_to_go(costs, 0)
    for node in range(graph.nodes):
        least = min((sum(costs[link] for link in path) for path in loop_free(graph, node, 0)), default=UNREACHABLE)
        assert found[node] == pytest.approx(least)


@given(graphs())
def test_sufficient_lookahead_equals_cost_to_go_and_less_is_lower(case: tuple[LinkGraph, list[float]]) -> None:
    """Far enough: a walk of so many links that has not arrived costs more than any path, whose links cost 9 at most."""
    graph, costs = case
    reach = graph.hops_to_go(0)
    seen = [graph.cost_within(costs, reach, hops) for hops in (*range(graph.nodes), 9 * graph.nodes)]
    assert seen[-1] == pytest.approx(graph.cost_to_go(costs, 0))
    for less, more in pairwise(seen):
        assert all(a <= b + 1e-12 for a, b in zip(less, more, strict=True))


@given(graphs(), st.integers(0, 9))
def test_each_loop_free_path_is_drawn_once(case: tuple[LinkGraph, list[float]], seed: int) -> None:
    graph, _ = case
    drawn = SimplePaths(graph, graph.nodes - 1, 0, RandomStream(seed))
    found = []
    while (path := drawn.draw()) is not None:
        found.append(path)
    assert sorted(found) == sorted(loop_free(graph, graph.nodes - 1, 0))


OUTCOMES = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9), st.booleans(), st.booleans()), max_size=60)


@given(OUTCOMES, st.sampled_from([1.0, 0.995, 0.9, 1e-20]), st.booleans())
def test_counts_agree_with_a_plain_discounted_sum(
    outcomes: list[tuple[int, int, bool, bool]], keep: float, forgets_used: bool
) -> None:
    estimates = Estimates(3, EstimateMemory(keep, forgets_used))
    plain = [[0.0, 0.0] for _ in range(3)]
    used: dict[int, None] = {}
    for link, attempts, arrived, ends in outcomes:
        estimates.record(link, attempts, arrived=arrived)
        plain[link][0] += arrived
        plain[link][1] += attempts
        used[link] = None
        if ends:
            estimates.end_packet()
            for other in range(3):
                if forgets_used or other not in used:
                    plain[other] = [count * keep for count in plain[other]]
            used.clear()
    for link in range(3):
        assert estimates.counts(link) == pytest.approx(plain[link], rel=1e-9, abs=1e-30)
