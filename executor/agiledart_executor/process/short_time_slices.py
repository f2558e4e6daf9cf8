"""Short time slices of the processor: a process that requests a short slice runs sooner when it wakes (Linux 6.12 and later).

A frame takes a fraction of a millisecond, and then its process sleeps. But the kernel assumes that the process wants three
milliseconds, the default, and makes it wait behind running processes.
"""

import ctypes
import os
import platform
import struct
import sys

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
"""Number of the system call `sched_setattr(2)`, for which the C library has no function, by architecture."""

_ATTRIBUTES = struct.Struct("=IIQiIQQQII")
"""Struct `sched_attr`: size, policy, flags, niceness, priority, runtime (ns; the slice under the normal policy), and four
fields of other policies."""

SLICE_NS = 100_000
"""Shortest slice in nanoseconds that the kernel grants."""


def request_short_slices() -> bool:
    """Request short slices for this thread and the threads that it starts; return True when the kernel accepted.

    A kernel before 6.12 accepts and does nothing. The niceness stays, and a thread with another than the normal policy keeps it.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if sys.platform != "linux" or number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, SLICE_NS, 0, 0, 0, 0)
    return bool(ctypes.CDLL(None).syscall(number, 0, attributes, 0) == 0)
