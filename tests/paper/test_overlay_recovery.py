"""O6 and O7 of the overlay specification: rings built by real joins lose nodes, at random and side by side, and under churn."""

import pytest

from agiledart_experiments import churn
from agiledart_experiments.report import Settings
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_simulation.checkers.leaf_sets import leaf_violations
from agiledart_simulation.checkers.ownership_checker import ring_violations
from agiledart_simulation.checkers.periodic_checks import machine_violations
from agiledart_simulation.world.overlay_ring import OverlayRing, simulated_ids
from tests.simulation.bench import lookups


def built(count: int, seed: int = 1) -> OverlayRing:
    ring = OverlayRing(seed, OverlayConfig.simulation(count))
    assert ring.build(simulated_ids(seed, count), 5 * MILLISECOND)
    ring.world.run_for(5 * SECOND)
    return ring


def lose_power(ring: OverlayRing, nodes: list[NodeId]) -> None:
    for node in nodes:
        ring.world.crash(node, silent=True)


def recovers(ring: OverlayRing, limit_s: int) -> None:
    """I1 to I4 and I6 hold again: leaf sets of all are right, tables are well formed, each key has an owner, look-ups end there.

    Leaf sets are right some seconds after the deaths, owners only when the promises to the dead have ended; these are long in rings
    with slow rounds, longer than a message waits for an owner.
    """
    config, world = ring.config, ring.world

    def is_right() -> bool:
        return not leaf_violations(ring.machines, config.leaf_count) and not ring_violations(ring.machines, world.now)

    assert world.run_until(is_right, limit_s * SECOND, SECOND)
    assert machine_violations(ring.machines) == []
    assert lookups(ring, 200, wait_s=15) == []


def adjacent(ring: OverlayRing, count: int) -> list[NodeId]:
    ids = ring.members
    first = RandomStream(ring.world.seed, "victims").index(len(ids))
    return [ids[(first + step) % len(ids)] for step in range(count)]


def at_random(ring: OverlayRing, count: int) -> list[NodeId]:
    ids = ring.members
    RandomStream(ring.world.seed, "victims").shuffle(ids)
    return ids[:count]


@pytest.mark.slow
@pytest.mark.parametrize("count", [11, 12])
def test_o6_adjacent_nodes_of_a_hundred(count: int) -> None:
    """11: one repair after the other; 12: a whole side of a leaf set at once, so table and neighbourhood set must help."""
    ring = built(100)
    lose_power(ring, adjacent(ring, count))
    recovers(ring, 120)


@pytest.mark.slow
def test_o6_a_tenth_of_a_hundred() -> None:
    ring = built(100)
    lose_power(ring, at_random(ring, 10))
    recovers(ring, 120)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["tenth", "eleven", "twelve"])
def test_o6_of_a_thousand(kind: str) -> None:
    ring = built(1_000)
    victims = at_random(ring, 100) if kind == "tenth" else adjacent(ring, 11 if kind == "eleven" else 12)
    lose_power(ring, victims)
    recovers(ring, 600)


@pytest.mark.soak
def test_o7_churn_of_a_hundred() -> None:
    """A minute with one join, one failure and ten look-ups a second; a thousand nodes: `experiment run churn --scale paper`."""
    report = churn.run(Settings(seed=1))
    assert [goal.what for goal in report.goals if not goal.met] == []
