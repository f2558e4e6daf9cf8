"""The file of a checkpoint: the elements of one committed epoch, and what is needed to know what they are.

    file     = magic · element* · manifest (JSON) · trailer · SHA-256 of all before it
    trailer  = offset of the manifest (8 bytes) · its length (4) · its CRC32C (4)

An element is as it lies on the disk of the node that saved it (`agiledart_executor.snapshots.snapshot_file`): every byte of it is under a
checksum, and the manifest has its hash. So a file that is cut short, damaged or altered is refused before anything of it is used.
The hash over all of it names the file. What is inside is not sealed: whoever has the file can read the state.
"""

import os
import struct
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from crc32c import crc32c

from agiledart_agent.state_files.durable_file import sync_folder
from agiledart_kernel.errors import AgileDartError
from agiledart_recovery.limits import MAX_CHAIN, MAX_INSTANCES

FORMAT: Final = 1
"""Version of the manifest; a file of a newer one is refused."""

MAGIC: Final = b"ADARTCK1"
MAX_SNAPSHOT_BYTES: Final = 1 << 30
MAX_MANIFEST_BYTES: Final = 16 << 20
MAX_FILE_BYTES: Final = 64 << 30
HASH_BYTES: Final = 32
READ_BYTES: Final = 1 << 20

_TRAILER: Final = struct.Struct(">QII")
_TAIL: Final = _TRAILER.size + HASH_BYTES


class InvalidCheckpointFile(AgileDartError):
    """A file that is no checkpoint, or not whole; the text says which and why."""


class ArchivedSnapshot(msgspec.Struct, frozen=True, omit_defaults=False):
    """One element in the file.

    Args:
        stage: number of its stage in `plan`; term, index: of the instance; role: source, stage or sink.
        digest: SHA-256 of its bytes; offset, length: where they are.
    """

    stage: int
    generation: int = msgspec.field(name="term")
    index: int
    role: str
    digest: bytes
    offset: int
    length: int


class CheckpointManifest(msgspec.Struct, frozen=True):
    """What a checkpoint is.

    Args:
        format: of this manifest; form: of the specification.
        name: under which it was kept; "": an export of what ran.
        application, version: whose state; life, epoch: at which it was taken; taken_ms: since 1970.
        owner, shared: keys that might use it.
        specification, plan: of the topology, in their wire forms.
        elements: those of one instance stand beside each other, oldest first: a whole one and the changes behind it.
    """

    format: int
    software: str
    form: int
    name: str
    application: str
    version: int
    attempt: int = msgspec.field(name="life")
    epoch: int
    taken_ms: int
    owner: bytes
    shared: list[bytes]
    specification: bytes
    plan: bytes
    snapshots: list[ArchivedSnapshot] = msgspec.field(name="elements")


class CheckpointFileWriter:
    """A file that is being written, under a name of its own until it is whole.

    Raises:
        OSError: the disk does not take it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file: BinaryIO = open(os.open(path, flags, 0o600), "wb")  # noqa: SIM115  closed by `close` and `drop`
        self._hash = sha256()
        self.size = 0
        self.write(MAGIC)

    def write(self, data: bytes) -> None:
        """The next bytes."""
        self._hash.update(data)
        self._file.write(data)
        self.size += len(data)

    def close(self, manifest: CheckpointManifest) -> tuple[bytes, int]:
        """The elements are there: write the rest and force it to the disk; (digest, size)."""
        raw = msgspec.json.encode(manifest)
        at = self.size
        self.write(raw)
        self.write(_TRAILER.pack(at, len(raw), crc32c(raw)))
        digest = self._hash.digest()
        self._file.write(digest)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        sync_folder(self._path.parent)
        return digest, self.size + HASH_BYTES

    def drop(self) -> None:
        """It comes to nothing."""
        self._file.close()
        self._path.unlink(missing_ok=True)


async def append_snapshot(archive: CheckpointFileWriter, digest: bytes, pieces: AsyncIterator[bytes]) -> int:
    """Write an element, and look whether it is the one that was meant; its length. Raises `InvalidCheckpointFile`."""
    seen, length = sha256(), 0
    async for piece in pieces:
        seen.update(piece)
        length += len(piece)
        archive.write(piece)
    if seen.digest() != digest:
        raise InvalidCheckpointFile("a node sent another element than the one that was committed")
    return length


def read_manifest(path: Path) -> CheckpointManifest:
    """What a file says that it is, without a look at its elements. Raises `InvalidCheckpointFile`, OSError."""
    size = path.stat().st_size
    if size < len(MAGIC) + _TAIL:
        raise InvalidCheckpointFile(f"{path} is no checkpoint: it has {size:,} bytes")
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise InvalidCheckpointFile(f"{path} is no checkpoint of agiledart")
        file.seek(size - _TAIL)
        offset, length, check = _TRAILER.unpack(file.read(_TRAILER.size))
        if length > MAX_MANIFEST_BYTES or offset + length + _TAIL != size:
            raise InvalidCheckpointFile(f"{path} is not whole: it was cut short, or something stands behind its end")
        file.seek(offset)
        raw = file.read(length)
    if crc32c(raw) != check:
        raise InvalidCheckpointFile(f"{path} is damaged: what it says of itself is not what was written")
    return _read(raw, str(path), offset)


def _read(raw: bytes, where: str, snapshots_end: int) -> CheckpointManifest:
    try:
        head = msgspec.json.decode(raw, type=_ManifestHead)
        if head.format > FORMAT:
            raise InvalidCheckpointFile(
                f"{where} has format {head.format} of agiledart {head.software}, and this version knows {FORMAT}:"
                " take that version, or a newer one"
            )
        manifest = msgspec.json.decode(raw, type=CheckpointManifest)
    except msgspec.MsgspecError as error:
        raise InvalidCheckpointFile(f"{where}: what it says of itself cannot be read ({error})") from None
    at = len(MAGIC)
    for snapshot in manifest.snapshots:
        if snapshot.offset != at or not 0 < snapshot.length <= MAX_SNAPSHOT_BYTES:
            raise InvalidCheckpointFile(f"{where}: its elements do not stand where it says")
        at += snapshot.length
    if at != snapshots_end or len(manifest.snapshots) > MAX_INSTANCES * MAX_CHAIN:
        raise InvalidCheckpointFile(f"{where}: its elements do not end where it says")
    return manifest


class _ManifestHead(msgspec.Struct):
    format: int
    software: str = ""


def verify(path: Path) -> tuple[CheckpointManifest, bytes]:
    """Read all of a file and look at every hash; its manifest and digest. Raises `InvalidCheckpointFile`, OSError."""
    manifest = read_manifest(path)
    whole = sha256()
    left = path.stat().st_size - HASH_BYTES
    with path.open("rb") as file:
        whole.update(file.read(len(MAGIC)))
        left -= len(MAGIC)
        for snapshot in manifest.snapshots:
            one = sha256()
            for piece in _pieces(file, snapshot.length):
                one.update(piece)
                whole.update(piece)
            left -= snapshot.length
            if one.digest() != snapshot.digest:
                raise InvalidCheckpointFile(
                    f"{path} is damaged: an element of stage {snapshot.stage} is not what was saved"
                )
        for piece in _pieces(file, left):
            whole.update(piece)
        if file.read() != whole.digest():
            raise InvalidCheckpointFile(f"{path} is damaged: its hash is another one")
    return manifest, whole.digest()


def digest_of(path: Path) -> bytes:
    """The hash by which a file is named, as it says itself. Raises OSError."""
    with path.open("rb") as file:
        file.seek(-HASH_BYTES, os.SEEK_END)
        return file.read(HASH_BYTES)


def _pieces(file: BinaryIO, length: int) -> Iterator[bytes]:
    while length and (piece := file.read(min(length, READ_BYTES))):
        yield piece
        length -= len(piece)
