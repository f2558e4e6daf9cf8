"""Elements: what one instance saved at an epoch, as a file on this node's disk.

    element  = magic · header (MessagePack, its length before it) · block* · end
    block    = piece+; piece = length (its highest bit: the block goes on), CRC32C · bytes

Every byte is under a checksum, and the digest (SHA-256) over the whole file is what the run's register knows of it. So a file that
is cut short, damaged, or of another run is refused and never restored. The form is the same on the disk, as fragments on neighbours
and in an export. Source: recovery specification §11.
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
from crc32c import crc32c

from agiledart_kernel.errors import AgileDartError, OperationFailed

FOLDER: Final = "runs"
"""Below the working directory of an executor, which is the state directory of its agent."""

EXECUTOR_FOLDERS: Final = ("elements", "opened", "logs")
"""What executors write of a run; everything else in its folder is the agent's, and closed to users' code."""

PIECE_BYTES: Final = 1 << 20
"""What comes bit by bit is put together to pieces of this size, what comes at once is cut into such: a reader holds one of them."""

_GOES_ON: Final = 1 << 31

MAX_HEADER_BYTES: Final = 1 << 20
"""No header is longer."""

_MAGIC: Final = b"ADARTEL1"
_LENGTH: Final = struct.Struct(">II")
_END: Final = _LENGTH.pack(0, 0)


class DamagedSnapshot(AgileDartError):
    """A file that is no element, or not the one that was asked for; the text says which and what is wrong."""


class SnapshotHeader(msgspec.Struct, frozen=True, array_like=True):
    """Whose state an element holds.

    Args:
        run: its number (`frames.application_number`).
        life, epoch: together they name the snapshot; an epoch alone never does.
        stage, index: the instance, and `steps` the names of its steps: a stage's number means nothing in another plan.
        ended: the instance has come to its end; this is its last element.
        term, parallelism, owners: of its stage: those who take over from it know by them whom else they need.
        unread: of a source: bytes that wait in its log and cannot be read again; they are in no element.
        onto: the element that this one rests on, of whose state it says what has changed; empty: it is whole.
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
    """Where everything lies that a node keeps of a run."""
    return root / FOLDER / f"{application}.{version}"


def snapshot_path(run: Path, digest: bytes) -> Path:
    """The file of the element with this digest: elements are found by what they hold."""
    return run / "elements" / digest.hex()


def write_snapshot(run: Path, header: SnapshotHeader, blocks: Iterable[bytes]) -> tuple[bytes, int]:
    """Write an element and force it to the disk; (digest, size). It appears under its name only when it is whole.

    Raises:
        OSError: the disk does not take it.
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


class SnapshotWriter:
    """An element that is written as its bytes come. Each call may raise OSError, and then nothing is left of it.

    Args:
        run: folder of the run.
        header: of the element.
    """

    def __init__(self, run: Path, header: SnapshotHeader) -> None:
        self._run, self._header = run, header
        self._part = run / "elements" / f".{header.stage}.{header.index}.part"
        self._digest, self._size = sha256(), 0
        self._block: list[bytes] = []  # what is not written of a block that goes on
        self._held = 0

    def begin(self) -> None:
        """Make the file, with its header."""
        self._part.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._file = open(os.open(self._part, flags, 0o600), "wb")  # noqa: SIM115  it is closed by `end` and `drop`
        head = msgspec.msgpack.encode(self._header)
        self._write(_MAGIC + _LENGTH.pack(len(head), crc32c(head)) + head)

    def add(self, pieces: Iterable[bytes]) -> None:
        """What follows of a block."""
        for piece in pieces:
            if self._held and self._held + len(piece) > PIECE_BYTES:
                self._write_pieces(goes_on=True)
            self._block.append(piece)
            self._held += len(piece)

    def end_block(self) -> None:
        """What follows is another block."""
        if self._held:
            self._write_pieces(goes_on=False)

    def end(self) -> tuple[bytes, int]:
        """All of it is on the disk, under its name; (digest, size)."""
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
        """Nobody wants it."""
        with contextlib.suppress(OSError):  # what it holds back is written when it is closed
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
    """Of the element in a file, without a look at the rest; raises `DamagedSnapshot`."""
    try:
        with path.open("rb") as file:
            return read_header_at(file, str(path))
    except OSError as error:
        raise DamagedSnapshot(f"{path}: its header cannot be read ({error})") from None


def read_header_at(file: BinaryIO, where: str) -> SnapshotHeader:
    """Of the element that begins where a file is read next; raises `DamagedSnapshot`, OSError. `where`: for people."""
    try:
        raw = file.read(len(_MAGIC) + _LENGTH.size)
        length, check = _LENGTH.unpack(raw[len(_MAGIC) :])
        head = file.read(min(length, MAX_HEADER_BYTES))
        if not raw.startswith(_MAGIC) or crc32c(head) != check:
            raise DamagedSnapshot(f"{where} is no element")
        return _HEADER.decode(head)
    except (struct.error, msgspec.MsgspecError) as error:
        raise DamagedSnapshot(f"{where}: its header cannot be read ({error})") from None


class StoredBlock:
    """A block of an element on this disk, which was found to be what was written: its pieces are read as somebody takes them.

    Args:
        path: of the element.
        places: (offset, length) of its pieces.

    Raises `OperationFailed` when the file is gone by then.
    """

    def __init__(self, path: Path, places: list[tuple[int, int]]) -> None:
        self._path, self._places = path, places

    def __iter__(self) -> Iterator[bytes]:
        try:
            with self._path.open("rb") as file:
                for offset, length in self._places:
                    file.seek(offset)
                    yield file.read(length)
        except OSError as error:
            raise _unreadable(self._path, error) from None

    def whole(self) -> bytes:
        """All of it."""
        return b"".join(self)


def stored_snapshot(run: Path, digest: bytes) -> tuple[SnapshotHeader, list[StoredBlock]]:
    """Header and blocks of the element with this digest, of which no more than a piece is in memory.

    Raises:
        DamagedElement: not whole, not what was written, or not the one with this digest.
        OperationFailed: the file cannot be read.
    """
    path = snapshot_path(run, digest)
    try:
        with path.open("rb") as file:
            found = _SnapshotPieces(file, str(path))
            places: list[list[tuple[int, int]]] = [[]]
            for offset, piece, goes_on in found:
                places[-1].append((offset, len(piece)))
                if not goes_on:
                    places.append([])
    except OSError as error:
        raise _unreadable(path, error) from None
    if found.digest.digest() != digest:
        raise DamagedSnapshot(f"{path} is not the element that was committed: its hash is another one")
    return found.header, [StoredBlock(path, each) for each in places[:-1]]


def read_snapshot(run: Path, digest: bytes) -> tuple[SnapshotHeader, list[bytes]]:
    """As `stored_snapshot`, with the bytes of the blocks."""
    header, blocks = stored_snapshot(run, digest)
    return header, [block.whole() for block in blocks]


def parse_snapshot(raw: bytes, path: str) -> tuple[SnapshotHeader, list[bytes]]:
    """Header and blocks of an element of these bytes; raises `DamagedSnapshot`. `path`: where they are, for people."""
    found = _SnapshotPieces(BytesIO(raw), path)
    blocks: list[list[bytes]] = [[]]
    for _, piece, goes_on in found:
        blocks[-1].append(piece)
        if not goes_on:
            blocks.append([])
    return found.header, [b"".join(each) for each in blocks[:-1]]


class _SnapshotPieces:
    """Reads an element: of each piece behind the header (offset, bytes, whether its block goes on).

    Raises `DamagedSnapshot`, OSError.

    Attributes:
        header: of the element.
        digest: of all that was read.
    """

    def __init__(self, file: BinaryIO, where: str) -> None:
        self._file, self._where = file, where
        self.digest = sha256()
        self._at = 0
        self._size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if self._take(len(_MAGIC)) != _MAGIC:
            raise DamagedSnapshot(f"{where} is no element")
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
        """The next one; None: the element ends here."""
        head = self._take(_LENGTH.size)
        if len(head) != _LENGTH.size:
            raise DamagedSnapshot(f"{self._where} ends within a block")
        if head == _END:
            return None
        length, check = _LENGTH.unpack(head)
        goes_on, length = bool(length & _GOES_ON), length & ~_GOES_ON
        most = min(self._size - self._at, self._size if block else MAX_HEADER_BYTES)
        offset, data = self._at, b"" if length > most else self._take(length)  # what is damaged may ask for 2 GiB
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
