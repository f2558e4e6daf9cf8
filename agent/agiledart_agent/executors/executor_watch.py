"""Watch over an executor's health: signs of life, memory, and its crash report.

The executor watches its own user code (`agiledart_executor.user_code.watchdog`). This module covers what the executor
cannot see or report: C code that holds the interpreter's lock, a crash, a `kill`, memory that the system took back.
"""

import asyncio
import contextlib
import os
import secrets
import signal
from typing import Final

import msgspec

from agiledart_agent.executors.descendants import (
    MAX_DESCENDANTS,
    ProcessIdentity,
    descendants_of,
    identity_of,
    shared_memory_of,
)
from agiledart_executor.user_code.bounds import MB, Bounds
from agiledart_executor.user_code.crash_report import ALIVE, ASK_SIGNAL, EXIT_BOUND, CrashReport, PendingCall

GRACE_SECONDS: Final = 3.0
"""Further time that an agent waits: the executor's own watchdog comes first."""

_STOPPED: Final = ("T", "t")
"""States of a process that was stopped, by a signal or by a debugger."""

LOOKS_OVER: Final = 2
"""Looks, once a second, at which memory is above its bound before the agent ends the process."""

ANSWER_SECONDS: Final = 1.0
ANSWER_LOOKS: Final = 20


class ExecutorWatch:
    """Health of one executor.

    Attributes:
        bounds: current bounds; the application may have its own.
        mark: names the executor in its environment.
        descendants: processes that it has started, as far as looks have seen them.
        writing_end: descriptor for the executor; -1 once closed here.
    """

    def __init__(self) -> None:
        self.bounds = Bounds()
        self._since = 0.0
        self._crash_report = CrashReport()
        self._asked_at = 0.0
        self._is_silence_reported = False
        self._pid = 0
        self._memory = 0
        self._looks_over = 0
        self.mark = secrets.token_hex(8)
        self.descendants: set[ProcessIdentity] = set()
        self._reading_end, self.writing_end = os.pipe()
        os.set_blocking(self._reading_end, False)

    def set_bounds(self, bounds: Bounds) -> None:
        """Take the bounds that an application has set itself: its memory never above that of the agent's own bounds."""
        most = self.bounds.memory_bytes
        if most and not 0 < bounds.memory_bytes <= most:
            bounds = msgspec.structs.replace(bounds, memory_bytes=most, memory_setting=self.bounds.memory_setting)
        self.bounds = bounds

    def listen(self, pid: int) -> None:
        """Watch a running process."""
        self._pid = pid
        asyncio.get_running_loop().add_reader(self._reading_end, self._read)

    def wait_until(self, moment: float) -> None:
        """Count silence from a moment of the loop's clock on."""
        self._since = moment

    def sign(self, *, answers: bool = False) -> None:
        """Note a message of the executor. Its first report ends the longer timeout of its start."""
        now = asyncio.get_running_loop().time()
        if answers:
            self._crash_report.forget_pending_call()
        self._since = now if answers else max(self._since, now)
        self._is_silence_reported = False

    def look(self, now: float, start_timeout: float) -> tuple[str, bool]:
        """Return (warning, whether the process is to be killed), once a second; ("", False) while it works.

        Args:
            start_timeout: seconds of silence that are permitted just now, whatever the bounds.
        """
        if reason := self._over_memory():
            return reason, True
        silent = now - self._since
        warning = max(start_timeout, self.bounds.warning_seconds + GRACE_SECONDS)
        if silent <= warning:
            self._asked_at = 0.0
            return "", False
        if not self._asked_at:
            self._asked_at = now
            self._crash_report.forget_dumps()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._pid, ASK_SIGNAL)
            return "", False  # the answer is there at the next check
        limit = max(start_timeout, self.bounds.limit_seconds + GRACE_SECONDS)
        if self.bounds.limit_seconds and silent > limit:
            return f"{self._silence(silent, is_over=True)}; its process was stopped (stuck_limit)", True
        if self._is_silence_reported:
            return "", False
        self._is_silence_reported = True
        return self._silence(silent), False

    def _over_memory(self) -> str:
        """Return why the process is to be killed: it and its descendants have had more memory than their bound at two looks.

        User code can stop the executor's own watchdog, which is the first to look.
        """
        below = list(descendants_of(self._pid)) if self._pid else []
        self.descendants.update(filter(None, map(identity_of, below)))
        if len(self.descendants) > MAX_DESCENDANTS:
            self.descendants = {process for process in self.descendants if identity_of(process.pid) == process}
        pids = (self._pid, *below)
        used = sum(map(resident_memory, pids))
        self._memory = used or self._memory
        most = self.bounds.memory_bytes
        if not most or used <= most or (below and (used := shared_memory_of(pids)) <= most):
            self._looks_over = 0
            return ""
        self._looks_over += 1
        if self._looks_over < LOOKS_OVER:
            return ""
        return (
            f"its processes took {used / MB:,.0f} MB of memory, more than the {most / MB:,.0f} MB that they may have "
            f"({self.bounds.memory_setting})"
        )

    @property
    def pending_call(self) -> PendingCall | None:
        """User code that does not return, as the executor's watchdog reports it; None while the executor reports figures."""
        return self._crash_report.pending_call

    def _silence(self, seconds: float, *, is_over: bool = False) -> str:
        """Describe a silence. A process reports its place from C code, whatever user code does, unless it is frozen."""
        if process_state(self._pid) in _STOPPED:
            if is_over:
                return f"its process was frozen from outside (SIGSTOP, or a debugger) for {seconds:.0f} s"
            return (
                f"its process was stopped from outside (SIGSTOP, or a debugger) {seconds:.0f} s ago; "
                f"kill -CONT {self._pid} resumes it"
            )
        if place := self._crash_report.place:
            return f"user code has not returned for {seconds:.0f} s: {place}"
        return (
            f"its process has not run for {seconds:.0f} s: it does not answer. It is frozen, or its machine is "
            "overloaded or out of memory"
        )

    async def ask(self) -> str:
        """Return the place of its main thread, `taxi.py:42 in parse`; empty when the process does not answer."""
        self._crash_report.forget_dumps()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self._pid, ASK_SIGNAL)
        for _ in range(ANSWER_LOOKS):
            await asyncio.sleep(ANSWER_SECONDS / ANSWER_LOOKS)
            if self._crash_report.place:
                break
        return self._crash_report.place

    @property
    def reason(self) -> str:
        """Reason for which the executor ended itself, in full; empty when it gave none."""
        return self._crash_report.reason

    @property
    def blamed_application(self) -> str:
        """Application that a shared process named as why it ends; empty when it named none."""
        return self._crash_report.application

    @property
    def code_mark(self) -> str:
        """Mark of the user code in which a shared process was at the last dump of its stack; empty: in none."""
        return self._crash_report.mark

    @property
    def has_crashed(self) -> bool:
        """Return whether the interpreter reported a crash."""
        return bool(self._crash_report.crash)

    @property
    def memory(self) -> int:
        """Memory in bytes at the last look."""
        return self._memory

    @property
    def is_over_memory(self) -> bool:
        """Return whether the last looks saw too much memory."""
        return self._looks_over >= LOOKS_OVER

    def ended(self, code: int) -> str:
        """Describe how the process ended, as the end of `the process of …`; `code` as `subprocess` gives it."""
        if self._reading_end >= 0:
            self._read()
        place = f" in {self._crash_report.place}" if self._crash_report.place else ""
        if crash := self._crash_report.crash:
            return f"crashed{place} ({crash}, {ending(code)})"
        if code == -signal.SIGKILL:
            used = f"; it had {self._memory / MB:,.0f} MB of memory" if self._memory else ""
            return f"ended (killed by SIGKILL: by a user, or by the system because memory ran out{used})"
        if code == EXIT_BOUND and self._crash_report.reason:
            return "was stopped"
        by = ": os._exit by user code or a library" if code > 0 else ""
        return f"ended ({ending(code)}{by})"

    def close_writing_end(self) -> None:
        """Close this end of the pipe: the executor has it now."""
        if self.writing_end >= 0:
            os.close(self.writing_end)
            self.writing_end = -1

    def close(self) -> None:
        """Release the descriptors; may be called twice. The crash report stays."""
        self.close_writing_end()
        if self._reading_end >= 0:
            self._read()
            with contextlib.suppress(RuntimeError):  # no loop any more
                asyncio.get_running_loop().remove_reader(self._reading_end)
            os.close(self._reading_end)
            self._reading_end = -1

    def _read(self) -> None:
        """Read everything that has arrived."""
        while True:
            try:
                data = os.read(self._reading_end, 1 << 16)
            except OSError:
                return
            if not data:  # its end is closed: nothing more will come, and the loop would poll forever
                with contextlib.suppress(RuntimeError):
                    asyncio.get_running_loop().remove_reader(self._reading_end)
                return
            self._crash_report.add(data)
            if ALIVE in data:
                self.sign()


def ending(code: int) -> str:
    """Describe an exit code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def process_state(pid: int) -> str:
    """Return the letter of a process's state, for example `T`: stopped; empty when the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b") ")[2][:1].decode("ascii")
    except OSError:
        return ""


def resident_memory(pid: int) -> int:
    """Return the resident memory in bytes; 0 when the process is gone or the system gives no figure."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
