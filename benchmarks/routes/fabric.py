"""Links between emulated hosts: a process that forwards, delays or drops their packets.

    python -m benchmarks.routes.fabric TAG COUNT SEED

Each host is a network namespace whose only way out is a TUN device that this process holds. Each line of the input changes a link
and is answered with "ok"; the process ends, and the hosts with it, when its input does. It needs root, `ip` and /dev/net/tun, and
no module of the kernel for delays or losses.

    link 0 5 delay=0.005 loss=0.8 rate=250000 queue=65536 cut=1
"""

import contextlib
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time
from dataclasses import dataclass

_TUNSETIFF = 0x400454CA
_TUN_WITHOUT_HEADER = 0x1001
_PACKET = 1 << 16


@dataclass
class Wire:
    """One direction between two hosts.

    Args:
        delay: seconds; loss: share of packets; cut: 1 when no packet passes.
        rate: bytes per second; queue: bytes that may wait for the rate; 0: no bound.
    """

    delay: float = 0.0
    loss: float = 0.0
    cut: float = 0.0
    rate: float = 0.0
    queue: float = 65_536.0
    busy: float = 0.0


def address(number: int) -> str:
    """Return the address of a host."""
    return f"10.78.0.{number + 1}"


def namespace(tag: str, number: int) -> str:
    """Return the name of a host's network namespace."""
    return f"{tag}h{number + 1}"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def make_host(tag: str, number: int) -> int:
    """Make a namespace with a TUN device; return the device's descriptor."""
    name = namespace(tag, number)
    device = f"{tag}{number}"[:15]
    ip("netns", "add", name)
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _TUN_WITHOUT_HEADER))
    ip("link", "set", device, "netns", name)
    for words in (
        ("link", "set", "lo", "up"),
        ("addr", "add", f"{address(number)}/24", "dev", device),
        ("link", "set", device, "mtu", "1500", "txqueuelen", "10000", "up"),
    ):
        ip("-n", name, *words)
    return tun


class Fabric:
    """All links between the hosts."""

    def __init__(self, tuns: list[int], seed: int) -> None:
        self._tuns = tuns
        self._wires = {(a, b): Wire() for a in range(len(tuns)) for b in range(len(tuns)) if a != b}
        self._random = random.Random(seed)
        self._due: list[tuple[float, int, int, bytes]] = []
        self._order = 0

    def command(self, line: str) -> None:
        """Change a link."""
        _, source, target, *settings = line.split()
        wire = self._wires[int(source), int(target)]
        for setting in settings:
            name, _, value = setting.partition("=")
            setattr(wire, name, float(value))

    def run(self) -> None:
        """Forward packets until the input ends."""
        poll = select.poll()
        hosts = {tun: number for number, tun in enumerate(self._tuns)}
        for tun in (*self._tuns, 0):
            poll.register(tun, select.POLLIN)
        pending = b""
        while True:
            wait = 1_000.0 if not self._due else max(0.0, (self._due[0][0] - time.monotonic()) * 1_000)
            for ready, _ in poll.poll(wait):
                if ready == 0:
                    data = os.read(0, _PACKET)
                    if not data:
                        return
                    *lines, pending = (pending + data).split(b"\n")
                    for line in lines:
                        self.command(line.decode())
                        os.write(1, b"ok\n")
                else:
                    self._read(ready, hosts[ready])
            self._deliver()

    def _read(self, tun: int, source: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(64):
                self._take(source, os.read(tun, _PACKET))

    def _take(self, source: int, packet: bytes) -> None:
        if packet[0] >> 4 != 4:
            return
        wire = self._wires.get((source, packet[19] - 1))
        if wire is None or wire.cut or (wire.loss and self._random.random() < wire.loss):
            return
        now = time.monotonic()
        if wire.rate:
            begins = max(now, wire.busy)
            if (begins - now) * wire.rate > wire.queue:
                return
            now = wire.busy = begins + len(packet) / wire.rate
        self._order += 1
        heapq.heappush(self._due, (now + wire.delay, self._order, packet[19] - 1, packet))

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            _, _, target, packet = heapq.heappop(self._due)
            with contextlib.suppress(OSError):
                os.write(self._tuns[target], packet)


def main() -> None:
    """Entry point of the process."""
    tag, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    try:
        tuns = [make_host(tag, number) for number in range(count)]
        os.write(1, b"up\n")
        Fabric(tuns, seed).run()
    finally:
        for number in range(count):
            subprocess.run(["ip", "netns", "del", namespace(tag, number)], check=False, capture_output=True)


if __name__ == "__main__":
    main()
