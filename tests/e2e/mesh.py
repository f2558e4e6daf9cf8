"""Real agents as processes on this machine, for tests. Waits for conditions, never for time to pass."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agiledart_control.agent_place import find_agent
from agiledart_control.control_client import ControlClient
from agiledart_control.errors import CommandRefusedError
from agiledart_node.wire.commands import Command, CreateToken, Info, Nodes
from tests.ports import lasting_port

COMMAND = [sys.executable, "-m", "agiledart_cli.main"]

_LIFELINE = os.pipe()
"""Agents hold the reading end: however this process ends, the writing end closes and they end too."""


def wait_for(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """The first true value of a condition; fails when it does not come in time."""
    end = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


def cli(*words: str, timeout: float = 120.0, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line and wait for it."""
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=timeout, check=False, **more)


class AgentProcess:
    """One agent of a mesh.

    Attributes:
        enter: put in front of its command, for example to run it in a network of its own.
        environment: more variables.
    """

    def __init__(self, name: str, folder: Path, *options: str) -> None:
        self.name, self.state_dir, self.options = name, folder / name, options
        self.log = folder / f"{name}.log"
        self.log.touch()
        self.enter: tuple[str, ...] = ()
        self.environment: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Start without waiting, in a session of its own: Linux shares processors between sessions first. Agents in one session
        with all tests starved beside their executors, which have sessions of their own.
        """
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.enter, *COMMAND, "agent", "--state-dir", str(self.state_dir), "--name", self.name,
                 "--listen", f"127.0.0.1:{lasting_port()}", "--metrics", "127.0.0.1:0", "--parent-fd", str(_LIFELINE[0]),
                 *self.options, *more],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=_LIFELINE[:1], start_new_session=True,
                env={"AGILEDART_AGENT__ALLOW_ROOT": "true", **os.environ, **self.environment},
            )  # fmt: skip

    @property
    def description(self) -> dict[str, Any] | None:
        """`agent.json` of the running process, once it is ready."""
        with contextlib.suppress(OSError, ValueError):
            found = json.loads((self.state_dir / "agent.json").read_text())
            if self.process is not None and found["pid"] == self.process.pid:
                return dict(found)
        return None

    def ready(self, seconds: float = 60.0) -> dict[str, Any]:
        """Wait until it is in the ring."""

        def up() -> dict[str, Any] | None:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended: {self.log.read_text()}")
            return self.description

        try:
            return dict(wait_for(up, seconds, f"{self.name} in the ring"))
        except AssertionError as error:  # another agent may be the one that does not admit it
            logs = [f"--- {log.stem}\n{log.read_text()}" for log in sorted(self.log.parent.glob("*.log"))]
            raise AssertionError("\n".join((str(error), *logs))) from None

    @property
    def pid(self) -> int:
        """Process id."""
        assert self.process is not None
        return self.process.pid

    @property
    def address(self) -> str:
        """Where it takes TLS links."""
        found = self.description
        assert found is not None
        return str(found["address"])

    def has_company(self) -> bool:
        """Whether it is in a ring and not alone there; a node that joins another ring is in none for a moment."""
        with contextlib.suppress(CommandRefusedError):
            return not self.ask(Nodes())["isolation_warning"]
        return False

    def ask(self, command: Command) -> Any:
        """Ask it over its Unix socket."""
        with ControlClient(find_agent(str(self.state_dir))) as client:
            return client.ask(command, timeout=20.0)

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """SIGTERM, and how it ended."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def rss_mb(self) -> float:
        """Resident memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0


class Mesh:
    """Agents a1…aN in one ring."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.agents: list[AgentProcess] = []
        self.token = ""

    def grow(self, count: int, *options: str) -> list[AgentProcess]:
        """Start more agents and wait until all of them see each other."""
        return self.add([AgentProcess(f"a{len(self.agents) + n + 1}", self.folder, *options) for n in range(count)])

    def grow_on(self, *machines: int) -> list[AgentProcess]:
        """Start an agent on each of these machines, all at once; agents of one machine share their fate."""
        named = enumerate(machines, len(self.agents) + 1)
        return self.add([AgentProcess(f"a{n}", self.folder, "--host", f"machine-{machine}") for n, machine in named])

    def add(self, new: list[AgentProcess], seconds: float = 60.0) -> list[AgentProcess]:
        """Start these agents and wait until all see each other. `seconds`: for each of them."""
        for agent in new:
            if not self.agents:
                agent.start()
                agent.ready(seconds)
                self.token = str(agent.ask(CreateToken(operator="admin"))["token"])
            else:
                agent.start("--join", self.token)
            self.agents.append(agent)
        for agent in new:
            agent.ready(seconds)
        self.wait_for_ring(max(20.0, seconds / 3))
        return new

    def living(self) -> list[AgentProcess]:
        """Agents whose process runs."""
        return [a for a in self.agents if a.process is not None and a.process.poll() is None]

    def wait_for_ring(self, seconds: float = 20.0) -> None:
        """Wait until each living agent knows exactly the living ones."""
        wanted = {agent.name for agent in self.living()}

        def same() -> bool:
            try:
                return all(names_seen(agent) == wanted for agent in self.living())
            except CommandRefusedError:  # one that slept for long looks for its ring again, and says so meanwhile
                return False

        wait_for(same, seconds, f"everybody knows {sorted(wanted)}")

    def agent(self, name: str) -> AgentProcess:
        """By name."""
        return next(agent for agent in self.agents if agent.name == name)

    def close(self) -> None:
        """End all of them, hard if need be."""
        for agent in self.agents:
            if agent.process is not None and agent.process.poll() is None:
                agent.process.kill()
                agent.process.wait()


def names_seen(agent: AgentProcess) -> set[str]:
    """Names of the live nodes that an agent knows, itself among them."""
    return {str(node["name"]) for node in agent.ask(Nodes())["nodes"] if node.get("alive", True)}


def executors_of(agent: AgentProcess) -> list[int]:
    """Process ids of its executors."""
    return [int(e["pid"]) for e in agent.ask(Info())["executors"]]


def alive(pid: int) -> bool:
    """Does a process with this id run (a zombie does not)?"""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@contextlib.contextmanager
def mesh(count: int, *options: str) -> Iterator[Mesh]:
    """A mesh in a temporary folder with a short name (paths of Unix sockets are at most about 100 bytes)."""
    folder = Path(tempfile.mkdtemp(prefix="adt-", dir=os.environ.get("TMPDIR", "/tmp")))
    made = Mesh(folder)
    try:
        made.grow(count, *options)
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)
