"""[AgileDART] §V and appendices B, E: the optimistic cost of a link, cost to go, and the rules of the baselines."""

import math

import pytest

from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.divergence import COST_MAX, divergence, upper_rate
from agiledart_shuffle.estimates import Estimates
from agiledart_shuffle.graph import LinkGraph
from agiledart_shuffle.hop_planner import PathPlanner
from agiledart_shuffle.policies.end_to_end import path_bound
from agiledart_shuffle.policies.kl import KlIndex
from agiledart_shuffle.policies.next_hop import exploits
from agiledart_shuffle.policy import Journey
from tests.reference.optimistic_cost import optimistic_cost

T1 = (
    (0, 0, 1, 10, 1, 1),
    (1, 1, 1, 10, 1, 1),
    (0, 1, 1, 10, 0.9000000000, 1.1111111111),
    (0, 5, 1, 10, 0.3690426555, 2.7097138638),
    (1, 2, 1, 10, 0.9743416490, 1.0263340390),
    (5, 10, 1, 100, 0.8879087616, 1.1262418429),
    (5, 10, 0.2, 100, 0.7050830496, 1.4182726426),
    (3, 10, 1, 100, 0.7560227380, 1.3227115399),
    (1, 10, 1, 100, 0.5539173966, 1.8053233317),
    (9, 10, 1, 100, 0.9996112213, 1.0003889299),
    (50, 100, 1, 1000, 0.6796081917, 1.4714360602),
    (50, 100, 0.2, 1000, 0.5825420745, 1.7166142050),
    (500, 1000, 1, 10000, 0.5675500869, 1.7619590288),
    (200, 1000, 0.4, 5000, 0.2343358086, 4.2673802431),
    (5, 10, 1, 1, 0.5, 2),
    (0, 5, 1, 1, 0, COST_MAX),
)


@pytest.mark.parametrize(("successes", "attempts", "exploration", "slot", "rate", "cost"), T1)
def test_t1_the_largest_plausible_rate_and_the_least_plausible_cost(
    successes: int, attempts: int, exploration: float, slot: int, rate: float, cost: float
) -> None:
    nats = exploration * math.log(slot)
    found = upper_rate(successes / attempts, nats / attempts) if attempts else 1.0
    assert found == pytest.approx(rate, abs=1e-8)
    assert optimistic_cost(successes, attempts, nats) == pytest.approx(cost, abs=1e-8)


@pytest.mark.parametrize(("successes", "attempts", "exploration", "slot", "rate", "cost"), T1)
def test_t1_the_index_is_the_same_from_a_cold_and_from_a_warm_start(
    successes: int, attempts: int, exploration: float, slot: int, rate: float, cost: float
) -> None:
    estimates = Estimates(1)
    estimates.successes, estimates.attempts = [float(successes)], [float(attempts)]
    index, costs = KlIndex(exploration), [0.0]
    for at in (slot, slot + 7, 3 * slot, slot):
        index.refresh(costs, range(1), estimates, at)
        nats = exploration * math.log(at)
        assert costs[0] == pytest.approx(optimistic_cost(successes, attempts, nats), rel=1e-10)
    assert costs[0] == pytest.approx(cost, abs=1e-8)


def test_kl_grows_away_from_the_observed_rate_and_the_largest_u_is_chosen() -> None:
    """Erratum of appendix B: for u ≥ λ the divergence increases in u, so the feasible u are below the bound, not above."""
    values = [divergence(0.3, u / 100) for u in range(30, 100)]
    assert values == sorted(values)
    assert values[0] == 0.0
    u = upper_rate(0.3, 0.2)
    assert divergence(0.3, u) == pytest.approx(0.2, abs=1e-12)
    assert divergence(0.3, u + 1e-6) > 0.2 > divergence(0.3, u - 1e-6)


S, A, B, D = range(4)
DIAMOND = LinkGraph(4, [(S, A), (A, D), (S, B), (B, D)])


@pytest.mark.parametrize(
    ("exploration", "costs", "by_a", "by_b"),
    [
        (1.0, (1.126242, 1.498998, 1.322712, 1.069549), 2.625240, 2.392260),
        (0.2, (1.418273, 2.495610, 1.953437, 1.266633), 3.913883, 3.220070),
        (0.0, (2.0, 5.0, 10 / 3, 5 / 3), 7.0, 5.0),
    ],
)
def test_t2_the_diamond_is_left_through_b(
    exploration: float, costs: tuple[float, ...], by_a: float, by_b: float
) -> None:
    """A rule that looks at one link only would choose a: its first link is the better one in all three cases."""
    planner = PathPlanner(DIAMOND, D, KlIndex(exploration), RandomStream(1))
    planner.estimates.successes, planner.estimates.attempts = [5.0, 2.0, 3.0, 6.0], [10.0] * 4
    planner.start_packet(100)
    assert planner.costs == pytest.approx(costs, abs=1e-6)
    assert planner.costs[0] + planner.cost_to_go[A] == pytest.approx(by_a, abs=2e-6)
    assert planner.costs[2] + planner.cost_to_go[B] == pytest.approx(by_b, abs=2e-6)
    assert planner.next_link(Journey(S), 100) == 2
    assert planner.costs[0] < planner.costs[2]


def test_t3_the_bound_of_a_path() -> None:
    assert path_bound(7.0, 1, 4 + 4, 2, 100) == pytest.approx(5.685870, abs=1e-6)
    assert path_bound(6.0, 1, 2 + 2, 2, 100) == pytest.approx(4.141539, abs=1e-6)


@pytest.mark.parametrize(
    ("decisions", "drawn", "expected"),
    [(5, 0.8, True), (5, 0.8001, False), (1, 0.0, True), (1, 1e-9, False), (0, 0.0, False)],
)
def test_t4_a_node_that_decided_n_times_explores_with_probability_1_over_n(
    decisions: int, drawn: float, expected: bool
) -> None:
    assert exploits(decisions, drawn) is expected
