"""`FolderWatch`: one descriptor that becomes readable when something happens to the files of some folders (Linux' inotify).

Where there is none (other systems, no more watches, a network's file system that tells nothing) whoever waits has to look again.
"""

import contextlib
import ctypes
import os
from pathlib import Path
from typing import Final

_NONBLOCK: Final = os.O_NONBLOCK
_CLOEXEC: Final = os.O_CLOEXEC
_EVENTS: Final = 0x2 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200
"""Modified, closed after writing, moved from and to, created, deleted."""

_BUFFER: Final = 64 << 10


class FolderWatch:
    """Watches folders."""

    def __init__(self, folders: list[Path]) -> None:
        self._descriptor = -1
        try:
            system = ctypes.CDLL(None, use_errno=True)
            descriptor = system.inotify_init1(_NONBLOCK | _CLOEXEC)
            if descriptor < 0:
                return
            watched = [system.inotify_add_watch(descriptor, os.fsencode(folder), _EVENTS) for folder in folders]
        except (OSError, AttributeError):
            return
        if any(number < 0 for number in watched):
            os.close(descriptor)
        else:
            self._descriptor = descriptor

    def fileno(self) -> int | None:
        """Return a descriptor that becomes readable on a change; None where the system reports none."""
        return self._descriptor if self._descriptor >= 0 else None

    def clear(self) -> None:
        """Forget what has happened up to now; to be called before one looks."""
        if self._descriptor >= 0:
            with contextlib.suppress(BlockingIOError, OSError):
                os.read(self._descriptor, _BUFFER)

    def close(self) -> None:
        """Give the descriptor back; may be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
