"""`shaped_hosts`: network namespaces that act as hosts, each with an uplink that the kernel limits.

The hosts are ports of one bridge, on which this machine has an address, too. They need root, `ip` and `tc` (Debian: iproute2).
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Final

from agiledart_kernel.errors import ConfigurationError

BURST_BYTES: Final = 16_384
"""Bytes that leave at once after a pause: several packets."""

QUEUE_MS: Final = 200
"""Longest time that a packet waits for the uplink; packets beyond it are dropped."""

_MTU: Final = 1_500
_SUBNETS: Final = 250


class ShapedHosts:
    """Hosts with the numbers 1 to `count`.

    Args:
        count: number of hosts.
    """

    def __init__(self, count: int) -> None:
        own = os.getpid()
        self._count, self._tag, self._net = count, f"ax{own % 100_000}", f"10.79.{own % _SUBNETS}"
        self._bridge = f"{self._tag}b"

    def address(self, number: int) -> str:
        """Return the address of a host."""
        return f"{self._net}.{number}"

    def enter(self, number: int) -> tuple[str, ...]:
        """Return the words that run the command behind them on a host."""
        return ("ip", "netns", "exec", self._space(number))

    def make(self) -> None:
        """Bring the hosts up. Raises ConfigurationError where the system refuses it."""
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("addr", "add", f"{self._net}.254/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for number in range(1, self._count + 1):
                space, port = self._space(number), f"{self._tag}p{number}"
                _ip("netns", "add", space)
                _ip("link", "add", port, "mtu", f"{_MTU}", "type", "veth", "peer", "name", "eth0", "netns", space)
                _ip("link", "set", port, "master", self._bridge, "up")
                _ip("-n", space, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
                for device in ("lo", "eth0"):
                    _ip("-n", space, "link", "set", device, "up")
        except subprocess.CalledProcessError as error:
            words = str(error.stderr).strip()
            raise ConfigurationError(f"no emulated hosts here: {words}; they need network namespaces") from None

    def limit(self, number: int, bytes_s: int) -> None:
        """Limit the uplink of a host to so many bytes a second, headers of packets included."""
        shape = ("rate", f"{8 * bytes_s}bit", "burst", f"{BURST_BYTES}b", "latency", f"{QUEUE_MS}ms")
        command = (*self.enter(number), "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *shape)
        subprocess.run(command, check=True, capture_output=True)

    def remove(self) -> None:
        """Take the hosts down; processes on them keep their namespaces until they end."""
        for number in range(1, self._count + 1):
            subprocess.run(["ip", "netns", "del", self._space(number)], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self._bridge], check=False, capture_output=True)

    def _space(self, number: int) -> str:
        return f"{self._tag}h{number}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def check_shaped_hosts() -> None:
    """Raise ConfigurationError where this machine cannot have such hosts, with the missing part."""
    missing = [program for program in ("ip", "tc") if shutil.which(program) is None]
    if os.geteuid() != 0:
        raise ConfigurationError("shaped links need root, for network namespaces: run it as root, or use --scale small")
    if missing:
        raise ConfigurationError(f"shaped links need {' and '.join(missing)}: install iproute2")


@contextlib.contextmanager
def shaped_hosts(count: int) -> Iterator[ShapedHosts]:
    """Bring up so many hosts, and take them down on exit. Raises ConfigurationError."""
    check_shaped_hosts()
    hosts = ShapedHosts(count)
    try:
        hosts.make()
        yield hosts
    finally:
        hosts.remove()
