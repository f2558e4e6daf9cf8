"""Experiment `replication-cost`: n parallel copies of an operator, compared with one operator whose state has n fragments.

Source: AgileDART, appendix C, figure 21. Figure 21a compares the CPU of processing the stream n times with that of processing it
once and sealing, cutting and joining its state. Figure 21b compares the transfer times of a checkpoint: n copies over an edge
link of 100 Mbit/s to a store, and fragments over a local network of 1 Gbit/s. CPU is measured, links are emulated. k = 2, so the
least n of the coded scheme is 3, and the point n = 2 has copies only.
"""

import time
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from agiledart_agent.fragments.erasure_code import KEY_BYTES, cut, joined, sealed, unsealed
from agiledart_experiments.recovery.emulated_links import MEGABIT, Transfer, arrivals, noise
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings

COPIES = (2, 3, 4, 8, 16)
PARITY = 2

PAPER = (400_000, 100_000_000)
SMALL = (60_000, 10_000_000)
"""Rows between two checkpoints, and bytes of the state whose transfer times are reported."""

STATE_BYTES = 1_000_000
"""Bytes of the state to code for each 60,000 rows that the operator processes."""

EDGE, LOCAL = 100 * MEGABIT, 1_000 * MEGABIT
CLOSE = 0.15

MODEL = {4: (32.0, 1.6), 8: (64.0, 1.067), 16: (128.0, 0.914)}
"""Seconds of the model for copies and for fragments of 100 MB, by n. Source: the formula of the appendix."""


class OperatorRow(NamedTuple):
    """One row of the operator's input."""

    at: int
    sensor: int
    value: float


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each number of copies or fragments."""
    rows_each, state = PAPER if settings.is_paper else SMALL
    settings.progress(f"an operator takes {rows_each:,} rows")
    once = _least(lambda: _processed(rows_each))
    size = STATE_BYTES * rows_each // SMALL[0]
    data = noise(size, settings.seed)
    rows = []
    for n in COPIES:
        settings.progress(f"{n} copies, {n} fragments")
        rows.append(_row(n, once, data, state))
    parameters = {
        "rows": rows_each,
        "coded_bytes": size,
        "sent_bytes": state,
        "k": PARITY,
        "edge_mbit": 100,
        "local_mbit": 1_000,
    }
    notes = (
        "copies_cpu_seconds is n times the measured CPU of one operator; coded is one operator, sealing, cutting and joining",
        f"seconds of the model are for a state of 100 MB; measured seconds are for {state / 1e6:.0f} MB and scaled to 100 MB",
    )
    return ExperimentReport(parameters, tuple(rows), _goals(rows), notes)


def _least(work: Callable[[], None], times: int = 3) -> float:
    """Return the CPU seconds of the quickest of some runs, since other processes disturb the slower ones."""
    durations = []
    for _ in range(times):
        began = time.process_time()
        work()
        durations.append(time.process_time() - began)
    return min(durations)


def _processed(rows: int) -> None:
    """Process rows by one operator: running sums by sensor, by the code of the engine."""
    from agiledart import Source, Topology, null, sum_of
    from agiledart.testing import run_local

    topology = Topology("sums")
    readings = [OperatorRow(number, number % 997, float(number % 31)) for number in range(rows)]
    source: Source[OperatorRow] = readings  # type: ignore[assignment]
    sums = (
        topology.source("readings", source)
        .key_by(lambda row: row.sensor)
        .running("sums", sum_of(lambda row: row.value))
    )
    sums.sink("report", null())
    run_local(topology)


def _row(n: int, once: float, data: bytes, state: int) -> Row:
    m = n - PARITY
    copies = max(arrivals([Transfer(0, state)] * n, EDGE, EDGE, 0.0))
    scale = 1e8 / state
    model = MODEL.get(n)
    row: Row = {
        "n": n,
        "m": m,
        "copies_cpu_seconds": round(n * once, 3),
        "copies_bytes": n * state,
        "copies_seconds": round(copies * scale, 3),
        "copies_seconds_model": model and model[0],
    }
    if not m:
        return row | dict.fromkeys(
            ("coded_cpu_seconds", "cpu_ratio", "coded_bytes", "coded_seconds", "coded_seconds_model")
        )
    code = _least(lambda: _coded(data, m, n))
    coded = max(arrivals([Transfer(0, -(-state // m))] * n, LOCAL, LOCAL, 0.0))
    return row | {
        "coded_cpu_seconds": round(once + code, 3),
        "cpu_ratio": round(n * once / (once + code), 2),
        "coded_bytes": n * -(-state // m),
        "coded_seconds": round(coded * scale, 3),
        "coded_seconds_model": model and model[1],
    }


def _coded(data: bytes, m: int, n: int) -> None:
    """Code one checkpoint and one recovery, which joins the worst fragments: as few raw ones as possible."""
    key, digest = bytes(KEY_BYTES), sha256(data).digest()
    whole = sealed(data, digest, key)
    fragments = cut(whole, m, n)
    left = {number: fragments[number] for number in range(n - m, n)}
    back = next(joined([left], m, n, len(whole)))
    assert unsealed(back, digest, key) == data


def _goals(rows: list[Row]) -> tuple[Goal, ...]:
    ratio = {row["n"]: row["cpu_ratio"] for row in rows}
    model_rows = [row for row in rows if row["copies_seconds_model"]]
    near = all(
        abs(row[f"{scheme}_seconds"] / row[f"{scheme}_seconds_model"] - 1) <= CLOSE
        for row in model_rows
        for scheme in ("copies", "coded")
    )
    return (
        Goal("copies take at least twice the CPU at n = 4", ratio[4] >= 2),
        Goal("copies take at least five times the CPU at n = 16", ratio[16] >= 5),
        Goal("times of copies and fragments within 15 % of the appendix's model", near),
    )
