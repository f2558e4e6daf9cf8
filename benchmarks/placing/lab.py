"""Eight agents on emulated hosts of two sites, a job between two pinned ends, and the latencies of its rows."""

import itertools
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from agiledart_node.wire.commands import ExplainPlacement
from benchmarks.many_agents import AgentHost, Agents
from benchmarks.routes.hosts import Hosts

COUNT = 8
SOURCE, BEST, SINK = 1, 2, 8
"""Hosts of the pinned ends, and the one between them with the shortest way."""


def _delays() -> dict[tuple[int, int], float]:
    """Return one-way delays in seconds: 2 ms and more in a site (1–4, 5–8), 20 ms between sites, 40 ms between the ends."""
    delays = {}
    for first, second in itertools.combinations(range(1, COUNT + 1), 2):
        is_one_site = (first <= COUNT // 2) == (second <= COUNT // 2)
        delays[first, second] = 0.0015 + 0.0005 * (second - first) if is_one_site else 0.020
    return delays | {(SOURCE, SINK): 0.040, (BEST, SINK): 0.018}


DELAYS = _delays()

RATE = 50

CODE = '''
"""Readings between two sites; every row carries the time at which it was read."""
from typing import NamedTuple

from agiledart import ReadTime, Sink, Source, Topology


class Reading(NamedTuple):
    at: int
    key: int
    read: ReadTime


def build(readings: Source[Reading], report: Sink[Reading]) -> Topology:
    topology = Topology("placed", delivery="at-least-once", paths="direct")
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    rows.filter(lambda reading: reading.key >= 0, name="work").sink("report", report)
    return topology
'''


class LatencyWatch:
    """Latency of each row in the sink's file, from its reading to its writing; the sink writes it in place of the read time."""

    def __init__(self, file: Path) -> None:
        self._file, self._ends = file, False
        self.rows: list[tuple[float, float]] = []
        """(monotonic time of arrival, latency in ms)."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        rest = b""
        while not self._file.exists() and not self._ends:
            time.sleep(0.05)
        with self._file.open("rb") as lines:
            while not self._ends:
                more = lines.read()
                if not more:
                    time.sleep(0.001)
                    continue
                here = time.monotonic()
                *whole, rest = (rest + more).split(b"\n")
                self.rows += [(here, float(line.rsplit(b",", 1)[1])) for line in whole if line.strip()]

    def end(self) -> None:
        """Stop watching."""
        self._ends = True
        self._thread.join()

    def percentile(self, share: float, since: float, until: float) -> float | None:
        """Return a percentile of the latencies within a span, in ms; None without rows."""
        within = sorted(latency for at, latency in self.rows if since <= at < until)
        return round(within[min(len(within) - 1, int(share * len(within)))], 2) if within else None

    def longest_silence_s(self, since: float, until: float) -> float:
        """Return the longest time without a row within a span."""
        times = [since, *(at for at, _ in self.rows if since < at < until), until]
        return round(max(later - earlier for earlier, later in itertools.pairwise(times)), 3)


class PlacingLab:
    """The agents; a context manager that leaves nothing behind. `moves`: of the job."""

    def __init__(self, moves: str, seed: int = 1) -> None:
        self.hosts, self._moves = Hosts(COUNT, seed), moves

    def __enter__(self) -> "PlacingLab":
        self.hosts.__enter__()
        try:
            for (first, second), delay in DELAYS.items():
                self.hosts.link(first, second, delay=delay)
            places = [self.hosts.place(number) for number in range(1, COUNT + 1)]
            as_root = ("env", "AGILEDART_AGENT__ALLOW_ROOT=true")  # emulated hosts need root
            self.agents = Agents([AgentHost(place.address, (*place.enter, *as_root)) for place in places])
            self.agents.start()
            self.agents.until_right(60)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if "agents" in vars(self):
            self.agents.__exit__(kind, error, trace)
        self.hosts.__exit__(kind, error, trace)

    def cli(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of the CLI at the first agent."""
        return subprocess.run(
            [sys.executable, "-m", "agiledart_cli.main", *words, "--agent", str(self.agents.all[0].folder)],
            capture_output=True, text=True, check=False, cwd=self.agents.folder,
        )  # fmt: skip

    def submit(self, seconds: int) -> LatencyWatch:
        """Start the job between the pinned ends with rows for so many seconds."""
        folder = self.agents.folder
        (folder / "placed.py").write_text(CODE)
        with (folder / "rows.csv").open("w") as file:
            file.writelines(f"{number * 1000 // RATE},{number % 17}\n" for number in range(seconds * RATE))
        out = folder / "out.csv"
        source, sink = f"readings=csv:{folder}/rows.csv?speed=1@a{SOURCE}", f"report=csv:{out}@a{SINK}"
        process = self.cli("submit", "placed.py:build", "--moves", self._moves, "--set", source, "--set", sink)
        if process.returncode:
            raise RuntimeError(process.stderr)
        return LatencyWatch(out)

    def exact_rows(self) -> int | None:
        """Return the number of rows in the sink when they are the source's, in its order; None otherwise."""
        given = (self.agents.folder / "rows.csv").read_text().splitlines()
        taken = [line.rsplit(",", 1)[0] for line in (self.agents.folder / "out.csv").read_text().split("\n")[:-1]]
        return len(taken) if taken == given[: len(taken)] else None

    def explained(self, objective: str = "response") -> dict[str, Any]:
        """Return the answer of `explain placement`."""
        return self.agents.all[0].ask(ExplainPlacement("placed", objective))

    def host(self) -> str:
        """Return the node of the step between the ends."""
        return str(next(stage["nodes"][0] for stage in self.explained()["stages"] if stage["name"].startswith("work")))

    def placed_by(self, strategy: str) -> str:
        """Return the node that a strategy gives this step on the live network."""
        words = ("place", "--network", "live", "--topology", "placed", "--objective", "response", "-o", "json")
        process = self.cli(*words, "--strategy", strategy)
        if process.returncode:
            process = self.cli(*words[:5], "-o", "json", "--strategy", strategy)  # it follows usage only
        placement = json.loads(process.stdout)["placement"]
        return str(next(nodes[0] for name, nodes in placement.items() if name.startswith("work")))
