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
from agiledart_executor.user_code.last_words import EXIT_BOUND, LastWords
from agiledart_executor.user_code.user_frames import Whereabouts, whereabouts

LOOK_SECONDS: Final = 0.5
WARY_SECONDS: Final = 0.05
"""How often to look while memory is above half of its bound: at 2 GB/s of page faults that is 100 MB."""

AGAIN_FACTOR: Final = 3.0
"""A call that goes on not returning is told again after 3 times as long."""


@dataclass(frozen=True)
class Call:
    """What the main thread is busy with: the names of the steps, and a number that is another for each call."""

    name: str
    number: int


@dataclass(frozen=True)
class Verdict:
    """What to do about it."""

    seconds: float
    ends: bool


class StuckJudge:
    """Decides when a call has taken too long; knows no clock and no threads."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._seen: tuple[Call, tuple[int, ...]] | None = None
        self._since = 0.0
        self._next_warning = bounds.warning_seconds

    def look(self, now: float, call: Call | None, mark: Callable[[], tuple[int, ...]]) -> Verdict | None:
        """The state at this moment (seconds); `mark` is asked only once the same call has gone on for a while."""
        if call is None:
            self._seen = None
            return None
        if self._seen is None or self._seen[0] != call:
            self._start(now, call, ())
            return None
        marked = mark()
        if marked != self._seen[1]:
            self._start(now, call, marked)
            return None
        seconds = now - self._since
        if self._bounds.limit_seconds and seconds >= self._bounds.limit_seconds:
            return Verdict(seconds, ends=True)
        if seconds >= self._next_warning:
            self._next_warning *= AGAIN_FACTOR
            return Verdict(seconds, ends=False)
        return None

    def _start(self, now: float, call: Call, mark: tuple[int, ...]) -> None:
        self._seen, self._since = (call, mark), now
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
        look: Callable[[], Call | None],
        words: LastWords,
        *,
        end: Callable[[int], None] = os._exit,
    ) -> None:
        self._application, self._look, self._words, self._end = application, look, words, end
        self._watched = threading.get_ident()
        self._memory = ResidentMemory()
        self._stopping = threading.Event()
        self.set_bounds(bounds)

    def set_bounds(self, bounds: Bounds) -> None:
        """From now on."""
        self._bounds, self._judge = bounds, StuckJudge(bounds)

    def start(self) -> None:
        """Begin; the thread ends with its process."""
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._stopping.set()

    def _watch(self) -> None:
        while not self._stopping.wait(self._turn()):
            pass

    def _turn(self) -> float:
        """Look once; how long to wait before the next time."""
        bound, used = self._bounds.memory_bytes, self._memory.bytes()
        call = self._look()
        if bound and used > bound:
            self._end_for_memory(used, call)
        self._look_at_call(call)
        return WARY_SECONDS if bound and used > bound // 2 else LOOK_SECONDS

    def _look_at_call(self, call: Call | None) -> None:
        where: list[Whereabouts | None] = []

        def mark() -> tuple[int, ...]:
            self._words.alive()
            where.append(whereabouts(self._watched))
            return () if where[0] is None else where[0].mark

        verdict = self._judge.look(time.monotonic(), call, mark)
        if verdict is None or call is None:
            return
        at = where[0] if where else whereabouts(self._watched)
        text = f"{_step(at, call)}: user code has not returned for {verdict.seconds:.0f} s: {at}"
        if verdict.ends:
            self._finish(f"{text}; its process was stopped (stuck_limit)")
        else:
            limit = self._bounds.limit_seconds
            _print(f"warning: {text}{f'; after {limit:.0f} s its process is stopped' if limit else ''}")

    def _end_for_memory(self, used: int, call: Call | None) -> None:
        at = whereabouts(self._watched) if call is not None else None
        self._finish(
            f"{_step(at, call)}: its process took {used / MB:,.0f} MB of memory, more than the"
            f" {self._bounds.memory_bytes / MB:,.0f} MB that it may have ({self._bounds.memory_setting}){f': {at}' if at else ''}"
        )

    def _finish(self, reason: str) -> None:
        self._words.say(reason)
        self._stopping.set()
        self._end(EXIT_BOUND)


def _step(at: Whereabouts | None, call: Call | None) -> str:
    """The step's name, as exactly as it is known."""
    if at is not None and at.step:
        return at.step
    return call.name if call is not None else "user code"


def _print(text: str) -> None:
    """Into the application's logs, past all buffers of `sys.stdout`."""
    with contextlib.suppress(OSError):  # nobody reads it any more
        os.write(2, f"{text}\n".encode("utf-8", "replace"))
