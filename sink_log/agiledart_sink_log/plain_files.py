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
from itertools import count
from pathlib import Path
from typing import Final

from agiledart_kernel.errors import OperationFailed

_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")
"""Pattern of a part of a path; names of the system's own logs begin with `_`."""

MAX_WALKED: Final = 20_000
"""Entries that a walk counts: more make a size a lower bound."""

_DESCRIPTORS: Final = Path("/proc/self/fd")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NUMBERS: Final = count()


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


def bytes_below(directory: str, max_entries: int = MAX_WALKED) -> int:
    """Return the size of all files below a folder. Links count themselves; behind `max_entries` it counts no more."""
    total = seen = 0
    waiting = [directory]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    seen += 1
                    if seen > max_entries:
                        return total
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue  # trimmed at this moment, or a path too long for the kernel
    return total


def remove_tree(folder: Path, seconds: float) -> bool:
    """Delete a file, or a folder and all below it, as far as that goes in this time.

    Folders below move to the top first: so neither the depth of the tree nor the length of its paths matters, and two descriptors
    are enough. Closed folders are opened before.

    Returns:
        Whether nothing is left.
    """
    until = time.monotonic() + seconds
    try:
        top = _open_folder(str(folder), None)
    except FileNotFoundError:
        return True
    except NotADirectoryError:
        with contextlib.suppress(OSError):
            folder.unlink()
        return not os.path.lexists(folder)
    except OSError:
        return False
    try:
        while names := _clear_files(top, until):
            for name in names:
                if time.monotonic() > until or not _flatten(name, top, until):
                    return False
    except OSError:
        return False
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        folder.rmdir()
    return not os.path.lexists(folder)


def _open_folder(name: str, parent: int | None) -> int:
    """Return a descriptor of a folder that may be read and written. Raises OSError, for a link too."""
    held = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if os.fstat(held).st_mode & 0o700 != 0o700:
            os.chmod(_DESCRIPTORS / str(held), 0o700)
    finally:
        os.close(held)
    return os.open(name, _FOLDER, dir_fd=parent)


def _clear_files(folder: int, until: float) -> list[str]:
    """Delete the files of a folder and return the names of its folders. Raises OSError, TimeoutError too."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if time.monotonic() > until:
                raise TimeoutError
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=folder)
    return folders


def _flatten(name: str, top: int, until: float) -> bool:
    """Delete the files of a folder in `top`, move its folders to `top`, and remove it. Return whether it is gone."""
    folder = _open_folder(name, top)
    try:
        for inner in _clear_files(folder, until):
            os.close(_open_folder(inner, folder))  # a folder moves only when it may be written
            os.rename(inner, f".{time.time_ns()}.{next(_NUMBERS)}", src_dir_fd=folder, dst_dir_fd=top)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)
    return True
