"""Lock for the only writer of a file: the next writer waits until the previous process, which may still flush, has ended.

An agent waits for the executors that it ends; executors of a killed agent end by themselves a little later.
"""

import errno
import fcntl
import os
from pathlib import Path

from agiledart_kernel.errors import BusyError

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
"""Errors of file systems without locks; then no wait is possible."""


def claim(descriptor: int, what: str) -> None:
    """Lock an open file for this process until it is closed.

    Raises:
        BusyError: another process writes it.
        OSError: the file system fails.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BusyError(f"{what} is being written by another process") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def claimed_folder(folder: Path, what: str) -> int:
    """Lock a folder for this process and return the descriptor that holds the lock. Raises as `claim`."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        claim(descriptor, what)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
