"""Handshake slots: which callers may use a listener's time before they are verified.

    pending ── its first record is complete ──> waiting ── a slot is free ──> granted ── verified or refused ──> gone

A pending caller costs a socket. A caller with a slot costs a TLS connection and our signature, so slots are few, and
few of them go to one address. When all slots, or all those of its address block, are taken, a waiting caller evicts
the one that has held a slot longest. This one must have had it for `MIN_SLOT_SECONDS`; an honest caller needs two round
trips. So silent strangers, however many, keep no newcomer out.

This module does no I/O: the listener reports what happens. Source: the admission spec, section 3.
"""

from collections import Counter
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

MIN_SLOT_SECONDS: Final = 2.0
"""Time for which a caller keeps its slot while others wait: many times what a handshake takes, also across an ocean."""

_IPV6_BLOCK_BITS: Final = 64


def block_of(host: str) -> str:
    """Return the unit that counts as one address: an IPv4 address, or the /64 of an IPv6 address, which one customer
    gets as a whole.
    """
    try:
        address: IPv4Address | IPv6Address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return f"{int(address) >> (128 - _IPV6_BLOCK_BITS):x}::/64"
    return str(address)


@dataclass(eq=False, slots=True)
class UnverifiedCaller:
    """A caller that has not been verified.

    Attributes:
        block: `block_of` its address.
        granted_at: time at which it got its slot, in seconds of the listener's clock.
        is_being_verified: it has sent all that it has to send; the time that passes now is ours.
    """

    block: str
    granted_at: float = -1.0
    is_being_verified: bool = False


class SlotChanges(NamedTuple):
    """Result of an assignment of slots.

    Attributes:
        granted: callers that got a slot.
        evicted: callers that lost their slot and must be closed; they `leave` when they are.
        next_check_in: seconds after which to assign again; None: not before something happens.
    """

    granted: list[UnverifiedCaller]
    evicted: list[UnverifiedCaller]
    next_check_in: float | None


class HandshakeSlots:
    """Slots of one listener.

    Args:
        total: callers that may hold a slot at one time.
        per_address_block: of these, from one address.
        max_without_slot: callers that may be pending or waiting.
    """

    def __init__(self, total: int, per_address_block: int, max_without_slot: int) -> None:
        self._total, self._per_address_block, self._max_without_slot = total, per_address_block, max_without_slot
        self._pending: dict[UnverifiedCaller, None] = {}
        self._waiting: dict[UnverifiedCaller, None] = {}
        self._granted: dict[UnverifiedCaller, None] = {}  # in the order in which they got their slots
        self._being_evicted: set[UnverifiedCaller] = set()
        self._by_block: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """Number of callers here."""
        return len(self._pending) + len(self._waiting) + len(self._granted)

    def arrive(self, caller: UnverifiedCaller) -> UnverifiedCaller | None:
        """Add a pending caller. Return the caller that must go for it, if any.

        That is the caller that has been silent longest; when no caller is silent, the one that has waited longest.
        """
        self._pending[caller] = None
        if len(self._pending) + len(self._waiting) <= self._max_without_slot:
            return None
        displaced = next(iter(self._pending))
        if displaced is caller and self._waiting:  # all others have sent their first record
            displaced = next(iter(self._waiting))
        self.leave(displaced)
        return displaced

    def request_slot(self, caller: UnverifiedCaller) -> None:
        """Note that a caller has sent enough to be worth a slot."""
        if caller in self._pending:
            del self._pending[caller]
            self._waiting[caller] = None

    def leave(self, caller: UnverifiedCaller) -> None:
        """Remove a caller that was verified or has left."""
        self._pending.pop(caller, None)
        self._waiting.pop(caller, None)
        if caller in self._granted:
            del self._granted[caller]
            self._being_evicted.discard(caller)
            self._by_block[caller.block] -= 1
            if not self._by_block[caller.block]:
                del self._by_block[caller.block]

    def assign(self, now: float) -> SlotChanges:
        """Assign free slots in the order of waiting. Select the callers to evict for those that still wait."""
        granted: list[UnverifiedCaller] = []
        evicted: list[UnverifiedCaller] = []
        next_check_in: float | None = None
        for caller in list(self._waiting):
            crowded_block = self._by_block[caller.block] >= self._per_address_block
            if not crowded_block and len(self._granted) < self._total:
                del self._waiting[caller]
                self._granted[caller] = None
                self._by_block[caller.block] += 1
                caller.granted_at = now
                granted.append(caller)
                continue
            oldest = self._longest_evictable(caller.block if crowded_block else "")
            if oldest is None:
                continue
            left = oldest.granted_at + MIN_SLOT_SECONDS - now
            if left <= 0:
                self._being_evicted.add(oldest)
                evicted.append(oldest)
            else:
                next_check_in = left if next_check_in is None else min(left, next_check_in)
        return SlotChanges(granted, evicted, next_check_in)

    def _longest_evictable(self, block: str) -> UnverifiedCaller | None:
        for caller in self._granted:
            if (
                (not block or caller.block == block)
                and caller not in self._being_evicted
                and not caller.is_being_verified
            ):
                return caller
        return None
