"""Experiment `churn`: look-ups under one join and one silent failure a second, at ten look-ups a second.

Goal: at least 99 % of the look-ups arrive at the node that is closest to the key (overlay specification §12, O7). A look-up is
correct when it arrives at the node that was closest when it was sent, or that is closest when it arrives.
"""

from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_experiments.ring_lookups import RingLookups
from agiledart_experiments.rings import Meter, built_ring, run_until_stable
from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_simulation.world.overlay_ring import OverlayRing, simulated_ids
from agiledart_simulation.world.paused_garbage_collection import paused_garbage_collection

PAPER = (1_000, 10)
SMALL = (100, 1)
"""Nodes of the ring, and minutes of churn."""

_LOOKUPS_PER_SECOND = 10


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return one row for each minute of churn, and the totals as parameters."""
    nodes, minutes = PAPER if settings.is_paper else SMALL
    with paused_garbage_collection():
        settings.progress(f"{nodes:,} nodes join")
        meter = Meter()
        ring = built_ring(nodes, settings.seed, settings.progress, OverlayConfig.lan(), codec=meter)
        spare = simulated_ids(settings.seed, nodes + 60 * minutes + 1)[nodes:]
        random = RandomStream(settings.seed, "churn")
        rows: list[Row] = []
        total = RingLookups(ring, settings.seed)
        for minute in range(1, minutes + 1):
            settings.progress(f"minute {minute} of {minutes}")
            rows.append(_minute(ring, spare, random, total, meter, minute))
        mended = run_until_stable(ring, 120)
    share = total.delivered_correctly
    parameters = {
        "nodes": nodes,
        "minutes": minutes,
        "joins_per_second": 1,
        "failures_per_second": 1,
        "lookups_per_second": _LOOKUPS_PER_SECOND,
        "preset": "lan",
        "bytes_are": "encoded messages, without frames and TLS",
        "delivered_correctly": round(share, 5),
        "lost": total.lost,
        "wrong": total.wrong,
        "doubles": total.doubles,
        "mended_after_seconds": round(mended, 2),
    }
    return ExperimentReport(parameters, tuple(rows), (Goal("delivered_correctly ≥ 0.99", share >= 0.99),))


def _minute(
    ring: OverlayRing, spare: list[NodeId], random: RandomStream, total: RingLookups, meter: Meter, minute: int
) -> Row:
    world = ring.world
    before = (total.sent, len(total.hops), total.wrong)
    messages, size = meter.messages, meter.bytes
    for _ in range(60):
        members = ring.members
        world.crash(random.choice(members), silent=True)
        members = ring.members
        ring.start(spare.pop(), [random.choice(members), random.choice(members)])
        for _ in range(_LOOKUPS_PER_SECOND):
            total.send(ring.members, 1)
            world.run_for(SECOND // _LOOKUPS_PER_SECOND)
            total.collect(ring.members)
    world.run_for(5 * SECOND)
    total.collect(ring.members)
    sent, arrived, wrong = total.sent - before[0], len(total.hops) - before[1], total.wrong - before[2]
    node_seconds = len(ring.members) * 65
    return {
        "minute": minute,
        "lookups": sent,
        "delivered_correctly": round((arrived - wrong) / sent, 5),
        "messages_per_node_second": round((meter.messages - messages) / node_seconds, 3),
        "bytes_per_node_second": round((meter.bytes - size) / node_seconds, 1),
    }
