"""Private files: the state directory and its small files, owned by this user alone, opened without following links.

A user that can write in the directory, or put a link there, could make the agent read or overwrite any file. A user
that can read it has the node's key.
"""

import os
import stat
from pathlib import Path
from typing import Final

from agiledart_kernel.errors import OperationFailed

MAX_FILE_BYTES: Final = 1 << 20
"""Largest small file of a state directory; a chain of grants has 2 kB."""


def secure_state_directory(path: Path) -> None:
    """Make the state directory, or make sure that it is ours and closed to others.

    Raises:
        OperationFailed: it belongs to another user, others may write in it, or it is a link that others can change.
        OSError: it cannot be made.
    """
    if path.is_symlink() and (link := _foreign_link(path)):
        raise OperationFailed(
            f"{path} is a link that {link} could change. Give the folder itself, {os.path.realpath(path)}, as --state-dir."
        )
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if status.st_uid != os.geteuid():
            raise OperationFailed(
                f"{path} belongs to user {status.st_uid}, not to the one that runs the agent ({os.geteuid()}). "
                f"Run:  sudo chown -R {os.geteuid()} {path}   or give another --state-dir."
            )
        if status.st_mode & 0o022:
            raise OperationFailed(
                f"Others may write in {path}: they could replace the node's key. "
                f"Run:  chmod 700 {path}   and make sure that what is in it is yours."
            )
        if status.st_mode & 0o055:
            os.fchmod(handle, 0o700)
    finally:
        os.close(handle)


def _foreign_link(path: Path) -> str:
    """Return the user that could change where a link leads, besides this user and root; empty: no other user."""
    ours = (os.geteuid(), 0)
    if (owner := path.lstat().st_uid) not in ours:
        return f"user {owner}"
    above = path.parent.stat()
    if above.st_uid not in ours:
        return f"user {above.st_uid}"
    return "others" if above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX else ""


def read_private(path: Path, *, secret: bool = False, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of a small file of the state directory. It does not read links, pipes and files of other users.

    Args:
        secret: refuse a file that others may read, too.

    Raises:
        FileNotFoundError: it does not exist. Other OSErrors: it cannot be read.
        OperationFailed: it is not ours, or not a plain file.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise OperationFailed(f"{path} is a link; put the file itself there.") from None
        raise error
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OperationFailed(f"{path} is not a plain file.")
        if status.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
            raise OperationFailed(f"{path} belongs to user {status.st_uid}. Run:  sudo chown {os.geteuid()} {path}")
        if secret and status.st_mode & 0o077:
            raise OperationFailed(f"{path} can be read by others, so its key may be known. Run: chmod 600 {path}")
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OperationFailed(f"{path} is damaged: it has more than {max_bytes:,} bytes.")
    return content
