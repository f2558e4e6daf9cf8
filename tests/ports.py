"""Ports for servers of tests that begin later, or again: agents that restart, brokers, programs with a port in their settings."""

import contextlib
import functools
import itertools
import random
import socket
from collections.abc import Iterator
from pathlib import Path

BLOCK = 256
"""Ports that one process of tests gives out in turn."""


def lasting_port() -> int:
    """A free port outside of what the kernel gives to outgoing connections. In the outgoing range, a restarted server
    may find a client on its port, even a self-connected one. A port comes again after BLOCK others, and to no other process.
    """
    for port in _own_ports():
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("unreachable: the ports are a cycle")


_reserved: list[socket.socket] = []


@functools.cache
def _own_ports() -> Iterator[int]:
    """The ports of a block that no other process has: a name in the kernel's table, which ends with this process."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    firsts = list(range(low // 2, low - BLOCK + 1, BLOCK))
    random.SystemRandom().shuffle(firsts)
    for first in firsts:
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0agiledart-test-ports-{first}")
        except OSError:
            name.close()
        else:
            _reserved.append(name)
            return itertools.cycle(range(first, first + BLOCK))
    raise AssertionError("other runs of these tests have reserved all ports; wait for one of them to end")
