"""Hash chain: a file of lines in which each holds the hash of the line before it, so alterations and removals are detected.

Two files are kept: `NAME.log`, and the one before it, `NAME.old`. When the first is full it becomes the second. A line
is the SHA-256, in hex, of the hash before it and of the line's text; a space; the text. The lines alone do not show
what is missing at the ends, so `NAME.head` holds the hashes there. It is written after the lines are on the disk. So
lines behind it may be there, and none before it may be missing. A process that can write in the state directory can
forge all of this. Only hashes that were read before and stored elsewhere reveal that (`agiledart audit -o json` shows
each node's last ones).
"""

import contextlib
import os
from collections.abc import Iterator
from hashlib import sha256
from io import BufferedReader
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

import msgspec

from agiledart_agent.state_files.durable_file import write_durably
from agiledart_agent.state_files.private_files import read_private
from agiledart_kernel.errors import OperationFailed

MAX_FILE_BYTES: Final = 4 << 20
"""Bound of each of the two files: about ten thousand lines."""

_CHARS: Final = 64
_START: Final = "0" * _CHARS
_UNKNOWN: Final = ""


class ChainHead(msgspec.Struct, frozen=True):
    """Known hashes at the ends of a chain.

    Args:
        old: hash before the first line of the older file.
        new: hash before the first line of the newer file.
        last: hash of the last line.
        number: number that the writer gave to the last line.
    """

    old: str = _START
    new: str = _START
    last: str = _START
    number: int = 0


class ChainLine(NamedTuple):
    """One line. `is_whole`: its hash is right, so the line was not altered and no line was removed before it."""

    text: bytes
    is_whole: bool


class ChainReading:
    """Lines of a chain at one moment. A thread may read them while another writes."""

    def __init__(self, files: dict[str, BufferedReader], size: int, head: ChainHead) -> None:
        self._files, self._size, self.head = files, size, head
        # Another process wrote there when the file has another size than this one has written.
        self._is_ours = "log" in files and os.fstat(files["log"].fileno()).st_size == size
        self.is_whole = self._is_ours

    def lines(self) -> Iterator[ChainLine]:
        """Yield the lines, oldest first. Afterwards `is_whole` says whether no file and no line at the end is missing."""
        self.is_whole = self._is_ours and ("old" in self._files or self.head.new == _START)
        before = self.head.old if "old" in self._files else self.head.new
        for suffix, file in self._files.items():
            with file:
                left = self._size
                for raw in file:
                    left -= len(raw)
                    if suffix == "log" and left < 0:  # written since
                        break
                    hashed, text = raw[:_CHARS].decode("ascii", "replace"), raw[_CHARS + 1 :].rstrip(b"\n")
                    yield ChainLine(text, before != _UNKNOWN and hashed == _hash(before, text))
                    before = hashed
        self.is_whole = self.is_whole and before == self.head.last


class HashChain:
    """One chain. All but a `ChainReading` and `sync` is for one thread.

    Args:
        folder: created when missing, closed to other users.
    """

    def __init__(self, folder: Path, name: str, max_bytes: int = MAX_FILE_BYTES) -> None:
        self._folder, self._name, self._max_bytes = folder, name, max_bytes
        self._descriptor = -1
        self._size = self._rotations = 0
        self._lock = Lock()
        self.head = ChainHead()

    def _path(self, what: str) -> Path:
        return self._folder / f"{self._name}.{what}"

    def open(self) -> None:
        """Continue behind the last line. Cut off half a line, which a power cut may leave. Raises OSError, OperationFailed."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        had_files = self._path("log").exists() or self._path("old").exists()
        if not had_files and not self._path("head").exists():
            self._write_head(
                self.head
            )  # before any line: without it the lines of a process that is killed soon would seem altered
        self._open_log()
        stored_head = self._kept_head(had_files)
        last, has_passed, whole_bytes = "", False, 0
        for file in self._files().values():
            with file:
                whole_bytes = 0
                for raw in file:
                    if raw.endswith(b"\n"):
                        whole_bytes += len(raw)
                        last = raw[:_CHARS].decode("ascii", "replace")
                        has_passed = has_passed or last == stored_head.last
        os.ftruncate(self._descriptor, whole_bytes)
        self._size = whole_bytes
        is_known = has_passed or stored_head.last in (_START, _UNKNOWN)
        # When the former last line is missing, the next line still follows its hash, so the gap stays visible.
        self.head = msgspec.structs.replace(stored_head, last=last) if last and is_known else stored_head

    def _open_log(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._path("log"), flags, 0o600)

    def _kept_head(self, had_files: bool) -> ChainHead:
        try:
            return msgspec.json.decode(read_private(self._path("head")), type=ChainHead)
        except (FileNotFoundError, msgspec.MsgspecError, OperationFailed):
            return ChainHead(_UNKNOWN, _UNKNOWN, _UNKNOWN) if had_files else ChainHead()

    def _files(self) -> dict[str, BufferedReader]:
        files: dict[str, BufferedReader] = {}
        for suffix in ("old", "log"):
            with contextlib.suppress(FileNotFoundError):
                files[suffix] = self._path(suffix).open("rb")
        return files

    def append(self, text: bytes, number: int) -> None:
        """Write one line, without a line end in it. Raises OSError; then nothing was written."""
        if self._size and self._size + len(text) > self._max_bytes:
            self._rotate()
        hashed = _hash(self.head.last, text)
        line = b"%s %s\n" % (hashed.encode(), text)
        if os.write(self._descriptor, line) != len(line):
            os.ftruncate(self._descriptor, self._size)
            raise OSError(28, "No space left on device")
        self._size += len(line)
        self.head = msgspec.structs.replace(self.head, last=hashed, number=number)

    def _rotate(self) -> None:
        """Make the newer file the older one, and begin a new one."""
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        self._path("log").replace(self._path("old"))
        self.head = msgspec.structs.replace(self.head, old=self.head.new, new=self.head.last)
        self._open_log()
        self._size = 0
        with self._lock:
            self._rotations += 1
            self._write_head(self.head)

    def syncing(self) -> "ChainSync":
        """Return a `ChainSync` for the lines written so far."""
        return ChainSync(self, os.dup(self._descriptor), self._rotations, self.head)

    def synced(self, rotations: int, head: ChainHead) -> None:
        """Record the ends of lines that are on the disk; from any thread. Raises OSError."""
        with self._lock:
            if rotations == self._rotations:  # otherwise the ends were written at the rotation
                self._write_head(head)

    def _write_head(self, head: ChainHead) -> None:
        write_durably(self._path("head"), msgspec.json.encode(head))

    def reading(self) -> ChainReading:
        """Return the lines at this moment. Raises OSError."""
        return ChainReading(self._files(), self._size, self.head)

    def close(self) -> None:
        """Close the file, after the last `ChainSync.run`."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class ChainSync(NamedTuple):
    """Lines on their way to the disk."""

    chain: HashChain
    descriptor: int
    rotations: int
    head: ChainHead

    def run(self) -> None:
        """Force the lines to the disk; from any thread. Raises OSError."""
        try:
            os.fsync(self.descriptor)
        finally:
            os.close(self.descriptor)
        self.chain.synced(self.rotations, self.head)


def _hash(before: str, text: bytes) -> str:
    return sha256(before.encode() + text).hexdigest()
