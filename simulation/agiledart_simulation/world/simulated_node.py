"""One incarnation of one node in the virtual world: its machine, its timers, its clock, and what keeps it from working."""

from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.machine import Machine
from agiledart_kernel.peer import Peer

M = TypeVar("M", bound=Machine)


class SimulatedNode(Generic[M]):
    """One incarnation of one node.

    Attributes:
        peer: its handle, with this incarnation's number.
        machine: the machine that it runs.
        is_up: false after a crash.
        host_is_up: false when the whole host is gone, so that nothing even refuses connections.
        paused_until: it does nothing before this instant of the world.
        stutter_ns: when not 0, it processes its events only at multiples of this: a node that is always late.
        timers: name → number of the valid push.
        waiting: events that came while it was paused.
        rate_ppb: how many nanoseconds too many its clock counts in a second; 0 is a perfect clock.
    """

    __slots__ = (
        "_is_exact",
        "_local_zero",
        "_world_zero",
        "host_is_up",
        "is_up",
        "machine",
        "paused_until",
        "peer",
        "rate_ppb",
        "stutter_ns",
        "timers",
        "waiting",
    )

    def __init__(self, peer: Peer, machine: M, rate_ppb: int = 0, offset_ns: int = 0) -> None:
        self.peer, self.machine = peer, machine
        self.is_up = self.host_is_up = True
        self.paused_until = self.stutter_ns = 0
        self.timers: dict[Hashable, int] = {}
        self.waiting: list[tuple[int, Any]] = []
        self.rate_ppb = rate_ppb
        self._world_zero, self._local_zero = 0, offset_ns
        self._is_exact = not rate_ppb and not offset_ns

    @property
    def offset_ns(self) -> int:
        """Return what its clock shows, or would have shown, at the world's zero."""
        return self.local(Instant(0))

    def local(self, at: Instant) -> Instant:
        """Return what this node's clock shows at an instant of the world."""
        if self._is_exact:
            return at
        passed = at - self._world_zero
        return Instant(self._local_zero + passed + passed * self.rate_ppb // SECOND)

    def world_instant(self, local: int) -> Instant:
        """Return the first instant of the world at which this node's clock shows this, or more."""
        if self._is_exact:
            return Instant(local)
        passed = local - self._local_zero
        if not self.rate_ppb:
            return Instant(self._world_zero + passed)
        at = self._world_zero + passed * SECOND // (SECOND + self.rate_ppb)
        while self.local(Instant(at)) < local:
            at += 1
        return Instant(at)

    def set_rate(self, now: Instant, rate_ppb: int) -> None:
        """Let the clock run at another speed from now on; it does not jump."""
        self._local_zero, self._world_zero = self.local(now), now
        self.rate_ppb = rate_ppb
        self._is_exact = not rate_ppb and self._local_zero == self._world_zero
