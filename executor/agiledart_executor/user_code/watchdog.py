"""A thread beside the event loop that sees what the loop cannot while user code holds it: a call that does not return, and
memory that runs away. It warns in the application's logs, then ends the executor with the reason; the agent lives on.

A call that treats many slow records is no call that hangs: as long as the engine's loop goes on to other records, it is left
alone. While C code holds the interpreter's lock even this thread stands still; then the agent notices that nothing comes
and asks the system where the process is (`last_words`).
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agiledart_executor.user_code.bounds import MB, Bounds, ResidentMemory
from agiledart_executor.user_code.code_location import CodeLocation, locate_thread
from agiledart_executor.user_code.crash_report import EXIT_BOUND, CrashReporter

LOOK_SECONDS: Final = 0.5
WARY_SECONDS: Final = 0.05
"""How often to look while memory is above half of its bound: at 2 GB/s of page faults that is 100 MB."""

AGAIN_FACTOR: Final = 3.0
"""A call that goes on not returning is told again after 3 times as long."""


@dataclass(frozen=True)
class UserCall:
    """What the main thread is busy with: the names of the steps, and a number that is another for each call."""

    name: str
    number: int


@dataclass(frozen=True)
class OverdueCall:
    """What to do about it."""

    seconds: float
    must_end: bool


class HangDetector:
    """Decides when a call has taken too long; knows no clock and no threads."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._seen: tuple[UserCall, tuple[int, ...]] | None = None
        self._since = 0.0
        self._next_warning = bounds.warning_seconds

    def look(
        self, now: float, call: UserCall | None, progress_key: Callable[[], tuple[int, ...]]
    ) -> OverdueCall | None:
        """The state at this moment (seconds); `mark` is asked only once the same call has gone on for a while."""
        if call is None:
            self._seen = None
            return None
        if self._seen is None or self._seen[0] != call:
            self._start(now, call, ())
            return None
        marked = progress_key()
        if marked != self._seen[1]:
            self._start(now, call, marked)
            return None
        seconds = now - self._since
        if self._bounds.limit_seconds and seconds >= self._bounds.limit_seconds:
            return OverdueCall(seconds, must_end=True)
        if seconds >= self._next_warning:
            self._next_warning *= AGAIN_FACTOR
            return OverdueCall(seconds, must_end=False)
        return None

    def _start(self, now: float, call: UserCall, progress_key: tuple[int, ...]) -> None:
        self._seen, self._since = (call, progress_key), now
        self._next_warning = self._bounds.warning_seconds


class Watchdog:
    """Watches the thread that makes it.

    Args:
        application: its name.
        look: what the main thread is busy with just now; None: waiting, or in our own code.
        words: told before the process is ended.
    """

    def __init__(
        self,
        application: str,
        bounds: Bounds,
        look: Callable[[], UserCall | None],
        crash_reporter: CrashReporter,
        *,
        end: Callable[[int], None] = os._exit,
    ) -> None:
        self._application, self._look, self._crash_reporter, self._end = application, look, crash_reporter, end
        self._watched = threading.get_ident()
        self._memory = ResidentMemory()
        self._stopping = threading.Event()
        self.set_bounds(bounds)

    def set_bounds(self, bounds: Bounds) -> None:
        """From now on."""
        self._bounds, self._hang_detector = bounds, HangDetector(bounds)

    def start(self) -> None:
        """Begin; the thread ends with its process."""
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._stopping.set()

    def _watch(self) -> None:
        while not self._stopping.wait(self._check_once()):
            pass

    def _check_once(self) -> float:
        """Look once; how long to wait before the next time."""
        bound, used = self._bounds.memory_bytes, self._memory.bytes()
        call = self._look()
        if bound and used > bound:
            self._end_for_memory(used, call)
        self._look_at_call(call)
        return WARY_SECONDS if bound and used > bound // 2 else LOOK_SECONDS

    def _look_at_call(self, call: UserCall | None) -> None:
        where: list[CodeLocation | None] = []

        def progress_key() -> tuple[int, ...]:
            self._crash_reporter.report_alive()
            where.append(locate_thread(self._watched))
            return () if where[0] is None else where[0].progress_key

        verdict = self._hang_detector.look(time.monotonic(), call, progress_key)
        if verdict is None or call is None:
            return
        at = where[0] if where else locate_thread(self._watched)
        text = f"{_step(at, call)}: user code has not returned for {verdict.seconds:.0f} s: {at}"
        if verdict.must_end:
            self._finish(f"{text}; its process was stopped (stuck_limit)")
        else:
            limit = self._bounds.limit_seconds
            _print(f"warning: {text}{f'; after {limit:.0f} s its process is stopped' if limit else ''}")

    def _end_for_memory(self, used: int, call: UserCall | None) -> None:
        at = locate_thread(self._watched) if call is not None else None
        self._finish(
            f"{_step(at, call)}: its process took {used / MB:,.0f} MB of memory, more than the"
            f" {self._bounds.memory_bytes / MB:,.0f} MB that it may have ({self._bounds.memory_setting}){f': {at}' if at else ''}"
        )

    def _finish(self, reason: str) -> None:
        self._crash_reporter.report_reason(reason)
        self._stopping.set()
        self._end(EXIT_BOUND)


def _step(at: CodeLocation | None, call: UserCall | None) -> str:
    """The step's name, as exactly as it is known."""
    if at is not None and at.step:
        return at.step
    return call.name if call is not None else "user code"


def _print(text: str) -> None:
    """Into the application's logs, past all buffers of `sys.stdout`."""
    with contextlib.suppress(OSError):  # nobody reads it any more
        os.write(2, f"{text}\n".encode("utf-8", "replace"))
