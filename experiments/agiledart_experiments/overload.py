"""A sink ten times slower than its source, for every policy, on real agents: does memory stay bounded, is every row accounted for?

The four applications run at the same time. Their source is a file paced by its event times, which is live data to the
policy: rows come when they come. While it lasts, memory of the source's executor is read from the agent's metrics; then the
slow step becomes fast, what waits drains, and at the end the ledger must add up to the last row:
lines = results + late + malformed + shed, nothing waits and nothing is spooled.
"""

import importlib.resources
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_experiments.throwaway_mesh import ThrowawayMesh, throwaway_mesh
from agiledart_kernel.errors import OperationFailed

POLICIES = ("block", "spool", "shed_oldest", "shed_sample")

ROWS_A_SECOND = 2_000
SLOWER = 10
"""The slow step takes so many times as long for a row as the source."""

WAITING_ROWS = 2_000
SECONDS = {"small": 15, "paper": 300}
BINS = 20
"""Points of the curves."""

WARM = 0.2
"""Memory is judged from this share of the time on: before, buffers fill and code is imported."""

GROWTH_MB = 10.0
LOOK_SECONDS = 0.5
DRAIN_SECONDS = 240.0
FINAL = ("finished", "failed", "stopped")


def run(settings: Settings) -> ExperimentReport:
    """All policies at once."""
    seconds = SECONDS.get(settings.scale, SECONDS["small"])
    with throwaway_mesh(2) as mesh:
        _write_input(mesh.folder / "in.csv", seconds)
        for file in ("overload_job.py",):
            source = importlib.resources.files("agiledart_experiments") / file
            (mesh.folder / file).write_text(source.read_text())
        settings.progress(f"{len(POLICIES)} applications start")
        with ThreadPoolExecutor(len(POLICIES)) as pool:
            starts = [pool.submit(_submit, mesh, policy) for policy in POLICIES]
            rows = _watch(mesh, seconds, starts, settings)
        _release(mesh).touch()
        settings.progress("what waits drains")
        ends = [_end(mesh, policy) for policy in POLICIES]
    parameters = {
        "rows_a_second": ROWS_A_SECOND,
        "slower": SLOWER,
        "seconds": seconds,
        "overload_rows": WAITING_ROWS,
        "policies": POLICIES,
    }
    notes = (
        "memory_mb: the largest resident size of the source's executor within a point of the curve",
        "the rows at second null are the ledgers after the drain; unaccounted must be 0",
    )
    return ExperimentReport(parameters, (*rows, *ends), (*_memory_goals(rows), *_ledger_goals(ends)), notes)


def _name(policy: str) -> str:
    return f"overload-{policy.replace('_', '-')}"


def _write_input(file: Path, seconds: int) -> None:
    """One reading each 0.5 ms of event time, with some bytes to carry."""
    with file.open("w") as lines:
        for number in range(seconds * ROWS_A_SECOND):
            lines.write(f"{1_700_000_000_000 + number * 1000 // ROWS_A_SECOND},{number / 7:.3f},sensor-{number:060d}\n")


def _release(mesh: ThrowawayMesh) -> Path:
    """The file at which the slow steps become fast."""
    return mesh.folder / "fast"


def _submit(mesh: ThrowawayMesh, policy: str) -> None:
    given = {
        "readings": "csv:in.csv?speed=1@a1",
        "report": "null:@a2",
        "name": _name(policy),
        "policy": policy,
        "rows": WAITING_ROWS,
        "seconds_each": SLOWER / ROWS_A_SECOND,
        "until": str(_release(mesh)),
    }
    words = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    mesh.ask("submit", "overload_job.py:slow_sink", *words)


def _watch(mesh: ThrowawayMesh, seconds: int, starts: list[Future[None]], settings: Settings) -> tuple[Row, ...]:
    """The curves while the step is slow: from the first submission until so long after the last one, and on a busy machine until
    those who need not wait have read all.
    """
    began = time.monotonic()
    end: float | None = None
    memory: dict[tuple[str, int], float] = {}
    told: dict[tuple[str, int], dict[str, Any]] = {}
    last = -1
    given_up = began + DRAIN_SECONDS
    while end is None or time.monotonic() < end or not (_have_read(told, seconds) or time.monotonic() > given_up):
        if end is None and all(start.done() for start in starts):
            end = time.monotonic() + seconds
            for start in starts:
                start.result()
        now = time.monotonic() - began
        place = int(now * BINS / seconds)
        for name, size in mesh.executor_memory_mb("a1").items():
            memory[name, place] = max(size, memory.get((name, place), 0.0))
        if place != last and end is not None:
            settings.progress(f"{now:.0f} s, {max(0.0, end - time.monotonic()):.0f} more")
            for policy in POLICIES:
                if (status := _status(mesh, policy)) is not None:
                    told[_name(policy), place] = status["summary"]
            last = place
        time.sleep(LOOK_SECONDS)
    places = sorted({place for _, place in memory})
    return tuple(
        _row(policy, round((place + 1) * seconds / BINS, 2), memory[key], told.get(key, {}))
        for policy in POLICIES
        for place in places
        if (key := (_name(policy), place)) in memory
    )


def _have_read(told: dict[tuple[str, int], dict[str, Any]], seconds: int) -> bool:
    """Have the sources that let rows go or put them on disk read all of their input?"""
    most = dict.fromkeys(map(_name, POLICIES[1:]), 0)
    for (name, _), summary in told.items():
        if name in most:
            most[name] = max(most[name], summary.get("records_in", 0))
    return all(lines >= seconds * ROWS_A_SECOND for lines in most.values())


def _status(mesh: ThrowawayMesh, policy: str) -> dict[str, Any] | None:
    """How an application is; None when a machine that is too busy did not answer in time."""
    try:
        found: dict[str, Any] = mesh.ask("status", _name(policy))
    except OperationFailed:
        return None
    return found


def _row(policy: str, second: float | None, memory_mb: float | None, summary: dict[str, Any]) -> Row:
    shed = sum(summary.get("shed", {}).values())
    return {
        "policy": policy,
        "second": second,
        "memory_mb": None if memory_mb is None else round(memory_mb, 1),
        "lines": summary.get("records_in", 0),
        "results": sum(summary.get("results", {}).values()),
        "shed": shed,
        "shed_reasons": summary.get("shed", {}),
        "waiting": summary.get("waiting", 0),
        "spooled": summary.get("spooled", 0),
        "spooled_ever": summary.get("spooled_ever", 0),
        "late": summary.get("late", 0),
        "malformed": sum(summary.get("malformed", {}).values()),
        "unaccounted": None,
    }


def _end(mesh: ThrowawayMesh, policy: str) -> Row:
    """The ledger of an application once its input has ended."""
    end = time.monotonic() + DRAIN_SECONDS
    while True:
        status = _status(mesh, policy)
        if status is not None and (status["state"] in FINAL or time.monotonic() > end):
            break
        if time.monotonic() > end:
            raise OperationFailed(f"nobody says what became of {_name(policy)}")
        time.sleep(LOOK_SECONDS)
    row = _row(policy, None, None, status["summary"])
    others = ("results", "shed", "waiting", "spooled", "late", "malformed")
    row["unaccounted"] = row["lines"] - sum(row[name] for name in others)
    row["state"] = status["state"]
    row["reason"] = status.get("reason", "")
    return row


def _memory_goals(rows: tuple[Row, ...]) -> list[Goal]:
    goals = []
    for policy in POLICIES:
        sizes = [row["memory_mb"] for row in rows if row["policy"] == policy]
        warm = sizes[int(len(sizes) * WARM) :]
        growth = max(warm) - min(warm[: len(warm) // 2 + 1]) if warm else float("inf")
        goals.append(Goal(f"{policy}: memory grows by at most {GROWTH_MB:.0f} MB ({growth:.1f})", growth <= GROWTH_MB))
    return goals


def _ledger_goals(ends: list[Row]) -> list[Goal]:
    goals = []
    for row in ends:
        policy, lines = row["policy"], row["lines"]
        whole = row["state"] == "finished" and row["unaccounted"] == 0 and not row["waiting"] and not row["spooled"]
        goals.append(Goal(f"{policy}: each of {lines:,} lines is a result or shed by reason", lines > 0 and whole))
        if policy in ("block", "spool"):
            goals.append(Goal(f"{policy}: nothing is let go", row["shed"] == 0 and row["results"] == lines))
        else:
            goals.append(Goal(f"{policy}: some rows are let go, and counted", row["shed"] > 0))
        if policy == "spool":
            goals.append(Goal("spool: rows went to disk and came back", row["spooled_ever"] > 0))
    return goals
