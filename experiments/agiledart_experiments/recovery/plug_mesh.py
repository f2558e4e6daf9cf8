"""Mesh of agents on this machine that act as separate machines; each can be killed, frozen and started again."""

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

from agiledart_experiments.shaped_hosts import ShapedHosts
from agiledart_kernel.errors import OperationFailed

COMMAND = (sys.executable, "-m", "agiledart_cli.main")
LOOK_SECONDS = 0.02
START_SECONDS = 180
"""Longest time until an agent is in the ring; a busy machine takes a minute to start Python."""

T = TypeVar("T")


def until(look: Callable[[], T | None], seconds: float, what: str) -> T:
    """Poll `look` until it returns a value, and return that value. Raises `OperationFailed` after `seconds` seconds."""
    end = time.monotonic() + seconds
    while (result := look()) is None:
        if time.monotonic() > end:
            raise OperationFailed(f"not within {seconds:.0f} s: {what}")
        time.sleep(LOOK_SECONDS)
    return result


def _children(pid: int) -> list[int]:
    """Return the child processes of a process; none for one that is gone."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _is_nursery(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"agiledart_executor.programs.nursery" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


class AgentMachine:
    """Agent and the processes that it started.

    Args:
        name: name of the agent.
        folder: folder that all machines share.
        lifeline: read end of a pipe that closes when the experiment ends, even after a crash.
        environment: environment variables of the processes.
        address: on which the agent listens.
        enter: words before the agent's command that run it on an emulated host; empty: it runs on this one.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        lifeline: int,
        environment: dict[str, str],
        address: str = "127.0.0.1",
        enter: tuple[str, ...] = (),
    ) -> None:
        self.name, self.state_dir = name, folder / name
        self._address, self._enter = address, enter
        self._folder, self._lifeline, self._environment = folder, lifeline, environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Start the agent, and wait until it has joined the ring. Raises `OperationFailed` with its last words when it ends."""
        path = self._folder / f"{self.name}.log"
        with path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._enter, *COMMAND, "agent", "--state-dir", str(self.state_dir), "--name", self.name,
                 "--host", f"machine-{self.name}", "--listen", f"{self._address}:0", "--metrics", f"{self._address}:0",
                 "--parent-fd", str(self._lifeline), *more],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(self._lifeline,), env=self._environment,
                start_new_session=True,  # Linux shares processors between sessions first, and executors have their own
            )  # fmt: skip

        def joined() -> dict[str, Any] | None:
            if not self.is_alive:
                raise OperationFailed(f"{self.name} ended: {path.read_text().strip()[-500:]}")
            return self._note()

        until(joined, START_SECONDS, f"{self.name} is in the ring; see {self.name}.log")

    def _note(self) -> dict[str, Any] | None:
        assert self._process is not None
        with contextlib.suppress(OSError, ValueError):
            note: dict[str, Any] = json.loads((self.state_dir / "agent.json").read_text())
            return note if note["pid"] == self._process.pid else None
        return None

    @property
    def pid(self) -> int:
        """Return the process id of the agent."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Return whether the agent runs."""
        return self._process is not None and self._process.poll() is None

    def executors(self) -> list[int]:
        """Return the process ids of the executors; a nursery, which forks executors, is none."""
        assert self._process is not None
        return [
            executor
            for child in _children(self._process.pid)
            for executor in (_children(child) if _is_nursery(child) else [child])
        ]

    def signal(self, number: signal.Signals, *, executors_only: bool = False) -> None:
        """Send a signal to all processes, executors first, so that the agent cannot react to their end before its own signal."""
        assert self._process is not None
        others = () if executors_only else (*_children(self._process.pid), self._process.pid)
        for pid in dict.fromkeys((*self.executors(), *others)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill_and_remove(self) -> None:
        """Kill the remaining processes."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self._process.wait()

    def figures(self, prefix: str) -> dict[str, float]:
        """Return the samples of /metrics whose names begin with `prefix`; empty while the agent does not answer."""
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
    """Mesh of the machines `a1`, `a2` … in one ring.

    Attributes:
        folder: folder for files of the experiment; deleted with the mesh.
        machines: all machines, in the order of their numbers.
    """

    def __init__(self, folder: Path, machines: list[AgentMachine], environment: dict[str, str]) -> None:
        self.folder, self.machines, self._environment = folder, machines, environment
        self._token = folder / "token"

    def form(self, count: int, *words: str) -> None:
        """Start the first `count` machines with these arguments, and form a ring of them. Others may `join` later."""
        self.machines[0].start(*words)
        self._token.touch(mode=0o600)
        self._token.write_text(self.ask("token", "create", "--uses", str(len(self.machines)))["token"])
        for machine in self.machines[1:count]:
            self.join(machine, *words)

    def join(self, machine: AgentMachine, *words: str) -> None:
        """Start one more machine and join it to the ring."""
        machine.start("--join", f"@{self._token}", *words)

    def machine(self, name: str) -> AgentMachine:
        """Return the machine of this name."""
        return next(machine for machine in self.machines if machine.name == name)

    def ask(self, *words: str) -> Any:
        """Run a command at the first live agent; return its JSON answer. Raises `OperationFailed` with the text of stderr."""
        contact = next(machine for machine in self.machines if machine.is_alive)
        completed = subprocess.run(
            [*COMMAND, *words, "--agent", str(contact.state_dir), "-o", "json"],
            capture_output=True, text=True, check=False, cwd=self.folder, env=self._environment, timeout=300,
        )  # fmt: skip
        if completed.returncode:
            raise OperationFailed(f"agiledart {' '.join(words)}: {completed.stderr.strip()}")
        return json.loads(completed.stdout)

    def total(self, prefix: str, machines: list[AgentMachine]) -> dict[str, float]:
        """Return samples of /metrics, summed over the machines that answer."""
        sums: dict[str, float] = {}
        for machine in machines:
            for name, value in machine.figures(prefix).items():
                sums[name] = sums.get(name, 0.0) + value
        return sums


@contextlib.contextmanager
def plug_mesh(count: int, interval: int, code: str = "4+2") -> Iterator[PlugMesh]:
    """Start a ring of `count` machines, with an epoch every `interval` seconds and erasure code `code`; remove it on exit."""
    settings = {"AGILEDART_AGENT__CHECKPOINT_INTERVAL": str(interval), "AGILEDART_AGENT__FRAGMENTS": code}
    with machines(count, settings) as mesh:
        mesh.form(count)
        yield mesh


@contextlib.contextmanager
def machines(count: int, settings: Mapping[str, str], hosts: ShapedHosts | None = None) -> Iterator[PlugMesh]:
    """Prepare `count` machines, none of which runs yet; remove everything on exit.

    Args:
        count: number of machines.
        settings: settings of the agents, as environment variables.
        hosts: at least as many emulated hosts, one for each machine; None: all agents run on this one.
    """
    read_end, write_end = os.pipe()
    with tempfile.TemporaryDirectory(prefix="adx-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        allowed = {"AGILEDART_AGENT__ALLOW_ROOT": "true"}  # only the measurement itself submits here
        environment = {**allowed, **os.environ, "XDG_STATE_HOME": name, "PYTHONUNBUFFERED": "1", **settings}
        made = [
            AgentMachine(f"a{number}", folder, read_end, environment, *_place(hosts, number))
            for number in range(1, count + 1)
        ]
        try:
            yield PlugMesh(folder, made, environment)
        finally:
            for machine in made:
                machine.kill_and_remove()
            os.close(read_end)
            os.close(write_end)


def _place(hosts: ShapedHosts | None, number: int) -> tuple[str, tuple[str, ...]]:
    return ("127.0.0.1", ()) if hosts is None else (hosts.address(number), hosts.enter(number))
