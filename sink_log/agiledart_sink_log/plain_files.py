"""Files that users' code can write, opened, read, measured and deleted in one way.

Users' code can put anything among its snapshots and logs: a link, a pipe, a sparse file of terabytes, a tree of folders that is
thousands deep, a million files. So no link is followed, nothing but plain files is opened, a size is known before a byte is read,
no walk is recursive, and each walk has a bound.
"""

import contextlib
import errno
import os
import re
import stat
import time
from pathlib import Path
from typing import Final, NamedTuple

from agiledart_kernel.errors import OperationFailed

_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")
"""Pattern of a part of a path; names of the system's own logs begin with `_`."""

MAX_WALKED: Final = 20_000
"""Entries that a walk counts: more make a size a lower bound."""

_DESCRIPTORS: Final = Path("/proc/self/fd")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def path_below(root: Path, *names: str) -> Path:
    """Return the path of a file or folder below `root`.

    Raises:
        OperationFailed: a name would lead elsewhere.
    """
    for name in names:
        if _PART.fullmatch(name) is None:
            raise OperationFailed(f"{name[:80]!r} cannot stand in the name of a file")
    return root.joinpath(*names)


def open_plain(path: Path, flags: int) -> int:
    """Open a regular file of this user, or of root, and return its descriptor.

    Raises:
        OSError: it is missing, a link, a pipe or another kind of file, or belongs to another user.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no plain file", str(path))
    if status.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
        os.close(descriptor)
        raise OSError(errno.EPERM, "another user's file", str(path))
    return descriptor


def plain_size(path: Path) -> int:
    """Return the size of a regular file. Raises OSError, as `open_plain`."""
    descriptor = open_plain(path, os.O_RDONLY)
    try:
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def read_plain(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file. Raises OSError, as `open_plain`, and when it has more bytes."""
    with open(open_plain(path, os.O_RDONLY), "rb") as file:
        if os.fstat(file.fileno()).st_size > max_bytes:
            raise OSError(errno.EFBIG, f"more than {max_bytes:,} bytes", str(path))
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:  # it grew meanwhile
        raise OSError(errno.EFBIG, f"more than {max_bytes:,} bytes", str(path))
    return content


class Usage(NamedTuple):
    """Bytes of all files below a folder, and the number of entries; a lower bound unless `is_whole`."""

    size: int
    entries: int
    is_whole: bool


def usage_below(directory: str, max_entries: int = MAX_WALKED) -> Usage:
    """Return the size of all files below a folder. Links count themselves; behind `max_entries` it counts no more."""
    total = seen = 0
    waiting = [directory]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if seen >= max_entries:
                        return Usage(total, seen, is_whole=False)
                    seen += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue  # trimmed at this moment, or a path too long for the kernel
    return Usage(total, seen, is_whole=True)


def bytes_below(directory: str, max_entries: int = MAX_WALKED) -> int:
    """Return the size of all files below a folder, as far as `usage_below` counts."""
    return usage_below(directory, max_entries).size


def remove_tree(folder: Path, seconds: float) -> bool:
    """Delete a file, or a folder and all below it, as far as that goes in this time.

    It goes down and up by descriptors, of which two are open: neither the depth of the tree nor the length of its paths matters.
    Closed folders are opened before. Where users' code moves a folder meanwhile, the walk ends.

    Returns:
        Whether nothing is left.
    """
    until = time.monotonic() + seconds
    try:
        held = _open_folder(str(folder), None)
    except FileNotFoundError:
        return True
    except NotADirectoryError:
        with contextlib.suppress(OSError):
            folder.unlink()
        return not os.path.lexists(folder)
    except OSError:
        return False
    path: list[tuple[str, int, int]] = []  # the way down: name below, device and inode of the folder above
    try:
        while time.monotonic() < until:
            below = _clear_files(held, until)
            if below is not None:
                above = os.fstat(held)
                inner = _open_folder(below, held)
                os.close(held)
                held = inner
                path.append((below, above.st_dev, above.st_ino))
            elif path:
                name, device, inode = path.pop()
                outer = os.open("..", _FOLDER, dir_fd=held)
                os.close(held)
                held = outer
                status = os.fstat(held)
                if (status.st_dev, status.st_ino) != (device, inode):
                    return False
                os.rmdir(name, dir_fd=held)
            else:
                folder.rmdir()
                return True
        if path:  # so deep that the time is over: the next call begins with the half that was not reached
            with contextlib.suppress(OSError):
                _move_up(held, folder)
    except OSError:
        return False
    finally:
        os.close(held)
    return not os.path.lexists(folder)


def _move_up(deep: int, top: Path) -> None:
    """Move the folders of a folder to the top of its tree. Raises OSError."""
    names = [
        name
        for name in os.listdir(deep)[:MAX_WALKED]
        if stat.S_ISDIR(os.stat(name, dir_fd=deep, follow_symlinks=False).st_mode)
    ]
    held = _open_folder(str(top), None)
    try:
        for name in names:
            os.rename(name, f".{time.time_ns()}", src_dir_fd=deep, dst_dir_fd=held)
    finally:
        os.close(held)


def _is_folder(name: str, parent: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _open_folder(name: str, parent: int | None) -> int:
    """Return a descriptor of a folder that may be read and written. Raises OSError, for a link too."""
    held = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if os.fstat(held).st_mode & 0o700 != 0o700:
            os.chmod(_DESCRIPTORS / str(held), 0o700)
    finally:
        os.close(held)
    return os.open(name, _FOLDER, dir_fd=parent)


def _clear_files(folder: int, until: float) -> str | None:
    """Delete the files of a folder, up to its first folder, and return that one's name. Raises OSError, TimeoutError too."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if time.monotonic() > until:
                raise TimeoutError
            if entry.is_dir(follow_symlinks=False):
                return entry.name
            os.unlink(entry.name, dir_fd=folder)
    return None
