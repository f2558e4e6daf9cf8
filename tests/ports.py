"""Ports for servers of tests that begin later, or again: agents that restart, brokers, programs with a port in their settings."""

import contextlib
import random
import socket
from pathlib import Path

_RANDOM = random.SystemRandom()  # the other one is seeded alike in several processes


def lasting_port() -> int:
    """A free port outside of what the kernel gives to outgoing connections. In the outgoing range, a restarted server
    may find a client on its port, even a self-connected one.
    """
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", _RANDOM.randrange(low // 2, low)))
            return int(probe.getsockname()[1])
