"""Emulated hosts: each is a network namespace behind one of two bridges. It needs root and `ip`.

A cut moves hosts to the other bridge; a host that keeps a wrong link address for another loses what it sends there in silence; a
thin one has a bucket before its port.
"""

import contextlib
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.e2e.mesh import AgentProcess, Mesh

_GATEWAY = 253
"""Number of the router's address. Nothing has it: hosts only need a route to learn their own address."""


def ip(*words: str) -> None:
    """Run `ip`; raises CalledProcessError."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


def fresh_tag(kind: str) -> str:
    """Beginning of the names of new namespaces, which no others have. Those that ended processes left behind are deleted."""
    listed = subprocess.run(["ip", "netns", "list"], check=False, capture_output=True, text=True).stdout
    for name, process in re.findall(rf"^({kind}(\d+)-\S+)", listed, re.MULTILINE):
        if not Path(f"/proc/{process}").exists():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
    return f"{kind}{os.getpid()}-{secrets.token_hex(2)}"


def lacking() -> str:
    """Why there can be none here; empty: there can."""
    return "" if os.geteuid() == 0 and shutil.which("ip") else "emulated hosts need root and ip (Debian: iproute2)"


class Hosts:
    """So many hosts behind one bridge, and another bridge. Numbers begin with 0, as agents' names do with a1."""

    def __init__(self, count: int) -> None:
        tag = fresh_tag("ad")
        self.switch = f"{tag}s"
        self.names = [f"{tag}h{number}" for number in range(count)]

    def make(self) -> None:
        """Bring them up; raises CalledProcessError where there are no namespaces."""
        for name in (self.switch, *self.names):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for side in ("left", "right"):
            ip("-n", self.switch, "link", "add", side, "type", "bridge")
            ip("-n", self.switch, "link", "set", side, "up")
        for number, name in enumerate(self.names):
            port = f"p{number}"
            ip("-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", self.switch, "link", "set", port, "master", "left", "up")
            ip("-n", name, "addr", "add", f"{address(number)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "route", "add", "default", "via", address(_GATEWAY), "dev", "eth0")

    def move(self, agents: Iterable[str], side: str) -> None:
        """Put the hosts of these agents behind a bridge; nothing goes from one to the other."""
        for name in agents:
            ip("-n", self.switch, "link", "set", f"p{_number(name)}", "master", side)

    def give_address(self, name: str, number: int) -> None:
        """Replace the address of a host, as DHCP does."""
        space = self.names[_number(name)]
        ip("-n", space, "addr", "flush", "dev", "eth0")
        ip("-n", space, "addr", "add", f"{address(number)}/24", "dev", "eth0")
        ip("-n", space, "route", "replace", "default", "via", address(_GATEWAY), "dev", "eth0")

    def lose(self, sender: str, receiver: str) -> None:
        """Drop everything that one host sends to another from now on; the other way goes on."""
        words = ("lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent")
        ip("-n", self.names[_number(sender)], "neigh", "replace", address(_number(receiver)), *words)

    def find(self, sender: str, receiver: str) -> None:
        """Undo `lose`."""
        ip("-n", self.names[_number(sender)], "neigh", "del", address(_number(receiver)), "dev", "eth0")

    def thin(self, name: str, rate: str) -> None:
        """Limit a host's sending rate (`256kbit`) and drop what exceeds its queue; empty: undo that."""
        shape = ["add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "16kb", "latency", "300ms"]
        words = shape if rate else ["del", "dev", "eth0", "root"]
        subprocess.run(
            ["ip", "netns", "exec", self.names[_number(name)], "tc", "qdisc", *words], check=True, capture_output=True
        )

    def remove(self) -> None:
        """Take them down."""
        for name in (self.switch, *self.names):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def address(number: int) -> str:
    """Of a host."""
    return f"10.77.0.{number + 1}"


def _number(agent: str) -> int:
    return int(agent[1:]) - 1


def brought_up(count: int) -> Iterator[Hosts]:
    """For a fixture: hosts that are up, and gone afterwards. Skips where there can be none, and says why."""
    if lack := lacking():
        pytest.skip(f"NOT RUN: {lack}")
    made = Hosts(count)
    try:
        made.make()
    except subprocess.CalledProcessError as error:
        made.remove()
        pytest.skip(f"NOT RUN: no network namespaces here ({error.stderr.decode().strip()})")
    try:
        yield made
    finally:
        made.remove()


@contextlib.contextmanager
def mesh_on(hosts: Hosts, *options: str, seconds: float = 60.0) -> Iterator[Mesh]:
    """A mesh with an agent on each host, a machine of its own. `options`: of each agent; `seconds`: for each to join."""
    folder = Path(tempfile.mkdtemp(prefix="adt-"))
    made = Mesh(folder)
    try:
        agents = []
        for number, host in enumerate(hosts.names):
            own = ("--listen", f"{address(number)}:9464", "--host", f"machine-{number + 1}")
            agents.append(AgentProcess(f"a{number + 1}", folder, *own, *options))
            agents[-1].enter = ("ip", "netns", "exec", host)
        made.add(agents, seconds)
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)
