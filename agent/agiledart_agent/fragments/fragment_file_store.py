"""Fragments of other nodes on this node's disk: one file each, under a hash, below a bound.

    file = magic · length of the header · header (MessagePack) · fragment

A file gets its name only when it is complete and on the disk. The name is a hash of the fragment's key, because the key
contains text of a peer.
"""

import contextlib
import os
import shutil
import struct
from collections.abc import Iterable
from hashlib import blake2b, sha256
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from agiledart_agent.fragments.fragment_messages import FragmentDescriptor
from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.errors import AgileDartError, RemoteProtocolError
from agiledart_kernel.fair_shares import fits_share
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_sink_log.plain_files import open_plain, remove_tree

FOLDER: Final = "fragments"
MAX_STORE_BYTES: Final = 2 << 30
"""Bytes that a node keeps for others: each run, and each host that brings fragments, has its share of them."""

FREE_SHARE: Final = 0.2
"""Largest share of the free space that one fragment may take: the disk is not there for others."""

DELETION_SECONDS: Final = 0.2
"""Longest time at a start for something that is no fragment."""

_MAGIC: Final = b"ADARTFR1"
_LENGTH: Final = struct.Struct(">I")
_MAX_HEADER: Final = 4_096
_READ_BYTES: Final = 1 << 20
_NUMBERS = count()


class FragmentFileHeader(msgspec.Struct, frozen=True, array_like=True):
    """Fragment that a file holds, and the host that stored it here."""

    about: FragmentDescriptor
    owner: NodeId


_HEADER: Final[Codec[FragmentFileHeader]] = Codec(FragmentFileHeader)


class FragmentUnavailable(AgileDartError):
    """A fragment is not here, not complete, or does not fit. `reason` is one of `fragment_messages.REASONS`."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class FragmentFileStore:
    """Store of fragment files. It blocks and is for one thread at a time.

    Args:
        max_bytes: bound of all files together.
    """

    def __init__(self, state_dir: Path, max_bytes: int = MAX_STORE_BYTES) -> None:
        self._folder, self._max_bytes = state_dir / FOLDER, max_bytes
        self._sizes: dict[FragmentKey, int] = {}
        self._owners: dict[FragmentKey, NodeId] = {}
        self._leaving: set[FragmentKey] = set()

    @property
    def count(self) -> int:
        """Number of fragments."""
        return len(self._sizes)

    @property
    def held_bytes(self) -> int:
        """Bytes of all fragments."""
        return sum(self._sizes.values())

    def stored_headers(self) -> list[FragmentFileHeader]:
        """Return the headers of the fragments that are here after a start. Incomplete and unreadable files are deleted."""
        headers = []
        for path in sorted(self._folder.glob("*")) if self._folder.is_dir() else []:
            try:
                header = _read_header(path)
            except (OSError, FragmentUnavailable):
                remove_tree(path, DELETION_SECONDS)
                continue
            self._sizes[header.about.key] = header.about.size
            self._owners[header.about.key] = header.owner
            headers.append(header)
        return headers

    def begin(self, header: FragmentFileHeader) -> "FragmentWriter":
        """Begin to store a fragment. Raises `FragmentUnavailable` when it does not fit, or the disk does not take it."""
        size = header.about.size
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            free = shutil.disk_usage(self._folder).free
            held = self.held_bytes - self._sizes.get(header.about.key, 0)
            if held + size > self._max_bytes:
                raise FragmentUnavailable("full", f"{held:,} of {self._max_bytes:,} bytes are taken")
            if not self._fits_shares(header, held):
                raise FragmentUnavailable("full", "its run, or its host, has its share of this node's bytes already")
            if size > FREE_SHARE * free:
                raise FragmentUnavailable("full", f"the disk has {free:,} free bytes")
            return FragmentWriter(self._path(header.about.key), header)
        except OSError as error:
            raise FragmentUnavailable(
                "disk", f"the disk does not take the fragment: {(error.strerror or str(error)).lower()}"
            ) from None

    def finish(self, writing: "FragmentWriter") -> None:
        """Put a completely received fragment on the disk under its name. Raises `FragmentUnavailable`."""
        about = writing.header.about
        try:
            if not writing.is_whole:
                raise FragmentUnavailable(
                    "hash", "the received fragment is not the announced one: it was damaged in transit, or cut short"
                )
            writing.keep()
        except OSError as error:
            raise FragmentUnavailable(
                "disk", f"the disk does not take the fragment: {(error.strerror or str(error)).lower()}"
            ) from None
        finally:
            writing.drop()
        self._sizes[about.key] = about.size
        self._owners[about.key] = writing.header.owner
        self._leaving.discard(about.key)

    def _fits_shares(self, header: FragmentFileHeader, held: int) -> bool:
        """Return whether the run of a fragment and the host that brings it may store its bytes: both leave room for others."""
        about = header.about
        others = [(key, size) for key, size in self._sizes.items() if key != about.key]
        of_run = sum(size for key, size in others if key.run == about.key.run)
        of_owner = sum(size for key, size in others if self._owners.get(key) == header.owner)
        return fits_share(max(of_run, of_owner), about.size, held, self._max_bytes)

    def about(self, key: FragmentKey, digest: bytes) -> FragmentDescriptor:
        """Return the descriptor of a stored fragment. Raises `FragmentUnavailable`: none is stored, or one of another snapshot."""
        try:
            about = _read_header(self._path(key)).about
        except OSError:
            raise FragmentUnavailable("missing", "this node does not have it") from None
        if about.key != key or about.digest != digest:
            raise FragmentUnavailable("missing", "the fragment here is of another snapshot")
        return about

    def held(self) -> tuple[FragmentKey, ...]:
        """Return the keys of all fragments here."""
        return tuple(self._sizes)

    def size(self, key: FragmentKey) -> int:
        """Return the bytes of a fragment; 0: it is not here."""
        return self._sizes.get(key, 0)

    def check(self, key: FragmentKey) -> None:
        """Raise `FragmentUnavailable` unless the file of a fragment is unchanged."""
        try:
            about = _read_header(self._path(key)).about
        except OSError:
            raise FragmentUnavailable("missing", "this node does not have it") from None
        if about.key != key:
            raise FragmentUnavailable("hash", "the disk has damaged the fragment")
        self.verify(about)

    def verify(self, about: FragmentDescriptor) -> None:
        """Raise `FragmentUnavailable` unless the content of the file is unchanged."""
        digest, left = sha256(), about.size
        for start in range(0, about.size, _READ_BYTES):
            piece = self.read(about, start, min(_READ_BYTES, left))
            digest.update(piece)
            left -= len(piece)
        if left or digest.digest() != about.hash:
            raise FragmentUnavailable("hash", "the disk has damaged the fragment")

    def read(self, about: FragmentDescriptor, offset: int, length: int) -> bytes:
        """Return some bytes of a fragment. Raises `FragmentUnavailable`."""
        try:
            with open(open_plain(self._path(about.key), os.O_RDONLY), "rb") as file:
                file.seek(len(_MAGIC))
                (header,) = _LENGTH.unpack(file.read(_LENGTH.size))
                file.seek(len(_MAGIC) + _LENGTH.size + header + offset)
                data = file.read(length)
        except (OSError, struct.error) as error:
            raise FragmentUnavailable("missing", f"the fragment cannot be read: {error}") from None
        if len(data) != length:
            raise FragmentUnavailable("hash", "the file ends too early")
        return data

    def drop(self, keys: Iterable[FragmentKey]) -> None:
        """Drop fragments that no run needs; the next `clear` deletes their files."""
        for key in keys:
            self._sizes.pop(key, None)
            self._owners.pop(key, None)
            self._leaving.add(key)

    def clear(self) -> bool:
        """Delete the files of dropped fragments. Return False when some are still there."""
        for key in tuple(self._leaving):
            with contextlib.suppress(OSError):
                self._path(key).unlink(missing_ok=True)
                self._leaving.discard(key)
        return not self._leaving

    def _path(self, key: FragmentKey) -> Path:
        return self._folder / blake2b(encode(key), digest_size=20).hexdigest()


class FragmentWriter:
    """A fragment that is being received; its file has no name yet."""

    def __init__(self, path: Path, header: FragmentFileHeader) -> None:
        self._path, self.header = path, header
        self._beside = path.with_name(f".{path.name}.{next(_NUMBERS)}.part")  # two peers may bring the same fragment
        self._digest, self.left = sha256(), header.about.size
        raw = encode(header)
        self._file = open(os.open(self._beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb")  # noqa: SIM115
        self._file.write(_MAGIC + _LENGTH.pack(len(raw)) + raw)

    def write(self, data: bytes) -> None:
        """Write the next bytes. Raises OSError."""
        self.left -= len(data)
        if self.left >= 0:
            self._digest.update(data)
            self._file.write(data)

    @property
    def is_whole(self) -> bool:
        """True when all bytes have arrived and have the announced hash."""
        return not self.left and self._digest.digest() == self.header.about.hash

    def keep(self) -> None:
        """Force the file to the disk, under its name. Raises OSError."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._beside, self._path)
        descriptor = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def drop(self) -> None:
        """Delete the unnamed file, if it still exists."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._beside.unlink()


def _read_header(path: Path) -> FragmentFileHeader:
    with open(open_plain(path, os.O_RDONLY), "rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise FragmentUnavailable("missing", "not a fragment")
        raw = file.read(_LENGTH.size)
        length = _LENGTH.unpack(raw)[0] if len(raw) == _LENGTH.size else 0
        if not 0 < length <= _MAX_HEADER:
            raise FragmentUnavailable("missing", "no header")
        try:
            header = _HEADER.decode(file.read(length))
        except RemoteProtocolError:
            raise FragmentUnavailable("missing", "no header") from None
        if os.fstat(file.fileno()).st_size != len(_MAGIC) + _LENGTH.size + length + header.about.size:
            raise FragmentUnavailable("missing", "the file was cut short")
    return header
