"""Context managers that cause and end a fault, one per class. Each yields its targets, to compare them with a job's reason."""

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final

from tests.e2e.hosts import Hosts
from tests.e2e.mesh import AgentProcess, alive, cli, executors_of

from benchmarks.faults.draws import Draw
from benchmarks.faults.files import damage_one, restarted
from benchmarks.faults.job import MISBEHAVIOURS
from benchmarks.faults.lab import SINK, SOURCES, FaultLab

CLOCKS: Final = ("+3600", "-3600", "+600", "-600")
RATES: Final = ("64kbit", "256kbit", "1mbit")


class Impossible(Exception):
    """A fault that is impossible here; the text says why."""


Strike = Callable[[FaultLab, Draw, AgentProcess, str], AbstractContextManager[tuple[str, ...]]]
"""(lab, draw, target agent, name of the job): the fault lasts as long as the context, which yields the names of all targets."""


@contextlib.contextmanager
def stop(lab: FaultLab, draw: Draw, agent: AgentProcess, name: str) -> Iterator[tuple[str, ...]]:
    """Stop the agent's process (SIGSTOP)."""
    os.kill(agent.pid, signal.SIGSTOP)
    try:
        yield (agent.name,)
    finally:
        os.kill(agent.pid, signal.SIGCONT)


@contextlib.contextmanager
def stop_executor(lab: FaultLab, draw: Draw, agent: AgentProcess, name: str) -> Iterator[tuple[str, ...]]:
    """Stop the processes of user code (SIGSTOP)."""
    pids = executors_of(agent)
    _signal(pids, signal.SIGSTOP)
    try:
        yield (agent.name,)
    finally:
        _signal(pids, signal.SIGCONT)


@contextlib.contextmanager
def kill(lab: FaultLab, draw: Draw, agent: AgentProcess, name: str) -> Iterator[tuple[str, ...]]:
    """Kill the agent and its processes; start it again."""
    pids = executors_of(agent)
    agent.kill()
    _signal(pids, signal.SIGKILL)
    try:
        yield (agent.name,)
    finally:
        agent.start()


@contextlib.contextmanager
def kill_executor(lab: FaultLab, draw: Draw, agent: AgentProcess, name: str) -> Iterator[tuple[str, ...]]:
    """Kill a process of user code."""
    _signal(executors_of(agent), signal.SIGKILL)
    yield (agent.name,)


@contextlib.contextmanager
def clock(lab: FaultLab, draw: Draw, agent: AgentProcess, name: str) -> Iterator[tuple[str, ...]]:
    """Set the clock wrong, and right again."""
    setting = lab.clocks.get(agent.name)
    if setting is None:
        raise Impossible("no libfaketime here")
    setting.set(CLOCKS[draw.detail % len(CLOCKS)])
    try:
        yield (agent.name,)
    finally:
        setting.set("+0")


@contextlib.contextmanager
def flip(lab: FaultLab, draw: Draw, agent: AgentProcess, name: str) -> Iterator[tuple[str, ...]]:
    """Damage a file of the agent's state while it is down. It must restart, or name the file and a remedy that works."""
    pids = executors_of(agent)
    agent.kill()
    _signal(pids, signal.SIGKILL)
    damage_one(lab, draw, agent)
    try:
        yield (agent.name,)
    finally:
        restarted(agent)


@contextlib.contextmanager
def descriptors(lab: FaultLab, draw: Draw, agent: AgentProcess, name: str) -> Iterator[tuple[str, ...]]:
    """Limit the agent to two more open files."""
    before = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)
    held = max(int(number) for number in os.listdir(f"/proc/{agent.pid}/fd"))
    resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (held + 3, before[1]))
    try:
        yield (agent.name,)
    finally:
        resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, before)


@contextlib.contextmanager
def disk_full(lab: FaultLab, draw: Draw, agent: AgentProcess, name: str) -> Iterator[tuple[str, ...]]:
    """Fill the disk of the agent's state."""
    if agent.name not in lab.disks:
        raise Impossible("no file system of its own here")
    ballast = lab.disks[agent.name] / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    try:
        yield (agent.name,)
    finally:
        ballast.unlink(missing_ok=True)


@contextlib.contextmanager
def disk_read_only(lab: FaultLab, draw: Draw, agent: AgentProcess, name: str) -> Iterator[tuple[str, ...]]:
    """Refuse new files, changes and removals on the state's disk; open files stay writable, as with kernels."""
    if agent.name not in lab.disks:
        raise Impossible("no file system of its own here")
    path = str(lab.disks[agent.name])
    if subprocess.run(["chattr", "+i", path], check=False, capture_output=True).returncode:
        raise Impossible("this kernel makes no file of a tmpfs immutable")
    subprocess.run(["chattr", "-Rf", "+i", path], check=False, capture_output=True)
    try:
        yield (agent.name,)
    finally:
        subprocess.run(["chattr", "-Rf", "-i", path], check=False, capture_output=True)


@contextlib.contextmanager
def code(lab: FaultLab, draw: Draw, agent: AgentProcess, name: str) -> Iterator[tuple[str, ...]]:
    """Submit a second job with misbehaving user code."""
    misbehaviour = MISBEHAVIOURS[draw.detail % len(MISBEHAVIOURS)]
    _submitted(
        lab, f"{name}-bad", "job.py:hostile", "--set", f"rows=csv:{lab.folder / 'left.csv'}?speed=10@{agent.name}",
        "--set", f"out=null:@{agent.name}", "--set", f"misbehaviour={misbehaviour}",
    )  # fmt: skip
    yield ()


@contextlib.contextmanager
def submit(lab: FaultLab, draw: Draw, agent: AgentProcess, name: str) -> Iterator[tuple[str, ...]]:
    """Submit three more jobs."""
    for number in range(3):
        lab.submit(f"{name}-{number}", speed=20)
    yield ()


@contextlib.contextmanager
def cut(lab: FaultLab, draw: Draw, agent: AgentProcess, name: str) -> Iterator[tuple[str, ...]]:
    """Cut some hosts off from the rest: those that host nothing, or the drawn one and a second."""
    hosts = _hosts(lab)
    side = [agent.name]
    if draw.role == "bystander":
        used = lab.status(name)["nodes"] or [*SOURCES, SINK]
        side = [other.name for other in lab.mesh.agents if other.name not in used] or side
    elif draw.detail % 2:
        side.append("a5")
    hosts.move(side, "right")
    try:
        yield tuple(side)
    finally:
        hosts.move(side, "left")


@contextlib.contextmanager
def pair(lab: FaultLab, draw: Draw, agent: AgentProcess, name: str) -> Iterator[tuple[str, ...]]:
    """Cut the link between two hosts; all other links work."""
    other = _other(lab, draw, agent)
    hosts = _hosts(lab)
    hosts.lose(agent.name, other)
    hosts.lose(other, agent.name)
    try:
        yield agent.name, other
    finally:
        hosts.find(agent.name, other)
        hosts.find(other, agent.name)


@contextlib.contextmanager
def one_way(lab: FaultLab, draw: Draw, agent: AgentProcess, name: str) -> Iterator[tuple[str, ...]]:
    """Lose all packets from one host to another, in this direction only."""
    other, hosts = _other(lab, draw, agent), _hosts(lab)
    hosts.lose(agent.name, other)
    try:
        yield agent.name, other
    finally:
        hosts.find(agent.name, other)


@contextlib.contextmanager
def thin(lab: FaultLab, draw: Draw, agent: AgentProcess, name: str) -> Iterator[tuple[str, ...]]:
    """Limit the bandwidth of a host's link; excess packets are lost."""
    hosts = _hosts(lab)
    hosts.thin(agent.name, RATES[draw.detail % len(RATES)])
    try:
        yield (agent.name,)
    finally:
        hosts.thin(agent.name, "")


STRIKES: Final[dict[str, Strike]] = {
    "stop": stop,
    "stop-executor": stop_executor,
    "kill": kill,
    "kill-executor": kill_executor,
    "clock": clock,
    "flip": flip,
    "descriptors": descriptors,
    "disk-full": disk_full,
    "disk-read-only": disk_read_only,
    "code": code,
    "submit": submit,
    "cut": cut,
    "pair": pair,
    "one-way": one_way,
    "thin": thin,
}


def _hosts(lab: FaultLab) -> Hosts:
    if lab.hosts is None:
        raise Impossible("emulated hosts need root and ip")
    return lab.hosts


def _other(lab: FaultLab, draw: Draw, agent: AgentProcess) -> str:
    others = [machine.name for machine in lab.mesh.agents if machine.name != agent.name]
    return others[draw.detail % len(others)]


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            if alive(pid):
                os.kill(pid, number)


def _submitted(lab: FaultLab, name: str, entry: str, *words: str) -> None:
    cli("submit", entry, "--agent", str(lab.any().state_dir), "--set", f"name={name}", *words, cwd=lab.folder)


def for_a_while(seconds: float) -> None:
    """Let the fault last for a fixed time, whatever happens meanwhile."""
    time.sleep(seconds)
