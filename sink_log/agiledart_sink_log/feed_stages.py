"""Stages of a feed: rows on the disk that writers have sent and that no reader sees yet.

`stages/QUERY/BATCH/PARTITION.ATTEMPT` holds the pieces of one task in order, each with its sizes and a checksum. A torn piece, of
an agent that was killed, is cut off when the next one comes. Old stages are dropped, and those of a query that goes on with a later
batch.
"""

import os
import shutil
import struct
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final

from agiledart_kernel.checksum import crc32c
from agiledart_kernel.errors import OperationFailed
from agiledart_sink_log.feed_protocol import StagePart

MAX_STAGED_BYTES: Final = 256 << 20
"""Greatest size of the stages of one feed, bytes. A writer waits for room; a single batch that is larger is refused."""

MAX_STAGES: Final = 10_000
STAGE_SECONDS: Final = 86_400.0
"""Age at which a stage is dropped, when nothing was added to it for so long."""

_PIECE: Final = struct.Struct(">III")


class StagesFull(OperationFailed):
    """There is no room for a stage now; later there may be."""


class StageTooLarge(OperationFailed):
    """A batch is larger than all stages may be."""


class StageLost(OperationFailed):
    """Rows that are to be published are not staged, or not any more."""


class FeedStages:
    """Stages of one feed; used by one thread at a time.

    Args:
        folder: of the stages.
        max_bytes: greatest size of all stages.
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_STAGED_BYTES) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._whole: dict[Path, tuple[int, int]] = {}  # size and pieces of stages that were added to

    @property
    def staged_bytes(self) -> int:
        """Return the size of all stages, bytes."""
        return sum(size for _, size, _ in self._files())

    def add(self, query: str, batch: int, part: tuple[int, int], piece: int, body: bytes, rows: int) -> None:
        """Write a piece of a stage; one that is there already is ignored.

        Args:
            part: (partition, attempt).
            piece: number of the piece in the stage.

        Raises:
            StagesFull: there is no room.
            StageTooLarge: there never will be.
            StageLost: pieces before this one are missing.
            OSError: the disk refuses.
        """
        place = self._batch_folder(query, batch)
        if not place.exists():
            self._drop_earlier(query, batch)
        path = place / f"{part[0]}.{part[1]}"
        size, pieces = self._end_of(path)
        if piece < pieces:
            return
        if piece > pieces:
            raise StageLost(f"piece {piece} of partition {part[0]} has no piece before it")
        self._check_room(place, _PIECE.size + len(body))
        place.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, size)
            raw = memoryview(_PIECE.pack(rows, len(body), crc32c(body)) + body)
            while raw:
                written = os.pwrite(descriptor, raw, size)
                raw, size = raw[written:], size + written
        finally:
            os.close(descriptor)
        self._whole[path] = (size, pieces + 1)

    def _end_of(self, path: Path) -> tuple[int, int]:
        """Return (size, number) of the whole pieces of a stage."""
        known = self._whole.get(path)
        if known is not None and path.exists() and path.stat().st_size == known[0]:
            return known
        size = pieces = 0
        for body, _ in _read(path):
            size, pieces = size + _PIECE.size + len(body), pieces + 1
        return size, pieces

    def _check_room(self, place: Path, more: int) -> None:
        total = own = count = 0
        for path, size, _ in self._files():
            total, count = total + size, count + 1
            own += size if path.parent == place else 0
        if own + more > self._max_bytes:
            raise StageTooLarge(
                f"the batch has more than {self._max_bytes:,} bytes, the most that a feed stages. Make batches smaller: "
                "maxRowsPerBatch of the source"
            )
        if total + more > self._max_bytes or count >= MAX_STAGES:
            raise StagesFull(f"the feed already stages {total:,} bytes of other batches")

    def pieces(self, query: str, batch: int, parts: tuple[StagePart, ...]) -> Iterator[tuple[bytes, int]]:
        """Yield (body, rows) of each piece of these stages, in order of partitions.

        Raises `StageLost` when a stage is missing or has other pieces than the writer says.
        """
        for part in sorted(parts, key=lambda part: part.partition):
            rows = pieces = 0
            path = self._batch_folder(query, batch) / f"{part.partition}.{part.attempt}"
            for body, count in _read(path) if part.pieces else ():
                if pieces == part.pieces:
                    break
                yield body, count
                rows, pieces = rows + count, pieces + 1
            if (pieces, rows) != (part.pieces, part.rows):
                raise StageLost(
                    f"partition {part.partition} has {rows:,} staged rows of {part.rows:,}; the rest is gone. Run the batch again"
                )

    def drop(self, query: str, batch: int) -> None:
        """Drop the stages of a batch."""
        self._remove(self._batch_folder(query, batch))
        self._remove_if_empty(query)

    def _remove(self, place: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        self._whole = {path: end for path, end in self._whole.items() if path.parent != place}

    def expire(self, now_seconds: float) -> int:
        """Drop stages to which nothing was added for `STAGE_SECONDS`, and return how many."""
        old = [path for path, _, changed in self._files() if changed < now_seconds - STAGE_SECONDS]
        for path in old:
            path.unlink(missing_ok=True)
        for folder in {path.parent for path in old}:
            if not any(folder.iterdir()):
                shutil.rmtree(folder, ignore_errors=True)
        return len(old)

    def _drop_earlier(self, query: str, batch: int) -> None:
        """Drop the stages of a query's batches before this one: it goes on only after they are published or given up."""
        folder = self._folder / _folder_name(query)
        for entry in folder.iterdir() if folder.exists() else ():
            if entry.name.isdecimal() and int(entry.name) < batch:
                self._remove(entry)

    def _remove_if_empty(self, query: str) -> None:
        folder = self._folder / _folder_name(query)
        if folder.exists() and not any(folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)

    def _batch_folder(self, query: str, batch: int) -> Path:
        return self._folder / _folder_name(query) / str(batch)

    def _files(self) -> Iterator[tuple[Path, int, float]]:
        """Yield (path, size, time of the last change) of each stage."""
        for path in self._folder.glob("*/*/*"):
            stat = path.lstat()
            yield path, stat.st_size, stat.st_mtime


def _folder_name(query: str) -> str:
    """Return a folder name for a query, whose own name may have any characters."""
    return blake2b(query.encode(), digest_size=16).hexdigest()


def _read(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yield (body, rows) of the whole pieces of a stage; a torn or damaged one ends it."""
    try:
        file = open(path, "rb")  # noqa: SIM115  closed below
    except FileNotFoundError:
        return
    with file:
        while len(head := file.read(_PIECE.size)) == _PIECE.size:
            rows, length, checksum = _PIECE.unpack(head)
            body = file.read(length)
            if len(body) < length or crc32c(body) != checksum:
                return
            yield body, rows
