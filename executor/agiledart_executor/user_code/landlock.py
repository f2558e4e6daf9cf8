"""Landlock: a process of no special rights gives up the use of files, for itself and all that it starts, for good.

Rules say which folders and files stay usable; there are none that forbid, so what is to be closed is whatever no rule names. Calls
go to the kernel by ctypes, because no C library wraps them. They bind the calling thread and those that it starts: whoever confines
itself must have no other thread yet. Source: Linux, Documentation/userspace-api/landlock.rst.
"""

import ctypes
import errno
import os
import struct
from functools import cache
from typing import Final

from agiledart_kernel.errors import OperationFailed

NEEDED_VERSION: Final = 2
"""Linux 5.19: before it, no file could be renamed into another folder any more."""

TRUNCATE_VERSION: Final = 3
"""Linux 6.2: before it, whoever may not write a file could still empty it."""

_SIGNAL_VERSION: Final = 6
"""Linux 6.12: signals, too, stay among what is confined together."""

LIST: Final = 1 << 3
OF_FILES: Final = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14
"""Execute, write, read, truncate: rights that a file can have."""

ALL: Final = (1 << 15) - 1
"""Every right on files and folders but ioctl of devices, which is not taken away."""

_TRUNCATE: Final = 1 << 14
_SCOPE_SIGNAL: Final = 1 << 1
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Numbers of the calls, the same on every architecture."""

_ASK_VERSION: Final = 1
_BENEATH: Final = 1
_NO_NEW_PRIVILEGES: Final = 38
_CAPABILITY_VERSION: Final = 0x20080522
_BYPASS_CAPABILITIES: Final = sum(1 << number for number in (16, 17, 19, 21, 27, 38, 39))
"""CAP_SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN, MKNOD, PERFMON, BPF."""

_ATTRIBUTES = struct.Struct("=QQQ")
_RULE = struct.Struct("=Qi")


def version() -> int:
    """The kernel's version of Landlock; 0: it has none, or it is not switched on."""
    try:
        return max(0, _call(_CREATE_RULESET, None, 0, _ASK_VERSION))
    except (OSError, AttributeError):
        return 0


def is_there() -> bool:
    """Can users' code be confined on this machine?"""
    return version() >= NEEDED_VERSION


class Ruleset:
    """What stays usable. Close it, or enforce it.

    Raises:
        OperationFailed: the kernel does not take it.
    """

    def __init__(self) -> None:
        self._version = version()
        self._handled = ALL if self._version >= TRUNCATE_VERSION else ALL & ~_TRUNCATE
        scoped = _SCOPE_SIGNAL if self._version >= _SIGNAL_VERSION else 0
        attributes = _ATTRIBUTES.pack(self._handled, 0, scoped)
        size = len(attributes) if scoped else 8
        try:
            self._descriptor = _call(_CREATE_RULESET, attributes, size, 0)
        except OSError as error:
            raise OperationFailed(f"users' code cannot be confined here: {error.strerror}") from None

    def allow(self, descriptor: int, rights: int) -> None:
        """These rights on a file, or on a folder and all beneath it, opened with O_PATH. What is in no tree is left out."""
        try:
            _call(_ADD_RULE, self._descriptor, _BENEATH, _RULE.pack(rights & self._handled, descriptor), 0)
        except OSError as error:
            if error.errno not in (errno.EBADFD, errno.EINVAL):
                raise OperationFailed(f"users' code cannot be confined here: {error.strerror}") from None

    def enforce(self) -> None:
        """From now on, for this thread and all that it starts. Root gives up what would lead around it."""
        try:
            _give_up_capabilities()
            if _library().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            _call(_RESTRICT_SELF, self._descriptor, 0)
        except OSError as error:
            raise OperationFailed(f"users' code cannot be confined here: {error.strerror}") from None
        finally:
            self.close()

    def close(self) -> None:
        """Give it back; may be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _give_up_capabilities() -> None:
    """Root may read memory, load modules and write to disks past all rules, unless it gives that up. Raises OSError."""
    if os.geteuid() != 0:
        return
    library = _library()
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    data = ctypes.create_string_buffer(24)
    if library.capget(header, data):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    low = struct.unpack("=6I", data.raw)  # effective, permitted, inheritable of capabilities 0 to 31, then of 32 to 63
    kept = [word & ~(_BYPASS_CAPABILITIES >> 32 * (place // 3) & 0xFFFFFFFF) for place, word in enumerate(low)]
    if library.capset(header, struct.pack("=6I", *kept)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _call(number: int, *arguments: int | bytes | None) -> int:
    """A system call. Raises OSError."""
    given = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    answer: int = _library().syscall(ctypes.c_long(number), *given)
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return library
