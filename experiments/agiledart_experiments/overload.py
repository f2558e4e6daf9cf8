"""Experiment `overload`: memory and row accounting of each overload policy when a sink is ten times slower than its source.

The four applications run on real agents at the same time. Their source is a file paced by its event times, which the policy
treats as live data. While the input lasts, the experiment reads the memory of the source's executor from the agent's metrics.
Then the slow step becomes fast and the queued rows drain. At the end the ledger must add up to the last row:
lines = results + late + malformed + shed, with no row waiting and no row spooled.
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
"""Factor by which the slow step takes longer for a row than the source."""

WAITING_ROWS = 2_000
SECONDS = {"small": 15, "paper": 300}
BINS = 20
"""Number of points of each curve."""

WARM = 0.2
"""Share of the time after which memory is assessed: before, buffers fill and code is imported."""

GROWTH_MB = 10.0
LOOK_SECONDS = 0.5
DRAIN_SECONDS = 240.0
FINAL = ("finished", "failed", "stopped")


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment with all policies at once: return the memory curves, and one final ledger row for each policy."""
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
        settings.progress("the queued rows drain")
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
    """Write the input: one reading for each 0.5 ms of event time, with some payload bytes."""
    with file.open("w") as lines:
        for number in range(seconds * ROWS_A_SECOND):
            lines.write(f"{1_700_000_000_000 + number * 1000 // ROWS_A_SECOND},{number / 7:.3f},sensor-{number:060d}\n")


def _release(mesh: ThrowawayMesh) -> Path:
    """Return the file whose existence makes the slow steps fast."""
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
    """Record the curves while the step is slow.

    Recording starts with the first submission and ends `seconds` after the last one. On a busy machine it lasts until the policies
    that never block their source have read all input.
    """
    began = time.monotonic()
    end: float | None = None
    memory: dict[tuple[str, int], float] = {}
    summaries: dict[tuple[str, int], dict[str, Any]] = {}
    last = -1
    given_up = began + DRAIN_SECONDS
    while end is None or time.monotonic() < end or not (_have_read(summaries, seconds) or time.monotonic() > given_up):
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
                    summaries[_name(policy), place] = status["summary"]
            last = place
        time.sleep(LOOK_SECONDS)
    places = sorted({place for _, place in memory})
    return tuple(
        _row(policy, round((place + 1) * seconds / BINS, 2), memory[key], summaries.get(key, {}))
        for policy in POLICIES
        for place in places
        if (key := (_name(policy), place)) in memory
    )


def _have_read(summaries: dict[tuple[str, int], dict[str, Any]], seconds: int) -> bool:
    """Return whether the sources that shed or spool rows have read all of their input."""
    most = dict.fromkeys(map(_name, POLICIES[1:]), 0)
    for (name, _), summary in summaries.items():
        if name in most:
            most[name] = max(most[name], summary.get("records_in", 0))
    return all(lines >= seconds * ROWS_A_SECOND for lines in most.values())


def _status(mesh: ThrowawayMesh, policy: str) -> dict[str, Any] | None:
    """Return the status of an application; None when a busy machine did not answer in time."""
    try:
        status: dict[str, Any] = mesh.ask("status", _name(policy))
    except OperationFailed:
        return None
    return status


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
    """Return the final ledger row of an application, once its input has ended."""
    end = time.monotonic() + DRAIN_SECONDS
    while True:
        status = _status(mesh, policy)
        if status is not None and (status["state"] in FINAL or time.monotonic() > end):
            break
        if time.monotonic() > end:
            raise OperationFailed(f"no agent reports the status of {_name(policy)}")
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
            goals.append(Goal(f"{policy}: no row is shed", row["shed"] == 0 and row["results"] == lines))
        else:
            goals.append(Goal(f"{policy}: some rows are shed, and counted", row["shed"] > 0))
        if policy == "spool":
            goals.append(Goal("spool: rows went to disk and came back", row["spooled_ever"] > 0))
    return goals
