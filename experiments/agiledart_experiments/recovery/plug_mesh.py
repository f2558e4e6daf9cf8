"""Agents on this machine that count as machines of their own, and can be killed, frozen and started again one by one."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from agiledart_kernel.errors import OperationFailed

COMMAND = (sys.executable, "-m", "agiledart_cli.main")
LOOK_SECONDS = 0.02

T = TypeVar("T")


def until(look: Callable[[], T | None], seconds: float, what: str) -> T:
    """What a look finds, once it finds something. Raises `OperationFailed` when that takes too long."""
    end = time.monotonic() + seconds
    while (found := look()) is None:
        if time.monotonic() > end:
            raise OperationFailed(f"not within {seconds:.0f} s: {what}")
        time.sleep(LOOK_SECONDS)
    return found


class AgentMachine:
    """One agent and what it started.

    Args:
        name: of the agent.
        folder: of all machines.
        lifeline: reading end of a pipe that closes when the experiment ends, however it ends.
        environment: of the processes.
    """

    def __init__(self, name: str, folder: Path, lifeline: int, environment: dict[str, str]) -> None:
        self.name, self.state_dir = name, folder / name
        self._folder, self._lifeline, self._environment = folder, lifeline, environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Start it, and wait until it is in the ring."""
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*COMMAND, "agent", "--state-dir", str(self.state_dir), "--name", self.name, "--host", f"machine-{self.name}",
                 "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--parent-fd", str(self._lifeline), *more],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(self._lifeline,), env=self._environment,
            )  # fmt: skip
        until(self._note, 60, f"{self.name} is in the ring; see {self.name}.log")

    def _note(self) -> dict[str, Any] | None:
        assert self._process is not None
        with contextlib.suppress(OSError, ValueError):
            note: dict[str, Any] = json.loads((self.state_dir / "agent.json").read_text())
            return note if note["pid"] == self._process.pid else None
        return None

    @property
    def pid(self) -> int:
        """Process number of its agent."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether its agent runs."""
        return self._process is not None and self._process.poll() is None

    def executors(self) -> list[int]:
        """Process numbers of its executors."""
        assert self._process is not None
        with contextlib.suppress(OSError):
            return [
                int(one)
                for one in Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
            ]
        return []

    def signal(self, number: signal.Signals, *, executors_only: bool = False) -> None:
        """To all of its processes, executors first: an agent cannot mourn them before it hears itself."""
        assert self._process is not None
        for pid in (*self.executors(), *(() if executors_only else (self._process.pid,))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill_and_remove(self) -> None:
        """Kill what is left of it."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self._process.wait()

    def figures(self, prefix: str) -> dict[str, float]:
        """Samples of its /metrics that begin so; empty while it does not answer."""
        if (note := self._note()) is None:
            return {}
        try:
            with urllib.request.urlopen(f"http://{note['metrics']}/metrics", timeout=2) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return {}
        return {
            name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line.startswith(prefix))
        }


class PlugMesh:
    """Machines `a1`, `a2` … in one ring.

    Attributes:
        folder: for files of the experiment; gone afterwards.
        machines: by their number.
    """

    def __init__(self, folder: Path, machines: list[AgentMachine], environment: dict[str, str]) -> None:
        self.folder, self.machines, self._environment = folder, machines, environment
        self._token = folder / "token"

    def form(self, count: int, *words: str) -> None:
        """Start the first machines, with these words for each agent, and make a ring of them. Others may `join` later."""
        self.machines[0].start(*words)
        self._token.touch(mode=0o600)
        self._token.write_text(self.ask("token", "create", "--uses", str(len(self.machines)))["token"])
        for machine in self.machines[1:count]:
            self.join(machine, *words)

    def join(self, machine: AgentMachine, *words: str) -> None:
        """Start one more machine."""
        machine.start("--join", f"@{self._token}", *words)

    def machine(self, name: str) -> AgentMachine:
        """The one of a name."""
        return next(one for one in self.machines if one.name == name)

    def ask(self, *words: str) -> Any:
        """The JSON answer of a command to the first agent that lives. Raises `OperationFailed` with what it said on stderr."""
        asked = next(one for one in self.machines if one.is_alive)
        said = subprocess.run(
            [*COMMAND, *words, "--agent", str(asked.state_dir), "-o", "json"],
            capture_output=True, text=True, check=False, cwd=self.folder, env=self._environment, timeout=300,
        )  # fmt: skip
        if said.returncode:
            raise OperationFailed(f"agiledart {' '.join(words)}: {said.stderr.strip()}")
        return json.loads(said.stdout)

    def total(self, prefix: str, machines: list[AgentMachine]) -> dict[str, float]:
        """Samples of /metrics, added up over those machines that answer."""
        sums: dict[str, float] = {}
        for machine in machines:
            for name, value in machine.figures(prefix).items():
                sums[name] = sums.get(name, 0.0) + value
        return sums


@contextlib.contextmanager
def plug_mesh(count: int, interval: int, code: str = "4+2") -> Iterator[PlugMesh]:
    """A ring of so many machines with an epoch every `interval` seconds, state cut by `code`; everything is gone afterwards."""
    settings = {"AGILEDART_AGENT__CHECKPOINT_INTERVAL": str(interval), "AGILEDART_AGENT__FRAGMENTS": code}
    with machines(count, settings) as mesh:
        mesh.form(count)
        yield mesh


@contextlib.contextmanager
def machines(count: int, settings: Mapping[str, str], uplinks: str = "") -> Iterator[PlugMesh]:
    """So many machines, none of which runs yet; everything is gone afterwards.

    Args:
        settings: of their agents, as variables of the environment.
        uplinks: the variable in which each has the name of a file of its own; empty: none has.
    """
    ours, theirs = os.pipe()
    with tempfile.TemporaryDirectory(prefix="adx-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        environment = {**os.environ, "XDG_STATE_HOME": name, "PYTHONUNBUFFERED": "1", **settings}
        made: list[AgentMachine] = []
        for number in range(1, count + 1):
            link = folder / f"a{number}.link"
            link.touch()
            own = {**environment, **({uplinks: str(link)} if uplinks else {})}
            made.append(AgentMachine(f"a{number}", folder, ours, own))
        try:
            yield PlugMesh(folder, made, environment)
        finally:
            for machine in made:
                machine.kill_and_remove()
            os.close(ours)
            os.close(theirs)
