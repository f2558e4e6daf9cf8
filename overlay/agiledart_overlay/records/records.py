"""The records one node keeps, and which of two copies is the newer one."""

from collections.abc import Iterator
from hashlib import blake2b

from agiledart_kernel.count import MAX_COUNT
from agiledart_kernel.limits import MAX_RECORDS
from agiledart_kernel.node_id import NodeId

Writer = tuple[NodeId, int, int]
"""Node, its incarnation and its request number: one write."""


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
    """

    __slots__ = ("digest", "key", "value", "version", "writer")

    def __init__(self, key: NodeId, version: int, value: bytes, writer: Writer) -> None:
        self.key, self.version, self.value, self.writer = key, version, value, writer
        self.digest = value_digest(value)

    @property
    def rank(self) -> tuple[int, bytes]:
        """Copies are ordered by version, then by digest, so that all nodes choose the same one."""
        return self.version, self.digest


class RecordStore:
    """Records by key, bounded in number and bytes."""

    __slots__ = ("_bytes", "_limit_bytes", "_records")

    def __init__(self, limit_bytes: int) -> None:
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
        """Keep a copy if it is newer than the one here; false when there is no room for it."""
        old = self._records.get(record.key)
        if old is not None and old.rank >= record.rank:
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
