"""Emulated hosts on this machine, and changes to the links between them."""

import os
import subprocess
import sys
from types import TracebackType

from benchmarks.many_agents import AgentHost
from benchmarks.routes.fabric import address, namespace


class CannotEmulate(Exception):
    """Namespaces or TUN devices are not available here; the text says why."""


class Hosts:
    """Emulated hosts joined by links without delay; a context manager that removes them at its end."""

    def __init__(self, count: int, seed: int = 1) -> None:
        self.tag, self.count = f"r{os.getpid() % 100_000}", count
        self._seed = seed

    def __enter__(self) -> "Hosts":
        if os.geteuid() != 0:
            raise CannotEmulate("emulated hosts need root")
        self._fabric = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.routes.fabric", self.tag, str(self.count), str(self._seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._fabric.stdout is not None
        assert self._fabric.stderr is not None
        if self._fabric.stdout.readline() != b"up\n":
            raise CannotEmulate(f"no emulated hosts here: {self._fabric.stderr.read().decode()[-300:].strip()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._fabric.stdin is not None
        self._fabric.stdin.close()
        self._fabric.wait(30)

    def place(self, number: int, *, leads: bool = True) -> AgentHost:
        """Return the place of an agent that relays circuits of others or does not; hosts count from 1."""
        more = () if leads else ("env", "AGILEDART_AGENT__RELAY=false")
        return AgentHost(address(number - 1), ("ip", "netns", "exec", namespace(self.tag, number - 1), *more))

    def one_way(self, source: int, target: int, **settings: float) -> None:
        """Change the link from one host to another: `delay` in seconds, `loss` as a share, `rate` in bytes a second, `cut`."""
        assert self._fabric.stdin is not None
        assert self._fabric.stdout is not None
        words = " ".join(f"{name}={value}" for name, value in settings.items())
        self._fabric.stdin.write(f"link {source - 1} {target - 1} {words}\n".encode())
        self._fabric.stdin.flush()
        self._fabric.stdout.readline()

    def link(self, first: int, second: int, **settings: float) -> None:
        """Change the link between two hosts in both directions."""
        self.one_way(first, second, **settings)
        self.one_way(second, first, **settings)

    def isolate(self, host: int, *, cut: bool = True) -> None:
        """Change all links of a host."""
        for other in range(1, self.count + 1):
            if other != host:
                self.link(host, other, cut=float(cut))
