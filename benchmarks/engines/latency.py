"""J3: one paced source and one engine at a time; latencies, CPU of all its processes while tuples flow, and what got lost."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.engines import setup
from benchmarks.engines.pairing import shuffled
from benchmarks.engines.running import RunError, end, launch
from benchmarks.processes import cpu_seconds, tree

WARM_SECONDS = 2.0
"""Tuples due in this time are left out; CPU is counted from then on."""

_CONNECT_SECONDS = 60.0
_END_SECONDS = 60.0
_SAMPLE_SECONDS = 0.25


@dataclass(frozen=True)
class LatencyEngine:
    """An engine that can do J3; `command` takes the port and the seconds to leave out, -1: latencies mean nothing."""

    name: str
    environment: str
    command: Callable[[int, float], list[str]]


def _node(environment: str, module: str, *words: str) -> Callable[[int, float], list[str]]:
    def command(port: int, warm: float) -> list[str]:
        python = str(setup.python_of(environment)) if environment else sys.executable
        return [python, "-m", f"benchmarks.engines.others.{module}", *words, str(port), str(warm)]

    return command


def _ours(form: str) -> Callable[[int, float], list[str]]:
    def command(port: int, warm: float) -> list[str]:
        words = ["null"] if warm < 0 else []
        return [sys.executable, "-m", "benchmarks.engines.ours.three_agents", form, str(port), str(warm), *words]

    return command


CARRIERS: tuple[LatencyEngine, ...] = (
    LatencyEngine("ours", "", _ours("rows")),
    LatencyEngine("ours-columns", "", _ours("columns")),
    LatencyEngine("bare", "", _node("", "bare_node")),
    LatencyEngine("zenoh", "zenoh", _node("zenoh", "zenoh_node", "tuple")),
    LatencyEngine("zenoh-batched", "zenoh", _node("zenoh", "zenoh_node", "batched")),
    LatencyEngine("dora", "dora", _node("dora", "dora_node", "tuple")),
    LatencyEngine("dora-batched", "dora", _node("dora", "dora_node", "batched")),
)


@dataclass
class LatencyFigures:
    """Figures at one rate by engine, measure and round."""

    title: str
    rate: int
    engines: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)


class LatencyRounds:
    """Rounds at one rate (tuples per second; 0: as fast as possible)."""

    def __init__(
        self, rate: int, seconds: float, carriers: Sequence[LatencyEngine], seed: int, print_line: Callable[[str], None]
    ) -> None:
        what = f"at {rate:,} tuples/s" if rate else "as fast as it goes"
        self.figures = LatencyFigures(f"J3: through three processes, {what}", rate)
        self._rate, self._seconds, self._carriers, self._seed, self._print_line = (
            rate,
            seconds,
            carriers,
            seed,
            print_line,
        )
        self._first = False

    def come_first(self) -> None:
        """From now on, run source and engine ahead of other work on this machine; needs root."""
        self._first = True

    def round(self, number: int) -> None:
        """Run every engine once."""
        for carrier in shuffled(self._carriers, self._seed, number):
            if carrier.name in self.figures.wrong:
                continue
            measured = self._tried(carrier)
            if measured is None:
                continue
            self.figures.runs.append({"engine": carrier.name, "round": number, **measured})
            by = self.figures.engines.setdefault(carrier.name, {})
            for measure, value in measured.items():
                if isinstance(value, float):
                    by.setdefault(measure, {})[number] = value
            shown = {key: value for key, value in measured.items() if not key.endswith("_ns")}
            self._print_line(f"  round {number}: {carrier.name:14} {shown}")

    def _tried(self, carrier: LatencyEngine) -> dict[str, Any] | None:
        """Return a run's figures; retry once, since a port may be taken meanwhile. None: the engine is left out from now on."""
        for last in (False, True):
            try:
                return once(carrier, self._rate, self._seconds, first=self._first)
            except RunError as error:
                self._print_line(f"  {carrier.name}: {error}")
                if last:
                    self.figures.wrong[carrier.name] = str(error)
        return None


def _hurry(pid: int) -> None:
    """Put the sessions of a process and its descendants before others."""
    for member in tree(pid):
        try:
            Path(f"/proc/{member}/autogroup").write_text("-10")
        except OSError:  # gone, not root, or a kernel without
            continue


def once(carrier: LatencyEngine, rate: int, seconds: float, *, first: bool = False) -> dict[str, Any]:
    """Carry out one run. Raises `RunError` when tuples are missing or the run did not end."""
    command = [sys.executable, "-m", "benchmarks.engines.paced", str(rate), str(seconds + WARM_SECONDS)]
    generator = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert generator.stdout is not None
    try:
        port = int(generator.stdout.readline().split()[1])
        launched = launch(carrier.command(port, WARM_SECONDS if rate else -1.0))
        connected = threading.Event()
        lines: list[str] = []
        listener = threading.Thread(target=_listen, args=(generator.stdout, connected, lines), daemon=True)
        listener.start()
        while not connected.wait(0.05):
            if launched.process.poll() is not None or time.monotonic() - launched.began > _CONNECT_SECONDS:
                end(launched.process.pid)
                raise RunError(f"it did not connect to the source. {launched.last_output()}")
        if first:
            _hurry(generator.pid)
            _hurry(launched.process.pid)
        samples: list[tuple[int, float]] = []
        while generator.poll() is None and not any(line.startswith("RESULT ") for line in lines):
            samples.append((time.time_ns(), cpu_seconds(launched.process.pid)))
            time.sleep(_SAMPLE_SECONDS)
        result, _, memory = launched.wait(time.monotonic() - launched.began + _END_SECONDS)
        listener.join(30)
    finally:
        if generator.poll() is None:
            generator.kill()
            generator.wait()
    results = [line.removeprefix("RESULT ") for line in lines if line.startswith("RESULT ")]
    if not results:
        raise RunError("the source did not end")
    source = json.loads(results[0])
    if result["outputs"] != source["passing"]:
        raise RunError(f"{result['outputs']:,} results of {source['passing']:,} tuples that pass")
    took = (result["last_ns"] - source["began_ns"]) / 1e9
    warm_ns = int(WARM_SECONDS * 1e9) if rate else 0
    steady = [sample for sample in samples if source["began_ns"] + warm_ns <= sample[0] <= source["ended_ns"]]
    if len(steady) < 2:
        raise RunError("too short to count CPU time")
    (since, before), (until, after) = steady[0], steady[-1]
    figures = {name: value for name, value in {**source, **result}.items() if value is not None}
    return {
        **figures,
        "cpu_percent": round(100 * (after - before) / ((until - since) / 1e9), 2),
        "rate": round(source["sent"] / took, 1),
        "memory_mb": round(memory, 1),
    }


def _listen(output: Any, connected: threading.Event, lines: list[str]) -> None:
    """Read the source's output; set `connected` when the engine has connected."""
    for line in output:
        lines.append(line)
        if line.startswith("CONNECTED"):
            connected.set()
