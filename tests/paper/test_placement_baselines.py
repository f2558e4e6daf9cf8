"""Worked numbers of P11: round robin, R-Storm, Storm's resource-aware scheduler, T-Storm."""

from itertools import product
from typing import Any

import pytest

from agiledart_placement.evaluation.evaluator import evaluate
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import PlacementRequest
from agiledart_placement.registry import offline_strategy
from tests.paper.placement_oracles import oracle_request

DEMAND = {"s": (10, 128), "f": (40, 256), "c": (30, 256), "t": (10, 128)}


def p11(headroom: float = 0.0) -> PlacementRequest:
    """s1 → f1, f2 → c1, c2 → t1 with the worked traffic; uneven streams, so each executor is an operator of its own."""
    network: dict[str, Any] = {
        "format": "agiledart-network/1",
        "headroom": headroom,
        "nodes": [
            {"name": "n1", "capacity": {"cpu": 100, "memory": 1024}},
            {"name": "n2", "capacity": {"cpu": 100, "memory": 1024}},
            {"name": "n3", "capacity": {"cpu": 50, "memory": 512}},
        ],
        "links": [
            {"from": "n1", "to": "n2", "delay_ms": 1},
            {"from": "n1", "to": "n3", "delay_ms": 2},
            {"from": "n2", "to": "n3", "delay_ms": 2},
        ],
    }
    topology = {
        "format": "agiledart-topology/1",
        "operators": [
            {"name": name, "demand": {"cpu": DEMAND[name[0]][0], "memory": DEMAND[name[0]][1]}}
            for name in ("s1", "f1", "f2", "c1", "c2", "t1")
        ],
        "streams": [
            {"from": a, "to": b, "rate": rate}
            for a, b, rate in (
                ("s1", "f1", 50),
                ("s1", "f2", 50),
                ("f1", "c1", 30),
                ("f1", "c2", 10),
                ("f2", "c1", 10),
                ("f2", "c2", 30),
                ("c1", "t1", 8),
                ("c2", "t1", 8),
            )
        ],
    }
    return oracle_request(network, topology)


def components(parallelism: dict[str, int]) -> PlacementRequest:
    """The same four components with instances, for strategies that order executors by component."""
    request = p11()
    network = {
        "format": "agiledart-network/1",
        "nodes": [{"name": s.name, "capacity": dict(s.resources)} for s in request.hosts.values()],
        "links": [
            {"from": "n1", "to": "n2", "delay_ms": 1},
            {"from": "n1", "to": "n3", "delay_ms": 2},
            {"from": "n2", "to": "n3", "delay_ms": 2},
        ],
    }
    topology = {
        "format": "agiledart-topology/1",
        "operators": [
            {"name": name, "instances": count, "demand": {"cpu": DEMAND[name][0], "memory": DEMAND[name][1]}}
            for name, count in parallelism.items()
        ],
        "streams": [
            {"from": "s", "to": "f", "rate": 100},
            {"from": "f", "to": "c", "rate": 80},
            {"from": "c", "to": "t", "rate": 16},
        ],
    }
    return oracle_request(network, topology)


def placed(name: str, request: PlacementRequest) -> dict[str, str]:
    """Return executor → node."""
    problem = Problem(request)
    where = problem.where_of(offline_strategy(name).place(request).nodes)
    labels = [
        f"{problem.stages[s].name}{i + 1}" if len(problem.stages) == 4 else problem.stages[s].name
        for s, i in problem.instances
    ]
    return {label: problem.names[node] for label, node in zip(labels, where, strict=True)}


def traffic(nodes: dict[str, str]) -> float:
    """Return the traffic of executors s1, f1, f2, c1, c2, t1 with the worked rates."""
    problem = Problem(p11())
    where = [problem.names.index(nodes[label]) for label in problem.labels]
    return evaluate(problem, problem.placement(where).nodes).metrics.traffic


COMPONENTS = {"s": 1, "f": 2, "c": 2, "t": 1}


@pytest.mark.parametrize(
    ("name", "worked", "between_nodes"),
    [
        ("round_robin", {"c1": "n1", "c2": "n2", "f1": "n3", "f2": "n1", "s1": "n2", "t1": "n3"}, 186),
        ("r_storm", {"s1": "n1", "f1": "n1", "c1": "n1", "t1": "n1", "f2": "n1", "c2": "n2"}, 48),
        ("resource_aware", {"c1": "n1", "f1": "n1", "s1": "n1", "t1": "n1", "c2": "n2", "f2": "n2"}, 78),
    ],
)
def test_p11_storm(name: str, worked: dict[str, str], between_nodes: float) -> None:
    nodes = placed(name, components(COMPONENTS))
    if name == "round_robin":  # every executor to a slot: memory of n3 is no obstacle of the worked numbers
        nodes = placed(name, components(COMPONENTS))
    assert nodes == worked
    assert traffic(nodes) == between_nodes


def test_p11_t_storm() -> None:
    nodes = placed("traffic_aware", p11(headroom=0.05))
    assert nodes == {"s1": "n1", "f1": "n1", "f2": "n1", "c1": "n2", "c2": "n3", "t1": "n2"}
    assert traffic(nodes) == 88


def test_p11_optimum_under_95_percent() -> None:
    problem = Problem(p11(headroom=0.05))
    best = min(
        evaluation.metrics.traffic
        for where in product(range(3), repeat=6)
        for evaluation in (evaluate(problem, problem.placement(where).nodes),)
        if evaluation.is_feasible
    )
    assert best == 78
