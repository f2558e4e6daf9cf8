"""Requests for short time slices, each in a process of its own because the request cannot be undone."""

import os
import platform
import subprocess
import sys

import pytest

from agiledart_executor.process.short_time_slices import SLICE_NS

REQUEST = """
import ctypes, os, struct, sys
from agiledart_executor.process import short_time_slices
os.nice(3)
assert short_time_slices.request_short_slices()
attributes = ctypes.create_string_buffer(56)
assert ctypes.CDLL(None).syscall(int(sys.argv[1]), 0, attributes, 56, 0) == 0
print(*struct.unpack_from("=IIQiIQ", attributes))
"""
SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}


def release() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.release().split(".")[:2] if part.isdigit())


@pytest.mark.skipif(
    sys.platform != "linux" or release() < (6, 12) or platform.machine() not in SCHED_GETATTR,
    reason="the kernel grants time slices on Linux 6.12 and later",
)
def test_the_kernel_gives_short_slices_and_keeps_the_niceness() -> None:
    number = str(SCHED_GETATTR[platform.machine()])
    result = subprocess.run([sys.executable, "-c", REQUEST, number], capture_output=True, text=True, check=True)
    _, policy, _, nice, _, runtime = map(int, result.stdout.split())
    assert (policy, nice, runtime) == (0, min(os.nice(0) + 3, 19), SLICE_NS)
