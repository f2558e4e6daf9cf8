"""Experiments of the placement papers: their models, worked by hand, and the published order on small draws (P1b, P6, P13)."""

from dataclasses import replace
from itertools import product

import pytest

from agiledart_experiments.placement import odp_qos, placement_throughput, stretch
from agiledart_experiments.placement.reconvergence import react_mopa, react_springs
from agiledart_experiments.placement.throughput_model import at_reservation, in_turn, largest_rate, reservation
from agiledart_experiments.report import Settings
from agiledart_kernel.randomness import RandomStream
from agiledart_placement.evaluation.evaluator import evaluate
from agiledart_placement.files.topology_file import joined_request
from agiledart_placement.instances.delay_tables import continents
from agiledart_placement.instances.operator_trees import LARGE, SMALL, operator_tree, tree_topology
from agiledart_placement.instances.random_delays import equal_nodes, unit_operators
from agiledart_placement.integer_programme.model import ColumnLayout
from agiledart_placement.latency_space.embedding import positions_of
from agiledart_placement.latency_space.space_graph import SpaceGraph
from agiledart_placement.problem.problem import Problem
from tests.paper.placement_oracles import P7_NETWORK, P7_TOPOLOGY, oracle_request


@pytest.mark.parametrize(
    ("kind", "operators", "nodes", "printed"),
    [("chain", 50, 20, 19_600), ("fat", 50, 20, 38_400), ("chain", 20, 100, 190_000), ("fat", 20, 100, 360_000)],
)
def test_the_model_has_the_printed_number_of_variables(kind: str, operators: int, nodes: int, printed: int) -> None:
    problem = Problem(joined_request(equal_nodes(nodes, 4, 1), [unit_operators(kind, operators, nodes)]))
    layout = ColumnLayout(problem, problem.candidates)
    assert (layout.variables_x, layout.variables_y) == (operators * nodes, printed)


def test_p1b_one_draw_of_tag_and_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Availability 1 is reached; the fastest placement has 4 executors on a 99 % worker when ties are broken."""
    pytest.importorskip("highspy", reason='odp needs the extra: pip install "agiledart[placement]"')
    monkeypatch.setattr(odp_qos, "SMALL_DRAWS", 1)
    report = odp_qos.run(Settings(1))
    for row in report.rows[:-1]:
        assert row["availability_a"] == 1
        assert row["executors_on_99"] in (0, 4)
        assert row["availability_r"] == pytest.approx(0.99 ** row["executors_on_99"], abs=1e-6)
        assert 1 <= row["response_ratio"] <= row["response_ratio_untied"]


def test_p6_the_published_order_on_three_continents() -> None:
    rows = stretch._rows("continents", continents(1, 0.175, nodes=60), 12, 1)
    mean = {row["strategy"]: row["mean"] for row in rows}
    assert 1 <= mean["mopa_probe"] <= mean["mopa"] < mean["springs"] < mean["random"]
    assert mean["mopa_probe"] <= 1.10


def test_the_optimum_of_a_tree_equals_enumeration() -> None:
    network = continents(2, 0.1, nodes=7)
    draw = RandomStream(3, "trees")
    for _ in range(5):
        tree = operator_tree(SMALL, 7, draw)
        problem = Problem(joined_request(network, [tree_topology(tree, draw)]))
        placements = (problem.placement(where).nodes for where in product(*problem.candidates))
        best = min(evaluate(problem, nodes).metrics.usage for nodes in placements)
        assert stretch.tree_optimum(problem, tree) == pytest.approx(best)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_every_operator_of_a_tree_has_two_or_three_children(size: int) -> None:
    draw = RandomStream(4, "trees")
    for _ in range(30):
        tree = operator_tree(size, 226, draw)
        children = [tree.parent.count(vertex) for vertex in range(size)]
        assert children[0] == 1
        assert all((n == 0) if tree.is_source[v] else (2 <= n <= 3) for v, n in enumerate(children) if v)
        ends = [node for node in tree.nodes if node]
        assert len(ends) == len(set(ends))


def test_reconvergence_sends_few_messages() -> None:
    network = continents(3, 0.0, nodes=60)
    draw = RandomStream(5, "reconvergence")
    messages = {"mopa": 0, "springs": 0}
    for _ in range(5):
        tree = operator_tree(LARGE, 60, draw)
        for name, method in (("mopa", react_mopa), ("springs", react_springs)):
            problem = Problem(joined_request(network, [tree_topology(tree, RandomStream(6, tree.nodes))]))
            graph = SpaceGraph(problem, positions_of(problem))
            for unit in graph.free:
                graph.at[unit] = graph.at[0]
            messages[name] += method(graph)[0]
    assert 0 < messages["mopa"] <= 0.1 * messages["springs"]


def test_p13_largest_rate_by_hand() -> None:
    """On u0, u0, u1, u0 of P7: u0 needs 70 points at rate 200; b's events cross twice on each end."""
    problem = Problem(oracle_request(P7_NETWORK, P7_TOPOLOGY))
    where = [0, 0, 1, 0]
    assert largest_rate(problem, where, 200, 0) == pytest.approx(min(100 / (70 / 200), 60 / (40 / 200)))
    crossing = 0.1
    u0, u1 = (70 + crossing * 150) / 200, (40 + crossing * 150) / 200
    assert largest_rate(problem, where, 200, crossing) == pytest.approx(min(100 / u0, 60 / u1))
    assert reservation(problem, where) == 160
    assert in_turn(problem, 2) == [0, 0, 1, 1]  # a, b, s, t in turn
    assert at_reservation([(10, 1.0), (30, 3.0)], 20) == 2
    assert at_reservation([(10, 1.0), (30, 3.0)], 5) == 1


def test_p13_heuristics_exceed_round_robin_on_a_large_topology() -> None:
    rows = [row for load in (160,) for row in placement_throughput._rows("R7", load, 10)]
    for strategy in placement_throughput.STRATEGIES:
        own = [row for row in rows if row["strategy"] == strategy]
        assert sum(row["factor_cx_0.5"] for row in own) / len(own) > 1
        assert sum(row["latency_ratio"] for row in own) / len(own) < 1


def test_a_request_places_the_same_with_the_same_seed() -> None:
    network = continents(3, 0.1, nodes=20)
    draw = RandomStream(8, "same")
    tree = operator_tree(SMALL, 20, draw)
    request = replace(joined_request(network, [tree_topology(tree, draw)]), seed=3)
    problem = Problem(request)
    first, second = (stretch._usage(problem, request, "mopa_probe") for _ in range(2))
    assert first == second
