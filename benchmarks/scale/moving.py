"""One instance with much state moves to another agent, again and again, while rows flow."""

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh, wait_for

from agiledart_control.errors import CommandRefusedError, NoAgentError
from agiledart_node.wire.commands import ExplainScaling, Status
from benchmarks.scale.heavy import write_input
from benchmarks.scale.watching import Lateness, percentile

FINAL = ("finished", "failed", "stopped")
CALM_SECONDS = 5.0
"""Without a change, before the first and after each."""


def seconds_for(moves: int) -> int:
    """Return the seconds for which input exists, with a margin for a loaded machine. After the last move the rest is not read."""
    return 120 + 90 * moves


class Moving:
    """A job on three agents: source and sink on a1, its state on a2 or a3."""

    def __init__(self, ring: Mesh, folder: Path, keys: int, rate: int, moves: int) -> None:
        self.ring, self.keys, self.rate, self.moves = ring, keys, rate, moves
        self.folder, self.out = folder, folder / "out.csv"
        self.expected = write_input(folder, keys, rate, seconds_for(moves))
        self.agent: AgentProcess = ring.agents[0]
        self.began = float("inf")
        """When the first paced row was due, as far as results have come sooner than one thought."""

    def _cli(self, *words: str) -> str:
        process = cli(*words, "--agent", str(self.agent.state_dir), cwd=self.folder, timeout=120)
        if process.returncode:
            raise SystemExit(process.stdout + process.stderr)
        return process.stdout

    def status(self) -> dict[str, Any]:
        """Return the job's status from its agent."""
        try:
            return dict(self.agent.ask(Status("heavy")))
        except (CommandRefusedError, NoAgentError, OSError):
            return {"state": "", "placement": {}}

    def _due(self, lines: int) -> float | None:
        if lines <= self.keys or lines >= self.keys + self.rate * seconds_for(self.moves):
            return None
        after = (lines - self.keys) / self.rate
        self.began = min(self.began, time.monotonic() - after)
        return self.began + after

    def run(self) -> dict[str, Any]:
        """Carry out all moves; return the figures."""
        source = f"csv:{self.folder / 'rows.csv'}?speed=1@a1"
        self._cli(
            *("submit", "heavy.py:build", "--set", f"readings={source}", "--set", f"report=csv:{self.out}@a1"),
            *("--parallelism", "sums=1..2"),
        )
        late = Lateness(self.out, self._due)
        try:
            wait_for(lambda: late.lines > self.keys, 120, "every key has been seen")
            wait_for(
                lambda: (self.status().get("epoch") or {}).get("bytes", 0) > 300 * self.keys, 60, "its state is saved"
            )
            calm_from = time.monotonic()
            time.sleep(CALM_SECONDS)
            calm = late.between(calm_from, time.monotonic())
            moves = [self._moved(late) for _ in range(self.moves)]
            self._cli("stop", "heavy")
            over = wait_for(lambda: (status := self.status())["state"] in FINAL and status, 120, "it ends")
        finally:
            late.close()
        pauses = [move["pause_ms"] for move in moves if move["pause_ms"] is not None]
        return {
            "keys": self.keys,
            "rows_a_second": self.rate,
            "calm_p99_ms": percentile(calm, 0.99),
            "moves": moves,
            "pause_ms_median": round(statistics.median(pauses), 1) if pauses else None,
            "pause_ms_worst": max(pauses, default=None),
            "within_a_second": sum(pause <= 1_000 for pause in pauses),
            "state": over["state"],
            "reason": over["reason"],
            "brought_back": sum("restarted, attempt" in event["text"] for event in over["history"]),
            "rows": (written := self.out.read_text()).count("\n"),
            "exact": self.expected.startswith(written) and written.endswith("\n"),
            "load": [round(load, 1) for load in os.getloadavg()],
        }

    def _moved(self, late: Lateness) -> dict[str, Any]:
        here = self.status()["placement"]["sums+short"][0]
        to = "a3" if here == "a2" else "a2"
        began = time.monotonic()
        self._cli("move", "heavy", "sums.0", to)
        done = time.monotonic()
        change = wait_for(self._last_change, 60, "the epoch after it tells the gap")
        ended = time.monotonic()
        time.sleep(CALM_SECONDS)
        return {
            "to": to,
            "pause_ms": change["pause_ms"],
            "seconds": round(done - began, 2),
            "moved_bytes": change["moved_bytes"],
            "p99_ms_meanwhile": percentile(late.between(began, ended), 0.99),
            "worst_ms_meanwhile": percentile(late.between(began, ended), 1.0),
            "p99_ms_after": percentile(late.between(ended, time.monotonic()), 0.99),
            "load": round(os.getloadavg()[0], 1),
        }

    def _last_change(self) -> dict[str, Any] | None:
        changes = self.agent.ask(ExplainScaling("heavy"))["changes"]
        last: dict[str, Any] | None = changes[-1] if changes else None
        return last if last is not None and (last["pause_ms"] is not None or last["state"] != "done") else None


def moving(keys: int, rate: int, moves: int) -> dict[str, Any]:
    """Return the figures of one run on agents of its own."""
    with tempfile.TemporaryDirectory(prefix="scale-") as folder, mesh(3) as ring:
        return Moving(ring, Path(folder), keys, rate, moves).run()
