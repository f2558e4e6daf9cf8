"""`Intake`: rows of a source that wait because its outputs are blocked, under the user's overload policy.

It stands between validation (late, malformed, sorted, paced: done once, when a row comes) and numbering (done when a row leaves).
A row that is dropped here never had a position, so downstream sees no gap. Rows leave in the order in which they came: those in
memory first, then those on disk. A source that blocks has no intake and no cost.

Sampling: a row stays when the last `level` bits of a hash of its number are zero. A full queue raises the level and drops rows
that no longer qualify, so the queue is a sample of the whole time and not its beginning or end. A queue that has shrunk to a
quarter lowers the level. The choice of a row depends only on its number and the level.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from agiledart_dataflow.counts.statistics import SourceCounts
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.event_time.event_clock import Late
from agiledart_dataflow.plan.overload import BLOCK, MAX_WAITING_BYTES, SHED_SAMPLE, SPOOL, Overload
from agiledart_kernel.errors import LocalProtocolError, OperationFailed, UserCodeError

Timed = tuple[int, Any]
"""Event time in milliseconds and the row, or the `Late` row: its lateness was decided when it came."""

CHUNK_BYTES: Final = 256 << 10
"""Maximum size of a chunk on disk, about, as far as whole rows allow: one chunk is read back at a time."""

_UNWEIGHED: Final = 64
"""Rows that may enter an empty intake without being encoded to learn their size: usually they leave at once."""

_WORD: Final = (1 << 64) - 1
_MAX_LEVEL: Final = 48

OLDEST, SAMPLE, SPOOL_FULL, DISK_FULL = "oldest", "sample", "spool_full", "disk_full"
"""Reasons for which rows are dropped."""


class RowStore(Protocol):
    """Bounded log of chunks, first in, first out; `agiledart_executor.spool` keeps one on disk."""

    def has_space(self) -> bool:
        """Report whether another chunk may be appended."""
        ...

    def append(self, chunk: bytes, rows: int) -> None:
        """Add a chunk at the end. Raises `OperationFailed` when the disk refuses it; then nothing was added."""
        ...

    def next(self) -> bytes | None:
        """Take the first chunk; None when there is none. Raises `OperationFailed` when it cannot be read back."""
        ...

    @property
    def rows(self) -> int:
        """Return the number of rows in all chunks."""
        ...

    def close(self) -> None:
        """Release the disk space; may be called twice."""
        ...


class Intake:
    """Waiting rows of one source.

    Args:
        name: name of the source; appears in messages and in the hash of its rows.
        row_type: type of its rows.
        overload: policy when the intake is full.
        store: for `spool`.

    Raises:
        UserCodeError: from `put`, for rows that do not have their declared type and so cannot be stored.
        OperationFailed: from `put` and `take`, when the disk fails and the policy may not shed; the text advises what to do.
    """

    def __init__(self, name: str, row_type: Any, overload: Overload, store: RowStore | None = None) -> None:
        if overload.blocks or (overload.policy == SPOOL) != (store is not None):
            raise LocalProtocolError(f"source {name}: {overload.policy} with{'' if store else 'out'} a store")
        self._name, self._overload, self._store = name, overload, store
        self._salt = int.from_bytes(name.encode()[:64], "big") % _WORD
        self._waiting: deque[tuple[int, Any, int, int]] = deque()  # time, row, number, bytes (0: not measured yet)
        self._tail: list[Timed] = []
        self._bytes = 0
        self._number = 0
        self.level = 0
        self.spooled_ever = 0
        self.shed: dict[str, int] = {}
        self._encoder = msgspec.msgpack.Encoder()
        kind = generic(tuple, list[int], generic(list, row_type), list[tuple[int, int, bool]])
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kind)

    @property
    def waiting(self) -> int:
        """Return the number of rows in memory."""
        return len(self._waiting) + len(self._tail)

    @property
    def spooled(self) -> int:
        """Return the number of rows on disk."""
        return 0 if self._store is None else self._store.rows

    @property
    def is_empty(self) -> bool:
        """Report whether no rows wait, in memory or on disk."""
        return not self.waiting and not self.spooled

    def has_space(self) -> bool:
        """Report whether the source may read on. Only a full spool refuses, unless it may shed."""
        if self._store is None or self._overload.spool_full != BLOCK:
            return True
        return not self._tail and (self._store.has_space() or self._fits())

    def put(self, due: Sequence[Timed]) -> None:
        """Take rows that came, in order."""
        if self._store is not None:
            self._put_spooling(self._store, due)
            return
        level_mask = (1 << self.level) - 1
        sampling = self._overload.policy == SHED_SAMPLE
        size = self._size_of(due)
        for time_ms, row in due:
            number = self._number
            self._number += 1
            if sampling and level_mask & self._hash(number):
                self._count_shed(SAMPLE)
            else:
                self._keep(time_ms, row, number, size)
        while not self._fits():
            if not sampling or self.level >= _MAX_LEVEL:
                self._bytes -= self._waiting.popleft()[3]
                self._count_shed(OLDEST)
            else:
                self.level += 1
                self._sift()

    def take(self, max_rows: int) -> list[Timed]:
        """Return the rows that leave now, at most `max_rows`."""
        store = self._store
        if store is not None:
            if not self._waiting and (chunk := store.next()) is not None:
                self._unpack(chunk)
            if self._tail and store.has_space():
                tail, self._tail = self._tail, []
                self._put_spooling(store, tail)
        waiting = self._waiting
        out: list[Timed] = []
        for _ in range(min(max_rows, len(waiting))):
            time_ms, row, _number, size = waiting.popleft()
            self._bytes -= size
            out.append((time_ms, row))
        if self.level and len(waiting) * 4 <= self._overload.rows and self._bytes * 4 <= MAX_WAITING_BYTES:
            self.level -= 1
        return out

    def waiting_in_memory(self) -> list[Timed]:
        """Return the rows that wait in memory, in order."""
        return [*((time_ms, row) for time_ms, row, _number, _size in self._waiting), *self._tail]

    def add_counts_to(self, counts: SourceCounts) -> None:
        """Add this intake's counts to those of its source."""
        counts.waiting += self.waiting
        counts.spooled, counts.spooled_ever = self.spooled, self.spooled_ever
        self.add_shed_to(counts)

    def add_shed_to(self, counts: SourceCounts) -> None:
        """Add the rows that this intake dropped to those that the source dropped before a restart."""
        reasons = {**counts.shed, **self.shed}
        counts.shed = {reason: self.shed.get(reason, 0) + counts.shed.get(reason, 0) for reason in reasons}

    def close(self) -> None:
        """Release the disk space."""
        if self._store is not None:
            self._store.close()

    def _fits(self) -> bool:
        return len(self._waiting) <= self._overload.rows and self._bytes <= MAX_WAITING_BYTES

    def _keep(self, time_ms: int, row: Any, number: int, size: int) -> None:
        self._waiting.append((time_ms, row, number, size))
        self._bytes += size

    def _count_shed(self, reason: str, count: int = 1) -> None:
        self.shed[reason] = self.shed.get(reason, 0) + count

    def _sift(self) -> None:
        """Drop waiting rows that are not in the thinner sample."""
        mask = (1 << self.level) - 1
        sample = deque(entry for entry in self._waiting if not mask & self._hash(entry[2]))
        self._count_shed(SAMPLE, len(self._waiting) - len(sample))
        self._waiting = sample
        self._bytes = sum(entry[3] for entry in sample)

    def _hash(self, number: int) -> int:
        """Return 64 well-mixed bits of the source and a row's number (the finaliser of SplitMix64)."""
        mixed = (number * 0x9E3779B97F4A7C15 + self._salt) & _WORD
        mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _WORD
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _WORD
        return mixed ^ mixed >> 31

    def _size_of(self, due: Sequence[Timed]) -> int:
        """Return about the size of one of these rows; 0 when it is not needed yet. Measures waiting rows without a size, too."""
        waiting = self._waiting
        if not due or (not waiting and len(due) <= _UNWEIGHED):
            return 0
        if waiting and not waiting[0][3]:  # all of them came at once, into an empty intake
            size = self._weight([(time_ms, row) for time_ms, row, _number, _size in waiting])
            self._waiting = deque((time_ms, row, number, size) for time_ms, row, number, _size in waiting)
            self._bytes = size * len(waiting)
        return self._weight(due)

    def _weight(self, rows: Sequence[Timed]) -> int:
        return len(self._pack(rows)) // len(rows) + 1

    def _put_spooling(self, store: RowStore, due: Sequence[Timed]) -> None:
        """Put rows into memory while nothing is on disk and memory has space; else on disk, behind earlier rows."""
        if not store.rows and not self._tail:
            size = self._size_of(due)
            free_rows = min(self._overload.rows - len(self._waiting), (MAX_WAITING_BYTES - self._bytes) // max(1, size))
            for time_ms, row in due[: max(0, free_rows)]:
                self._keep(time_ms, row, 0, size)
            due = due[max(0, free_rows) :]
        pieces = [due] if due else []
        while pieces:
            piece = pieces.pop()
            chunk = self._pack(piece)
            if len(chunk) > CHUNK_BYTES and len(piece) > 1:
                half = len(piece) // 2
                pieces += [piece[half:], piece[:half]]
            else:
                self._store_chunk(store, piece, chunk)

    def _store_chunk(self, store: RowStore, piece: Sequence[Timed], chunk: bytes) -> None:
        if self._tail or not store.has_space():
            if self._overload.spool_full == BLOCK:
                self._tail += piece  # already read: these rows wait, and no more are read
            else:
                self._count_shed(SPOOL_FULL, len(piece))
            return
        try:
            store.append(chunk, len(piece))
        except OperationFailed as error:
            if self._overload.spool_full == BLOCK:
                raise OperationFailed(f"{self._name}: {error}") from None
            self._count_shed(DISK_FULL, len(piece))
        else:
            self.spooled_ever += len(piece)

    def _pack(self, rows: Sequence[Timed]) -> bytes:
        lates = [(i, row.by_ms, row.aside) for i, (_, row) in enumerate(rows) if type(row) is Late]
        plain = [row for _, row in rows]
        for i, _, _ in lates:
            plain[i] = plain[i].row
        try:
            return self._encoder.encode(([time_ms for time_ms, _ in rows], plain, lates))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise UserCodeError(f"{self._name}: its rows cannot be stored: {error}") from None

    def _unpack(self, chunk: bytes) -> None:
        try:
            times, rows, lates = self._decoder.decode(chunk)
        except (msgspec.MsgspecError, ValueError) as error:
            raise UserCodeError(f"{self._name}: its rows do not have their declared type: {error}") from None
        for i, by_ms, aside in lates:
            rows[i] = Late(rows[i], by_ms, aside)
        size = len(chunk) // max(1, len(rows)) + 1
        for time_ms, row in zip(times, rows, strict=True):
            self._keep(time_ms, row, 0, size)
