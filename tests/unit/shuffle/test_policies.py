"""Policies in the awkward cases: visited nodes, dead ends, stale costs to go, links that change, wrong settings."""

import pytest

from agiledart_experiments.paths.networks import PathNetwork, grid_of_nodes
from agiledart_experiments.paths.trial import ATTEMPTS_MOST, PathTrial
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.estimates import CHANGING, FORGETTING, STATIONARY, EstimateMemory, Estimates
from agiledart_shuffle.graph import LinkGraph
from agiledart_shuffle.hop_planner import PathPlanner
from agiledart_shuffle.policies.kl import KlIndex
from agiledart_shuffle.policies.shared_prior import SharedPriorIndex
from agiledart_shuffle.policy import Journey
from agiledart_shuffle.registry import POLICIES, PathTask, policy_named

TRIANGLE = LinkGraph(4, [(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 3)])


def task(graph: LinkGraph, source: int, sink: int, memory: EstimateMemory = STATIONARY) -> PathTask:
    return PathTask(graph, source, sink, RandomStream(1, "policy"), memory, (0.5,) * graph.links)


def test_an_unknown_policy_is_rejected_with_the_valid_ones() -> None:
    for name in ("best", "lookahead-", "lookahead-x"):
        with pytest.raises(ConfigurationError, match="planned"):
            policy_named(name, task(TRIANGLE, 0, 3))


def test_the_optimal_policy_must_know_the_rates() -> None:
    with pytest.raises(ConfigurationError, match="pass the success rates"):
        policy_named("optimal", PathTask(TRIANGLE, 0, 3, RandomStream(1)))


@pytest.mark.parametrize("link", [(0, 4), (-1, 0), (2, 2)])
def test_a_link_must_join_two_nodes(link: tuple[int, int]) -> None:
    with pytest.raises(ConfigurationError, match="it must join two of the nodes 0 to 3"):
        LinkGraph(4, [(0, 1), link])


@pytest.mark.parametrize(("keep", "detection"), [(0.0, 8.0), (1.1, 8.0), (0.9, 0.0)])
def test_figures_of_memory_have_ranges(keep: float, detection: float) -> None:
    with pytest.raises(ConfigurationError):
        EstimateMemory(keep, detection=detection)


@pytest.mark.parametrize("name", [*(name for name in POLICIES if name != "end-to-end"), "lookahead-1"])
def test_no_policy_sends_a_packet_where_it_has_been(name: str) -> None:
    policy = policy_named(name, task(TRIANGLE, 0, 3))
    journey = Journey(0)
    policy.start_packet(1)
    journey.move(1)
    link = policy.next_link(journey, 1)
    assert link == 2, "back to 0 is shut"
    journey.move(2)
    journey.closed[5] = None
    assert policy.next_link(journey, 1) is None, "1 was visited, and the link to 3 is closed"


@pytest.mark.parametrize("name", POLICIES)
def test_a_link_from_which_the_sink_cannot_be_reached_is_never_taken(name: str) -> None:
    graph = LinkGraph(4, [(0, 1), (0, 2), (2, 3)])
    policy = policy_named(name, task(graph, 0, 3))
    for packet in range(1, 30):
        policy.start_packet(packet)
        assert policy.next_link(Journey(0), packet) == 1
        policy.record(1, 50, arrived=True)
        policy.record(2, 1, arrived=True)
        policy.end_packet()


@pytest.mark.parametrize("name", POLICIES)
def test_a_source_without_a_path_is_reported(name: str) -> None:
    policy = policy_named(name, task(LinkGraph(3, [(0, 1)]), 0, 2))
    policy.start_packet(1)
    assert policy.next_link(Journey(0), 1) is None
    policy.end_packet()


def test_links_of_equal_cost_are_chosen_at_random() -> None:
    graph = LinkGraph(5, [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)])
    planner = PathPlanner(graph, 4, KlIndex(1.0), RandomStream(3))
    taken = [0, 0, 0]
    planner.start_packet(1)
    for _ in range(600):
        link = planner.next_link(Journey(0), 1)
        assert link is not None
        taken[link] += 1
    assert all(150 < count < 250 for count in taken)


def test_with_stale_costs_packets_visit_no_node_twice_and_arrive() -> None:
    """Streets both ways and an exchange every 50 packets: without the list of visited nodes packets would turn in circles."""
    side = 5
    pairs = [(v, v + 1) for v in range(side * side) if v % side < side - 1]
    pairs += [(v, v + side) for v in range(side * (side - 1))]
    graph = LinkGraph(side * side, [*pairs, *((b, a) for a, b in pairs)])
    rates = RandomStream(2, "rates")
    network = PathNetwork(graph, 0, side * side - 1, tuple(rates.between(0.2, 1.0) for _ in range(graph.links)))
    planner = PathPlanner(graph, network.sink, KlIndex(1.0), RandomStream(4), exchange_every=50)
    trial = PathTrial(network, planner, RandomStream(5))
    trial.send(300)
    assert trial.lost == 0
    for path in trial.paths:
        nodes = [0, *(graph.heads[link] for link in path)]
        assert len(nodes) == len(dict.fromkeys(nodes))
        assert nodes[-1] == network.sink
    assert sum(trial.regret[250:]) < sum(trial.regret[:50])


def test_rarer_exchanges_cost_some_regret_but_learn_as_well() -> None:
    """25 nodes, C = .2, published: 389 and 395 slots with an exchange every packet and every 10."""
    totals = []
    for every in (1, 10):
        total = 0.0
        for number in range(10):
            network = grid_of_nodes(25, 6, number)
            planner = PathPlanner(network.graph, network.sink, KlIndex(0.2), RandomStream(number), exchange_every=every)
            trial = PathTrial(network, planner, RandomStream(7, number))
            trial.send(1000)
            total += sum(trial.regret) / 10
        totals.append(total)
    assert totals[0] == pytest.approx(389, rel=0.4)
    assert totals[1] < 1.5 * totals[0]


def test_a_dead_end_is_avoided_upstream_and_not_entered_again() -> None:
    """0 → 1 → 2 → 3 with 2 → 1 alone between: from 1 the packet may go astray to 4, which only leads back."""
    graph = LinkGraph(5, [(0, 1), (1, 4), (4, 0), (1, 2), (2, 3)])
    network = PathNetwork(graph, 0, 3, (1.0, 1.0, 1.0, 0.05, 1.0))

    class Astray(PathPlanner):
        def start_packet(self, slot: int) -> None:
            super().start_packet(slot)
            self.cost_to_go = [0.0] * 5

    trial = PathTrial(network, Astray(graph, 3, KlIndex(0.0), RandomStream(1)), RandomStream(2))
    trial.send(20)
    assert trial.lost == 0
    assert all(path == (0, 3, 4) for path in trial.paths)
    assert trial.policy.estimates.counts(1)[1] > 0, "it has been there"  # type: ignore[attr-defined]


def test_the_papers_rule_takes_any_exploration_factor_and_has_the_printed_one() -> None:
    graph = LinkGraph(2, [(0, 1)])
    indices = {name: policy_named(name, task(graph, 0, 1)).index for name in ("paper", "paper-0.4", "paper-1")}  # type: ignore[attr-defined]
    assert {name: index.exploration for name, index in indices.items()} == {
        "paper": 0.2,
        "paper-0.4": 0.4,
        "paper-1": 1.0,
    }
    for wrong in ("paper-2", "paper-x", "paper-", "paper--1"):
        with pytest.raises(ConfigurationError, match="paper-C"):
            policy_named(wrong, task(graph, 0, 1))


def test_a_link_that_drops_everything_is_given_up_for_this_packet() -> None:
    graph = LinkGraph(3, [(0, 2), (0, 1), (1, 2)])
    network = PathNetwork(graph, 0, 2, (1e-9, 0.5, 0.5))
    trial = PathTrial(network, policy_named("paper", task(graph, 0, 2)), RandomStream(1))
    trial.send(10)
    assert trial.lost == 0
    assert trial.delays[0] > ATTEMPTS_MOST
    assert all(path == (1, 2) for path in trial.paths)


def test_a_halved_rate_is_detected_within_few_packets_without_false_alarms() -> None:
    estimates, luck = Estimates(1, CHANGING), RandomStream(8)

    def attempts(rate: float) -> int:
        count = 1
        while luck.uniform() >= rate:
            count += 1
        return count

    for _ in range(500):
        estimates.record(0, attempts(0.6), arrived=True)
        estimates.end_packet()
    assert estimates.changes == 0
    packets = 0
    while not estimates.changes and packets < 60:
        estimates.record(0, attempts(0.2), arrived=True)
        estimates.end_packet()
        packets += 1
    assert packets < 30
    passed, tried = estimates.counts(0)
    assert 0.1 < passed / tried < 0.35
    assert tried < 200, "older counts are gone"


def test_idle_links_are_forgotten_and_used_ones_are_not() -> None:
    estimates = Estimates(2, CHANGING)
    for link in (0, 1):
        estimates.record(link, 10, arrived=True)
    for _ in range(200):
        estimates.record(0, 2, arrived=True)
        estimates.end_packet()
    assert estimates.counts(0) == pytest.approx((201, 410))
    assert estimates.counts(1) == pytest.approx((0.995**199, 10 * 0.995**199))


def test_exploration_stops_growing_when_everything_is_forgotten() -> None:
    costs = []
    for slot in (10**4, 10**8):
        estimates = Estimates(1, FORGETTING)
        estimates.successes, estimates.attempts = [50.0], [100.0]
        found = [0.0]
        KlIndex(1.0).refresh(found, range(1), estimates, slot)
        costs.append(found[0])
    assert costs[0] == costs[1]


def test_the_shared_prior_estimates_untried_links_from_the_others() -> None:
    def mean_of_untried(rate: float) -> float:
        estimates, index = Estimates(7), SharedPriorIndex(RandomStream(1))
        estimates.successes, estimates.attempts = [40.0 * rate] * 6 + [0.0], [40.0] * 6 + [0.0]
        index.survey(estimates)
        costs, total = [0.0] * 7, 0.0
        for _ in range(300):
            index.refresh(costs, [6], estimates, 1)
            total += 1.0 / costs[6]
        return total / 300

    assert mean_of_untried(0.8) > 0.7
    assert mean_of_untried(0.2) < 0.3


def test_between_exchanges_a_node_sees_the_results_of_its_own_links() -> None:
    graph = LinkGraph(4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    planner = PathPlanner(graph, 3, KlIndex(0.1), RandomStream(1), exchange_every=1000)
    planner.start_packet(1)
    planner.start_packet(50)
    for link in (0, 1):
        planner.record(link, 10, arrived=True)
    assert {planner.next_link(Journey(0), 50) for _ in range(40)} == {0, 1}
    planner.record(0, 30, arrived=True)
    assert {planner.next_link(Journey(0), 50) for _ in range(40)} == {1}


def test_a_tried_link_never_appears_costlier_than_its_mean() -> None:
    estimates, index, costs = Estimates(1), SharedPriorIndex(RandomStream(1)), [0.0]
    estimates.record(0, 8, arrived=True)
    drawn = []
    for _ in range(200):
        index.refresh(costs, [0], estimates, 1)
        drawn.append(costs[0])
    mean = (1.0 + 1.0) / (2.0 + 8.0)
    assert max(drawn) == pytest.approx(1.0 / mean)
    assert min(drawn) < 0.7 / mean
