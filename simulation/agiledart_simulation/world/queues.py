"""Two event queues behind one interface.

`HeapQueue` orders events by instant, then by the order in which they were pushed. `WheelQueue` rounds instants up to whole
milliseconds and keeps the order of pushing inside one: a second, equally legal schedule of the same scenario for free.
"""

from bisect import insort
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final, Protocol

from agiledart_kernel.instants import MILLISECOND

Entry = tuple[Any, int, Any, Any]
"""Entry of a queue: (instant, number of the push, target, event)."""

_SLOT_BITS: Final = 20
"""A slot is 2^20 ns wide."""


class EventQueue(Protocol):
    """Queue of events to come."""

    def __len__(self) -> int: ...

    def push(self, at: int, number: int, target: Any, event: Any) -> None:
        """Add an event at an instant that is not past."""
        ...

    def pop(self, limit: int) -> Entry | None:
        """Return the next event if it is not later than `limit`; its instant never goes back."""
        ...

    def keep(self, is_wanted: Callable[[Entry], bool]) -> None:
        """Discard all other entries."""
        ...

    def pull(self, is_pulled: Callable[[Entry], bool]) -> list[Entry]:
        """Remove some entries and return them, in order of pushing."""
        ...


class HeapQueue:
    """Heap of slots of about a millisecond; each is sorted when its turn comes, so the order is exact to the nanosecond.

    A heap of the events themselves would touch some fifteen of them, far apart in memory, for each that is taken.
    """

    __slots__ = ("_count", "_current", "_next", "_order", "_slot", "_slots")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._slots: dict[int, list[Entry]] = {}
        self._order: list[int] = []
        self._slot = -1
        self._current: list[Entry] = []
        self._next = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, at: int, number: int, target: Any, event: Any) -> None:
        """Add an event; see `EventQueue`."""
        slot = at >> _SLOT_BITS
        self._count += 1
        if slot <= self._slot:
            insort(self._current, (at, number, target, event), self._next)
            return
        entries = self._slots.get(slot)
        if entries is None:
            entries = self._slots[slot] = []
            heappush(self._order, slot)
        entries.append((at, number, target, event))

    def pop(self, limit: int) -> Entry | None:
        """Return the next event; see `EventQueue`."""
        current = self._current
        if self._next == len(current):
            if not self._order or self._order[0] << _SLOT_BITS > limit:
                return None
            self._slot = heappop(self._order)
            current = self._current = self._slots.pop(self._slot)
            current.sort()
            self._next = 0
        entry = current[self._next]
        if entry[0] > limit:
            return None
        self._next += 1
        self._count -= 1
        return entry

    def _waiting(self) -> list[Entry]:
        return [*self._current[self._next :], *(entry for entries in self._slots.values() for entry in entries)]

    def keep(self, is_wanted: Callable[[Entry], bool]) -> None:
        """Discard all other entries; see `EventQueue`."""
        wanted = [entry for entry in self._waiting() if is_wanted(entry)]
        self._clear()
        for entry in wanted:
            self.push(*entry)

    def pull(self, is_pulled: Callable[[Entry], bool]) -> list[Entry]:
        """Remove and return some entries; see `EventQueue`."""
        pulled = sorted((entry for entry in self._waiting() if is_pulled(entry)), key=lambda entry: entry[1])
        self.keep(lambda entry: not is_pulled(entry))
        return pulled


class WheelQueue:
    """Slots of one millisecond, found by their number; the numbers in use are in a small heap."""

    __slots__ = ("_count", "_current", "_next", "_order", "_slot", "_slots", "_width")

    def __init__(self, width_ns: int = MILLISECOND) -> None:
        self._width = width_ns
        self._slots: dict[int, list[Entry]] = {}
        self._order: list[int] = []
        self._slot = -1
        self._current: list[Entry] = []
        self._next = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, at: int, number: int, target: Any, event: Any) -> None:
        """Add an event; see `EventQueue`."""
        slot = -(-at // self._width)
        self._count += 1
        if slot <= self._slot:
            self._current.append((self._slot * self._width, number, target, event))
            return
        entries = self._slots.get(slot)
        if entries is None:
            entries = self._slots[slot] = []
            heappush(self._order, slot)
        entries.append((slot * self._width, number, target, event))

    def pop(self, limit: int) -> Entry | None:
        """Return the next event; see `EventQueue`."""
        if self._next == len(self._current):
            if not self._order or self._order[0] * self._width > limit:
                return None
            self._slot = heappop(self._order)
            self._current = self._slots.pop(self._slot)
            self._next = 0
            if not self._current:
                return self.pop(limit)
        entry = self._current[self._next]
        self._next += 1
        self._count -= 1
        return entry

    def keep(self, is_wanted: Callable[[Entry], bool]) -> None:
        """Discard all other entries; see `EventQueue`."""
        self._current = [entry for entry in self._current[self._next :] if is_wanted(entry)]
        self._next = 0
        for slot, entries in self._slots.items():
            self._slots[slot] = [entry for entry in entries if is_wanted(entry)]
        self._count = len(self._current) + sum(len(entries) for entries in self._slots.values())

    def pull(self, is_pulled: Callable[[Entry], bool]) -> list[Entry]:
        """Remove and return some entries; see `EventQueue`."""
        waiting = [*self._current[self._next :], *(entry for entries in self._slots.values() for entry in entries)]
        pulled = sorted((entry for entry in waiting if is_pulled(entry)), key=lambda entry: entry[1])
        self.keep(lambda entry: not is_pulled(entry))
        return pulled


QUEUES: Final[dict[str, Callable[[], EventQueue]]] = {"heap": HeapQueue, "wheel": WheelQueue}
"""Queues by name."""
