"""The records one node keeps, and what becomes of two copies that differ.

A later version holds more writes only as long as one root orders them. In a partition two roots do, and the number of writes says
nothing about which copy is true. So whoever writes records says how two of its values become one (`Merge`), and a merged value is a
version of its own: nobody who read one of the two can write over what it has not read. Values of which nobody says that are ordered
by version, then by digest.
"""

from collections.abc import Callable, Iterator
from hashlib import blake2b

from agiledart_kernel.counts import MAX_COUNT
from agiledart_kernel.limits import MAX_RECORDS
from agiledart_kernel.node_id import NodeId

Writer = tuple[NodeId, int, int]
"""Node, its incarnation and its request number: one write."""

Merge = Callable[[NodeId, bytes, bytes], bytes | None]
"""(key, a value, one of a later version) → the value that says what both say; None: nothing is known of values at this key.

Of equal versions the one with the greater digest comes second, so all holders ask the same. A value that says what the other
one does must be left alone; so holders that go on telling each other what they have come to agree.
"""


def by_rank(key: NodeId, earlier: bytes, later: bytes) -> None:
    """Nothing is known of any value."""


def value_digest(value: bytes) -> bytes:
    """Eight bytes that stand for a value."""
    return blake2b(value, digest_size=8).digest()


class Record:
    """One version of one record.

    Args:
        key: its place on the ring.
        version: 1 for the first write; each write adds one.
        value: opaque.
        writer: the write that made it.
        follows: digest of the value that it took the place of; empty when that is not known.
    """

    __slots__ = ("digest", "follows", "key", "value", "version", "writer")

    def __init__(self, key: NodeId, version: int, value: bytes, writer: Writer, follows: bytes = b"") -> None:
        self.key, self.version, self.value, self.writer, self.follows = key, version, value, writer, follows
        self.digest = value_digest(value)

    @property
    def rank(self) -> tuple[int, bytes]:
        """Which copy it is: its version, and what it says."""
        return self.version, self.digest


def merged(one: Record, other: Record, merge: Merge) -> Record:
    """What stands at a key of which two copies are known; one of them, if that says all."""
    first, later = (one, other) if one.rank < other.rank else (other, one)
    if first.digest == later.digest or later.follows == first.digest:
        return later
    value = merge(one.key, first.value, later.value)
    if value is None or (value == later.value and first.version < later.version) or later.version >= MAX_COUNT:
        return later
    return Record(one.key, later.version + 1, value, first.writer if value == first.value else later.writer)


class RecordStore:
    """Records by key, bounded in number and bytes."""

    __slots__ = ("_bytes", "_limit_bytes", "_merge", "_records")

    def __init__(self, limit_bytes: int, merge: Merge = by_rank) -> None:
        self._merge = merge
        self._records: dict[NodeId, Record] = {}
        self._bytes = 0
        self._limit_bytes = limit_bytes

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        yield from self._records.values()

    def get(self, key: NodeId) -> Record | None:
        """The copy kept here."""
        return self._records.get(key)

    def rank(self, key: NodeId) -> tuple[int, bytes]:
        """Version and digest of the copy kept here; (0, b"") when there is none."""
        record = self._records.get(key)
        return record.rank if record is not None else (0, b"")

    def keep(self, record: Record) -> bool:
        """Keep what this copy and the one here say together; false when there is no room for it."""
        old = self._records.get(record.key)
        if old is not None:
            record = merged(old, record, self._merge)
            if record.rank == old.rank:
                return True
        growth = len(record.value) - (len(old.value) if old is not None else 0)
        if (old is None and len(self._records) >= MAX_RECORDS) or self._bytes + growth > self._limit_bytes:
            return False
        self._records[record.key] = record
        self._bytes += growth
        return True

    def drop(self, key: NodeId) -> None:
        """Forget a copy."""
        record = self._records.pop(key, None)
        if record is not None:
            self._bytes -= len(record.value)

    def violations(self) -> list[str]:
        """Each record stands at its key with a version that a write can have; number and bytes are bounded and counted right."""
        found = [
            f"record: {key.short} has version {record.version} of {record.key.short}"
            for key, record in self._records.items()
            if record.key != key or not 1 <= record.version <= MAX_COUNT
        ]
        size = sum(len(record.value) for record in self._records.values())
        if size != self._bytes or size > self._limit_bytes or len(self._records) > MAX_RECORDS:
            found.append(
                f"record: {len(self._records)} with {size} bytes, counted as {self._bytes}, at most {self._limit_bytes}"
            )
        return found
