"""One host's uplink becomes thin: the stage on it gets an instance behind another uplink, on emulated hosts."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from agiledart_control.errors import CommandRefusedError
from agiledart_node.wire.commands import ExplainScaling, Status
from benchmarks.placing.lab import COUNT, PlacingLab
from benchmarks.scale.watching import Lateness

RATE: Final = 100
WIDTH: Final = 2_000
INPUT_S: Final = 60
FULL_BYTES: Final = RATE * WIDTH * 2
"""Bytes a second of the uplink at first: twice what the rows take."""

OTHERS: Final = tuple(number for number in range(1, COUNT + 1) if number != 2)
"""Hosts to which a2 sends."""

CALM_S: Final = 10.0
MEASURED_S: Final = 15.0
LONGEST_S: Final = 120.0

CODE: Final = f'''
"""Rows that a stateless step makes wide."""
from typing import NamedTuple

from agiledart import Sink, Source, Topology


class Number(NamedTuple):
    at: int
    number: int


class Wide(NamedTuple):
    at: int
    number: int
    text: str


def build(numbers: Source[Number], report: Sink[Wide]) -> Topology:
    topology = Topology("uplink", delivery="exactly-once", paths="direct")
    rows = topology.source("numbers", numbers, event_time=lambda row: row.at)
    rows.map(lambda row: Wide(row.at, row.number, "x" * {WIDTH}), name="widen").sink("report", report)
    return topology
'''


class Uplink:
    """The job: its source on a1, its step on a2 at first, its sink on a4."""

    def __init__(self, lab: PlacingLab, seconds: int) -> None:
        self._lab, self._agent = lab, lab.agents.all[0]
        self.folder: Path = lab.agents.folder
        self.out = self.folder / "out.csv"
        (self.folder / "uplink.py").write_text(CODE)
        with (self.folder / "numbers.csv").open("w") as file:
            file.writelines(f"{number * 1_000 // RATE},{number}\n" for number in range(seconds * RATE))
        self._cli(
            *("submit", "uplink.py:build", "--set", "numbers=csv:numbers.csv?speed=1&overload=spool@a1"),
            *("--set", f"report=csv:{self.out}@a4", "--parallelism", "widen=1..3"),
        )
        self.late = Lateness(self.out, lambda _: None)

    def _cli(self, *words: str) -> str:
        process = self._lab.cli(*words)
        if process.returncode:
            raise SystemExit(process.stdout + process.stderr)
        return process.stdout

    def step_to_a2(self) -> None:
        """Put the step on a2, and let it scale."""
        if self.hosts() != ["a2"]:
            self._cli("move", "uplink", "widen", "a2")
        self._cli("scale", "uplink", "widen", "auto")

    def status(self) -> dict[str, Any]:
        """Return the status."""
        try:
            return self._agent.ask(Status("uplink"))
        except (CommandRefusedError, OSError):
            return {"state": "", "placement": {}}

    def hosts(self) -> list[str]:
        """Return the nodes of the step's instances."""
        return next((nodes for name, nodes in self.status()["placement"].items() if name.startswith("widen")), [])

    def explained(self) -> dict[str, Any]:
        """Return what `explain scaling` says of the step."""
        stages = self._agent.ask(ExplainScaling("uplink"))["stages"]
        return next((stage for stage in stages if stage["name"].startswith("widen")), {})

    def changes(self) -> list[dict[str, Any]]:
        """Return the changes of stages that `explain scaling` lists."""
        return list(self._agent.ask(ExplainScaling("uplink"))["changes"])

    def rate(self, seconds: float) -> float:
        """Return the rows a second that arrive at the sink."""
        before = self.late.lines
        time.sleep(seconds)
        return round((self.late.lines - before) / seconds, 1)

    def is_as_run(self) -> bool:
        """Tell whether the sink's rows are those of one process, whatever the order among instances."""
        words = ("run", "uplink.py:build", "--set", "numbers=csv:numbers.csv", "--set", "report=csv:expected.csv")
        command = (sys.executable, "-m", "agiledart_cli.main", *words)
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True)
        return sorted((self.folder / "expected.csv").read_text().splitlines()) == sorted(
            self.out.read_text().splitlines()
        )


def uplink(tenth: float = 0.1) -> dict[str, Any]:
    """Return the figures of one run: rows before the uplink is thin, with it, and after the deed."""
    with PlacingLab("off") as lab:
        for other in OTHERS:
            lab.hosts.one_way(2, other, rate=FULL_BYTES)
        job = Uplink(lab, INPUT_S + int(LONGEST_S))
        _until(lambda: job.late.lines > RATE, 60)
        job.step_to_a2()
        time.sleep(CALM_S)
        before = job.rate(MEASURED_S)
        for other in OTHERS:
            lab.hosts.one_way(2, other, rate=tenth * FULL_BYTES)
        began, thin, reasons = time.monotonic(), None, dict[str, float]()
        use = 0.0
        while time.monotonic() < began + LONGEST_S and len(set(job.hosts())) < 2:
            stage = job.explained()
            use = max(use, float((stage.get("terms") or {}).get("link_use") or 0.0))
            reason = "; ".join(str(text) for key in ("why", "unknown_reason", "waits_for") if (text := stage.get(key)))
            reasons.setdefault(reason, round(time.monotonic() - began, 1))
            if thin is None and time.monotonic() > began + CALM_S / 2:
                thin = job.rate(CALM_S / 2)
            time.sleep(0.5)
        changed = round(time.monotonic() - began, 1) if len(set(job.hosts())) > 1 else None
        time.sleep(CALM_S / 2)
        after, hosts = job.rate(MEASURED_S), job.hosts()
        for other in OTHERS:
            lab.hosts.one_way(2, other, rate=0)
        ended = _until(lambda: job.status()["state"] in ("finished", "failed", "stopped"), 180)
        state = str(job.status()["state"])
        job.late.close()
        return {
            "rows_a_second_before": before,
            "rows_a_second_thin": thin,
            "rows_a_second_after": after,
            "gain": round(after / thin, 2) if thin else None,
            "changed_after_s": changed,
            "hosts": hosts,
            "link_use": round(use, 3),
            "reasons": {why: at for why, at in reasons.items() if "link" in why},
            "other_reasons": {why: at for why, at in list(reasons.items())[-9:] if "link" not in why},
            "changes": [(change["state"], change["reason"]) for change in job.changes()],
            "state": state,
            "exact": ended and job.is_as_run(),
            "load": [round(load, 1) for load in os.getloadavg()],
        }


def _until(condition: Any, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.2)
    return False
