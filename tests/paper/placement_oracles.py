"""Worked problems of the placement specification §8, as documents."""

from typing import Any

from agiledart.placement.example import EXAMPLE_NETWORK
from agiledart_placement.files.network_file import read_network
from agiledart_placement.files.topology_file import joined_request, read_topology
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import PlacementRequest

P1_TOPOLOGY: dict[str, Any] = {
    "format": "agiledart-topology/1",
    "operators": [
        {"name": "src", "on": ["n0"]},
        {"name": "a", "demand": {"slots": 2}, "execution_ms": 10},
        {"name": "b", "execution_ms": 20},
        {"name": "snk", "on": ["n3"]},
    ],
    "streams": [
        {"from": "src", "to": "a", "rate": 100},
        {"from": "a", "to": "b", "rate": 40},
        {"from": "b", "to": "snk", "rate": 10},
    ],
}

P1_NETWORK = EXAMPLE_NETWORK

P7_NETWORK: dict[str, Any] = {
    "format": "agiledart-network/1",
    "headroom": 0.05,
    "nodes": [
        {"name": "u0", "capacity": {"cpu": 100, "memory": 1000}},
        {"name": "u1", "capacity": {"cpu": 60, "memory": 1000}},
        {"name": "u2", "capacity": {"cpu": 30, "memory": 500}},
    ],
    "links": [
        {"from": "u0", "to": "u1", "delay_ms": 2},
        {"from": "u0", "to": "u2", "delay_ms": 5},
        {"from": "u1", "to": "u2", "delay_ms": 4},
    ],
}

P7_TOPOLOGY: dict[str, Any] = {
    "format": "agiledart-topology/1",
    "operators": [
        {"name": "s", "demand": {"cpu": 10, "memory": 100}},
        {"name": "a", "demand": {"cpu": 50, "memory": 300}},
        {"name": "b", "demand": {"cpu": 40, "memory": 300}},
        {"name": "t", "demand": {"cpu": 10, "memory": 100}},
    ],
    "streams": [
        {"from": "s", "to": "a", "rate": 100},
        {"from": "s", "to": "b", "rate": 100},
        {"from": "a", "to": "t", "rate": 20},
        {"from": "b", "to": "t", "rate": 50},
    ],
}


def oracle_request(network: dict[str, Any], topology: dict[str, Any]) -> PlacementRequest:
    """Return the request of two documents."""
    return joined_request(read_network(network, "network"), [read_topology(topology, "topology")])


def nodes_of(problem: Problem, *names: str) -> dict[tuple[int, int], Any]:
    """Return a placement by the names of its nodes, in the order of instances."""
    return problem.placement([problem.names.index(name) for name in names]).nodes  # type: ignore[return-value]
