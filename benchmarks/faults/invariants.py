"""Invariants after any fault: each check yields a sentence per violation, and none when all is well."""

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.e2e.mesh import executors_of, names_seen

from agiledart_kernel.errors import OperationFailed
from agiledart_sink_log.layout import log_directory
from agiledart_sink_log.log_reader import LogReader
from benchmarks.faults.draws import Draw
from benchmarks.faults.job import KEYS, expected_folds, expected_sums, read_folds
from benchmarks.faults.lab import FINAL, SINK, UNANSWERED, FaultLab, waited

RING_SECONDS: Final = 90.0
END_SECONDS: Final = 180.0
QUIET_SECONDS: Final = 60.0
MORE_FILES: Final = 60
"""Descriptors that an agent may have more than when the lab was new: links to others, and what a library keeps."""

NAMES: Final = re.compile(r"\ba[1-9]\b")

Finals = dict[str, tuple[str, str]]
"""Application → (state, reason) of all that have ended."""


def one_ring(lab: FaultLab) -> Iterator[str]:
    """Check that all agents run and know each other."""
    wanted = {agent.name for agent in lab.mesh.agents}

    def seen() -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for agent in lab.mesh.agents:
            try:
                answers[agent.name] = sorted(names_seen(agent))
            except UNANSWERED as error:
                answers[agent.name] = str(error)[:200]
        return answers

    if not waited(lambda: all(names == sorted(wanted) for names in seen().values()), RING_SECONDS):
        yield f"ring: after {RING_SECONDS:g} s they know {seen()}"


def ends(lab: FaultLab, name: str) -> Iterator[str]:
    """Check that the job ends."""
    if not waited(lambda: lab.status(name)["state"] in FINAL, END_SECONDS):
        status = lab.status(name)
        why = status.get("recovery") or status.get("reason", "")
        yield f"end: {name} is {status['state'] or 'unknown'} after {END_SECONDS:g} s, {why}"


def agreement(lab: FaultLab, finals: Finals) -> Iterator[str]:
    """Check that all agents agree, and that an ended job keeps its final state."""

    def ask_all() -> list[Any]:
        return [lab.states(agent) for agent in lab.mesh.agents]

    def same() -> bool:
        listings = ask_all()
        return (
            None not in listings
            and all(listing == listings[0] for listing in listings)
            and not any(by for *_, by in listings[0].values())
        )

    if not waited(same, QUIET_SECONDS):
        names = {name for listing in ask_all() if listing for name in listing}
        differ = {
            n: [listing and listing.get(n) for listing in ask_all()]
            for n in sorted(names)
            if len({str(listing and listing.get(n)) for listing in ask_all()}) > 1
        }
        yield f"agreement: {differ or 'by hearsay still'}"
    for name, (state, reason, is_unverified) in (ask_all()[0] or {}).items():
        if state in FINAL and not is_unverified and finals.setdefault(name, (state, reason)) != (state, reason):
            yield f"final: {name} was {finals[name]}, and is {(state, reason)}"


def output(lab: FaultLab, name: str) -> Iterator[str]:
    """Check that the output is exact, or a prefix when the job `failed`, and that the log's committed rows can be read."""
    state = lab.status(name)["state"]
    folds, sums = read_folds(lab.folds(name)), []
    folder = log_directory(lab.mesh.agent(SINK).state_dir, name)
    if (folder / "log.json").exists():
        try:
            sums = by_window([(row[2], row[0], row[3]) for row in logged(folder)])
        except (OSError, ValueError, OperationFailed) as error:
            yield f"log: cannot be read: {error}"
    for what, rows, expected in (("folds", folds, expected_folds()), ("sums", sums, expected_sums())):
        if rows == expected or (state != "finished" and is_prefix(rows, expected)):
            continue
        at = next(
            (n for n, (a, b) in enumerate(zip(rows, expected, strict=False)) if a != b), min(len(rows), len(expected))
        )
        yield f"output: {state}, {len(rows)} of {len(expected)} {what}, the first wrong one is {at}: {rows[at : at + 2]}"


def is_prefix(rows: list[tuple[int, int, int]], expected: list[tuple[int, int, int]]) -> bool:
    """Tell whether the rows are a prefix of the reference. The last window may have any of its keys."""
    whole = [row for row in rows if row[0] != rows[-1][0]]
    rest, then = rows[len(whole) :], expected[len(whole) : len(whole) + KEYS]
    return whole == expected[: len(whole)] and len(frozenset(rest)) == len(rest) and all(row in then for row in rest)


def by_window(rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Sort rows within each window as the reference does; keep the windows in their order of output."""
    rows_by_window: dict[int, list[tuple[int, int, int]]] = {}
    last = 0
    for row in rows:
        rows_by_window.setdefault(row[0] if row[0] >= last else -1, []).append(
            row
        )  # a window that comes too late counts as out of order
        last = max(last, row[0])
    return [row for same in rows_by_window.values() for row in sorted(same)]


def logged(folder: Any) -> list[Any]:
    """Return the committed rows of a log."""
    import msgspec

    reader, rows = LogReader(folder), []
    offset, end = 0, reader.ends(0).committed
    while offset < end:
        batches, offset, _ = reader.fetch(0, offset, 10_000, 1 << 20)
        for batch in batches:
            rows += msgspec.msgpack.decode(batch.body)
    return rows


def reason(lab: FaultLab, draw: Draw, name: str) -> Iterator[str]:
    """Check that a failed job gives a reason in words, with a node or a step."""
    for job, (state, why, _) in (lab.states(lab.any()) or {}).items():
        if not job.startswith(name) or state != "failed":
            continue
        if not why or "Traceback" in why:
            yield f"reason: {job} failed, {why or 'and nothing says why'}"
        elif not (NAMES.search(why) or re.search(r"\b(bad|left|right|sums|fold|plain|report|folds)\b", why)):
            yield f"reason: {job}: no node and no step in {why!r}"
    state, why, _ = (lab.states(lab.any()) or {}).get(f"{name}-bad", ("failed", "bad", False))
    if state != "failed" or "bad" not in why:
        yield f"reason: code that breaks in step bad is {state}: {why!r}"


def spared(lab: FaultLab, draw: Draw, name: str, struck: tuple[str, ...]) -> Iterator[str]:
    """Check that faults of idle nodes have no effect, and that a run with checkpoints survives any fault of its hosts."""
    if draw.moment == "forming":
        return  # the node that forms it may be struck, too
    status = lab.status(name)
    hit = [agent for agent in struck if agent in status["nodes"]]
    is_hit = len(hit) > (1 if draw.kind in ("pair", "one-way") else 0)
    if status["state"] != "finished" and (not is_hit or (draw.delivery == "exactly-once" and draw.kind != "flip")):
        circumstances = f"{', '.join(struck) or 'no agent'} was struck, it ran on {', '.join(status['nodes'])}"
        yield f"spared: {name} is {status['state']}: {circumstances}: {status.get('reason', '')}"


def nothing_left(lab: FaultLab, files_before: dict[str, int]) -> Iterator[str]:
    """Check that no process, saved state or descriptor is left."""

    def left() -> list[str]:
        leftovers = []
        for agent in lab.mesh.agents:
            try:
                if pids := executors_of(agent):
                    leftovers.append(f"{agent.name} has the processes {pids}")
            except UNANSWERED as error:
                leftovers.append(f"{agent.name}: {error}")
            if remains := list(kept_in(agent.state_dir)):
                leftovers.append(f"{agent.name} keeps {remains[:12]}")
            count = descriptors_of(agent.pid)
            if count > files_before.get(agent.name, count) + MORE_FILES:
                leftovers.append(f"{agent.name} has {count} descriptors, {files_before[agent.name]} when it was new")
        return leftovers

    if not waited(lambda: not left(), QUIET_SECONDS):
        yield f"left: {'; '.join(left())}"


def kept_in(state_dir: Path) -> Iterator[str]:
    """Yield the files that a node keeps of runs, its own and others'; files may vanish during the search."""
    for folder in ("runs", "fragments"):
        for top, folders, files in os.walk(state_dir / folder):
            yield from (os.path.relpath(os.path.join(top, name), state_dir) for name in (*folders, *files))


def descriptors_of(pid: int) -> int:
    """Return the number of open files of a process."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


class Lap:
    """Stopwatch that records the seconds of each part of a draw."""

    def __init__(self, took: dict[str, float]) -> None:
        self._took, self._last = took, time.monotonic()

    def __call__(self, part: str) -> None:
        now = time.monotonic()
        self._took[part], self._last = round(now - self._last, 1), now


def violations_of(
    lab: FaultLab, draw: Draw, name: str, finals: Finals, files_before: dict[str, int], struck: tuple[str, ...], took: Lap,
    *, ran: bool,
) -> list[str]:  # fmt: skip
    """Return the sentences of all checks, run one after the other.

    Args:
        struck: agents.
        ran: whether the job was accepted; a refused job has no output, only a reason.
    """
    invariants: dict[str, Callable[[], Iterator[str]]] = {"ring": lambda: one_ring(lab)}
    if ran:
        invariants["end"] = lambda: ends(lab, name)
    invariants["agreement"] = lambda: agreement(lab, finals)
    if ran:
        invariants["output"] = lambda: output(lab, name)
        invariants["spared"] = lambda: spared(lab, draw, name, struck)
    invariants |= {"reason": lambda: reason(lab, draw, name), "left": lambda: nothing_left(lab, files_before)}
    violations: list[str] = []
    for part, check in invariants.items():
        violations += check()
        took(part)
    return violations
