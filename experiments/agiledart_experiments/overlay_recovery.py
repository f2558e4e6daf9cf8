"""Experiment `overlay-recovery`: how long the ring takes to repair itself after many simultaneous failures.

AgileDART, figure 11a: recovery time stays stable while the number of simultaneous failures grows (the paper prints no figures).
Here it is the virtual time from the failures until the leaf set of every live node is correct again. The goal is a slope of less
than 5 % of the base for each further failure. All nodes fail silently, as by loss of power: no connection is reset.
"""

from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_experiments.ring_lookups import RingLookups
from agiledart_experiments.rings import built_ring, run_until_stable
from agiledart_kernel.instants import SECOND
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_simulation.checkers.leaf_sets import leaf_violations
from agiledart_simulation.checkers.periodic_checks import machine_violations
from agiledart_simulation.world.overlay_ring import OverlayRing, simulated_ids
from agiledart_simulation.world.paused_garbage_collection import paused_garbage_collection

PAPER = (1_000, (1, 2, 4, 8, 16, 32, 64, 128))
SMALL = (120, (1, 2, 4, 8))
"""Nodes of the ring, and the numbers of nodes that fail at once."""

ADJACENT = 12
"""Number of adjacent nodes that fail: one whole side of a leaf set, so the leaf sets alone cannot repair the ring."""

_LOOKUPS = 500


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: kill more nodes in each round; between rounds the ring recovers and as many new nodes join."""
    nodes, counts = PAPER if settings.is_paper else SMALL
    with paused_garbage_collection():
        rows = _rounds(nodes, counts, settings)
    plain = [row for row in rows if row["which"] == "random"]
    base, slope = line([(row["failures"], row["recovery_seconds"]) for row in plain if row["failures"] in counts])
    goals = (
        Goal(f"slope per failure below 5 % of the base ({base:.2f} s)", slope < 0.05 * base),
        Goal("all invariants hold afterwards", all(row["violations"] == 0 for row in rows)),
    )
    parameters = {
        "nodes": nodes,
        "failures": counts,
        "preset": "lan",
        "slope_seconds": round(slope, 4),
        "base_seconds": round(base, 3),
    }
    return ExperimentReport(parameters, rows, goals, ("time is virtual; deaths are silent",))


def _rounds(nodes: int, counts: tuple[int, ...], settings: Settings) -> tuple[Row, ...]:
    settings.progress(f"{nodes:,} nodes join")
    ring = built_ring(nodes, settings.seed, settings.progress, OverlayConfig.lan())
    spare = simulated_ids(settings.seed, nodes + sum(counts) + nodes + 4 * ADJACENT)[nodes:]
    random = RandomStream(settings.seed, "victims")
    rounds = [("random", count) for count in counts] + [("random", nodes // 10), ("adjacent", ADJACENT)]
    rows = []
    for which, count in rounds:
        members = ring.members
        if which == "adjacent":
            first = random.index(len(members))
            victims = [members[(first + step) % len(members)] for step in range(count)]
        else:
            shuffled = list(members)
            random.shuffle(shuffled)
            victims = shuffled[:count]
        settings.progress(f"{count} {which} nodes die")
        for node in victims:
            ring.world.crash(node, silent=True)
        seconds = run_until_stable(ring, 300)
        rows.append(
            {
                "which": which,
                "failures": count,
                "recovery_seconds": round(seconds, 3),
                **_check_ring(ring, settings.seed),
            }
        )
        for _ in victims:
            ring.start(spare.pop(), ring.members[:1])
            ring.world.run_for(SECOND // 100)
        run_until_stable(ring, 300)
    return tuple(rows)


def _check_ring(ring: OverlayRing, seed: int) -> Row:
    """Check the invariants of the recovered ring, and return the violations as a part of a row.

    Real look-ups check that routes end at the closest node. A check of the routing tables alone would count stale entries as
    wrong, but a node detects and replaces an entry that points to a failed node when it uses the entry.
    """
    machines = ring.machines
    violations = [
        *leaf_violations(machines, ring.config.leaf_count),
        *machine_violations(machines),
    ]
    ring.delivered.clear()
    ledger = RingLookups(ring, seed)
    ledger.send(ring.members, _LOOKUPS)
    ring.world.run_for(10 * SECOND)
    ledger.collect()
    return {
        "violations": len(violations) + ledger.wrong + ledger.lost,
        "first_violation": violations[0] if violations else None,
        "delivered_correctly": ledger.delivered_correctly,
    }


def line(points: list[tuple[int, float]]) -> tuple[float, float]:
    """Fit a line by least squares; return its value at one failure and its slope per failure."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
    return mean_y + slope * (1 - mean_x), slope
