"""Elements: what one instance saved at an epoch, as a file on this node's disk.

    element  = magic · header (MessagePack, its length before it) · block* · end
    block    = piece+; piece = length (its highest bit: the block goes on), CRC32C · bytes

Every byte is under a checksum, and the digest (SHA-256) over the whole file is what the run's register knows of it. So a file that
is cut short, damaged, or of another run is refused and never restored. The form is the same on the disk, as fragments on neighbours
and in an export. Source: recovery specification §11.
"""

import os
import struct
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from crc32c import crc32c

from agiledart_kernel.errors import AgileDartError, OperationFailed

FOLDER: Final = "runs"
"""Below the working directory of an executor, which is the state directory of its agent."""

OF_EXECUTORS: Final = ("elements", "opened", "logs")
"""What executors write of a run; everything else in its folder is the agent's, and closed to users' code."""

MAX_BLOCK_BYTES: Final = 64 << 20
"""No piece is larger; one key is one piece, and a snapshot that is not divided yet is cut into pieces of this size."""

_GOES_ON: Final = 1 << 31

MAX_HEADER_BYTES: Final = 1 << 20
"""No header is longer."""

_MAGIC: Final = b"ADARTEL1"
_LENGTH: Final = struct.Struct(">II")
_END: Final = _LENGTH.pack(0, 0)


class DamagedElement(AgileDartError):
    """A file that is no element, or not the one that was asked for; the text says which and what is wrong."""


class ElementHeader(msgspec.Struct, frozen=True, array_like=True):
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
    life: int
    epoch: int
    stage: int
    index: int
    steps: tuple[str, ...]
    ended: bool = False
    term: int = 1
    parallelism: int = 1
    owners: bytes = b""
    unread: int = 0
    onto: bytes = b""


_HEADER: Final = msgspec.msgpack.Decoder(ElementHeader)


def run_folder(root: Path, application: str, version: int) -> Path:
    """Where everything lies that a node keeps of a run."""
    return root / FOLDER / f"{application}.{version}"


def element_path(run: Path, digest: bytes) -> Path:
    """The file of the element with this digest: elements are found by what they hold."""
    return run / "elements" / digest.hex()


def write_element(run: Path, header: ElementHeader, blocks: Iterable[bytes]) -> tuple[bytes, int]:
    """Write an element and force it to the disk; (digest, size). It appears under its name only when it is whole.

    Raises:
        OSError: the disk does not take it.
    """
    folder = run / "elements"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = folder / f".{header.stage}.{header.index}.part"
    digest, size = sha256(), 0
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            for piece in _pieces(header, blocks):
                digest.update(piece)
                size += len(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, element_path(run, digest.digest()))
        _sync_folder(folder)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    return digest.digest(), size


def _pieces(header: ElementHeader, blocks: Iterable[bytes]) -> Iterator[bytes]:
    head = msgspec.msgpack.encode(header)
    yield _MAGIC + _LENGTH.pack(len(head), crc32c(head)) + head
    for block in blocks:
        for start in range(0, len(block), MAX_BLOCK_BYTES):
            piece = block[start : start + MAX_BLOCK_BYTES]
            goes_on = _GOES_ON if start + MAX_BLOCK_BYTES < len(block) else 0
            yield _LENGTH.pack(len(piece) | goes_on, crc32c(piece))
            yield piece
    yield _END


def read_header(path: Path) -> ElementHeader:
    """Of the element in a file, without a look at the rest; raises `DamagedElement`."""
    try:
        with path.open("rb") as file:
            return header_at(file, str(path))
    except OSError as error:
        raise DamagedElement(f"{path}: its header cannot be read ({error})") from None


def header_at(file: BinaryIO, where: str) -> ElementHeader:
    """Of the element that begins where a file is read next; raises `DamagedElement`, OSError. `where`: for people."""
    try:
        raw = file.read(len(_MAGIC) + _LENGTH.size)
        length, check = _LENGTH.unpack(raw[len(_MAGIC) :])
        head = file.read(min(length, MAX_HEADER_BYTES))
        if not raw.startswith(_MAGIC) or crc32c(head) != check:
            raise DamagedElement(f"{where} is no element")
        return _HEADER.decode(head)
    except (struct.error, msgspec.MsgspecError) as error:
        raise DamagedElement(f"{where}: its header cannot be read ({error})") from None


def read_element(run: Path, digest: bytes) -> tuple[ElementHeader, list[bytes]]:
    """Header and blocks of the element with this digest.

    Raises:
        DamagedElement: not whole, not what was written, or not the one with this digest.
        OperationFailed: the file cannot be read.
    """
    path = element_path(run, digest)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise OperationFailed(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if sha256(raw).digest() != digest:
        raise DamagedElement(f"{path} is not the element that was committed: its hash is another one")
    return element_in(raw, str(path))


def element_in(raw: bytes, path: str) -> tuple[ElementHeader, list[bytes]]:
    """Header and blocks of an element of these bytes; raises `DamagedElement`. `path`: where they are, for people."""
    view = memoryview(raw)
    if raw[: len(_MAGIC)] != _MAGIC:
        raise DamagedElement(f"{path} is no element")
    parts: list[bytes] = []
    begun: list[bytes] = []  # pieces of a block that goes on
    at = len(_MAGIC)
    while True:
        if at + _LENGTH.size > len(raw):
            raise DamagedElement(f"{path} ends within a block")
        length, check = _LENGTH.unpack_from(raw, at)
        at += _LENGTH.size
        if not length and not check and parts:
            break
        goes_on, length = bool(length & _GOES_ON), length & ~_GOES_ON
        part = bytes(view[at : at + length])
        if len(part) != length or crc32c(part) != check:
            raise DamagedElement(f"{path}: block {len(parts)} is not what was written")
        begun.append(part)
        at += length
        if not goes_on:
            parts.append(part if len(begun) == 1 else b"".join(begun))
            begun = []
    if at != len(raw) or begun:
        raise DamagedElement(f"{path} goes on behind its end")
    try:
        header = _HEADER.decode(parts[0])
    except msgspec.MsgspecError as error:
        raise DamagedElement(f"{path}: its header cannot be read ({error})") from None
    return header, parts[1:]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
