"""Ctrl-C leaves work that cannot be interrupted."""

import subprocess
import sys

import pytest

from agiledart_cli.interruptible import interruptible

PRESSED = """
import os, signal, threading
from agiledart_cli.interruptible import interruptible, is_abandoned

ended, left, seen, looked = [], threading.Event(), [is_abandoned()], threading.Event()

def work():
    seen.append(is_abandoned())
    os.kill(os.getpid(), signal.SIGINT)
    left.wait()
    seen.append(is_abandoned())
    looked.set()
    threading.Event().wait()
    ended.append(True)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start us with it ignored
try:
    interruptible(work)
except KeyboardInterrupt:
    left.set()
    looked.wait()
    print("left, ended:", ended, seen)
"""


def test_results_and_exceptions_are_returned() -> None:
    assert interruptible(lambda: 7) == 7
    with pytest.raises(SystemExit, match="8"):
        interruptible(lambda: exit(8))


def test_ctrl_c_leaves_the_thread_running() -> None:
    """In a process of its own, whose main thread it is that gets the signal."""
    done = subprocess.run([sys.executable, "-c", PRESSED], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left, ended: [] [False, False, True]\n", "")
