"""Temporary mesh: agents as processes on this machine, in a temporary directory that is removed at the end.

The agents end with this process in any case: each holds the reading end of a pipe (`--parent-fd`) whose writing end only this
process has. A small shell process, the janitor, waits in the same way: when this process is killed, the janitor ends the
agents and removes the directory. No process, socket or file remains.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from agiledart_cli.signals import deferred, ignoring_signals
from agiledart_control.agent_place import AGENT_FILE, AgentPlace, in_state_dir, read_note
from agiledart_control.control_client import ControlClient
from agiledart_kernel.errors import OperationFailed
from agiledart_node.wire.commands import CreateToken, Info

MAX_AGENTS = 64
START_SECONDS = 60.0
"""Timeout until all agents are in the ring; on a loaded board Python needs seconds to start."""

END_SECONDS = 4.0
"""Timeout of the agents' end after their pipe has closed; then they are killed."""

MAX_SOCKET_PATH = 100
"""Greatest length of a socket's path, bytes; Linux accepts 107."""

_POLL_SECONDS = 0.02

_JANITOR = """
pids=
while read -r pid; do pids="$pids $pid"; done
turns=0
for pid in $pids; do
    while kill -0 "$pid" 2>/dev/null && [ $turns -lt 80 ]; do sleep 0.1; turns=$((turns + 1)); done
    kill -0 "$pid" 2>/dev/null && kill -9 -- "-$pid" 2>/dev/null
done
turns=0
while rm -rf -- "$1"; [ $turns -lt 50 ]; do sleep 0.1; turns=$((turns + 1)); done
"""


@dataclass
class AgentProcess:
    """One agent of the mesh."""

    name: str
    folder: Path
    process: "subprocess.Popen[bytes]"
    log: Path
    command: list[str]
    note: dict[str, Any] = field(default_factory=dict)

    @property
    def is_alive(self) -> bool:
        """Return whether the process still runs."""
        return self.process.poll() is None

    def place(self) -> AgentPlace:
        """Return the address of its control socket."""
        place = in_state_dir(self.folder)
        if place is None:
            raise OperationFailed(f"{self.name} has ended. {self.log_tail()}".strip())
        return place

    def ending(self) -> str:
        """Return how the process ended, as text."""
        code = self.process.poll()
        if code is None:
            return "runs"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"

    def log_tail(self, lines: int = 3) -> str:
        """Return the last lines of its log."""
        try:
            text = self.log.read_text("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return "\n".join(text[-lines:])


class Mesh:
    """Agents a1, a2, … of one ring; a context manager that ends them and removes their files.

    Args:
        count: number of agents.
        executors: worker processes of an application on each agent.
        apart: each agent counts as a separate machine, so fragments are spread over the agents.
        environment: environment variables of the agents, in addition to those of this process.
    """

    def __init__(
        self, count: int, executors: int = 1, *, apart: bool = False, environment: Mapping[str, str] | None = None
    ) -> None:
        self.count, self.executors, self.apart = count, executors, apart
        self._environment = dict(environment or {})
        self.agents: list[AgentProcess] = []
        self.folder = Path()
        self._pipe = (-1, -1)
        self._janitor: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Mesh":
        try:
            with deferred():
                self.folder = _short_folder()
                self._pipe = os.pipe()
                self._janitor = subprocess.Popen(
                    ["/bin/sh", "-c", _JANITOR, "janitor", str(self.folder)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ignoring_signals():
            self._end()

    def start(self, on_joined: Callable[[int], None] | None = None) -> None:
        """Start the agents and wait until each knows all others; raises `OperationFailed` when one ends earlier."""
        deadline = time.monotonic() + START_SECONDS
        self._launch("a1")
        self._wait(1, deadline, on_joined)
        if self.count == 1:
            return
        with ControlClient(self.agents[0].place()) as client:
            response = client.ask(
                CreateToken(uses=self.count - 1, expires=3600, member_for=7 * 86_400, operator="admin")
            )
        token = self.folder / "token"
        token.touch(mode=0o600)
        token.write_text(str(response["token"]))
        for index in range(2, self.count + 1):
            self._launch(f"a{index}", f"@{token}")
        self._wait(self.count, deadline, on_joined)
        token.unlink()
        for agent in self.agents:
            self._wait_until_it_knows_all(agent, deadline)

    def client(self, index: int) -> ControlClient:
        """Return a connection to the agent `index` modulo the number of agents."""
        return ControlClient(self.agents[index % len(self.agents)].place())

    def _launch(self, name: str, join: str = "") -> None:
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        log = self.folder / f"{name}.log"
        command = [
            *(sys.executable, "-m", "agiledart_cli.main", "agent"),
            *("--state-dir", str(folder), "--name", name, "--listen", "127.0.0.1:0"),
            *("--metrics", "127.0.0.1:0"),
            *("--executors", str(self.executors), "--parent-fd", str(self._pipe[0])),
            *(("--join", join) if join else ()),
            *(("--host", f"machine-of-{name}") if self.apart else ()),
        ]
        with deferred():
            self.agents.append(AgentProcess(name, folder, self._process(command, log), log, command))

    def kill(self, index: int) -> None:
        """End an agent at once, as a power cut does."""
        agent = self.agents[index]
        agent.process.kill()
        agent.process.wait()

    def restart(self, index: int) -> None:
        """Start an agent whose process has ended, and wait until it is in the ring; raises `OperationFailed` otherwise."""
        agent = self.agents[index]
        arguments = list(agent.command)
        if "--join" in arguments:  # its state has peers, and the token is used up
            at = arguments.index("--join")
            del arguments[at : at + 2]
        (agent.folder / AGENT_FILE).unlink(missing_ok=True)
        with deferred():
            agent.process, agent.note = self._process(arguments, agent.log), {}
        self._wait(self.count, time.monotonic() + START_SECONDS, None)

    def _process(self, command: list[str], log: Path) -> "subprocess.Popen[bytes]":
        """Start an agent's process, of which the janitor knows. The caller defers signals."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(self._pipe[0],),
                start_new_session=True,  # Ctrl-C reaches only this process, which ends the agents in order
                cwd=self.folder,
                # Temporary agents on loopback, whose only submitter is this process's own user.
                env={"AGILEDART_AGENT__ALLOW_ROOT": "true", **os.environ, **self._environment, "PYTHONUNBUFFERED": "1"},
            )
        assert self._janitor is not None
        assert self._janitor.stdin is not None
        with contextlib.suppress(OSError):
            self._janitor.stdin.write(b"%d\n" % process.pid)
            self._janitor.stdin.flush()
        return process

    def _wait(self, count: int, deadline: float, on_joined: Callable[[int], None] | None) -> None:
        """Wait until `count` agents are ready."""
        ready = 0
        while ready < count:
            ready = 0
            for agent in self.agents:
                if not agent.note:
                    agent.note = read_note(agent.folder / AGENT_FILE) or {}
                if agent.note:
                    ready += 1
                elif not agent.is_alive:
                    raise OperationFailed(f"{agent.name} {agent.ending()} before it was ready:\n{agent.log_tail(20)}")
            if on_joined is not None:
                on_joined(ready)
            if ready < count:
                if time.monotonic() > deadline:
                    missing = ", ".join(agent.name for agent in self.agents if not agent.note)
                    raise OperationFailed(f"{missing} did not start within {START_SECONDS:.0f} s.")
                time.sleep(_POLL_SECONDS)

    def _wait_until_it_knows_all(self, agent: AgentProcess, deadline: float) -> None:
        """Wait until an agent has heard of the newest ones: else it would refuse an application that names one of them."""
        with ControlClient(agent.place()) as client:
            while int(client.ask(Info())["known_nodes"]) < self.count:
                if time.monotonic() > deadline:
                    raise OperationFailed(f"{agent.name} does not know all other agents after {START_SECONDS:.0f} s.")
                time.sleep(_POLL_SECONDS)

    def _end(self) -> None:
        """End all processes and remove all files within `END_SECONDS` and a little; called with signals ignored."""
        for end in self._pipe:
            if end >= 0:
                os.close(end)  # the agents notice it and end at once, without draining
        self._pipe = (-1, -1)
        for agent in self.agents:
            if agent.is_alive and not agent.note:
                agent.process.terminate()  # it may not watch the pipe yet
        deadline = time.monotonic() + END_SECONDS
        for agent in self.agents:
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.process.wait(max(0.0, deadline - time.monotonic()))
            # The process group also has executors that lost their agent; killing the group ends them, too.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(agent.process.pid, signal.SIGKILL)
            agent.process.wait()
        if self.folder != Path():
            shutil.rmtree(self.folder, ignore_errors=True)
        if self._janitor is not None:
            self._janitor.kill()  # nothing is left to clean up
            assert self._janitor.stdin is not None
            with contextlib.suppress(OSError):
                self._janitor.stdin.close()
            self._janitor.wait()


def _short_folder() -> Path:
    """Create a private directory whose socket paths are short enough."""
    folder = Path(tempfile.mkdtemp(prefix="agiledart-"))
    if len(str(folder / "a64" / "control.sock")) <= MAX_SOCKET_PATH:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="agiledart-", dir="/tmp"))
