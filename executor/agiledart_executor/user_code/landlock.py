"""Landlock: an unprivileged process permanently gives up access to files, for itself and all processes that it starts.

Rules name the folders and files that stay usable. No rule can forbid, so every file without a rule is closed. The calls go to the
kernel by ctypes, because no C library wraps them. They bind the calling thread and the threads that it starts, so a process must
confine itself before it has a second thread. Source: Linux, Documentation/userspace-api/landlock.rst.
"""

import ctypes
import errno
import os
import struct
from functools import cache
from typing import Final

from agiledart_kernel.errors import OperationFailed

NEEDED_VERSION: Final = 2
"""Version of Linux 5.19; in earlier versions a confined process cannot rename files into another folder."""

TRUNCATE_VERSION: Final = 3
"""Version of Linux 6.2; in earlier versions a confined process can truncate files that it must not write."""

_SIGNAL_VERSION: Final = 6
"""Version of Linux 6.12; from it on, confined processes can signal only processes of the same confinement."""

LIST: Final = 1 << 3
OF_FILES: Final = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14
"""Rights that a file can have: execute, write, read, truncate."""

ALL: Final = (1 << 15) - 1
"""Every right on files and folders except ioctl of devices, which stays allowed."""

_TRUNCATE: Final = 1 << 14
_SCOPE_SIGNAL: Final = 1 << 1
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Numbers of the system calls, the same on every architecture."""

_ASK_VERSION: Final = 1
_BENEATH: Final = 1
_NO_NEW_PRIVILEGES: Final = 38
_CAPABILITY_VERSION: Final = 0x20080522
_BYPASS_CAPABILITIES: Final = sum(1 << number for number in (16, 17, 19, 21, 27, 38, 39))
"""Capabilities that bypass the rules: CAP_SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN, MKNOD, PERFMON, BPF."""

_ATTRIBUTES = struct.Struct("=QQQ")
_RULE = struct.Struct("=Qi")


def version() -> int:
    """Return the kernel's version of Landlock; 0 when it has none or has switched it off."""
    try:
        return max(0, _call(_CREATE_RULESET, None, 0, _ASK_VERSION))
    except (OSError, AttributeError):
        return 0


def is_there() -> bool:
    """Return True when user code can be confined on this machine."""
    return version() >= NEEDED_VERSION


class Ruleset:
    """Set of rules that name the usable files. Enforce or close it.

    Raises:
        OperationFailed: the kernel refuses it.
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
            raise OperationFailed(f"user code cannot be confined here: {error.strerror}") from None

    def allow(self, descriptor: int, rights: int) -> None:
        """Allow these rights on a file, or on a folder and all below it, by a descriptor opened with O_PATH.

        Files outside every file tree, such as pipes, are left out.
        """
        try:
            _call(_ADD_RULE, self._descriptor, _BENEATH, _RULE.pack(rights & self._handled, descriptor), 0)
        except OSError as error:
            if error.errno not in (errno.EBADFD, errno.EINVAL):
                raise OperationFailed(f"user code cannot be confined here: {error.strerror}") from None

    def enforce(self) -> None:
        """Enforce the rules for this thread and all that it starts; root also gives up the capabilities that bypass them."""
        try:
            _give_up_capabilities()
            if _library().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            _call(_RESTRICT_SELF, self._descriptor, 0)
        except OSError as error:
            raise OperationFailed(f"user code cannot be confined here: {error.strerror}") from None
        finally:
            self.close()

    def close(self) -> None:
        """Close the descriptor; may be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _give_up_capabilities() -> None:
    """Drop root's capabilities to read memory, load modules and write to disks past the rules. Raises OSError."""
    if os.geteuid() != 0:
        return
    library = _library()
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    data = ctypes.create_string_buffer(24)
    if library.capget(header, data):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    low = struct.unpack("=6I", data.raw)  # effective, permitted, inheritable of capabilities 0 to 31, then of 32 to 63
    remaining = [
        word & ~(_BYPASS_CAPABILITIES >> 32 * (position // 3) & 0xFFFFFFFF) for position, word in enumerate(low)
    ]
    if library.capset(header, struct.pack("=6I", *remaining)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _call(number: int, *arguments: int | bytes | None) -> int:
    """Make a system call. Raises OSError."""
    given = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
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
