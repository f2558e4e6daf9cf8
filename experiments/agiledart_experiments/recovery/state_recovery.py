"""Experiment `state-recovery`: save and restore a state by fragments at neighbours, compared with one remote store.

AgileDART, figure 11b: saving takes about as long as with a store, recovery is 34 to 63 % shorter, and the gap widens with the size
of the state (the paper prints no table). Every node sends at 100 Mbit/s and receives at 1 Gbit/s; the store answers at the same
100 Mbit/s, with a longer delay. The links of both are emulated. Sealing, cutting, joining and opening are real, and their time
counts for the fragments.
"""

import time
from hashlib import sha256
from itertools import pairwise

from agiledart_agent.fragments.erasure_code import KEY_BYTES, cut, joined, sealed, unsealed
from agiledart_experiments.recovery import real_state_recovery
from agiledart_experiments.recovery.emulated_links import MEGABIT, Transfer, arrivals, noise
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_recovery.fragments.arithmetic import stripe_providers, stripe_range

PAPER = (8, 16, 32, 64, 128, 256)
SMALL = (8, 64)
"""Sizes of the state in MB (10⁶ bytes)."""

CODES = ((4, 2), (16, 2))
"""Codes (m, k): the default of agents, and wide stripes, which add fewer bytes to those of the state."""

UPLOAD, DOWNLOAD = 100 * MEGABIT, 1_000 * MEGABIT
NEAR, FAR = 0.001, 0.02
"""One-way delay in seconds to a neighbour, and to the store."""

LESS = 0.34
LARGE_MB = 64
SAVING = 1.25


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each size and code."""
    if settings.real:
        return real_state_recovery.run(settings)
    sizes = settings.sizes_or(PAPER if settings.is_paper else SMALL)
    rows = []
    for size in sizes:
        settings.progress(f"saving and restoring a state of {size} MB")
        rows += [_row(size, m, k, settings.seed) for m, k in CODES]
    parameters = {"sizes_mb": sizes, "upload_mbit": 100, "download_mbit": 1_000, "store_ms": 1_000 * FAR}
    notes = (
        "links are emulated; code_seconds is CPU time of this machine, and part of the times of fragments",
        "saving sends (m + k)/m times the state: 1.5 with 4 + 2 by its definition, 1.125 with 16 + 2",
    )
    return ExperimentReport(parameters, tuple(rows), _goals(rows), notes)


def _row(size_mb: int, m: int, k: int, seed: int) -> Row:
    size, n, key = size_mb * 1_000_000, m + k, bytes(KEY_BYTES)
    data = noise(size, seed, size_mb)
    began = time.process_time()
    digest = sha256(data).digest()
    whole = sealed(data, digest, key)
    fragments = cut(whole, m, n)
    coding = time.process_time() - began
    piece = len(fragments[0])
    saving = max(arrivals([Transfer(0, piece)] * n, UPLOAD, DOWNLOAD, NEAR))
    # The owner's host died, and with it the replica node of the first fragment, so the parity is needed.
    replica_nodes = range(1, n)
    asked = [
        (stripe, replica_nodes[place])
        for stripe in range(len(replica_nodes))
        for place in stripe_providers(stripe, m, len(replica_nodes))
    ]
    ranges = [stripe_range(stripe, len(replica_nodes), piece) for stripe in range(len(replica_nodes))]
    fetching = max(arrivals([Transfer(at, ranges[stripe][1]) for stripe, at in asked], UPLOAD, DOWNLOAD, NEAR))
    came: list[dict[int, bytes]] = [{} for _ in replica_nodes]
    for stripe, at in asked:
        offset, length = ranges[stripe]
        came[stripe][at] = fragments[at][offset : offset + length]
    began = time.process_time()
    back = unsealed(next(joined(came, m, n, len(whole))), digest, key)
    opening = time.process_time() - began
    store_saving = max(arrivals([Transfer(0, size)], UPLOAD, DOWNLOAD, FAR))
    store = max(arrivals([Transfer(0, size)], UPLOAD, DOWNLOAD, FAR))
    ours = fetching + opening
    return {
        "state_mb": size_mb,
        "code": f"{m}+{k}",
        "save_seconds": round(saving + coding, 3),
        "store_save_seconds": round(store_saving, 3),
        "save_ratio": round((saving + coding) / store_saving, 3),
        "recover_seconds": round(ours, 3),
        "store_recover_seconds": round(store, 3),
        "less": round(1 - ours / store, 3),
        "gap_seconds": round(store - ours, 3),
        "code_seconds": round(coding + opening, 3),
        "is_exact": back is not None and back == data,
    }


def _goals(rows: list[Row]) -> tuple[Goal, ...]:
    large = [row for row in rows if row["state_mb"] >= LARGE_MB]
    widens = all(
        before["gap_seconds"] <= after["gap_seconds"]
        for code in dict.fromkeys(row["code"] for row in rows)
        for before, after in _pairs([row for row in rows if row["code"] == code])
    )
    wide = [row for row in rows if row["code"] == "16+2"]
    return (
        Goal("every restored state equals the saved one", all(row["is_exact"] for row in rows)),
        Goal(f"recovery takes at least 34 % less from {LARGE_MB} MB on", all(row["less"] >= LESS for row in large)),
        Goal("the gap does not shrink as the state grows", widens),
        Goal("saving with 16 + 2 takes at most 1.25 times as long", all(row["save_ratio"] <= SAVING for row in wide)),
    )


def _pairs(rows: list[Row]) -> list[tuple[Row, Row]]:
    return list(pairwise(rows))
