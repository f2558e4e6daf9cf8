"""Worked numbers P1, P7 and P9 of the placement specification: metrics, score, violations, order of operators."""

from itertools import product

import pytest

from agiledart_placement.evaluation.evaluator import evaluate
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.order import levels
from agiledart_placement.problem.problem import Problem
from tests.paper.placement_oracles import (
    P1_NETWORK,
    P1_TOPOLOGY,
    P7_NETWORK,
    P7_TOPOLOGY,
    nodes_of,
    oracle_request,
)

P1 = {
    ("n1", "n0"): (65, 0.903441, -0.101545, 150, 1.000, 0.012500),
    ("n1", "n1"): (38, 0.866938, -0.142788, 110, 0.680, 0.005740),
    ("n1", "n2"): (50, 0.902445, -0.102648, 150, 1.060, 0.008900),
    ("n1", "n3"): (48, 0.903441, -0.101545, 140, 1.220, 0.015460),
    ("n2", "n0"): (100, 0.969329, -0.031152, 150, 3.100, 0.065000),
    ("n2", "n1"): (70, 0.902445, -0.102648, 150, 2.660, 0.049000),
    ("n2", "n2"): (58, 0.978141, -0.022102, 110, 2.080, 0.040640),
    ("n2", "n3"): (58, 0.969329, -0.031152, 140, 2.320, 0.042560),
}
"""Nodes of a and b: response ms, availability, its logarithm, traffic, usage, energy. Source: P1."""


def test_p1_has_eight_feasible_placements_with_the_worked_metrics() -> None:
    problem = Problem(oracle_request(P1_NETWORK, P1_TOPOLOGY))
    feasible = {}
    for a, b in product(problem.names, repeat=2):
        evaluation = evaluate(problem, nodes_of(problem, "n0", a, b, "n3"))
        if evaluation.is_feasible:
            m = evaluation.metrics
            feasible[a, b] = (m.response_ms, m.availability, m.log_availability, m.traffic, m.usage, m.energy)
    assert sorted(feasible) == sorted(P1)
    for nodes, metrics in P1.items():
        assert feasible[nodes] == pytest.approx(metrics, abs=5e-7), nodes


def test_p1_weighted_objective() -> None:
    problem = Problem(oracle_request(P1_NETWORK, P1_TOPOLOGY))
    weights = {"response": 0.5, "availability": 0.2, "usage": 0.3}
    ranges = {"response": (38, 100), "availability": (-0.142788, -0.022102), "usage": (0.68, 3.10)}
    objective = Objective("weighted", weights, ranges)
    values = {nodes: evaluate(problem, nodes_of(problem, "n0", *nodes, "n3"), objective).value for nodes in P1}
    assert max(values, key=lambda nodes: values[nodes]) == ("n1", "n1")
    assert values["n1", "n1"] == pytest.approx(0.8, abs=1e-6)


def test_p1_a_limited_link_is_a_violation_with_amounts() -> None:
    network = {
        **P1_NETWORK,
        "links": [*P1_NETWORK["links"], {"from": "n0", "to": "n1", "delay_ms": 5, "bandwidth": 90}],
    }
    problem = Problem(oracle_request(network, P1_TOPOLOGY))
    evaluation = evaluate(problem, nodes_of(problem, "n0", "n1", "n1", "n3"))
    assert evaluation.violations == ({"kind": "bandwidth", "from": "n0", "to": "n1", "used": 100.0, "limit": 90.0},)
    assert evaluation.excess == pytest.approx(100 / 90 - 1)


P7 = {
    ("u0", "u0", "u0", "u0"): (0, 1 / 3, 0, 0, 0.333333333, 0.15),
    ("u0", "u0", "u1", "u0"): (4, 2 / 3, 0.5, 0.555556, 1.722226222, 0),
    ("u0", "u1", "u0", "u0"): (4, 2 / 3, 0.5, 0.444444, 1.611115111, 0),
    ("u1", "u0", "u0", "u1"): (4, 2 / 3, 1, 1, 2.666670667, 0),
    ("u2", "u0", "u0", "u1"): (7, 1, 1, 1, 3.000007, 0),
    ("u0", "u0", "u1", "u1"): (2, 2 / 3, 0.5, 0.444444, 1.611113111, 0),
}
"""Nodes of s, a, b, t: latency, nodes, edges, events, score, excess. Source: P7."""


@pytest.mark.parametrize("nodes", P7)
def test_p7_score_and_excess(nodes: tuple[str, str, str, str]) -> None:
    problem = Problem(oracle_request(P7_NETWORK, P7_TOPOLOGY))
    evaluation = evaluate(problem, nodes_of(problem, *nodes))
    m = evaluation.metrics
    worked = P7[nodes]
    parts = (m.score_latency_ms, m.score_nodes, m.score_edges, m.score_events)
    assert parts == pytest.approx(worked[:4], abs=5e-7)
    assert m.score == pytest.approx(worked[4], abs=5e-10)
    assert evaluation.excess == pytest.approx(worked[5])
    assert len(evaluation.violations) == (1 if worked[5] else 0)


def test_p7_the_optimum_is_the_best_of_81_placements() -> None:
    problem = Problem(oracle_request(P7_NETWORK, P7_TOPOLOGY))
    judged = {nodes: evaluate(problem, nodes_of(problem, *nodes)) for nodes in product(problem.names, repeat=4)}
    feasible = {nodes: e.metrics.score for nodes, e in judged.items() if e.is_feasible}
    assert min(feasible, key=lambda nodes: feasible[nodes]) in (("u0", "u0", "u1", "u1"), ("u1", "u1", "u0", "u0"))
    assert min(feasible.values()) == pytest.approx(1.611113111, abs=5e-10)


@pytest.mark.parametrize(
    ("names", "edges", "worked"),
    [
        ("sabt", ["sa", "sb", "at", "bt"], ["s", "ab", "t"]),
        ("sabct", ["sa", "ab", "bc", "ct", "ca"], ["s", "a", "b", "c", "t"]),
        ("sabcdt", ["sa", "ab", "ba", "bc", "cd", "dc", "dt"], ["s", "a", "b", "c", "d", "t"]),
    ],
)
def test_p9_order_also_with_cycles(names: str, edges: list[str], worked: list[str]) -> None:
    """Source: P9, Algorithm 3 of Ecker et al."""
    numbers = [(names.index(edge[0]), names.index(edge[1])) for edge in edges]
    assert ["".join(names[v] for v in level) for level in levels(len(names), numbers)] == worked
