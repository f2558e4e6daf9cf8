"""Snapshot files: the state that one instance saved at an epoch, on this node's disk.

    snapshot = magic · header (MessagePack, its length before it) · block* · end
    block    = piece+; piece = length (its highest bit: the block goes on), CRC32C · bytes

A checksum covers every byte, and the run's register holds the digest (SHA-256) of the whole file. So a file that is truncated,
damaged, or of another run is refused and never restored. The format is the same on the disk, as fragments on replica nodes and in
an export. Source: recovery specification §11.
"""

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from agiledart_kernel.checksum import crc32c
from agiledart_kernel.errors import AgileDartError, OperationFailed
from agiledart_sink_log.plain_files import open_plain, path_below

FOLDER: Final = "runs"
"""Folder of all runs, below the working directory of an executor, which is the state directory of its agent."""

EXECUTOR_FOLDERS: Final = ("elements", "opened", "logs")
"""Folders of a run that executors write; the rest of its folder belongs to the agent and is closed to user code."""

PIECE_BYTES: Final = 1 << 20
"""Size of a piece: small parts are joined to it and large ones are cut to it, so a reader holds only one piece in memory."""

_GOES_ON: Final = 1 << 31

MAX_SNAPSHOT_FILE_BYTES: Final = 64 << 30
"""Longest snapshot that is read; users' code may put a sparse file of any length in its place."""

MAX_HEADER_BYTES: Final = 1 << 20
"""Longest header in bytes."""

_MAGIC: Final = b"ADARTEL1"
_LENGTH: Final = struct.Struct(">II")
_END: Final = _LENGTH.pack(0, 0)


class DamagedSnapshot(AgileDartError):
    """Error for a file that is no snapshot or not the requested one; the text names the file and the fault."""


class SnapshotHeader(msgspec.Struct, frozen=True, array_like=True):
    """Header of a snapshot: names the instance and the checkpoint.

    Args:
        run: number of the run (`frames.application_number`).
        attempt, epoch: together they name the checkpoint; an epoch alone never does.
        stage, index: the instance.
        steps: names of the stage's steps, because a stage's number means nothing in another plan.
        ended: the instance has reached the end of its input; this is its last snapshot.
        generation, parallelism, owners: of its stage; successors learn from them which other snapshots they need.
        unread: of a source, bytes that wait in its log and cannot be read again; they are in no snapshot.
        onto: digest of the snapshot whose state this increment changes; empty for a full snapshot.
    """

    run: int
    attempt: int
    epoch: int
    stage: int
    index: int
    steps: tuple[str, ...]
    ended: bool = False
    generation: int = 1
    parallelism: int = 1
    owners: bytes = b""
    unread: int = 0
    onto: bytes = b""


_HEADER: Final = msgspec.msgpack.Decoder(SnapshotHeader)


def run_folder(root: Path, application: str, version: int) -> Path:
    """Return the folder of all files that a node keeps of a run."""
    return path_below(root / FOLDER, f"{application}.{version}")


def snapshot_path(run: Path, digest: bytes) -> Path:
    """Return the path of the snapshot with this digest; files are named by their content."""
    return run / "elements" / digest.hex()


def write_snapshot(run: Path, header: SnapshotHeader, blocks: Iterable[bytes]) -> tuple[bytes, int]:
    """Write a snapshot, fsync it and return (digest, size). It gets its name only when it is whole.

    Raises:
        OSError: the disk refuses the write.
    """
    writer = SnapshotWriter(run, header)
    writer.begin()
    try:
        for block in blocks:
            writer.add([block])
            writer.end_block()
    except BaseException:
        writer.drop()
        raise
    return writer.end()


def snapshot_bytes(header: SnapshotHeader, blocks: Iterable[bytes], limit: int) -> bytes:
    """Return a snapshot as it would stand in a file; empty when it is longer than `limit` bytes, which is less than a piece."""
    head = msgspec.msgpack.encode(header)
    parts = [_MAGIC, _LENGTH.pack(len(head), crc32c(head)), head]
    for block in blocks:
        parts += [_LENGTH.pack(len(block), crc32c(block)), block] if len(block) <= limit else [b"\0" * (limit + 1)]
    content = b"".join([*parts, _END])
    return content if len(content) <= limit else b""


class SnapshotWriter:
    """Writer of a snapshot whose bytes come in pieces. Each call may raise OSError, which deletes the file.

    Args:
        run: folder of the run.
        header: of the snapshot.
    """

    def __init__(self, run: Path, header: SnapshotHeader) -> None:
        self._run, self._header = run, header
        self._part = run / "elements" / f".{header.stage}.{header.index}.part"
        self._digest, self._size = sha256(), 0
        self._block: list[bytes] = []  # unwritten pieces of the present block
        self._held = 0

    def begin(self) -> None:
        """Create the file and write its header."""
        self._part.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._file = open(os.open(self._part, flags, 0o600), "wb")  # noqa: SIM115  `end` and `drop` close it
        head = msgspec.msgpack.encode(self._header)
        self._write(_MAGIC + _LENGTH.pack(len(head), crc32c(head)) + head)

    def add(self, pieces: Iterable[bytes]) -> None:
        """Add pieces to the present block."""
        for piece in pieces:
            if self._held and self._held + len(piece) > PIECE_BYTES:
                self._write_pieces(goes_on=True)
            self._block.append(piece)
            self._held += len(piece)

    def end_block(self) -> None:
        """End the present block."""
        if self._held:
            self._write_pieces(goes_on=False)

    def end(self) -> tuple[bytes, int]:
        """Fsync the file, give it its name and return (digest, size)."""
        self._write(_END)
        digest = self._digest.digest()
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._part, snapshot_path(self._run, digest))
            _sync_folder(self._part.parent)
        except OSError:
            self.drop()
            raise
        return digest, self._size

    def drop(self) -> None:
        """Delete the file."""
        with contextlib.suppress(OSError):  # closing writes the buffer, which may fail
            self._file.close()
        self._part.unlink(missing_ok=True)

    def _write_pieces(self, *, goes_on: bool) -> None:
        block = self._block[0] if len(self._block) == 1 else b"".join(self._block)
        self._block, self._held = [], 0
        for start in range(0, len(block), PIECE_BYTES):
            piece = block[start : start + PIECE_BYTES]
            more = goes_on or start + PIECE_BYTES < len(block)
            self._write(_LENGTH.pack(len(piece) | (_GOES_ON if more else 0), crc32c(piece)))
            self._write(piece)

    def _write(self, data: bytes) -> None:
        self._digest.update(data)
        self._size += len(data)
        try:
            self._file.write(data)
        except OSError:
            self.drop()
            raise


def read_header(path: Path) -> SnapshotHeader:
    """Read the header of the snapshot in a file, without its blocks; raises `DamagedSnapshot`."""
    try:
        with open(open_plain(path, os.O_RDONLY), "rb") as file:
            return read_header_at(file, str(path))
    except OSError as error:
        raise DamagedSnapshot(f"{path}: its header cannot be read ({error})") from None


def read_header_at(file: BinaryIO, where: str) -> SnapshotHeader:
    """Read the header of a snapshot at the file's position; raises `DamagedSnapshot`, OSError.

    Args:
        file: open for reading.
        where: name of the file, for messages.
    """
    try:
        raw = file.read(len(_MAGIC) + _LENGTH.size)
        length, check = _LENGTH.unpack(raw[len(_MAGIC) :])
        head = file.read(min(length, MAX_HEADER_BYTES))
        if not raw.startswith(_MAGIC) or crc32c(head) != check:
            raise DamagedSnapshot(f"{where} is no snapshot")
        return _HEADER.decode(head)
    except (struct.error, msgspec.MsgspecError) as error:
        raise DamagedSnapshot(f"{where}: its header cannot be read ({error})") from None


class StoredBlock:
    """Verified block of a snapshot on this disk; its pieces are read when the caller iterates over them.

    Args:
        path: of the snapshot.
        places: (offset, length) of its pieces.

    Raises `OperationFailed` from an iteration when the file is gone by then.
    """

    def __init__(self, path: Path, places: list[tuple[int, int]]) -> None:
        self._path, self._places = path, places

    def __iter__(self) -> Iterator[bytes]:
        try:
            with open(open_plain(self._path, os.O_RDONLY), "rb") as file:
                for offset, length in self._places:
                    file.seek(offset)
                    yield file.read(length)
        except OSError as error:
            raise _unreadable(self._path, error) from None

    def whole(self) -> bytes:
        """Return the whole block."""
        return b"".join(self)


def stored_snapshot(
    run: Path, digest: bytes, max_bytes: int = MAX_SNAPSHOT_FILE_BYTES
) -> tuple[SnapshotHeader, list[StoredBlock]]:
    """Verify the snapshot with this digest and return its header and blocks; only one piece at a time is in memory.

    Raises:
        DamagedSnapshot: the file is incomplete, damaged, or not the one with this digest.
        OperationFailed: the file cannot be read.
    """
    path = snapshot_path(run, digest)
    try:
        with open(open_plain(path, os.O_RDONLY), "rb") as file:
            if (size := os.fstat(file.fileno()).st_size) > max_bytes:
                raise DamagedSnapshot(f"{path} has {size:,} bytes, and {max_bytes:,} at most are read")
            pieces_read = _SnapshotPieces(file, str(path))
            places: list[list[tuple[int, int]]] = [[]]
            for offset, piece, goes_on in pieces_read:
                places[-1].append((offset, len(piece)))
                if not goes_on:
                    places.append([])
    except OSError as error:
        raise _unreadable(path, error) from None
    if pieces_read.digest.digest() != digest:
        raise DamagedSnapshot(f"{path} is not the snapshot that was committed: its hash does not match")
    return pieces_read.header, [StoredBlock(path, pieces) for pieces in places[:-1]]


def read_snapshot(
    run: Path, digest: bytes, max_bytes: int = MAX_SNAPSHOT_FILE_BYTES
) -> tuple[SnapshotHeader, list[bytes]]:
    """Read a snapshot like `stored_snapshot`, with its blocks in memory."""
    header, blocks = stored_snapshot(run, digest, max_bytes)
    return header, [block.whole() for block in blocks]


def parse_snapshot(raw: bytes, path: str) -> tuple[SnapshotHeader, list[bytes]]:
    """Return header and blocks of a snapshot in memory; raises `DamagedSnapshot`. `path` names its origin in messages."""
    pieces_read = _SnapshotPieces(BytesIO(raw), path)
    blocks: list[list[bytes]] = [[]]
    for _, piece, goes_on in pieces_read:
        blocks[-1].append(piece)
        if not goes_on:
            blocks.append([])
    return pieces_read.header, [b"".join(pieces) for pieces in blocks[:-1]]


class _SnapshotPieces:
    """Iterator over the pieces of a snapshot behind its header: (offset, bytes, True when its block goes on).

    Raises `DamagedSnapshot`, OSError.

    Attributes:
        header: of the snapshot.
        digest: of all bytes that were read.
    """

    def __init__(self, file: BinaryIO, where: str) -> None:
        self._file, self._where = file, where
        self.digest = sha256()
        self._at = 0
        self._size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if self._take(len(_MAGIC)) != _MAGIC:
            raise DamagedSnapshot(f"{where} is no snapshot")
        head = self._piece(0)
        try:
            self.header = _HEADER.decode(b"" if head is None else head[1])
        except msgspec.MsgspecError as error:
            raise DamagedSnapshot(f"{where}: its header cannot be read ({error})") from None

    def __iter__(self) -> Iterator[tuple[int, bytes, bool]]:
        block, goes_on = 1, False
        while (piece := self._piece(block)) is not None:
            goes_on = piece[2]
            block += not goes_on
            yield piece
        if goes_on or self._take(1):
            raise DamagedSnapshot(f"{self._where} goes on behind its end")

    def _piece(self, block: int) -> tuple[int, bytes, bool] | None:
        """Return the next piece; None at the end of the snapshot."""
        head = self._take(_LENGTH.size)
        if len(head) != _LENGTH.size:
            raise DamagedSnapshot(f"{self._where} ends within a block")
        if head == _END:
            return None
        length, check = _LENGTH.unpack(head)
        goes_on, length = bool(length & _GOES_ON), length & ~_GOES_ON
        limit = min(self._size - self._at, self._size if block else MAX_HEADER_BYTES)
        offset, data = self._at, b"" if length > limit else self._take(length)  # a damaged length may claim 2 GiB
        if len(data) != length or crc32c(data) != check:
            raise DamagedSnapshot(f"{self._where}: block {block} is not what was written")
        return offset, data, goes_on

    def _take(self, count: int) -> bytes:
        data = self._file.read(count)
        self.digest.update(data)
        self._at += len(data)
        return data


def _unreadable(path: Path, error: OSError) -> OperationFailed:
    return OperationFailed(f"{path} cannot be read: {(error.strerror or str(error)).lower()}")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
