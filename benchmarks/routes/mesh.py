"""Six agents on emulated hosts, source on the first and sink on the last, and the times at which their rows arrived."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from agiledart_control.errors import CommandRefusedError
from agiledart_node.wire.commands import Status
from benchmarks.many_agents import Agents
from benchmarks.routes.hosts import Hosts

COUNT = 6
DELAYS = {(1, 6): 0.005, (1, 2): 0.005, (2, 6): 0.005, (1, 3): 0.008, (3, 6): 0.008}
OTHER_DELAY = 0.02
NO_RELAY = 5
"""Host that relays no rows, so that all paths of rows can be cut while the ring still reaches every host."""

CODE = '''
"""One channel between two hosts."""
from typing import NamedTuple
from agiledart import Sink, Source, Topology

class Row(NamedTuple):
    at: int
    number: int
    text: str

def build(rows: Source[Row], report: Sink[Row], paths: str = "auto", delivery: str = "at-most-once") -> Topology:
    topology = Topology("route", delivery=delivery,
                        paths=paths if paths in ("auto", "warm", "direct") else paths.split(","))
    topology.source("rows", rows, event_time=lambda row: row.at).sink("report", report)
    return topology
'''


class FileGrowthWatch:
    """Record of the times at which the sink's file grew."""

    def __init__(self, file: Path) -> None:
        self._file, self._ends = file, False
        self.seen: list[tuple[float, int]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        last = 0
        while not self._ends:
            try:
                size = self._file.stat().st_size
            except OSError:
                size = 0
            if size != last:
                last = size
                self.seen.append((time.monotonic(), size))
            time.sleep(0.005)

    def end(self) -> None:
        self._ends = True
        self._thread.join()

    def gap(self, since: float, until: float) -> float:
        """Return the longest time without a row within a span, in seconds."""
        times = [since, *(at for at, _ in self.seen if since < at < until), until]
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def first(self, since: float) -> float:
        """Return the seconds from an instant to the next row."""
        return next((at - since for at, _ in self.seen if at >= since), float("inf"))

    def bytes_in(self, since: float, until: float) -> int:
        """Return the bytes written within a span."""
        within = [size for at, size in self.seen if since <= at <= until]
        return within[-1] - within[0] if len(within) > 1 else 0


class RouteLab:
    """The agents; a context manager that leaves nothing behind."""

    def __init__(self, seed: int = 1, *, all_relay: bool = False) -> None:
        self.hosts = Hosts(COUNT, seed)
        self._without = 0 if all_relay else NO_RELAY

    def __enter__(self) -> "RouteLab":
        self.hosts.__enter__()
        try:
            for first in range(1, COUNT + 1):
                for second in range(first + 1, COUNT + 1):
                    self.hosts.link(first, second, delay=DELAYS.get((first, second), OTHER_DELAY))
            self.agents = Agents(
                [self.hosts.place(number, leads=number != self._without) for number in range(1, COUNT + 1)]
            )
            self.agents.start()
            self.agents.until_right(60)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if hasattr(self, "agents"):
            self.agents.__exit__(kind, error, trace)
        self.hosts.__exit__(kind, error, trace)

    def signal_agent(self, agent: int, number: signal.Signals) -> None:
        """Send a signal to an agent's process."""
        os.kill(self.agents.all[agent - 1].pid, number)

    @staticmethod
    def signal_process(pid: int, number: signal.Signals) -> None:
        """Send a signal to any process of the mesh."""
        os.kill(pid, number)

    def executors(self, agent: int) -> list[int]:
        """Return the process ids of an agent's executors."""
        listed = subprocess.run(
            ["pgrep", "-P", str(self.agents.all[agent - 1].pid)], capture_output=True, text=True, check=False
        ).stdout
        return [int(pid) for pid in listed.split()]

    def submit(self, paths: str, rows: int, rate: int, width: int, delivery: str = "") -> "MeshJob":
        """Start the job, which sends so many rows a second of so many bytes."""
        folder = self.agents.folder
        (folder / "job.py").write_text(CODE)
        with (folder / "rows.csv").open("w") as file:
            for number in range(rows):
                file.write(f"{number * 1000 // rate},{number},{'x' * width}\n")
        out = folder / "out.csv"
        process = self.cli(
            "submit", "job.py:build", "--set", f"rows=csv:{folder}/rows.csv?speed=1@a1", "--set",
            f"report=csv:{out}@a6", "--set", f"paths={paths}", "--set", f"delivery={delivery or 'at-most-once'}",
        )  # fmt: skip
        if process.returncode:
            raise RuntimeError(process.stderr)
        return MeshJob(self, out)

    def cli(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of the CLI at the first agent."""
        return subprocess.run(
            [sys.executable, "-m", "agiledart_cli.main", *words, "--agent", str(self.agents.all[0].folder)],
            capture_output=True, text=True, check=False, cwd=self.agents.folder,
        )  # fmt: skip


class MeshJob:
    """A running job of the lab."""

    def __init__(self, lab: RouteLab, out: Path) -> None:
        self._lab, self.out, self.watch = lab, out, FileGrowthWatch(out)

    def status(self) -> dict[str, Any]:
        """Return the status from the first agent."""
        try:
            return self._lab.agents.all[0].ask(Status("route"))
        except (CommandRefusedError, OSError):
            return {"state": "", "stages": []}

    def routes(self) -> list[dict[str, Any]]:
        """Return the routes of all channels to another host, as their senders report."""
        return [
            route
            for stage in self.status()["stages"]
            for instance in stage["instances"]
            for route in instance.get("routes", ())
        ]

    def route(self) -> dict[str, Any]:
        """Return the route from the first host to the last."""
        return next((route for route in self.routes() if route["to"] == "a6"), {})

    def figure(self, name: str) -> int:
        """Return the sum of a figure over all instances."""
        return sum(instance.get(name, 0) for stage in self.status()["stages"] for instance in stage["instances"])

    def until_rows_come(self) -> None:
        """Wait until some rows have arrived."""
        end = time.monotonic() + 60
        while self.watch.first(0) == float("inf"):
            if time.monotonic() > end:
                raise RuntimeError(f"no rows: {self.status()}")
            time.sleep(0.05)

    def is_as_run(self) -> bool:
        """Tell whether a run in one process writes the same bytes."""
        folder = self._lab.agents.folder
        subprocess.run(
            [sys.executable, "-m", "agiledart_cli.main", "run", "job.py:build", "--set", "rows=csv:rows.csv", "--set",
             "report=csv:expected.csv"], cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
        return (folder / "expected.csv").read_bytes() == self.out.read_bytes()

    def ends(self, seconds: float) -> str:
        """Wait for the job's end; return its final state."""
        end = time.monotonic() + seconds
        while (state := str(self.status()["state"])) not in (
            "finished",
            "failed",
            "stopped",
        ) and time.monotonic() < end:
            time.sleep(0.2)
        self.watch.end()
        return state
