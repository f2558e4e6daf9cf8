"""`PayloadQueue`: payloads that a source's own thread fetches or receives, on their way to the instance that reads them.

The mirror of `DeliveryQueue`: the executor's loop never waits for a server, a device or a broker. The queue is bounded: when it is
full, the thread waits too (`put`). Where the sender cannot wait (`offer`), the queue drops and counts the payload.
`QueuedReader` is the source around it: each kind of source says how payloads come, in a function that the thread runs (`run`), and
what rows they hold. `ThreadErrors` says what follows an error of that function.
"""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from agiledart_connectors.codecs.decoder import Decoder, decoded
from agiledart_connectors.codecs.malformed_examples import MalformedExamples
from agiledart_connectors.remote.connection_health import ConnectionHealth
from agiledart_connectors.remote.thread_errors import RetryLaterError, ThreadErrors
from agiledart_dataflow.plan.connectors import Reading
from agiledart_kernel.errors import AgileDartError

MAX_WAITING: Final = 8_192
MAX_WAITING_BYTES: Final = 16 << 20
OVERFLOW: Final = "overflow"

END_SECONDS: Final = 5.0
"""Time that closing waits for the thread."""


class Payload(NamedTuple):
    """Data that arrived together, bytes or rows of a database, and their place for users."""

    data: Any
    place: str


def _nothing() -> None:
    return None


class PayloadQueue:
    """Queue of payloads, as the thread that fills it sees it.

    Args:
        name: of the payloads' origin, for users.
        max_waiting: payloads that may wait; 0: the usual bound.

    Attributes:
        health: status of the connection to the origin, set by the thread.
        is_closed: the reader was closed: the thread ends.
    """

    def __init__(self, name: str, max_waiting: int = 0) -> None:
        self.name = name
        self._max_waiting = max_waiting or MAX_WAITING
        self._errors = ThreadErrors(name)
        self.health = ConnectionHealth(f"{name} answers again")
        self.is_closed = False
        self._changed = threading.Condition()
        self._waiting: deque[Payload] = deque()
        self._bytes = 0
        self._lost: dict[str, tuple[int, str]] = {}
        self._failure: AgileDartError | None = None
        self._is_over = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    # ---- for the thread

    def run(self, work: Callable[["PayloadQueue"], None]) -> None:
        """Call `work` until the input ends: when it returns, when the reader was closed, or with an error that no retry mends."""
        while True:
            try:
                work(self)
            except BaseException as error:  # noqa: BLE001  a thread that ended unseen would look like an idle source
                verdict = self._errors.verdict(error)
                if isinstance(verdict, AgileDartError):
                    self.end(verdict)
                    return
                if not self._away(verdict):
                    return
            else:
                self.end(None)
                return

    def _away(self, error: RetryLaterError) -> bool:
        wait = self.health.report_failure(str(error), error.after, error.what)
        self._wake_reader()
        return self.pause(wait)

    def put(self, data: Any, place: str) -> bool:
        """Hand over a payload; waits for room. False when the reader was closed meanwhile."""
        with self._changed:
            while self._is_full() and not self.is_closed:
                self._changed.wait()
            return self._take_in(data, place)

    def offer(self, data: bytes, place: str) -> bool:
        """The same; where there is no room the payload is dropped and counted."""
        with self._changed:
            if self._is_full() and not self.is_closed:
                self._lose(OVERFLOW, f"{place} came faster than it was taken")
                return True
            return self._take_in(data, place)

    def lose(self, reason: str, text: str) -> None:
        """Something came that is no payload: counted by a reason. `text`: its place and what is wrong with it."""
        with self._changed:
            self._lose(reason, text)

    def report_failure(self, why: str, after: float | None = None) -> bool:
        """Report that the origin of payloads is away, and wait before the next try. False when the reader was closed meanwhile."""
        wait = self.health.report_failure(why, after)
        self._wake_reader()
        return self.pause(wait)

    def report_success(self) -> None:
        """It answers."""
        self._errors.on_answer()
        if self.health.why:
            self.health.report_success()
            self._wake_reader()

    def note(self, text: str) -> None:
        """Something that users should know."""
        self.health.note(text)
        self._wake_reader()

    def pause(self, seconds: float) -> bool:
        """Wait; False when the reader was closed meanwhile."""
        with self._changed:
            return not self._changed.wait_for(lambda: self.is_closed, seconds)

    # ---- for the reader

    def take(self, most: int) -> tuple[list[Payload], dict[str, tuple[int, str]], bool]:
        """Return received payloads, losses (reason → how many, and the first in words), and whether nothing follows.

        Raises the thread's error once all payloads before it were taken.
        """
        with self._changed:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
            if self._failure is not None and not self._waiting:
                raise self._failure
            taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
            self._bytes -= sum(len(payload.data) for payload in taken)
            lost, self._lost = self._lost, {}
            if self._waiting or self._failure is not None:
                os.eventfd_write(self._wake, 1)
            self._changed.notify_all()
            return taken, lost, self._is_over and not self._waiting

    def fileno(self) -> int:
        """Readable when there is something to take."""
        return self._wake

    def close(self, thread: threading.Thread, interrupt: Callable[[], None]) -> None:
        """Ask the thread to end, interrupt it, and wait for it."""
        with self._changed:
            if self.is_closed:
                return
            self.is_closed = True
            self._changed.notify_all()
        interrupt()
        thread.join(END_SECONDS)
        with self._changed:
            os.close(self._wake)
            self._wake = -1

    def end(self, failure: AgileDartError | None) -> None:
        """The thread has ended: nothing follows."""
        with self._changed:
            self._failure, self._is_over = failure, failure is None
        self._wake_reader()

    def _is_full(self) -> bool:
        return len(self._waiting) >= self._max_waiting or self._bytes >= MAX_WAITING_BYTES

    def _take_in(self, data: Any, place: str) -> bool:
        if self.is_closed:
            return False
        self._waiting.append(Payload(data, place))
        self._bytes += len(data)
        if len(self._waiting) == 1:
            self._wake_reader()
        return True

    def _lose(self, reason: str, text: str) -> None:
        count, first = self._lost.get(reason, (0, text))
        self._lost[reason] = (count + 1, first)
        self._wake_reader()

    def _wake_reader(self) -> None:
        with self._changed:
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)


class QueuedReader:
    """A source whose payloads a thread brings. Kinds say which rows they hold (`rows_of`).

    Args:
        name: of what they come from, for users.
        work: function of the thread (`PayloadQueue.run`); it returns when nothing follows, or when `is_closed`.
        interrupt: called when the reader is closed, so that the thread does not wait for what may never come.
        max_waiting: of the queue.
    """

    stamps = True

    def __init__(
        self,
        name: str,
        work: Callable[[PayloadQueue], None],
        interrupt: Callable[[], None] = _nothing,
        max_waiting: int = 0,
    ) -> None:
        self._interrupt = interrupt
        self.examples = MalformedExamples()
        self.on_malformed = self.examples.on_malformed
        self._left: list[Any] = []
        self._payload_queue = PayloadQueue(name, max_waiting)
        arguments = (work,)
        self._thread = threading.Thread(
            target=self._payload_queue.run, args=arguments, name=f"incoming {name}", daemon=True
        )
        self._thread.start()

    def rows_of(self, taken: list[Payload], wall_ns: int, malformed: dict[str, int]) -> list[Any]:
        """Return the rows of payloads; count those that hold none, by reason."""
        raise NotImplementedError

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        malformed: dict[str, int] = {}
        is_over, drained = False, False
        if not self._left:
            taken, lost, is_over = self._payload_queue.take(max_rows)
            drained = not taken
            for note in self._payload_queue.health.take_notices():
                self.examples.note(note)
            for reason, (count, text) in lost.items():
                malformed[reason] = count
                self.examples.add(reason, "", text, None)
            self._left = self.rows_of(taken, wall_ns, malformed)
        rows, self._left = self._left[:max_rows], self._left[max_rows:]
        lines = len(rows) + sum(malformed.values())
        return Reading(rows, lines, malformed, is_over and not self._left, drained, self.examples.take())

    def fileno(self) -> int:
        """Readable when payloads have come."""
        return self._payload_queue.fileno()

    def connection_status(self) -> str:
        """Return why the source cannot be reached; empty when all is well."""
        return self._payload_queue.health.connection_status()

    def close(self) -> None:
        self._payload_queue.close(self._thread, self._interrupt)


class PayloadQueueReader(QueuedReader):
    """A source whose payloads a format's decoder reads.

    Args:
        name, work, interrupt: as of `QueuedReader`.
        decoder: makes rows of payloads.
    """

    def __init__(
        self,
        name: str,
        decoder: Decoder,
        work: Callable[[PayloadQueue], None],
        interrupt: Callable[[], None] = _nothing,
    ) -> None:
        self._decoder = decoder
        super().__init__(name, work, interrupt)

    def rows_of(self, taken: list[Payload], wall_ns: int, malformed: dict[str, int]) -> list[Any]:
        payloads = [payload.data for payload in taken]
        return decoded(
            self._decoder, payloads, wall_ns, malformed, self.examples, lambda index: f"{taken[index].place}:"
        )
