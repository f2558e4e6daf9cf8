"""The folder of a log: `sink-logs/NAME/` with `log.json`, `lock`, and for each partition segments and a `committed` file.

`committed` says in 20 bytes up to which offset the partition is committed. It is written after the COMMIT entry, so it is never
ahead of the segment unless a power cut lost what the system had not yet written: then the offsets in between are given up, not
used again.
"""

import fcntl
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from crc32c import crc32c

from agiledart_kernel.errors import OperationFailed
from agiledart_sink_log.protocol import sink_name_fault

FOLDER = "sink-logs"
"""Below the working directory of an executor, which is the state directory of its agent."""

SUFFIX = ".segment"
COPY = "log.json.good"
"""The copy of `log.json`: its CRC32C, a line end, and what it holds."""

_COMMITTED = struct.Struct(">QQ")
_CRC = struct.Struct(">I")
_FLOCK = struct.Struct("hhqqi4x")


class Description(msgspec.Struct, frozen=True):
    """What `log.json` says.

    Args:
        log_id: 16 hex digits, random; of this log and no other.
        application, version: the run that opened it last.
        fields: as in `Located.schema`.
        schema: text of the row type; its checksum stands in every entry.
        opened_ms: wall time at which a writer opened it last.
        max_bytes, max_age_ms: when segments are trimmed, as the last writer was told.
    """

    format: int
    log_id: str
    name: str
    application: str
    version: int
    schema: str
    fields: list[dict[str, object]]
    partitions: int
    created_ms: int
    opened_ms: int
    max_bytes: int
    max_age_ms: int

    @property
    def schema_id(self) -> int:
        """Which schema the rows of an entry have."""
        return crc32c(self.schema.encode())

    def schema_json(self) -> bytes:
        """What a reader is told of the rows."""
        return msgspec.json.encode({"text": self.schema, "fields": self.fields})


@dataclass(frozen=True)
class Segment:
    """A segment file; its first row has the number `base`."""

    base: int
    path: Path


def log_directory(root: Path, name: str) -> Path:
    """Where a log lies; raises OperationFailed for a name that is none, so no name leads elsewhere."""
    if fault := sink_name_fault(name):
        raise OperationFailed(fault)
    return root / FOLDER / name


def partition_directory(directory: Path, partition: int) -> Path:
    """Where a partition of the log in `directory` lies."""
    return directory / str(partition)


def read_description(directory: Path) -> Description | None:
    """What the log in a folder is, by `log.json` or, where that is not what was written, by its copy with a checksum.

    None when there is no log. Raises OperationFailed when there is one and neither can be read.
    """
    path = directory / "log.json"
    content = _content(path)
    copy = _checked(_content(directory / COPY))
    try:
        if copy is not None:
            return msgspec.json.decode(copy, type=Description)
        if content is not None:
            return msgspec.json.decode(content, type=Description)
    except (msgspec.MsgspecError, ValueError) as error:
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
    """Whether segments of a log lie in a folder."""
    return any(segments_of(entry) for entry in (directory.iterdir() if directory.is_dir() else ()) if entry.is_dir())


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OperationFailed(f"{path} cannot be read: {(error.strerror or '').lower()}") from None


def _checked(copy: bytes | None) -> bytes | None:
    """What a copy holds; None when there is none, or it is damaged."""
    head, _, content = (copy or b"").partition(b"\n")
    return content if head == f"{crc32c(content):08x}".encode() else None


def write_description(directory: Path, description: Description) -> None:
    """Put `log.json` in place, atomically and durably, and before it a copy with a checksum."""
    content = msgspec.json.format(msgspec.json.encode(description)) + b"\n"
    for name, written in ((COPY, f"{crc32c(content):08x}\n".encode() + content), ("log.json", content)):
        temporary = directory / f"{name}.new"
        with open(temporary, "wb") as file:
            file.write(written)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, directory / name)
    sync_directory(directory)


def logs_in(root: Path) -> Iterator[tuple[Path, Description]]:
    """All logs of an agent that can be read, in order of name."""
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
        except OperationFailed:
            continue
        if description is not None and description.name == name:
            yield folder / name, description


def damaged_in(root: Path) -> Iterator[str]:
    """What to say of each log of an agent that cannot be read."""
    folder = root / FOLDER
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            read_description(entry)
        except (OperationFailed, OSError) as error:
            yield f"the log {entry.name} cannot be read: {error}"


def segments_of(directory: Path) -> list[Segment]:
    """The segments of a partition, oldest first."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    stems = sorted(name[: -len(SUFFIX)] for name in names if name.endswith(SUFFIX))
    return [Segment(int(stem), directory / f"{stem}{SUFFIX}") for stem in stems if stem.isdigit()]


def segment_path(directory: Path, base: int) -> Path:
    """The file of the segment that begins with this offset; names sort like offsets."""
    return directory / f"{base:020}{SUFFIX}"


def committed_bytes(first: int, end: int) -> bytes:
    """The contents of a `committed` file."""
    head = _COMMITTED.pack(first, end)
    return head + _CRC.pack(crc32c(head))


def read_committed(directory: Path) -> tuple[int, int] | None:
    """(first kept offset, committed end) by the `committed` file; None when it is not there or not good."""
    for _ in range(3):  # a reader may see one half of a write
        try:
            with open(directory / "committed", "rb") as file:
                raw = file.read(_COMMITTED.size + _CRC.size + 1)
        except OSError:
            return None
        if len(raw) == _COMMITTED.size + _CRC.size and crc32c(raw[:-4]) == _CRC.unpack(raw[-4:])[0]:
            first, end = _COMMITTED.unpack(raw[:-4])
            return first, end
    return None


def sync_directory(directory: Path) -> None:
    """Make names in a folder durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(directory: Path) -> int | None:
    """A descriptor that holds the writer's lock of a log, or None when somebody has it. Ends with its process."""
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def is_locked(directory: Path) -> bool:
    """Does a writer have the log open? Looks without touching the lock."""
    try:
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        asked = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return bool(_FLOCK.unpack(asked)[0] != fcntl.F_UNLCK)
