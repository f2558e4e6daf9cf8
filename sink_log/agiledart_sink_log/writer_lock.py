"""One process writes a file: who goes on with a run's file waits until the process before, which may still flush, is gone.

An agent waits for executors that it ends; of an agent that was killed the executors end by themselves, a little later.
"""

import errno
import fcntl
import os
from pathlib import Path

from agiledart_kernel.errors import BusyError

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
"""What file systems say that have none: then nobody can be waited for."""


def claim(descriptor: int, what: str) -> None:
    """Be the one who writes an open file, until it is closed.

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
    """A descriptor with which this process is the one who writes in a folder, until it is closed. Raises as `claim`."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        claim(descriptor, what)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
