"""`Outgoing`: rows on their way to something that may be slow or away, such as a database or an HTTP server.

A thread of its own delivers them, a batch at a time, in order, and again and again while what takes them is away; the executor's
loop never waits for it. What waits is bounded: beyond, the sink takes no more, and pressure travels upstream to the source.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from agiledart_kernel.errors import AgileDartError, OperationFailed

MOST_WAITING: Final = 10_000
MOST_AT_ONCE: Final = 1_000
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0

END_SECONDS: Final = 10.0
"""How long the end of the input waits for the next batch to be taken."""

_MOST_NOTES: Final = 100


class RetryLater(Exception):
    """What takes the rows is away, or asks for patience; the text says which and why.

    Args:
        after: seconds that it asks for; None: as is usual.
    """

    def __init__(self, text: str, after: float | None = None) -> None:
        super().__init__(text)
        self.after = after


class Outgoing:
    """A queue and the thread that empties it.

    Args:
        name: of what takes the rows, for users.
        deliver: takes a batch, all of it or (raising) nothing. Raises `RetryLater`, or `OperationFailed` for what no retry mends.
        most_at_once: rows of a batch.
    """

    def __init__(self, name: str, deliver: Callable[[list[Any]], None], *, most_at_once: int = MOST_AT_ONCE) -> None:
        self._name, self._deliver, self._most_at_once = name, deliver, most_at_once
        self._queue: deque[Any] = deque()
        self._changed = threading.Condition()
        self._ends = self._is_closed = False
        self._failure: AgileDartError | None = None
        self._notes: list[str] = []
        self._away = ""
        self._away_since = self._next_try = 0.0
        self._thread = threading.Thread(target=self._run, name=f"outgoing {name}", daemon=True)
        self._thread.start()

    def ready(self) -> bool:
        """Whether more rows may come; a failure is told by the next `put`."""
        return len(self._queue) < MOST_WAITING or self._failure is not None

    def put(self, rows: list[Any]) -> None:
        """Queue rows; waits for room where nobody asked before. Raises what delivering raised."""
        with self._changed:
            while len(self._queue) >= MOST_WAITING and self._failure is None:
                self._changed.wait()  # only in a run of one process
            self.check()
            self._queue.extend(rows)
            self._changed.notify_all()

    def check(self) -> None:
        """Raise what delivering raised."""
        if self._failure is not None:
            raise self._failure

    def take_notes(self) -> list[str]:
        """What users should know."""
        notes = self._notes[:]
        del self._notes[: len(notes)]
        return notes

    def standing(self) -> str:
        """What rows wait for; empty when all is well."""
        if not self._away:
            return ""
        now = time.monotonic()
        return (
            f"{self._away}, for {now - self._away_since:.0f} s; {len(self._queue):,} rows wait,"
            f" next try in {max(0.0, self._next_try - now):.0f} s"
        )

    def close(self) -> None:
        """Wait until all is delivered. Raises `OperationFailed` when it is not; may be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        with self._changed:
            left, deadline = len(self._queue), time.monotonic() + END_SECONDS
            while self._queue and self._failure is None and time.monotonic() < deadline:
                self._changed.wait(0.1)
                if len(self._queue) != left:
                    left, deadline = len(self._queue), time.monotonic() + END_SECONDS
            self._ends = True
            self._changed.notify_all()
        self._thread.join(END_SECONDS)
        self.check()
        if self._queue:
            why = f" ({self._away})" if self._away else ""
            raise OperationFailed(f"{len(self._queue):,} rows were not taken by {self._name} before the end{why}")

    # ---- the thread

    def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        batch: list[Any] = []  # one that is sent again is the same
        while True:
            with self._changed:
                while not self._queue and not self._ends:
                    self._changed.wait()
                if self._ends:
                    return
                batch = batch or list(islice(self._queue, self._most_at_once))
            try:
                self._deliver(batch)
            except RetryLater as error:
                wait = min(pause if error.after is None else error.after, LONGEST_PAUSE_SECONDS)
                self._tell_away(str(error), wait)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                with self._changed:
                    self._changed.wait_for(lambda: self._ends, wait)
                continue
            except AgileDartError as error:
                self._fail(error)
                return
            except Exception as error:  # noqa: BLE001  a driver's
                self._fail(OperationFailed(f"{self._name}: {type(error).__name__}: {error}"))
                return
            if self._away:
                self._away = ""
                self._note(f"{self._name} takes rows again")
            pause = FIRST_PAUSE_SECONDS
            with self._changed:
                for _ in batch:
                    self._queue.popleft()
                batch = []
                self._changed.notify_all()

    def _fail(self, error: AgileDartError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _tell_away(self, text: str, wait: float) -> None:
        """Once, however often it happens."""
        now = time.monotonic()
        self._next_try = now + wait
        if text != self._away:
            if not self._away:
                self._away_since = now
            self._away = text
            self._note(f"{text}; next try in {wait:.1f} s, then ever later up to every {LONGEST_PAUSE_SECONDS:.0f} s")

    def _note(self, text: str) -> None:
        if len(self._notes) < _MOST_NOTES:
            self._notes.append(text)
