"""The lab: six real agents, each on an emulated host where that is possible, and applications on them."""

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.e2e.hosts import Hosts, address, lacking
from tests.e2e.mesh import AgentProcess, Mesh, cli
from tests.e2e.wrong_clocks import WrongClock, found_library

from agiledart_control.errors import CommandRefusedError, NoAgentError
from agiledart_kernel.errors import OperationFailed
from agiledart_node.wire.commands import ListApplications, Status
from benchmarks.faults.job import write_input

COUNT: Final = 6
"""Number of agents: one more than the job needs, so that one agent hosts nothing."""

SOURCES: Final = ("a1", "a2")
SINK: Final = "a3"
ON_OWN_DISK: Final = ("a2", "a3", "a4", "a5", "a6")
"""Agents whose state directories are file systems of their own, small enough to be filled."""

DISK: Final = "48m"
START_SECONDS: Final = 240.0
STARTS: Final = 3
FINAL: Final = ("finished", "failed", "stopped")
UNANSWERED: Final = (CommandRefusedError, NoAgentError, OperationFailed, OSError)
"""Errors of a request to an agent during a fault."""


class FaultLab:
    """The agents of some draws.

    Attributes:
        hosts: emulated hosts; None: all agents run directly on this machine, which does not permit emulation.
        clocks: agents whose clocks can be set, only on request: a forked process may find a lock of libfaketime held for ever,
            and then the agent waits for it.
        disks: agents whose disks can be filled: name → its file system.
    """

    def __init__(self, *, has_clocks: bool = False) -> None:
        self.has_clocks = has_clocks
        self.folder = Path(tempfile.mkdtemp(prefix="adf-"))
        self.mesh = Mesh(self.folder)
        self.hosts: Hosts | None = None
        self.clocks: dict[str, WrongClock] = {}
        self.disks: dict[str, Path] = {}
        write_input(self.folder)

    def start(self) -> None:
        """Start all agents."""
        os.environ["AGILEDART_AGENT__CHECKPOINT_INTERVAL"] = "1"
        names = [f"a{number + 1}" for number in range(COUNT)]
        if not lacking():
            self.hosts = Hosts(COUNT)
            self.hosts.make()
        agents = []
        for number, name in enumerate(names):
            place = f"{address(number)}:9464" if self.hosts else "127.0.0.1:0"
            agent = AgentProcess(name, self.folder, "--listen", place)
            if self.hosts:
                agent.enter = ("ip", "netns", "exec", self.hosts.names[number])
            if name in ON_OWN_DISK and not lacking():
                self._give_disk(agent)
            if self.has_clocks and found_library() is not None and name not in SOURCES[:1]:
                self.clocks[name] = WrongClock(agent)
            agents.append(agent)
        self.mesh.add(agents, START_SECONDS)

    def _give_disk(self, agent: AgentProcess) -> None:
        agent.state_dir.mkdir(mode=0o700)
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "none", str(agent.state_dir)],
            check=False,
            capture_output=True,
        )
        if mounted.returncode == 0:
            self.disks[agent.name] = agent.state_dir

    def close(self) -> None:
        """Stop all agents and remove the hosts."""
        self.mesh.close()
        for path in self.disks.values():
            subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True)
        if self.hosts is not None:
            self.hosts.remove()
        subprocess.run(["rm", "-rf", str(self.folder)], check=False)

    # ---- applications

    def submit(
        self, name: str, *, delivery: str = "at-most-once", speed: int = 1
    ) -> "subprocess.CompletedProcess[str]":
        """Submit the job under a name."""
        left, right = (f"{side}=csv:{self.folder / side}.csv?speed={speed}" for side in ("left", "right"))
        return cli(
            "submit", "job.py:build", "--agent", str(self.any().state_dir), "--set", f"{left}@{SOURCES[0]}",
            "--set", f"{right}@{SOURCES[1]}", "--set", f"report=log:{name}@{SINK}", "--set", f"folds=csv:{self.folds(name)}@{SINK}",
            "--set", f"name={name}", "--set", f"delivery={delivery}", cwd=self.folder,
        )  # fmt: skip

    def folds(self, name: str) -> Path:
        """Return the path of the file that an application writes."""
        return self.folder / f"{name}.csv"

    def any(self) -> AgentProcess:
        """Return the agent to ask: the first, whose clock and disk suffer no fault."""
        return self.mesh.agents[0]

    def status(self, name: str) -> dict[str, Any]:
        """Return the status from the first agent that answers; its state is empty while no agent answers."""
        for agent in self.mesh.living():
            with contextlib.suppress(*UNANSWERED):
                return dict(agent.ask(Status(name)))
        return {"state": "", "nodes": []}

    def states(self, agent: AgentProcess) -> dict[str, tuple[str, str, bool]] | None:
        """Return name → (state, reason, whether unverified) as an agent lists them; None while it cannot."""
        try:
            rows = agent.ask(ListApplications())["applications"]
        except UNANSWERED:
            return None
        return {row["name"]: (row["state"], row["reason"], row["is_unverified"]) for row in rows}

    def agent_in(self, role: str, name: str) -> AgentProcess:
        """Return the agent that has this role for an application: source, sink, worker (an inner stage) or bystander (no stage)."""
        hosts = [node for node in self.status(name)["nodes"] if node not in (*SOURCES, SINK)]
        idle = [agent.name for agent in self.mesh.agents if agent.name not in (*SOURCES, SINK, *hosts)]
        named = {"source": SOURCES[1], "sink": SINK, "worker": (hosts or ["a4"])[0], "bystander": (idle or ["a6"])[-1]}
        return self.mesh.agent(named[role])


def waited(condition: Callable[[], Any], seconds: float) -> Any:
    """Poll; return the first true value, or the last false one after the timeout."""
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return value


@contextlib.contextmanager
def lab(*, has_clocks: bool = False) -> Iterator[FaultLab]:
    """Yield a running lab; remove all of it afterwards."""
    made = _started(has_clocks, STARTS)
    try:
        yield made
    finally:
        made.close()


def _started(has_clocks: bool, left: int) -> FaultLab:
    """Start all agents again when one exits because its join got no answer, as happens on an overloaded machine."""
    made = FaultLab(has_clocks=has_clocks)
    try:
        made.start()
    except BaseException as error:
        made.close()
        if left > 1 and isinstance(error, AssertionError):
            return _started(has_clocks, left - 1)
        raise
    return made
