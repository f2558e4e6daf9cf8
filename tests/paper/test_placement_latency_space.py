"""Worked numbers P2 to P6, P10 and P12: Weber points, springs, clusters, the exact optimum, coordinates, mapping."""

from math import sqrt
from typing import Any

import pytest

from agiledart_kernel.randomness import RandomStream
from agiledart_placement.latency_space.mapping import SpaceMapping
from agiledart_placement.latency_space.mopa import MopaRelaxation
from agiledart_placement.latency_space.mopa_exact import solve_exactly
from agiledart_placement.latency_space.points import Point, distance, usage
from agiledart_placement.latency_space.space_graph import SpaceGraph
from agiledart_placement.latency_space.spring_coordinates import forces_sum, spring_factor, updated
from agiledart_placement.latency_space.springs import relax, spring_step
from agiledart_placement.latency_space.weber import weber_point
from agiledart_placement.problem.network_view import SpacePosition
from agiledart_placement.problem.problem import Problem
from tests.paper.placement_oracles import oracle_request

TRIANGLE: tuple[Point, ...] = ((0, 0, 0), (4, 0, 0), (0, 3, 0))


def pulls(*rates: float) -> list[tuple[Point, float]]:
    return list(zip(TRIANGLE, rates, strict=True))


def test_p2_weber_point_inside() -> None:
    point, is_neighbour = weber_point((9, 9, 9), pulls(1, 1, 1))
    assert not is_neighbour
    assert point == pytest.approx((0.695, 0.751, 0), abs=1e-3)
    assert usage(point, pulls(1, 1, 1)) == pytest.approx(6.766433, abs=1e-6)


@pytest.mark.parametrize(("rates", "dead"), [((3, 1, 1), (0, 0, 0)), ((1, 2, 1), (4, 0, 0))])
def test_p2_dead_points_are_exact(rates: tuple[float, ...], dead: Point) -> None:
    assert weber_point((9, 9, 9), pulls(*rates)) == (dead, True)


@pytest.mark.parametrize(("rates", "balance"), [((1, 1, 1), (4 / 3, 1, 0)), ((1, 2, 1), (2, 0.75, 0))])
def test_p2_springs_end_at_the_weighted_mean(rates: tuple[float, ...], balance: Point) -> None:
    at: Point = (9, 9, 9)
    for _ in range(1_000):
        at = spring_step(at, pulls(*rates))
    assert at == pytest.approx(balance, abs=1e-9)


def test_weber_point_without_rates_stays() -> None:
    assert weber_point((1, 2, 3), pulls(0, 0, 0)) == ((1, 2, 3), False)


def graph_of(pinned: dict[str, Point], free: list[str], links: list[tuple[str, str, float]]) -> SpaceGraph:
    """Return a graph whose nodes are the places of the pinned, and one more."""
    network: dict[str, Any] = {
        "format": "agiledart-network/1",
        "nodes": [{"name": f"n{name}", "position_ms": list(at)} for name, at in {**pinned, "-": (99, 99, 99)}.items()],
    }
    topology = {
        "format": "agiledart-topology/1",
        "operators": [*({"name": n, "on": [f"n{n}"]} for n in pinned), *({"name": n} for n in free)],
        "streams": [{"from": a, "to": b, "rate": rate} for a, b, rate in links],
    }
    problem = Problem(oracle_request(network, topology))
    network_view = problem.request.network
    assert network_view is not None
    positions = [network_view.position(node) or SpacePosition((0, 0, 0)) for node in problem.nodes]
    return SpaceGraph(problem, positions)


def two_operators() -> SpaceGraph:
    links = [("s1", "a", 2.0), ("s2", "a", 2.0), ("a", "b", 3.0), ("b", "t", 1.0)]
    return graph_of({"s1": (0, 0, 0), "s2": (0, 2, 0), "t": (4, 1, 0)}, ["a", "b"], links)


def place_of(graph: SpaceGraph, name: str) -> Point:
    return graph.at[next(n for n, unit in enumerate(graph.units) if graph.problem.labels[unit[0]] == name)]


@pytest.mark.parametrize("method", ["relaxation", "exact"])
def test_p3_mopa(method: str) -> None:
    graph = two_operators()
    if method == "exact":
        solve_exactly(graph)
    else:
        MopaRelaxation(graph).relax_all()
    for name in ("a", "b"):
        assert place_of(graph, name) == pytest.approx((1 / sqrt(15), 1, 0), abs=1e-3)
    assert graph.usage() == pytest.approx(7.872983, abs=1e-5)


def test_p3_springs() -> None:
    graph = two_operators()
    relax(graph, tolerance_ms=1e-9)
    assert place_of(graph, "a") == pytest.approx((0.631579, 1, 0), abs=1e-6)
    assert place_of(graph, "b") == pytest.approx((1.473684, 1, 0), abs=1e-6)
    assert graph.usage() == pytest.approx(9.783622, abs=1e-5)
    energy = sum(
        r * distance(graph.at[a], graph.at[b]) ** 2 for a in range(len(graph.units)) for b, r in graph.links[a]
    )
    assert energy / 2 == pytest.approx(14.105263, abs=1e-5)


@pytest.mark.parametrize(("has_clusters", "worked"), [(False, 2.118034), (True, 0.5)])
def test_p4_clusters_repair_the_counter_example(has_clusters: bool, worked: float) -> None:
    links = [("a", "b", 10.0), ("a", "s1", 1.0), ("b", "s2", 1.0)]
    graph = graph_of({"s1": (1, 0, 0), "s2": (1, 0.5, 0)}, ["a", "b"], links)
    for unit in graph.free:
        graph.at[unit] = (0.0, 0.0, 0.0)
    MopaRelaxation(graph, has_clusters=has_clusters).relax_all()
    assert graph.usage() == pytest.approx(worked, abs=1e-6)


def test_p5_one_spring_step_and_its_fixed_point() -> None:
    neighbours: list[tuple[Point, float]] = [((4, 0, 0), 1), ((0, 3, 0), 2)]
    at = spring_step((0, 0, 0), neighbours)
    assert at == pytest.approx((0.133333, 0.2, 0), abs=1e-6)
    for _ in range(1_000):
        at = spring_step(at, neighbours)
    assert at == pytest.approx((4 / 3, 2, 0))
    assert sum(rate * distance(at, point) ** 2 for point, rate in neighbours) == pytest.approx(16.666667, abs=1e-6)


def test_p10_forces() -> None:
    peers: list[tuple[Point, float]] = [((10, 0, 0), 5), ((0, 10, 0), 20)]
    k = spring_factor([5, 20])
    assert k == pytest.approx(2)
    assert forces_sum((0, 0, 0), peers, k) == pytest.approx((1.386294, -1.386294, 0), abs=1e-6)


def test_p10_the_median_error_of_60_nodes_is_small() -> None:
    """Gaussian 20 ms, ±5 % noise, 60 rounds of 8 peers: median .013, 90th percentile .038."""
    draw = RandomStream(1, "p10")

    def gaussian() -> float:
        return 20 * (sum(draw.uniform() for _ in range(12)) - 6)

    true: list[Point] = [(gaussian(), gaussian(), gaussian()) for _ in range(60)]
    at: list[Point] = [(draw.between(-50, 50), draw.between(-50, 50), draw.between(-50, 50)) for _ in true]
    for _ in range(60):
        for node in range(60):
            others = [(node + 1 + draw.index(59)) % 60 for _ in range(8)]
            peers = [(at[o], distance(true[node], true[o]) * draw.between(0.95, 1.05)) for o in others]
            at[node] = updated(at[node], peers)
    pairs = [(a, b) for a in range(60) for b in range(a)]
    errors = sorted(abs(distance(at[a], at[b]) / distance(true[a], true[b]) - 1) for a, b in pairs)
    assert errors[len(errors) // 2] < 0.03
    assert errors[len(errors) * 9 // 10] < 0.09


@pytest.mark.parametrize(("full", "worked"), [([], "A"), (["A"], "B"), (["A", "B"], "C"), (["A", "B", "C"], None)])
def test_p12_the_nearest_node_with_room(full: list[str], worked: str | None) -> None:
    """Without any the operator stays, and an alarm says so."""
    places = {"A": (0, 1, 0), "B": (1, 1, 0), "C": (0.3, 0, 0), "D": (50, 50, 0)}
    network = {
        "format": "agiledart-network/1",
        "nodes": [
            {"name": name, "position_ms": list(at), "capacity": {"slots": 1}, "used": {"slots": int(name in full)}}
            for name, at in places.items()
        ],
    }
    topology = {"format": "agiledart-topology/1", "operators": [{"name": "o", "on": ["A", "B", "C"]}]}
    problem = Problem(oracle_request(network, topology))
    graph = SpaceGraph(problem, [SpacePosition((float(x), float(y), float(z))) for x, y, z in places.values()])
    graph.at[0] = (0.258, 1.0, 0.0)
    distances = [distance(graph.at[0], (float(x), float(y), float(z))) for x, y, z in list(places.values())[:3]]
    assert distances == pytest.approx([0.258, 0.742, 1.001], abs=5e-4)
    mapping = SpaceMapping(graph)
    mapping.map(0)
    assert (mapping.alarms == [0]) == (worked is None)
    if worked is not None:
        assert problem.names[mapping.node[0]] == worked


def test_the_node_of_a_pinned_operator_ranks_the_others_by_its_measured_delays() -> None:
    """By coordinates B is nearer to A than C; A measured otherwise, and A is full."""
    places: dict[str, Point] = {"A": (0, 0, 0), "B": (1, 0, 0), "C": (2, 0, 0)}
    delays = {("A", "B"): 9, ("A", "C"): 4, ("B", "C"): 5}
    network = {
        "format": "agiledart-network/1",
        "nodes": [{"name": name, "position_ms": list(at), "capacity": {"slots": 1}} for name, at in places.items()],
        "links": [{"from": a, "to": b, "delay_ms": delay} for (a, b), delay in delays.items()],
    }
    operators = [{"name": "s", "on": ["A"], "demand": {"slots": 1}, "rate": 1}, {"name": "o", "demand": {"slots": 1}}]
    topology = {"format": "agiledart-topology/1", "operators": operators, "streams": [{"from": "s", "to": "o"}]}
    problem = Problem(oracle_request(network, topology))
    graph = SpaceGraph(problem, [SpacePosition(at) for at in places.values()])
    MopaRelaxation(graph).relax_all()
    mapping = SpaceMapping(graph)
    mapping.map_all()
    assert [problem.names[node] for node in mapping.where()] == ["A", "C"]
    graph.at[1] = (0.1, 0.0, 0.0)
    assert [problem.names[node] for node in mapping.nearest(1, graph.at[1])] == ["A", "B", "C"]
