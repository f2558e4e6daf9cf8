"""File of a checkpoint: the snapshots of one committed epoch, and a manifest that describes them.

    file     = magic · snapshot* · manifest (JSON) · trailer · SHA-256 of all before it
    trailer  = offset of the manifest (8 bytes) · its length (4) · its CRC32C (4)

A snapshot is stored as on the disk of the node that saved it (`agiledart_executor.snapshots.snapshot_file`). A checksum
covers every byte of it, and the manifest has its hash. So a file that is cut short, damaged or altered is refused
before any of it is used. The hash over the whole file names it. The content is not sealed: any reader of the file can
read the state.
"""

import os
import struct
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from agiledart_agent.state_files.durable_file import sync_folder
from agiledart_kernel.checksum import crc32c
from agiledart_kernel.errors import AgileDartError
from agiledart_kernel.name_patterns import ApplicationName, CheckpointName
from agiledart_recovery.limits import MAX_CHAIN, MAX_INSTANCES

FORMAT: Final = 1
"""Version of the manifest. A file of a newer version is refused."""

MAGIC: Final = b"ADARTCK1"
MAX_SNAPSHOT_BYTES: Final = 1 << 30
MAX_MANIFEST_BYTES: Final = 16 << 20
MAX_FILE_BYTES: Final = 64 << 30
HASH_BYTES: Final = 32
READ_BYTES: Final = 1 << 20

_TRAILER: Final = struct.Struct(">QII")
_TAIL: Final = _TRAILER.size + HASH_BYTES


class InvalidCheckpointFile(AgileDartError):
    """A file that is no checkpoint, or incomplete. The text says which and why."""


class ArchivedSnapshot(msgspec.Struct, frozen=True, omit_defaults=False):
    """One snapshot in the file. The manifest keeps the key of format 1 for the generation: `term`.

    Args:
        stage: number of its stage in `plan`.
        generation, index: of the instance.
        role: source, stage or sink.
        digest: SHA-256 of its bytes.
        offset, length: position of its bytes in the file.
    """

    stage: int
    generation: int = msgspec.field(name="term")
    index: int
    role: str
    digest: bytes
    offset: int
    length: int


class CheckpointManifest(msgspec.Struct, frozen=True):
    """Description of a checkpoint. The manifest keeps the keys of format 1: `life` for the attempt, `elements` for the snapshots.

    Args:
        format: of this manifest; form: of the specification.
        name: name under which it was kept; "": an export of a run.
        application, version: whose state it is.
        attempt, epoch: at which it was taken; taken_ms: since 1970.
        owner, shared: keys that might use it.
        specification, plan: of the topology, in their wire forms.
        snapshots: those of one instance are adjacent, oldest first: a full snapshot and its increments.
    """

    format: int
    software: str
    form: int
    name: CheckpointName
    application: ApplicationName
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
    """A file that is being written, under a temporary name until it is complete.

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
        """Write the next bytes."""
        self._hash.update(data)
        self._file.write(data)
        self.size += len(data)

    def close(self, manifest: CheckpointManifest) -> tuple[bytes, int]:
        """Write the rest behind the snapshots and force the file to the disk. Return (digest, size)."""
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
        """Discard the file."""
        self._file.close()
        self._path.unlink(missing_ok=True)


async def append_snapshot(archive: CheckpointFileWriter, digest: bytes, pieces: AsyncIterator[bytes]) -> int:
    """Write a snapshot and check that it is the expected one. Return its length. Raises `InvalidCheckpointFile`."""
    seen, length = sha256(), 0
    async for piece in pieces:
        seen.update(piece)
        length += len(piece)
        archive.write(piece)
    if seen.digest() != digest:
        raise InvalidCheckpointFile("a node sent another snapshot than the one that was committed")
    return length


def read_manifest(path: Path) -> CheckpointManifest:
    """Return the manifest of a file, without a check of its snapshots. Raises `InvalidCheckpointFile`, OSError."""
    size = path.stat().st_size
    if size < len(MAGIC) + _TAIL:
        raise InvalidCheckpointFile(f"{path} is not a checkpoint: it has {size:,} bytes")
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise InvalidCheckpointFile(f"{path} is not a checkpoint of agiledart")
        file.seek(size - _TAIL)
        offset, length, check = _TRAILER.unpack(file.read(_TRAILER.size))
        if length > MAX_MANIFEST_BYTES or offset + length + _TAIL != size:
            raise InvalidCheckpointFile(f"{path} is incomplete or has extra bytes at its end")
        file.seek(offset)
        raw = file.read(length)
    if crc32c(raw) != check:
        raise InvalidCheckpointFile(f"{path} is damaged: the checksum of its manifest does not match")
    return _read(raw, str(path), offset)


def _read(raw: bytes, where: str, snapshots_end: int) -> CheckpointManifest:
    try:
        head = msgspec.json.decode(raw, type=_ManifestHead)
        if head.format > FORMAT:
            raise InvalidCheckpointFile(
                f"{where} has format {head.format} of agiledart {head.software}, and this version reads up to {FORMAT}:"
                " use that version, or a newer one"
            )
        manifest = msgspec.json.decode(raw, type=CheckpointManifest)
    except msgspec.MsgspecError as error:
        raise InvalidCheckpointFile(f"{where}: its manifest cannot be read ({error})") from None
    at = len(MAGIC)
    for snapshot in manifest.snapshots:
        if snapshot.offset != at or not 0 < snapshot.length <= MAX_SNAPSHOT_BYTES:
            raise InvalidCheckpointFile(f"{where}: its snapshots are not where its manifest says")
        at += snapshot.length
    if at != snapshots_end or len(manifest.snapshots) > MAX_INSTANCES * MAX_CHAIN:
        raise InvalidCheckpointFile(f"{where}: its snapshots do not end where its manifest says")
    return manifest


class _ManifestHead(msgspec.Struct):
    format: int
    software: str = ""


def verify(path: Path) -> tuple[CheckpointManifest, bytes]:
    """Read all of a file and check every hash. Return manifest and digest. Raises `InvalidCheckpointFile`, OSError."""
    manifest = read_manifest(path)
    file_hash = sha256()
    left = path.stat().st_size - HASH_BYTES
    with path.open("rb") as file:
        file_hash.update(file.read(len(MAGIC)))
        left -= len(MAGIC)
        for snapshot in manifest.snapshots:
            snapshot_hash = sha256()
            for piece in _pieces(file, snapshot.length):
                snapshot_hash.update(piece)
                file_hash.update(piece)
            left -= snapshot.length
            if snapshot_hash.digest() != snapshot.digest:
                raise InvalidCheckpointFile(
                    f"{path} is damaged: a snapshot of stage {snapshot.stage} is not what was saved"
                )
        for piece in _pieces(file, left):
            file_hash.update(piece)
        if file.read() != file_hash.digest():
            raise InvalidCheckpointFile(f"{path} is damaged: its hash does not match")
    return manifest, file_hash.digest()


def digest_of(path: Path) -> bytes:
    """Return the hash that names a file, as stored at its end. Raises OSError."""
    with path.open("rb") as file:
        file.seek(-HASH_BYTES, os.SEEK_END)
        return file.read(HASH_BYTES)


def _pieces(file: BinaryIO, length: int) -> Iterator[bytes]:
    while length and (piece := file.read(min(length, READ_BYTES))):
        yield piece
        length -= len(piece)
