"""Records of one node, and the merge of two copies that differ.

A later version holds more writes only as long as one root orders them. In a partition two roots do, and the number of writes does
not show which copy is right. So the layer that writes records provides a function that merges two of its values (`Merge`). A
merged value is a version of its own: a client that read one of the two cannot overwrite the part that it has not read. Values
without such a function are ordered by version, then by digest.
"""

from collections.abc import Callable, Iterator
from hashlib import blake2b

from agiledart_kernel.counts import MAX_COUNT
from agiledart_kernel.fair_shares import fits_share
from agiledart_kernel.limits import MAX_RECORDS
from agiledart_kernel.node_id import NodeId

Writer = tuple[NodeId, int, int]
"""Node, its incarnation and its request number: one write."""

Merge = Callable[[NodeId, bytes, bytes], bytes | None]
"""(key, a value, one of a later version) → the value that combines both; None: the key has no merge function.

Of equal versions the one with the greater digest comes second, so all replica nodes merge alike. A value that already includes
the other must be returned unchanged; so replica nodes that keep exchanging copies converge.
"""


def by_rank(key: NodeId, earlier: bytes, later: bytes) -> None:
    """Merge no values; versions and digests decide."""


def value_digest(value: bytes) -> bytes:
    """Return eight bytes that identify a value."""
    return blake2b(value, digest_size=8).digest()


class Record:
    """One version of one record.

    Args:
        key: its place on the ring.
        version: 1 for the first write; each write adds one.
        value: opaque.
        writer: the write that made it.
        follows: digest of the value that it replaced; empty when that is not known.
    """

    __slots__ = ("digest", "follows", "key", "value", "version", "writer")

    def __init__(self, key: NodeId, version: int, value: bytes, writer: Writer, follows: bytes = b"") -> None:
        self.key, self.version, self.value, self.writer, self.follows = key, version, value, writer, follows
        self.digest = value_digest(value)

    @property
    def rank(self) -> tuple[int, bytes]:
        """Return the identity of the copy: its version and digest."""
        return self.version, self.digest


def merged(first_copy: Record, second_copy: Record, merge: Merge) -> Record:
    """Return the merge of two copies at a key; one of them, if it includes the other."""
    first, later = (first_copy, second_copy) if first_copy.rank < second_copy.rank else (second_copy, first_copy)
    if first.digest == later.digest or later.follows == first.digest:
        return later
    value = merge(first_copy.key, first.value, later.value)
    if value is None or (value == later.value and first.version < later.version) or later.version >= MAX_COUNT:
        return later
    return Record(first_copy.key, later.version + 1, value, first.writer if value == first.value else later.writer)


SMALL_BYTES = 4 << 10
"""Records up to this size need no share: names, locations, and the records of most applications."""


class RecordStore:
    """Records by key, bounded in number and bytes, both in all and for each node that has written them."""

    __slots__ = ("_bytes", "_bytes_by_writer", "_limit_bytes", "_merge", "_records")

    def __init__(self, limit_bytes: int, merge: Merge = by_rank) -> None:
        self._merge = merge
        self._records: dict[NodeId, Record] = {}
        self._bytes = 0
        self._bytes_by_writer: dict[NodeId, int] = {}
        self._limit_bytes = limit_bytes

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        yield from self._records.values()

    def get(self, key: NodeId) -> Record | None:
        """Return the copy stored here."""
        return self._records.get(key)

    def rank(self, key: NodeId) -> tuple[int, bytes]:
        """Return version and digest of the copy stored here; (0, b"") when there is none."""
        record = self._records.get(key)
        return record.rank if record is not None else (0, b"")

    def keep(self, record: Record) -> bool:
        """Store the merge of this copy and the one here; return False when there is no space for it."""
        old = self._records.get(record.key)
        if old is not None:
            record = merged(old, record, self._merge)
            if record.rank == old.rank:
                return True
        growth = len(record.value) - (len(old.value) if old is not None else 0)
        if (old is None and len(self._records) >= MAX_RECORDS) or self._bytes + growth > self._limit_bytes:
            return False
        if not self._fits_share(record, old):
            return False
        if old is not None:
            self._count(old, -1)
        self._records[record.key] = record
        self._count(record, 1)
        return True

    def _fits_share(self, record: Record, old: Record | None) -> bool:
        """Return whether the writer of a record may store its bytes here: no writer takes the space of all others."""
        size, had = len(record.value), len(old.value) if old is not None else 0
        if size <= max(SMALL_BYTES, had):
            return True
        of_writer = self._bytes_by_writer.get(record.writer[0], 0)
        if old is not None and old.writer[0] == record.writer[0]:
            of_writer -= had
        return fits_share(of_writer, size, self._bytes - had, self._limit_bytes)

    def _count(self, record: Record, sign: int) -> None:
        writer, size = record.writer[0], sign * len(record.value)
        self._bytes += size
        left = self._bytes_by_writer.get(writer, 0) + size
        if left:
            self._bytes_by_writer[writer] = left
        else:
            self._bytes_by_writer.pop(writer, None)

    def drop(self, key: NodeId) -> None:
        """Drop a copy."""
        record = self._records.pop(key, None)
        if record is not None:
            self._count(record, -1)

    def violations(self) -> list[str]:
        """Check that each record stands at its key with a possible version, and that number and bytes are bounded and right."""
        complaints = [
            f"record: {key.short} has version {record.version} of {record.key.short}"
            for key, record in self._records.items()
            if record.key != key or not 1 <= record.version <= MAX_COUNT
        ]
        size = sum(len(record.value) for record in self._records.values())
        if size != self._bytes or size > self._limit_bytes or len(self._records) > MAX_RECORDS:
            complaints.append(
                f"record: {len(self._records)} with {size} bytes, counted as {self._bytes}, at most {self._limit_bytes}"
            )
        return complaints
