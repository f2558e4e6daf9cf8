"""Folder of a log: `sink-logs/NAME/` with `log.json`, `lock`, and for each partition segments and a `committed` file.

`committed` has the committed end of the partition, in 20 bytes. It is written after the COMMIT entry. So it is ahead of the segment
only after a power cut lost pages that the system had not yet written; the offsets in between are then skipped, not reused.

Users' code of a sink can write in the folder of its log, and the agent reads and trims there. So this module follows no link, waits
for no pipe, and checks all sizes.
"""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from agiledart_kernel.checksum import crc32c
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.name_patterns import LogWriterName
from agiledart_kernel.permissions import FEED_PREFIX
from agiledart_sink_log.plain_files import open_plain, path_below
from agiledart_sink_log.protocol import MAX_LOG_NAME, MAX_PARTITIONS, sink_name_fault

FOLDER = "sink-logs"
"""Name of the folder below the working directory of an executor, which is its agent's state directory."""

SUFFIX = ".segment"
COPY = "log.json.good"
"""Copy of `log.json`: its CRC32C, a line end, and its content."""

MAX_DESCRIPTION_BYTES = 1 << 18
"""Greatest size of `log.json`; a schema has some kilobytes."""

_DESCRIPTORS = Path("/proc/self/fd")
_COMMITTED = struct.Struct(">QQ")
_CRC = struct.Struct(">I")
_FLOCK = struct.Struct("hhqqi4x")
_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


MAX_REASON_LENGTH = 400
"""Greatest length of the reason why a run has ended, characters."""

AUTO = "auto"
"""Full segments are rewritten as columns where pyarrow is installed and the types allow it."""

NEVER = "never"


class Description(msgspec.Struct, frozen=True):
    """Content of `log.json`.

    Args:
        log_id: 16 random hex digits, unique to this log.
        application, version: the run that opened it last.
        fields: as in `Located.schema`.
        schema: text of the row type; each entry has its checksum.
        opened_ms: wall time at which a writer opened it last.
        max_bytes, max_age_ms: limits of retention, from the last writer.
        owner: key of the owner in hex, who submitted the application that created it. Empty: it is older than owners.
        ended: reason of the end of the run that wrote it last; empty: it has finished, or is running.
        columns: `AUTO` or `NEVER`; empty: it was written before logs had columns, and stays as it is.
    """

    format: int
    log_id: Annotated[str, msgspec.Meta(max_length=64)]
    name: Annotated[str, msgspec.Meta(max_length=MAX_LOG_NAME)]
    application: LogWriterName
    version: _Natural
    schema: str
    fields: list[dict[str, object]]
    partitions: Annotated[int, msgspec.Meta(ge=1, le=MAX_PARTITIONS)]
    created_ms: _Natural
    opened_ms: _Natural
    max_bytes: _Natural
    max_age_ms: _Natural
    owner: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?\Z")] = ""
    ended: Annotated[str, msgspec.Meta(max_length=MAX_REASON_LENGTH)] = ""
    columns: Annotated[str, msgspec.Meta(max_length=16)] = ""

    @property
    def schema_id(self) -> int:
        """Return the id of a schema, as in the entries of its rows."""
        return crc32c(self.schema.encode())

    def schema_json(self) -> bytes:
        """Return the schema for readers, as JSON."""
        return msgspec.json.encode({"text": self.schema, "fields": self.fields})


@dataclass(frozen=True)
class Segment:
    """Segment file whose first row has the number `base`."""

    base: int
    path: Path


def log_directory(root: Path, name: str) -> Path:
    """Return the folder of a log. Raises OperationFailed for an invalid name, so no name leads elsewhere."""
    if fault := sink_name_fault(name):
        raise OperationFailed(fault)
    return path_below(root / FOLDER, name)


def partition_directory(directory: Path, partition: int) -> Path:
    """Return the folder of a partition of the log in `directory`."""
    return directory / str(partition)


def read_description(directory: Path) -> Description | None:
    """Return the description of a log from `log.json`, or from its checksummed copy if `log.json` is damaged.

    None when there is no log. Raises OperationFailed when both files of a log are unreadable.
    """
    path = directory / "log.json"
    content = _content(path)
    copy = _checked(_content(directory / COPY))
    try:
        if copy is not None:
            return msgspec.json.decode(copy, type=Description)
        if content is not None:
            return msgspec.json.decode(content, type=Description)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise OperationFailed(
            f"{path} is damaged ({error}), and it has no good copy. Put one there, or move the folder away to begin a new log."
        ) from None
    if holds_rows(directory):
        raise OperationFailed(
            f"{path} is missing, and so is its copy {COPY}; rows of a log are there. Put one back, or move the folder away to "
            "begin a new log."
        )
    return None


def holds_rows(directory: Path) -> bool:
    """Return whether a folder has segments of a log. Raises OperationFailed when it is unreadable."""
    try:
        entries = directory.iterdir() if directory.is_dir() else ()
        return any(segments_of(entry) for entry in entries if entry.is_dir())
    except OSError as error:
        raise OperationFailed(f"{directory} cannot be looked at: {(error.strerror or '').lower()}") from None


def pinned(folder: Path) -> tuple[int, Path]:
    """Yield a descriptor of a folder and a path through it that no link can redirect. Raises OSError for a link."""
    held = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    return held, _DESCRIPTORS / str(held)


@contextmanager
def pinned_partition(directory: Path, partition: int) -> Iterator[Path | None]:
    """Yield the folder of a partition by a path that no link can redirect; None when it is missing or a link."""
    try:
        held, folder = pinned(partition_directory(directory, partition))
    except OSError:
        yield None
        return
    try:
        yield folder
    finally:
        os.close(held)


def _content(path: Path) -> bytes | None:
    try:
        with open(open_plain(path, os.O_RDONLY), "rb") as file:
            content = file.read(MAX_DESCRIPTION_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OperationFailed(f"{path} cannot be read: {(error.strerror or '').lower()}") from None
    if len(content) > MAX_DESCRIPTION_BYTES:
        raise OperationFailed(f"{path} is damaged: it has more than {MAX_DESCRIPTION_BYTES:,} bytes")
    return content


def _checked(copy: bytes | None) -> bytes | None:
    """Return the content of the copy; None when it is missing or damaged."""
    head, _, content = (copy or b"").partition(b"\n")
    return content if head == f"{crc32c(content):08x}".encode() else None


def write_description(directory: Path, description: Description) -> None:
    """Write `log.json` atomically and durably, after a copy with a checksum."""
    content = msgspec.json.format(msgspec.json.encode(description)) + b"\n"
    for name, written in ((COPY, f"{crc32c(content):08x}\n".encode() + content), ("log.json", content)):
        temporary = directory / f"{name}.new"
        temporary.unlink(missing_ok=True)  # of a writer that was killed, or something that leads elsewhere
        with open(open_plain(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(written)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, directory / name)
    sync_directory(directory)


def logs_in(root: Path) -> Iterator[tuple[Path, Description]]:
    """Yield all readable logs of an agent, in order of name."""
    folder = root / FOLDER
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return
    for name in names:
        if sink_name_fault(name):
            continue
        try:
            description = read_description(folder / name)
        except (OperationFailed, OSError):
            continue
        if description is not None and description.name == name:
            yield folder / name, description


def damaged_in(root: Path) -> Iterator[str]:
    """Return a sentence about each unreadable log of an agent."""
    folder = root / FOLDER
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            read_description(entry)
        except (OperationFailed, OSError) as error:
            yield f"the log {entry.name} cannot be read: {error}"


def ownerless_in(root: Path) -> Iterator[str]:
    """Return a sentence about each log of an agent without an owner."""
    for _, log in logs_in(root):
        if not log.owner and not log.application.startswith(FEED_PREFIX):
            yield (
                f"the log {log.name} has no owner yet: every submitter may read it until an admin, or who has the scope of "
                f"{log.application or 'its application'}, has that write to it again"
            )


def segments_of(directory: Path) -> list[Segment]:
    """Return the segments of a partition, oldest first."""
    try:
        names = [] if _is_symlink(directory) else os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    stems = sorted(name[: -len(SUFFIX)] for name in names if name.endswith(SUFFIX))
    return [Segment(int(stem), directory / f"{stem}{SUFFIX}") for stem in stems if stem.isascii() and stem.isdecimal()]


def _is_symlink(directory: Path) -> bool:
    """Return whether the folder of a partition is a symbolic link."""
    return directory.parent != _DESCRIPTORS and directory.is_symlink()


def segment_path(directory: Path, base: int) -> Path:
    """Return the file of the segment that begins with this offset; names sort like offsets."""
    return directory / f"{base:020}{SUFFIX}"


def committed_bytes(first: int, end: int) -> bytes:
    """Return the content of a `committed` file."""
    head = _COMMITTED.pack(first, end)
    return head + _CRC.pack(crc32c(head))


def read_committed(directory: Path) -> tuple[int, int] | None:
    """Return (first retained offset, committed end) from the `committed` file; None when it is missing or damaged."""
    if _is_symlink(directory):
        return None
    for _ in range(3):  # a reader may see one half of a write
        try:
            with open(open_plain(directory / "committed", os.O_RDONLY), "rb") as file:
                raw = file.read(_COMMITTED.size + _CRC.size + 1)
        except OSError:
            return None
        if len(raw) == _COMMITTED.size + _CRC.size and crc32c(raw[:-4]) == _CRC.unpack(raw[-4:])[0]:
            first, end = _COMMITTED.unpack(raw[:-4])
            return first, end
    return None


def sync_directory(directory: Path) -> None:
    """Force the names in a folder to the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(directory: Path) -> int | None:
    """Take the writer's lock of a log and return its descriptor; None while another process has it. It ends with the process."""
    descriptor = open_plain(directory / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def is_locked(directory: Path) -> bool:
    """Return whether a writer has the log open, without taking the lock."""
    try:
        descriptor = open_plain(directory / "lock", os.O_RDWR)
    except OSError:
        return False
    try:
        asked = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return bool(_FLOCK.unpack(asked)[0] != fcntl.F_UNLCK)
