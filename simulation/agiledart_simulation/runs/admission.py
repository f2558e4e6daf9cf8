"""Rings under admission: flash crowds, one fault at every moment of a join, storms of faults. Looked at by `checkers.owners`.

`python -m agiledart_simulation.runs.admission crowds|sweep|storms` prints one line for each run, or one JSON document; a storm is
replayed with its seed alone.

Source: the project's overlay specification §5, step 7; the shape of the three experiments is that of its reliability notes.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import ID_BITS, NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.events import LeaveRing
from agiledart_simulation.checkers.owners import ring_violations
from agiledart_simulation.checkers.ring import leaf_violations
from agiledart_simulation.runs.admission_bed import Bed
from agiledart_simulation.runs.admission_storms import storms
from agiledart_simulation.world.ring import simulated_ids

SWEPT = (
    "none", "crash x", "crash a", "crash b", "leave a", "leave b", "pause x", "pause a", "pause b",
    "restart x", "restart a", "restart b",
)  # fmt: skip
"""What happens to whom at one moment of a join: x the joiner, a its guardian, b the guardian's successor."""


# ---- flash crowds


@dataclass(frozen=True, slots=True)
class Crowd:
    """What came of many joins; seconds are virtual, counted from the last start of a node.

    Args:
        samples, two, none: border keys between two members, sampled ten times a second; with two owners, with none.
        overlaps: seen after any event.
        ring_right, leaves_right: seconds until agreed neighbours and owners were right, and leaf sets too; None: not in time.
        without_owner: share of all keys and time; longest_without: one key, seconds.
        admission_messages, other_messages: per join.
    """

    nodes: int
    rate: int
    loss: float
    seed: int
    samples: int
    two: int
    none: int
    overlaps: int
    ring_right: float | None
    leaves_right: float | None
    without_owner: float
    longest_without: float
    admission_messages: float
    other_messages: float
    rejoins: int
    aborted: int
    events: int


ADMISSION = (
    "JoinRequest", "JoinBounced", "JoinRefused", "Queued", "Call", "Here", "Busy", "Yield", "Place", "Taken", "Confirmed",
    "TooLate", "Unyield", "Unyielded", "WhatOfYield",
)  # fmt: skip
BEATS = ("Renew", "Lease")


def crowd(nodes: int, rate: int, loss: float, seed: int, limit_s: int = 120) -> Crowd:
    """So many joins into a ring of one, `rate` a second (0: all within 10 ms)."""
    bed = Bed(seed, loss)
    world, ids = bed.world, simulated_ids(seed, nodes)
    random, pick = RandomStream(seed, "crowd"), RandomStream(seed, "samples")
    bed.start(ids[0], ())
    world.run_for(SECOND)
    interval = SECOND // rate if rate else 10 * MILLISECOND // nodes
    counts = [0, 0, 0]
    next_sample = int(world.now)
    for index in range(1, nodes):
        world.run_for(interval)
        bed.start(ids[index], (ids[random.index(index)], ids[0]))
        if world.now >= next_sample:
            next_sample = world.now + SECOND // 10
            _sample(bed, pick, counts)
    last = world.now
    ring_right = leaves_right = None
    while leaves_right is None and world.now - last < limit_s * SECOND:
        world.run_for(SECOND // 10)
        if ring_right is None:
            _sample(bed, pick, counts)
            machines = bed.ring.machines
            if all(machine.joined for machine in machines) and not ring_violations(machines, world.now):
                bed.owners.expire()
                ring_right = (world.now - last) / SECOND if bed.owners.is_complete else None
        if ring_right is not None and not leaf_violations(bed.ring.machines, bed.config.leaf_count):
            leaves_right = (world.now - last) / SECOND
    sent: dict[str, int] = {}
    statistics = [machine.statistics() for machine in bed.ring.machines]
    for each in statistics:
        for kind, count in each.sent:
            sent[kind] = sent.get(kind, 0) + count
    admission = sum(sent.get(kind, 0) for kind in ADMISSION)
    others = sum(sent.values()) - admission - sum(sent.get(kind, 0) for kind in BEATS)
    return Crowd(
        nodes, rate, loss, seed, counts[0], counts[1], counts[2], bed.owners.overlaps, ring_right, leaves_right,
        round(bed.owners.share_without_owner, 4), round(bed.owners.longest_ns / SECOND, 3),
        round(admission / nodes, 1), round(others / nodes, 1),
        sum(each.rejoins for each in statistics), sum(each.aborted_admissions for each in statistics), world.events,
    )  # fmt: skip


def _sample(bed: Bed, random: RandomStream, counts: list[int], count: int = 50) -> None:
    """Border keys between two members that are next to each other."""
    members = bed.in_ring
    if len(members) < 2:
        return
    bed.owners.expire()
    for _ in range(count):
        index = random.index(len(members))
        left, right = members[index - 1], members[index]
        key = NodeId((left + ((right - left) % (1 << ID_BITS)) // 2 + random.index(2)) % (1 << ID_BITS))
        near = [members[(index + step) % len(members)] for step in range(-4, 4)]
        owners = 0
        for node in dict.fromkeys(near):
            life = bed.world.nodes[node]
            claim = life.machine.claim(life.local(bed.world.now))
            owners += claim is not None and claim.holds(key, (1 << ID_BITS) - 1)
        counts[0] += 1
        counts[1] += owners > 1
        counts[2] += owners == 0


# ---- one fault at every moment of a join


def sweep(
    size: int, what: str, at_ms: int, *, joiners: int = 1, seed: int = 1, config: OverlayConfig | None = None
) -> Bed:
    """A ring of `size`, then joiners; `at_ms` later one of those concerned meets its fate; 30 s are given to settle.

    A ring of one whose only owner dies before its first joiner is in is gone: then nothing is expected.
    """
    bed = Bed(seed, config=config)
    world, random = bed.world, RandomStream(seed, "sweep", size)
    ids = sorted(NodeId(random.bits(ID_BITS)) for _ in range(size))
    for index, node in enumerate(ids):
        bed.start(node, ids[:1] if index else ())
        world.run_for(2 * SECOND)
    a, b = ids[0], ids[1 % size]
    gap = (b - a) % (1 << ID_BITS) or (1 << ID_BITS)
    new = [NodeId((a + gap * (index + 1) // (joiners + 2)) % (1 << ID_BITS)) for index in range(joiners)]
    for node in new:
        bed.start(node, (ids[-1], ids[0]))
    world.run_for(at_ms * MILLISECOND)
    deed, _, whom = what.partition(" ")
    victim = {"x": new[0], "a": a, "b": b}.get(whom)
    if victim is not None:
        _meet_fate(bed, deed, victim, [node for node in (*ids, *new) if node != victim], random)
    return bed


def _meet_fate(bed: Bed, deed: str, victim: NodeId, others: list[NodeId], random: RandomStream) -> None:
    world = bed.world
    if deed == "crash":
        world.crash(victim, silent=True)
    elif deed == "leave":
        world.inject(victim, LeaveRing())
    elif deed == "restart":
        world.crash(victim)
        bed.start(victim, others[:4])
    elif deed == "pause":
        duration = int(SECOND * random.between(1.6, 4.5))
        world.pause(victim, duration)
        world.run_for(duration)


def is_lost(bed: Bed) -> bool:
    """Nobody who was in the ring is left, so nothing can come of it."""
    return not bed.in_ring


# ---- the command line


def _crowds(seeds: Sequence[int], nodes: int) -> list[dict[str, object]]:
    rows = []
    for loss in (0.0, 0.01):
        for rate in (50, 200, 1_000, 0):
            for seed in seeds:
                row = asdict(crowd(nodes, rate, loss, seed))
                sys.stderr.write(f"{row}\n")
                rows.append(row)
    return rows


def _sweeps(step_ms: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for size in (1, 2, 3, 5):
        for what in SWEPT:
            runs = overlaps = stuck = lost = 0
            longest = slowest = 0.0
            for joiners in (1, 3):
                for at_ms in range(0, 700, step_ms):
                    bed = sweep(size, what, at_ms, joiners=joiners, seed=at_ms + 1)
                    runs += 1
                    took = None if is_lost(bed) else bed.settle(40 * SECOND)
                    overlaps += bed.owners.overlaps > 0
                    if took is None:
                        lost += size == 1
                        stuck += size > 1
                    slowest = max(slowest, took or 0.0)
                    longest = max(longest, bed.owners.longest_ns / SECOND)
            row: dict[str, object] = {
                "size": size, "what": what, "runs": runs, "runs_with_overlaps": overlaps, "stuck": stuck, "ring_lost": lost,
                "longest_without_owner": round(longest, 2), "slowest": slowest,
            }  # fmt: skip
            sys.stderr.write(f"{row}\n")
            rows.append(row)
    return rows


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code: 1 when a key had two owners or something did not settle."""
    parser = argparse.ArgumentParser(prog="agiledart_simulation.runs.admission", description=__doc__)
    parser.add_argument("what", choices=("crowds", "sweep", "storms"))
    parser.add_argument("--seeds", default="1", help="one seed, or a range such as 1-100")
    parser.add_argument("--nodes", type=int, default=1_000, help="joins of a crowd")
    parser.add_argument("--step", type=int, default=20, help="milliseconds between two moments of a sweep")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if options.what == "crowds":
        rows = _crowds(seeds, options.nodes)
        failed = any(row["overlaps"] or row["two"] or row["ring_right"] is None for row in rows)
    elif options.what == "sweep":
        rows = _sweeps(options.step)
        failed = any(row["runs_with_overlaps"] or row["stuck"] for row in rows)
    else:
        rows = storms(seeds)
        failed = any(row["overlaps"] or row["settled"] is None for row in rows)
    sys.stdout.write(json.dumps(rows, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
