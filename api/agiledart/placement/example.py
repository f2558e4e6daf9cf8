"""Pair of files that `agiledart place --example` writes: four nodes and a chain of four operators."""

from typing import Any

_LINKS = (
    ("n0", "n1", 5, 0.99),
    ("n0", "n2", 20, 1),
    ("n0", "n3", 30, 1),
    ("n1", "n2", 12, 0.98),
    ("n1", "n3", 18, 0.99),
    ("n2", "n3", 8, 1),
)
_NODES = (("n0", 2, 1, 0.99), ("n1", 3, 2, 0.95), ("n2", 4, 1, 0.999), ("n3", 2, 1, 0.99))

EXAMPLE_NETWORK: dict[str, Any] = {
    "format": "agiledart-network/1",
    "nodes": [
        {"name": name, "capacity": {"slots": slots}, "speed": speed, "availability": availability}
        for name, slots, speed, availability in _NODES
    ],
    "links": [{"from": a, "to": b, "delay_ms": delay, "availability": up} for a, b, delay, up in _LINKS],
}

EXAMPLE_TOPOLOGY: dict[str, Any] = {
    "format": "agiledart-topology/1",
    "name": "chain",
    "operators": [
        {"name": "src", "on": ["n0"], "rate": 100},
        {"name": "a", "demand": {"slots": 2}, "execution_ms": 10, "selectivity": 0.4},
        {"name": "b", "execution_ms": 20, "selectivity": 0.25},
        {"name": "snk", "on": ["n3"]},
    ],
    "streams": [{"from": "src", "to": "a"}, {"from": "a", "to": "b"}, {"from": "b", "to": "snk"}],
}
