"""Watchdog thread that detects user code that does not return, and memory that exceeds its bound, while the event loop is blocked.

It warns in the application's logs, then ends the executor with a reason; the agent survives. A call that handles many slow records
does not hang: the watchdog ignores it as long as the engine's loop goes on to other records. While C code holds the interpreter's
lock, even this thread stands still. Then the agent notices the silence and asks for the stacks of the process (`crash_report`).
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
"""Seconds between two checks while memory is above half of its bound; at 2 GB/s of page faults, memory then grows by 100 MB."""

PENDING_SECONDS: Final = 2.0
"""Seconds after which `status` names a call that does not return."""

AGAIN_FACTOR: Final = 3.0
"""Factor of the time until the next warning about a call that still does not return."""


@dataclass(frozen=True)
class UserCall:
    """Call that keeps the main thread busy: the names of the steps, and a number that is unique to the call.

    `application`: its name, in a process that several share; else empty.
    """

    name: str
    number: int
    application: str = ""


@dataclass(frozen=True)
class OverdueCall:
    """Verdict on a call that takes too long: its duration, and whether the process must end."""

    seconds: float
    must_end: bool


class HangDetector:
    """Detector of calls that take too long; it uses no clock and no threads."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._seen: tuple[UserCall, tuple[int, ...]] | None = None
        self._since = 0.0
        self._next_warning = bounds.warning_seconds

    def look(
        self, now: float, call: UserCall | None, progress_key: Callable[[], tuple[int, ...]]
    ) -> OverdueCall | None:
        """Check the present call and return a verdict when it is overdue, else None.

        Args:
            now: in seconds.
            call: the call that runs; None while no user code runs.
            progress_key: returns a value that changes with each record; called only when the same call runs as at the last check.
        """
        if call is None:
            self._seen = None
            return None
        if self._seen is None or self._seen[0] != call:
            self._start(now, call, ())
            return None
        key = progress_key()
        if key != self._seen[1]:
            self._start(now, call, key)
            return None
        seconds = now - self._since
        if self._bounds.limit_seconds and seconds >= self._bounds.limit_seconds:
            return OverdueCall(seconds, must_end=True)
        if seconds >= self._next_warning:
            self._next_warning *= AGAIN_FACTOR
            return OverdueCall(seconds, must_end=False)
        return None

    def seconds(self, now: float) -> float:
        """Return for how long the present call has worked on one record; 0 while none runs."""
        return now - self._since if self._seen is not None else 0.0

    def _start(self, now: float, call: UserCall, progress_key: tuple[int, ...]) -> None:
        self._seen, self._since = (call, progress_key), now
        self._next_warning = self._bounds.warning_seconds


class Watchdog:
    """Watchdog of the thread that creates it.

    Args:
        application: its name.
        bounds: on time and memory.
        look: returns the call that the main thread is busy with; None while it waits or runs code of the engine.
        crash_reporter: gets the reason before the process ends.
        end: ends the process with an exit code.
        is_shared: several applications run in the process, so the one at work need not be the one that took the memory.
    """

    def __init__(
        self,
        application: str,
        bounds: Bounds,
        look: Callable[[], UserCall | None],
        crash_reporter: CrashReporter,
        *,
        end: Callable[[int], None] = os._exit,
        is_shared: bool = False,
    ) -> None:
        self._is_shared = is_shared
        self._application, self._look, self._crash_reporter, self._end = application, look, crash_reporter, end
        self._watched = threading.get_ident()
        self._memory = ResidentMemory()
        self._stopping = threading.Event()
        self.set_bounds(bounds)

    def set_bounds(self, bounds: Bounds) -> None:
        """Use these bounds from now on."""
        self._bounds, self._hang_detector = bounds, HangDetector(bounds)

    def start(self) -> None:
        """Start the thread, which ends with its process."""
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stop checking."""
        self._stopping.set()

    def _watch(self) -> None:
        while not self._stopping.wait(self._check_once()):
            pass

    def _check_once(self) -> float:
        """Check once and return the seconds until the next check."""
        bound, used = self._bounds.memory_bytes, self._memory.bytes()
        call = self._look()
        if bound and used > bound:
            self._end_for_memory(used, call)
        self._look_at_call(call)
        return WARY_SECONDS if bound and used > bound // 2 else LOOK_SECONDS

    def _look_at_call(self, call: UserCall | None) -> None:
        locations: list[CodeLocation | None] = []

        def progress_key() -> tuple[int, ...]:
            self._crash_reporter.report_alive()
            locations.append(locate_thread(self._watched))
            return () if locations[0] is None else locations[0].progress_key

        now = time.monotonic()
        verdict = self._hang_detector.look(now, call, progress_key)
        if call is not None and locations and (seconds := self._hang_detector.seconds(now)) >= PENDING_SECONDS:
            where = str(locations[0] or "")
            self._crash_reporter.report_pending_call(_step(locations[0], call), seconds, where, call.application)
        if verdict is None or call is None:
            return
        at = locations[0] if locations else locate_thread(self._watched)
        text = f"{_step(at, call)}: user code has not returned for {verdict.seconds:.0f} s: {at}"
        if verdict.must_end:
            if call.application:
                self._crash_reporter.report_application(call.application)
            limit_name = "executors.share" if call.application else "stuck_limit"
            self._finish(f"{text}; its process was stopped ({limit_name})")
        else:
            limit = self._bounds.limit_seconds
            _print(f"warning: {text}{f'; after {limit:.0f} s its process is stopped' if limit else ''}")

    def _end_for_memory(self, used: int, call: UserCall | None) -> None:
        bound = self._bounds
        if self._is_shared:
            self._finish(
                f"the process of several applications took {used / MB:,.0f} MB of memory, more than the "
                f"{bound.memory_bytes / MB:,.0f} MB that it may have ({bound.memory_setting})"
            )
            return
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
    """Return the step's name, as exactly as it is known."""
    if at is not None and at.step:
        return at.step
    return call.name if call is not None else "user code"


def _print(text: str) -> None:
    """Write a text to the application's logs, past all buffers of `sys.stdout`."""
    with contextlib.suppress(OSError):  # the agent has closed the other end
        os.write(2, f"{text}\n".encode("utf-8", "replace"))
