"""Temporary mesh of real agents on this machine, used through the public interfaces: the command line and /metrics."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agiledart_kernel.errors import OperationFailed

COMMAND = (sys.executable, "-m", "agiledart_cli.main")


class ThrowawayMesh:
    """Agents `a1`, `a2` … in a temporary folder.

    Attributes:
        folder: folder for files of the experiment; deleted with the mesh.
    """

    def __init__(self, folder: Path, agents: list[dict[str, Any]], environment: dict[str, str]) -> None:
        self.folder, self._agents, self._environment = folder, agents, environment

    def ask(self, *words: str) -> Any:
        """Run a command and return its JSON answer. Raises `OperationFailed` with the text of stderr."""
        completed = subprocess.run(
            [*COMMAND, *words, "--agent", self._agents[0]["state_dir"], "-o", "json"],
            capture_output=True, text=True, check=False, cwd=self.folder, env=self._environment, timeout=300,
        )  # fmt: skip
        if completed.returncode:
            raise OperationFailed(f"agiledart {' '.join(words)}: {completed.stderr.strip()}")
        return json.loads(completed.stdout)

    @property
    def processes(self) -> list[int]:
        """Return the processes of the agents."""
        return [int(agent["pid"]) for agent in self._agents]

    def cpu_seconds(self) -> float:
        """Return the CPU time so far of all agents and of the executors that still run or whose end an agent has seen."""
        stats = [_stat_of(path) for path in Path("/proc").glob("[0-9]*/stat")]
        agents = {int(agent["pid"]) for agent in self._agents}
        mine = [fields for fields in stats if fields and (fields[0] in agents or fields[1] in agents)]
        return sum(sum(fields[2:]) for fields in mine) / os.sysconf("SC_CLK_TCK")

    def executor_memory_mb(self, agent: str) -> dict[str, float]:
        """Return the resident memory in MB of the executors on one agent, by application, from the agent's metrics."""
        address = next(entry["metrics"] for entry in self._agents if entry["name"] == agent)
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        wanted = 'agiledart_executor_resident_memory_bytes{app="'
        return {
            line.removeprefix(wanted).partition('"')[0]: float(line.rpartition(" ")[2]) / 1e6
            for line in lines
            if line.startswith(wanted)
        }


def _stat_of(path: Path) -> tuple[int, ...]:
    """Return pid, parent, and the clock ticks of a process and its children that have ended; () when it has just ended."""
    try:
        text = path.read_text()
    except OSError:
        return ()
    fields = text.rpartition(")")[2].split()
    return (int(text.split()[0]), int(fields[1]), *(int(fields[place]) for place in (11, 12, 13, 14)))


@contextlib.contextmanager
def throwaway_mesh(count: int) -> Iterator[ThrowawayMesh]:
    """Start a mesh of `count` agents, and remove it on exit. Raises `OperationFailed` when the mesh does not start."""
    with tempfile.TemporaryDirectory(prefix="adx-") as name:
        folder = Path(name)
        environment = {**os.environ, "XDG_STATE_HOME": name}
        with (folder / "up.log").open("w") as log:
            process = subprocess.Popen(
                [*COMMAND, "up", "--agents", str(count), "-o", "json"],
                stdout=subprocess.PIPE, stderr=log, text=True, env=environment,
            )  # fmt: skip
        try:
            yield ThrowawayMesh(folder, _agents(process, folder), environment)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _agents(process: "subprocess.Popen[str]", folder: Path) -> list[dict[str, Any]]:
    """Return the agents as `up` prints them, each with the address of its metrics."""
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        with contextlib.suppress(ValueError):
            agents: list[dict[str, Any]] = json.loads(text)["agents"]
            for agent in agents:
                note = json.loads((Path(agent["state_dir"]) / "agent.json").read_text())
                agent["metrics"] = note["metrics"]
            return agents
    raise OperationFailed(f"the mesh did not start: {(folder / 'up.log').read_text().strip()}")
