"""Crash report: a pipe from an executor to its agent for the reason of the executor's end, and the place of its code.

The agent holds the reading end. The pipe carries text: heartbeats of the watchdog thread, a reason before the process ends itself
(a line that begins with `!`; where several applications share it, the one that is why: `@`), the place of user code that does not
return (`~`), and stack dumps by `faulthandler`. That works in a crash, and also while C code holds the interpreter's lock forever.
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
"""Signal by which the agent requests a stack dump of all threads."""

EXIT_BOUND: Final = 78
"""Exit code of an executor that ended because a bound was reached."""

ALIVE: Final = b"\x06"
"""Heartbeat byte of the watchdog thread."""

MAX_KEPT_CHARS: Final = 64 << 10
"""Characters at the end of the text that the agent keeps."""

_FRAME = re.compile(r'^  File "([^"\n]*)", line (\d+) in (.*)$', re.MULTILINE)
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
_FATAL = re.compile(r"^Fatal Python error: (.*)$", re.MULTILINE)
_USER_FILE = re.compile(r"^<[0-9a-f]{8}>/")
_LIBRARY = re.compile(r"/lib/python[0-9.]+/|^<frozen |^<string>$")
_MADE = ("<stage ", EXPRESSION_FILE)
_OURS = tuple(
    f"/agiledart_{name}/" for name in ("connectors", "dataflow", "executor", "kernel", "sink_log", "transport")
)


class CrashReporter:
    """Writing end of the crash report, in the executor.

    Args:
        descriptor: writing end of the pipe; -1 without a pipe.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        if descriptor >= 0:
            os.set_blocking(descriptor, False)
            os.set_inheritable(descriptor, False)

    def arm(self) -> None:
        """Dump the stacks of all threads into the pipe from now on, at a crash or at the agent's request."""
        if self._descriptor >= 0:
            faulthandler.enable(file=self._descriptor, all_threads=True)
            faulthandler.register(ASK_SIGNAL, file=self._descriptor, all_threads=True)

    def report_alive(self) -> None:
        """Send a heartbeat of the watchdog thread while the main thread does not respond."""
        self._write(ALIVE)

    def report_reason(self, reason: str) -> None:
        """Send the reason why this process is about to end itself."""
        self._write(b"\n!" + reason.replace("\n", "\x04").encode("utf-8", "replace") + b"\n")

    def report_application(self, application: str) -> None:
        """Name the application whose code is why this process, which several share, is about to end itself."""
        self._write(b"\n@" + application.encode() + b"\n")

    def report_pending_call(self, step: str, seconds: float, place: str, application: str = "") -> None:
        """Report user code that has not returned; the main thread cannot report it."""
        text = f"{step}\x1f{seconds:.0f}\x1f{place}\x1f{application}".replace("\n", " ")
        self._write(b"\n~" + text.encode("utf-8", "replace") + b"\n")

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            if self._descriptor >= 0:
                os.write(self._descriptor, data)


@dataclass(frozen=True)
class StackFrame:
    """Line of a stack."""

    file: str
    line: int
    function: str

    @property
    def is_users(self) -> bool:
        """True for a frame in the user's own files or the shipped examples."""
        return bool(_USER_FILE.match(self.file)) or "/agiledart_examples/" in self.file

    @property
    def is_foreign(self) -> bool:
        """True for a frame outside the engine and Python's own library."""
        return not (
            any(part in self.file for part in _OURS) or self.file.startswith(_MADE) or _LIBRARY.search(self.file)
        )

    def __str__(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line} in {self.function}"


@dataclass(frozen=True)
class PendingCall:
    """User code that has not returned: its step, for how long, and its place (`taxi.py:42 in parse`).

    `application`: whose it is, in a process that several share; else empty.
    """

    step: str
    seconds: int
    place: str
    application: str = ""


class CrashReport:
    """Reading end of the crash report, in the agent: the text that one executor has sent."""

    def __init__(self) -> None:
        self._text = ""

    def add(self, data: bytes) -> None:
        """Add bytes from the pipe."""
        self._text = (self._text + data.replace(ALIVE, b"").decode("utf-8", "replace"))[-MAX_KEPT_CHARS:]

    @property
    def reason(self) -> str:
        """Reason that the process gave for its end; empty when it gave none."""
        reasons = [line for line in self._text.splitlines() if line.startswith("!")]
        return reasons[-1][1:].replace("\x04", "\n") if reasons else ""

    @property
    def application(self) -> str:
        """Application that the process named as why it ends; empty when it named none."""
        names = [line for line in self._text.splitlines() if line.startswith("@")]
        return names[-1][1:] if names else ""

    @property
    def mark(self) -> str:
        """Mark of the user code in which the main thread was at the last dump; empty when it was in none."""
        for frames in self._main_stacks():
            if users := next((frame for frame in frames if _USER_FILE.match(frame.file)), None):
                return users.file[1:9]
        return ""

    @property
    def pending_call(self) -> "PendingCall | None":
        """Last report of user code that had not returned; None when there was none since `forget_pending_call`."""
        lines = [line for line in self._text.splitlines() if line.startswith("~")]
        step, _, rest = lines[-1][1:].partition("\x1f") if lines else ("", "", "")
        seconds, _, rest = rest.partition("\x1f")
        place, _, application = rest.partition("\x1f")
        return PendingCall(step, int(seconds), place, application) if step and seconds.isdigit() else None

    def forget_pending_call(self) -> None:
        """Forget it: the main thread reports again."""
        if "\n~" in self._text:
            self._text = "\n".join(line for line in self._text.splitlines() if not line.startswith("~"))

    @property
    def crash(self) -> str:
        """Interpreter's name of the crash, for example `Segmentation fault`; empty when there was none."""
        names = _FATAL.findall(self._text)
        return names[-1] if names else ""

    @property
    def place(self) -> str:
        """Place of the main thread in the last dump, `taxi.py:42 in parse`; empty when unknown."""
        return next((parse_pending_place(frames) for frames in self._main_stacks()), "")

    def _main_stacks(self) -> "list[list[StackFrame]]":
        """Return the stacks of the main thread, of the last dump first."""
        program = "/agiledart_executor/programs/worker.py"
        return [frames for frames in _stacks(self._text) if any(program in frame.file for frame in frames)]

    def forget_dumps(self) -> None:
        """Forget earlier stack dumps, before the agent requests another one."""
        self._text = "\n".join(line for line in self._text.splitlines() if line.startswith(("!", "@", "~")))


def parse_pending_place(frames: list[StackFrame]) -> str:
    """Return the innermost frame of user code as text, else the innermost foreign frame; `frames` begin with the innermost."""
    chosen = next((frame for frame in frames if frame.is_users), None)
    chosen = chosen or next((frame for frame in frames if frame.is_foreign), None)
    return str(chosen) if chosen is not None else ""


def _stacks(text: str) -> list[list[StackFrame]]:
    """Return the stacks of all dumps, one for each thread, innermost frame first; stacks of the last dump come first."""
    parts = _THREAD.split(text)[1:]
    stacks = [
        [StackFrame(file, int(line), function) for file, line, function in _FRAME.findall(part)] for part in parts
    ]
    return stacks[::-1]
