"""`kill -9` of what takes part in copying a log with Spark, at a random moment of a round, and the copy compared with the log.

A round's moment is drawn from its seed: so many micro-batches are committed, and then so many looks of 20 ms later. It counts only
when rows were still missing then.
"""

import contextlib
import itertools
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.mesh import AgentProcess, wait_for
from tests.spark.written import BATCHES, FILES, Written, copied, state_of, submit, wait_for_end

BATCH_ROWS = 500
"""Rows of a micro-batch: the log of 3,000 trips takes six."""

LATEST_BATCH = 4
"""Micro-batches after which a round waits no longer for its moment, so that something is left to copy."""

LOOKS = 150
START_SECONDS = 500.0
COPY_SECONDS = 500.0
STARTS = 10
LATE = "connect back"
"""Spark waits ten seconds for a Python process of its own; on a crowded machine a query has to be started again."""


@dataclass
class Round:
    """One kill and what came of it."""

    victim: str
    seed: int
    kind: str
    rows: int = 0
    rows_at_kill: int = 0
    batches_at_kill: int = 0
    missing: int = 0
    repeated: int = 0
    seconds: float = 0.0
    note: str = ""
    began: float = field(default_factory=time.monotonic, repr=False)

    def judge(self, written: Written, folder: Path) -> None:
        """Compare the copy with the log, row by row."""
        expected, found = written.rows(), copied(folder / "copy", self.kind)
        self.rows = expected.total()
        self.missing, self.repeated = (expected - found).total(), (found - expected).total()
        self.seconds = round(time.monotonic() - self.began, 1)
        assert self.rows_at_kill < self.rows, f"{self}: nothing was left to copy; the kill proves nothing"
        assert (self.missing, self.repeated) == (0, 0), str(self)

    def document(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "began"}


def begin(victim: str, seed: int) -> tuple[Round, random.Random]:
    """A round and its source of chance; it writes with `foreachBatch` or with Spark's file sink."""
    chance = random.Random(f"{victim} {seed}")
    return Round(victim, seed, chance.choice((BATCHES, FILES))), chance


def wait_for_moment(this: Round, chance: random.Random, folder: Path, failed: Any) -> None:
    """Wait for the round's moment; `failed()` gives the reason why it will not come, or nothing."""
    batches, looks = chance.randrange(0, LATEST_BATCH + 1), chance.randrange(0, LOOKS)

    def committed() -> bool:
        assert not (why := failed()), why
        return (folder / "checkpoint" / "offsets" / "0").exists() and commits(folder) >= batches

    wait_for(committed, START_SECONDS, f"{batches} micro-batches are committed")
    counted = itertools.count()
    wait_for(lambda: next(counted) >= looks or commits(folder) >= LATEST_BATCH, START_SECONDS, "the moment")
    this.batches_at_kill, this.rows_at_kill = commits(folder), copied(folder / "copy", this.kind).total()


def commits(folder: Path) -> int:
    """Micro-batches that Spark has done with."""
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


# ---- drivers in processes of their own


class Driver:
    """`tests.spark.driver` in a process group of its own."""

    def __init__(self, folder: Path, master: str, **config: str) -> None:
        self._errors = (folder / f"driver-{time.monotonic_ns()}.err").open("w+")
        command = [sys.executable, "-m", "tests.spark.driver", master, str(folder / "spark.log"), json.dumps(config)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )

    def ready(self) -> None:
        assert "ready" in self.answer(), self.said()

    def begin(
        self, folder: Path, written: Written, kind: str, seconds: float, rows: int = BATCH_ROWS, **more: str
    ) -> None:
        """Have it copy a log; `more` are options of the source."""
        reader = written.options(maxRowsPerBatch=str(rows), **more)
        task = {"reader": reader, "folder": str(folder), "kind": kind, "seconds": seconds}
        assert self.process.stdin is not None
        self._task = json.dumps(task) + "\n"
        self.process.stdin.write(self._task)
        self.process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """Return the copy's output once it has ended; one whose Python processes were late is started again."""
        assert self.process.stdin is not None
        for _ in range(STARTS):
            told = self.answer()
            if LATE not in told.get("whole", ""):
                break
            self.process.stdin.write(self._task)
            self.process.stdin.flush()
        assert "error" not in told, told
        return told

    def failure(self) -> str:
        return self.said() if self.process.poll() is not None else ""

    def said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def kill(self) -> None:
        """kill -9 of Python and its JVM."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def has_answered(self) -> bool:
        """Return whether its next line is there, or it has ended."""
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def answer(self) -> dict[str, Any]:
        """Its next line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.said()
        return dict(json.loads(line))


@contextlib.contextmanager
def driver(folder: Path, master: str = "local[2,4]", **config: str) -> Iterator[Driver]:
    """A driver that has its session; it is killed at the end."""
    made = Driver(folder, master, **config)
    try:
        made.ready()
        yield made
    finally:
        made.kill()


def executors(ancestor: int) -> list[int]:
    """Executor JVMs among the descendants of a process."""
    return processes_of(ancestor, b"CoarseGrainedExecutorBackend")


def processes_of(ancestor: int, text: bytes) -> list[int]:
    """Descendants of a process that have this text in their command line."""
    parents: dict[int, int] = {}
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if text in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return [pid for pid in sorted(found) if ancestor in _line(pid, parents)[1:]]


def _line(pid: int, parents: dict[int, int]) -> list[int]:
    line = [pid]
    while (pid := parents.get(pid, 0)) > 1:
        line.append(pid)
    return line


# ---- rounds


class Spare:
    """The driver that stands by. One that has finished a round's copy begins the next round's, and is killed in that."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: Driver | None = None

    def driver(self) -> Driver:
        if self._made is None:
            self._made = Driver(self._folder, "local[2,4]")
            self._made.ready()
        return self._made

    def kill(self) -> None:
        """kill -9 of the one that there is."""
        if self._made is not None:
            self._made.kill()
        self._made = None


def kill_driver(written: Written, spare: Spare, folder: Path, seed: int) -> Round:
    """The driver is killed in mid-stream, and another goes on from its checkpoint."""
    this, chance = begin("driver", seed)
    first = spare.driver()
    first.begin(folder, written, this.kind, 0.05)
    wait_for_moment(this, chance, folder, first.failure)
    spare.kill()
    second = spare.driver()
    second.begin(folder, written, this.kind, 0, 1_000)
    second.end()
    this.judge(written, folder)
    return this


def kill_executor(written: Written, cluster: Driver, ancestors: list[int], folder: Path, seed: int) -> Round:
    """One of two executors is killed in mid-stream; the query goes on by itself.

    Args:
        ancestors: processes among whose descendants the executors are: the driver, or workers.
    """
    this, chance = begin("executor", seed)
    found: list[int] = []

    def both() -> bool:
        found[:] = [pid for ancestor in ancestors for pid in executors(ancestor)]
        return len(found) >= 2

    wait_for(both, START_SECONDS, "two executors run")
    cluster.begin(folder, written, this.kind, 0)
    wait_for_moment(this, chance, folder, cluster.failure)
    victim = chance.choice(found)
    os.kill(victim, signal.SIGKILL)
    cluster.end()
    this.judge(written, folder)
    return this


def kill_agent(session: Any, holder: AgentProcess, other: Written, folder: Path, seed: int) -> Round:
    """The agent that has the log is killed in mid-stream and comes back on another port; the application has ended by then.

    Every other seed kills it while the application runs, which fails by that. `other`: an agent that stays.
    """
    from tests.spark.driver import start_copy

    this, chance = begin("agent", seed)
    name = f"kills-{seed}"
    written = Written(other.agent, other.token, name)
    is_running = bool(seed % 2)
    source = "taxi:?count=200000&speed=10" if is_running else "taxi:?count=3000"
    submit(other.agent, f"{source}@{other.agent.name}", f"log:{name}?partitions=4@{holder.name}", name)
    if not is_running:
        assert wait_for_end(other.agent, name) == "finished"
    reader = written.options(maxRowsPerBatch=str(BATCH_ROWS))
    task = {"reader": reader, "folder": str(folder), "kind": this.kind, "seconds": 0.05}
    query = start_copy(session, task)
    starts = itertools.count(1)

    def runs() -> bool:
        """Goes on; is started again when Spark's Python processes were late."""
        nonlocal query
        if not query.isActive:
            assert LATE in str(query.exception()) and next(starts) < STARTS, query.exception()  # noqa: PT018
            query = start_copy(session, task)
        return True

    try:
        wait_for_moment(this, chance, folder, lambda: "" if runs() else "it has ended")
        before = holder.address
        if is_running:
            assert state_of(other.agent, name) == "running"
        holder.kill()
        this.note = wait_for_end(other.agent, name)
        assert this.note == ("failed" if is_running else "finished")
        holder.start()
        holder.ready()
        assert holder.address != before
        total = written.committed()

        def all_there() -> bool:
            assert runs()
            return copied(folder / "copy", this.kind).total() >= total

        wait_for(all_there, COPY_SECONDS, f"{total} rows are copied")
    finally:
        query.stop()
    this.judge(written, folder)
    return this
