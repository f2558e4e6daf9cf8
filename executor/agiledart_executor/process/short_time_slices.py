"""Short turns on the processor: whoever asks for little at a time is let in sooner when it wakes (Linux 6.12 and later).

A frame takes a fraction of a millisecond and then its process sleeps, but the kernel takes it for one that would like three
milliseconds, the default, and lets it wait behind others that run.
"""

import ctypes
import os
import platform
import struct
import sys

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
"""Number of the system call, which the C library has no function for; `sched_setattr(2)`."""

_ATTRIBUTES = struct.Struct("=IIQiIQQQII")
"""Size, policy, flags, niceness, priority, runtime (ns; with the normal policy the length of a turn), and four for others."""

SLICE_NS = 100_000
"""The shortest turn that may be asked for."""


def request_short_slices() -> bool:
    """Ask for this thread, and those that it starts; was it possible? A kernel before 6.12 says yes and does nothing.

    Niceness stays, and who was given another policy than the normal one keeps it.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if sys.platform != "linux" or number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, SLICE_NS, 0, 0, 0, 0)
    return bool(ctypes.CDLL(None).syscall(number, 0, attributes, 0) == 0)
