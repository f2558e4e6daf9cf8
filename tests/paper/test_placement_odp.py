"""Optimal placement: worked numbers of P1 and P1b, and equality with enumeration, whatever the formulation."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_placement.evaluation.evaluator import evaluate
from agiledart_placement.integer_programme.model import FORMULATIONS
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import PlacementRequest
from tests.paper.placement_oracles import P1_NETWORK, P1_TOPOLOGY, oracle_request

pytest.importorskip("highspy", reason='optimal placement needs the extra: pip install "agiledart[placement]"')

from agiledart_placement.integer_programme.odp import Odp


def optimum(request: PlacementRequest, objective: Objective, formulation: str = "cuts") -> tuple[list[str], float, str]:
    """Return names of nodes, value and status."""
    request = replace(request, objective=objective)
    problem = Problem(request)
    placement = Odp(formulation).place(request)
    if not placement.nodes:
        return [], 0.0, placement.search.status
    evaluation = evaluate(problem, placement.nodes)
    assert evaluation.is_feasible, evaluation.violations
    names = [problem.names[u] for u in problem.where_of(placement.nodes)]
    return names, evaluation.value, placement.search.status


@pytest.mark.parametrize(
    ("objective", "a_and_b", "value"),
    [
        ("response", ["n1", "n1"], 38),
        ("usage", ["n1", "n1"], 0.68),
        ("energy", ["n1", "n1"], 0.00574),
        ("availability", ["n2", "n2"], -0.022102),
        ("traffic", ["n2", "n2"], 110),  # two optima; the more available one
    ],
)
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_p1_optima(objective: str, a_and_b: list[str], value: float, formulation: str) -> None:
    names, best, status = optimum(oracle_request(P1_NETWORK, P1_TOPOLOGY), Objective(objective), formulation)
    assert status == "optimal"
    assert names == ["n0", *a_and_b, "n3"]
    assert best == pytest.approx(value, abs=1e-6)


def test_p1_weighted() -> None:
    weights = {"response": 0.5, "availability": 0.2, "usage": 0.3}
    ranges = {"response": (38, 100), "availability": (-0.142788, -0.022102), "usage": (0.68, 3.10)}
    names, value, _ = optimum(oracle_request(P1_NETWORK, P1_TOPOLOGY), Objective("weighted", weights, ranges))
    assert names == ["n0", "n1", "n1", "n3"]
    assert value == pytest.approx(0.8, abs=1e-5)


def test_p1_a_limited_link_changes_the_optimum() -> None:
    network = {
        **P1_NETWORK,
        "links": [*P1_NETWORK["links"], {"from": "n0", "to": "n1", "delay_ms": 5, "bandwidth": 90}],
    }
    names, value, _ = optimum(oracle_request(network, P1_TOPOLOGY), Objective("response"))
    assert value == pytest.approx(58)
    assert names == ["n0", "n2", "n2", "n3"]  # of two optima the more available one


def test_several_streams_between_one_pair_share_one_y_in_the_cuts() -> None:
    """Summed over streams the row would forbid the optimum: 2 ≤ 1 where both operators fit one node."""
    network = {
        "format": "agiledart-network/1",
        "nodes": [{"name": n, "capacity": {"slots": 2}} for n in ("u", "v")],
        "links": [{"from": "u", "to": "v", "delay_ms": 9}],
    }
    topology = {
        "format": "agiledart-topology/1",
        "operators": [{"name": "a"}, {"name": "b"}],
        "streams": [{"from": "a", "to": "b", "rate": 1}, {"from": "a", "to": "b", "rate": 2}],
    }
    for formulation in FORMULATIONS:
        assert optimum(oracle_request(network, topology), Objective("usage"), formulation)[1] == 0


@st.composite
def problems(draw: st.DrawFn) -> PlacementRequest:
    """Five operators on four nodes: several streams between pairs, pins, rules, general demands, limited links."""
    number = st.integers
    nodes = [f"n{n}" for n in range(3)]
    network: dict[str, Any] = {
        "format": "agiledart-network/1",
        "headroom": draw(st.sampled_from([0, 0.1])),
        "nodes": [
            {
                "name": name,
                "capacity": {"slots": draw(number(1, 4)), "cpu": draw(number(2, 9))},
                "speed": draw(number(1, 3)),
                "availability": draw(number(90, 100)) / 100,
                "price_per_hour": draw(number(1, 9)),
                "watts_idle": 1,
                "watts_busy": draw(number(2, 9)),
                "zone": draw(st.sampled_from(["a", "b"])),
            }
            for name in nodes
        ],
        "links": [
            {
                "from": a,
                "to": b,
                "delay_ms": draw(number(0, 30)),
                "availability": draw(number(95, 100)) / 100,
                "bandwidth": draw(st.sampled_from([None, None, 60])),
                "both": False,
            }
            for a in nodes
            for b in nodes
            if a != b
        ],
    }
    count = draw(number(2, 4))
    operators: list[dict[str, Any]] = [
        {"name": f"o{n}", "demand": {"cpu": draw(number(0, 4))}, "execution_ms": draw(number(0, 9))}
        for n in range(count)
    ]
    operators[0]["on"] = [draw(st.sampled_from(nodes))]
    rule = draw(st.sampled_from(["", "together_with", "apart_from", "zone"]))
    if rule == "zone":
        operators[1]["apart_from"] = ["zone:o0"]
    elif rule:
        operators[1][rule] = [f"o{count - 1 if count > 2 else 0}"]
    pair = st.tuples(number(0, count - 1), number(0, count - 1))
    pairs = [(n - 1, n) for n in range(1, count)] + draw(st.lists(pair, max_size=3))
    topology = {
        "format": "agiledart-topology/1",
        "operators": operators,
        "streams": [
            {"from": f"o{a}", "to": f"o{b}", "rate": draw(number(0, 40)), "bytes": draw(number(1, 3))} for a, b in pairs
        ],
    }
    return oracle_request(network, topology)


@settings(max_examples=150, deadline=None)
@given(
    problems(),
    st.sampled_from(["response", "availability", "traffic", "usage", "energy", "score", "cost", "power", "weighted"]),
)
def test_every_formulation_equals_enumeration(request: PlacementRequest, name: str) -> None:
    if name == "weighted":
        ranges = {"response": (0.0, 100.0), "usage": (0.0, 2.0), "availability": (-1.0, 0.0)}
        objective = Objective(name, {"response": 0.5, "usage": 0.3, "availability": 0.2}, ranges)
    else:
        objective = Objective(name)
    problem = Problem(request)
    sign = -1 if name in ("availability", "weighted") else 1
    best = None
    for where in product(*problem.candidates):
        evaluation = evaluate(problem, problem.placement(where).nodes, objective)
        if evaluation.is_feasible and (best is None or sign * evaluation.value < best):
            best = sign * evaluation.value
    if name in ("traffic", "usage", "energy") and not any(edge.volume for edge in problem.edges):
        return  # falls back to response time
    for formulation in FORMULATIONS:
        names, value, status = optimum(request, objective, formulation)
        if best is None:
            assert status == "infeasible"
        else:
            assert status == "optimal"
            assert sign * value == pytest.approx(best, abs=2e-5, rel=2e-6), (formulation, names)
