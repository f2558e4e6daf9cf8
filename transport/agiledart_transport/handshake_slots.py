"""Who may take the time of a listener before it has proven anything. No I/O: the listener tells what happens.

    at the door ── its first record is whole ──> waits ── a place is free ──> seated ── proven or refused ──> gone

A caller at the door costs a socket. One that has a place costs a TLS connection and our signature, so places are few, and few of
them go to one address. Whoever waits while all are taken makes the one that has been seated longest give way, once that one has had
`MIN_SLOT_SECONDS`: who is honest needs two round trips. So silent strangers, however many, keep no newcomer out.

Source: the admission spec, section 3.
"""

from collections import Counter
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

MIN_SLOT_SECONDS: Final = 2.0
"""How long a caller keeps its place while others wait for it: many times what a handshake takes, also across an ocean."""

_IPV6_BLOCK_BITS: Final = 64


def block_of(host: str) -> str:
    """What counts as one address: an IPv4 address, or the /64 of an IPv6 address, which one customer is given as a whole."""
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
    """Somebody who has not proven itself.

    Attributes:
        block: `block_of` its address.
        seated_at: when it got its place, in seconds of the listener's clock.
        waits_for_us: it has said all that it has to say; the time that passes now is ours.
    """

    block: str
    granted_at: float = -1.0
    is_waiting_for_us: bool = False


class SlotChanges(NamedTuple):
    """What follows from a look at the places.

    Attributes:
        seated: got a place.
        giving_way: have lost theirs and must be closed; they `leave` when they are.
        look_in: seconds after which to look again; None: not before something happens.
    """

    granted: list[UnverifiedCaller]
    evicted: list[UnverifiedCaller]
    next_check_in: float | None


class HandshakeSlots:
    """The places of one listener.

    Args:
        total: callers that may be seated at one time.
        per_block: of these, from one address.
        at_door: callers that may stand at the door or wait.
    """

    def __init__(self, total: int, per_address_block: int, max_pending: int) -> None:
        self._total, self._per_address_block, self._max_pending = total, per_address_block, max_pending
        self._silent: dict[UnverifiedCaller, None] = {}
        self._waiting: dict[UnverifiedCaller, None] = {}
        self._granted: dict[UnverifiedCaller, None] = {}  # in the order in which they sat down
        self._being_evicted: set[UnverifiedCaller] = set()
        self._by_block: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """Callers here."""
        return len(self._silent) + len(self._waiting) + len(self._granted)

    def arrive(self, caller: UnverifiedCaller) -> UnverifiedCaller | None:
        """A caller is at the door; who must go for it, if anybody: who has been silent longest, or has waited longest."""
        self._silent[caller] = None
        if len(self._silent) + len(self._waiting) <= self._max_pending:
            return None
        goes = next(iter(self._silent))
        if goes is caller and self._waiting:  # all others have spoken
            goes = next(iter(self._waiting))
        self.leave(goes)
        return goes

    def request_slot(self, caller: UnverifiedCaller) -> None:
        """It has said enough to be worth a place."""
        if caller in self._silent:
            del self._silent[caller]
            self._waiting[caller] = None

    def leave(self, caller: UnverifiedCaller) -> None:
        """It has proven itself, or is gone."""
        self._silent.pop(caller, None)
        self._waiting.pop(caller, None)
        if caller in self._granted:
            del self._granted[caller]
            self._being_evicted.discard(caller)
            self._by_block[caller.block] -= 1
            if not self._by_block[caller.block]:
                del self._by_block[caller.block]

    def assign(self, now: float) -> SlotChanges:
        """Give out what is free, in the order of waiting, and say who must give way for those who still wait."""
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
            oldest = self._oldest(caller.block if crowded_block else "")
            if oldest is None:
                continue
            left = oldest.granted_at + MIN_SLOT_SECONDS - now
            if left <= 0:
                self._being_evicted.add(oldest)
                evicted.append(oldest)
            else:
                next_check_in = left if next_check_in is None else min(left, next_check_in)
        return SlotChanges(granted, evicted, next_check_in)

    def _oldest(self, block: str) -> UnverifiedCaller | None:
        for one in self._granted:
            if (not block or one.block == block) and one not in self._being_evicted and not one.is_waiting_for_us:
                return one
        return None
