"""`agiledart demo --pull-the-plug`: kill the agent of a stage with state during the run, and report the cost."""

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agiledart_cli.demo.demo_report import FREQUENT
from agiledart_cli.output import duration, print_message
from agiledart_cli.processes import children_of
from agiledart_cli.verbs.cluster import AgentProcess, Mesh
from agiledart_experiments.recovery.sink_watch import SinkWatch

AFTER = 0.4
"""Share of the run after which the agent is killed: windows are full by then, and time remains to recover."""

MIN_AGENTS = 4
"""Two agents for source and sink, one that is killed, one that takes over."""

CHECKPOINT_SECONDS = 2


class Plug:
    """Kill of one agent during the run.

    Args:
        at: seconds after which the agent is killed.
        file: result file of the watched query.
    """

    def __init__(self, at: float, file: Path) -> None:
        self._at = time.monotonic() + at
        self._watch = SinkWatch(file)
        self._watch.__enter__()
        self._pulled = 0.0
        self._is_reported = False
        self.victim: AgentProcess | None = None
        self.cost: dict[str, Any] = {}

    def look(self, mesh: Mesh, status: Mapping[str, Mapping[str, Any]]) -> None:
        """Kill the agent when it is time and a checkpoint is committed; afterwards measure the recovery."""
        response = status[FREQUENT]
        if self.victim is None:
            if time.monotonic() >= self._at and (response.get("epoch") or {}).get("committed"):
                self._pull(mesh, response)
        elif not self.cost and (seconds := self._watch.next_result(self._pulled)) is not None:
            self.cost = {"killed": self.victim.name, "seconds_to_next_result": round(seconds, 3)}
        elif self.cost and not self._is_reported and response["state"] == "running":
            self._is_reported = True
            restarts = [entry["text"] for entry in response.get("history", []) if "restarted, attempt" in entry["text"]]
            self.cost["history"] = restarts
            print_message(
                f"  The next result came {duration(self.cost['seconds_to_next_result'])} later.  {'; '.join(restarts[-1:])}"
            )

    def _pull(self, mesh: Mesh, response: Mapping[str, Any]) -> None:
        placement: Mapping[str, list[str]] = response["placement"]
        stages = list(placement)
        ends = {*placement[stages[0]], *placement[stages[-1]]}
        hosts = [host for stage in stages[1:-1] for host in placement[stage] if host not in ends]
        if not hosts:
            return
        self.victim = next(agent for agent in mesh.agents if agent.name == hosts[0])
        steps = [stage for stage in stages if self.victim.name in placement[stage]]
        print_message(f"  kill -9 {self.victim.name} and its executors: {', '.join(steps)} ran there, with state")
        self._pulled = time.monotonic()
        for pid in (*children_of([self.victim.process.pid])[self.victim.process.pid], self.victim.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.victim.process.wait()

    def close(self) -> None:
        """Stop watching the result file."""
        self._watch.__exit__(None, None, None)
