"""A pipe from an executor to its agent for what cannot be said any other way: why the process ends, and where it was.

The agent holds the reading end. What arrives on it is text: signs of life of the watching thread, a reason before the
process ends itself (a line that begins with `!`), and dumps of stacks by `faulthandler`, which works when nothing else does:
in a crash, and while C code holds the interpreter's lock for ever.
"""

import contextlib
import faulthandler
import os
import re
import signal
from dataclasses import dataclass
from typing import Final

from agiledart_dataflow.user_code.user_errors import EXPRESSION_FILE

ASK_SIGNAL: Final = signal.SIGUSR1
"""What the agent sends to be told where all threads are."""

EXIT_BOUND: Final = 78
"""Exit code of an executor that ended because a bound was reached."""

ALIVE: Final = b"\x06"
"""A sign of life."""

MAX_KEPT_CHARS: Final = 64 << 10
"""How much of the text the agent keeps, the end of it."""

_FRAME = re.compile(r'^  File "([^"\n]*)", line (\d+) in (.*)$', re.MULTILINE)
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
_FATAL = re.compile(r"^Fatal Python error: (.*)$", re.MULTILINE)
_USER_FILE = re.compile(r"^<[0-9a-f]{8}>/")
_LIBRARY = re.compile(r"/lib/python[0-9.]+/|^<frozen |^<string>$")
_MADE = ("<stage ", EXPRESSION_FILE)
_OURS = tuple(f"/agiledart_{name}/" for name in ("connectors", "dataflow", "executor", "kernel", "sink_log", "transport"))


class CrashReporter:
    """The executor's end.

    Args:
        descriptor: writing end of the pipe; -1: nobody listens.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        if descriptor >= 0:
            os.set_blocking(descriptor, False)
            os.set_inheritable(descriptor, False)

    def arm(self) -> None:
        """From now on a crash, or the agent's question, dumps the stacks of all threads into the pipe."""
        if self._descriptor >= 0:
            faulthandler.enable(file=self._descriptor, all_threads=True)
            faulthandler.register(ASK_SIGNAL, file=self._descriptor, all_threads=True)

    def report_alive(self) -> None:
        """The watching thread lives, although the main thread does not answer."""
        self._write(ALIVE)

    def report_reason(self, reason: str) -> None:
        """Why this process is about to end itself."""
        self._write(b"\n!" + reason.replace("\n", "\x04").encode("utf-8", "replace") + b"\n")

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            if self._descriptor >= 0:
                os.write(self._descriptor, data)


@dataclass(frozen=True)
class StackFrame:
    """One line of a stack."""

    file: str
    line: int
    function: str

    @property
    def is_users(self) -> bool:
        """Whether it lies in the user's own files or the shipped examples."""
        return bool(_USER_FILE.match(self.file)) or "/agiledart_examples/" in self.file

    @property
    def is_foreign(self) -> bool:
        """Whether it is neither ours nor Python's own library."""
        return not (
            any(part in self.file for part in _OURS) or self.file.startswith(_MADE) or _LIBRARY.search(self.file)
        )

    def __str__(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line} in {self.function}"


class CrashReport:
    """The agent's end: what one executor has said."""

    def __init__(self) -> None:
        self._text = ""

    def add(self, data: bytes) -> None:
        """Bytes from the pipe."""
        self._text = (self._text + data.replace(ALIVE, b"").decode("utf-8", "replace"))[-MAX_KEPT_CHARS:]

    @property
    def reason(self) -> str:
        """Why the process said it would end; empty when it did not."""
        said = [line for line in self._text.splitlines() if line.startswith("!")]
        return said[-1][1:].replace("\x04", "\n") if said else ""

    @property
    def crash(self) -> str:
        """What the interpreter called the crash, for example `Segmentation fault`; empty when there was none."""
        found = _FATAL.findall(self._text)
        return found[-1] if found else ""

    @property
    def place(self) -> str:
        """Where the main thread was in the last dump, `taxi.py:42 in parse`; empty when unknown."""
        for frames in _stacks(self._text):
            if any("/agiledart_executor/programs/worker.py" in frame.file for frame in frames):
                return parse_pending_place(frames)
        return ""

    def forget_dumps(self) -> None:
        """Before asking again."""
        self._text = "\n".join(line for line in self._text.splitlines() if line.startswith("!"))


def parse_pending_place(frames: list[StackFrame]) -> str:
    """The innermost of the user's frames, else the innermost that is neither ours nor Python's; innermost first."""
    chosen = next((frame for frame in frames if frame.is_users), None)
    chosen = chosen or next((frame for frame in frames if frame.is_foreign), None)
    return str(chosen) if chosen is not None else ""


def _stacks(text: str) -> list[list[StackFrame]]:
    """The stacks of the last dump, one for each thread, innermost frame first; the last dump's come first."""
    parts = _THREAD.split(text)[1:]
    stacks = [
        [StackFrame(file, int(line), function) for file, line, function in _FRAME.findall(part)] for part in parts
    ]
    return stacks[::-1]
