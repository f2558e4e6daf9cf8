"""`PayloadQueue`: payloads that a source's own thread fetches or receives, on their way to the instance that reads them.

The mirror of `DeliveryQueue`: the executor's loop never waits for a server, a device or a broker. The queue is bounded: when it is
full, the thread waits too (`put`). Where the sender cannot wait (`offer`), the queue drops and counts the payload.
`PayloadQueueReader` is the source around it: each kind of source says how payloads come, in a function that the thread runs.
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
from agiledart_dataflow.plan.connectors import Reading
from agiledart_kernel.errors import AgileDartError, OperationFailed

MAX_WAITING: Final = 8_192
MAX_WAITING_BYTES: Final = 16 << 20
OVERFLOW: Final = "overflow"

END_SECONDS: Final = 5.0
"""Time that closing waits for the thread."""


class _Payload(NamedTuple):
    data: bytes
    place: str


def _nothing() -> None:
    return None


class PayloadQueue:
    """Queue of payloads, as the thread that fills it sees it.

    Args:
        name: of the payloads' origin, for users.

    Attributes:
        health: status of the connection to the origin, set by the thread.
        is_closed: the reader was closed: the thread ends.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.health = ConnectionHealth(f"{name} answers again")
        self.is_closed = False
        self._changed = threading.Condition()
        self._waiting: deque[_Payload] = deque()
        self._bytes = 0
        self._lost: dict[str, tuple[int, str]] = {}
        self._failure: AgileDartError | None = None
        self._is_over = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    # ---- for the thread

    def put(self, data: bytes, place: str) -> bool:
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
        if self.health.why:
            self.health.report_success()
            self._wake_reader()

    def pause(self, seconds: float) -> bool:
        """Wait; False when the reader was closed meanwhile."""
        with self._changed:
            return not self._changed.wait_for(lambda: self.is_closed, seconds)

    # ---- for the reader

    def take(self, most: int) -> tuple[list[_Payload], dict[str, tuple[int, str]], bool]:
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
        return len(self._waiting) >= MAX_WAITING or self._bytes >= MAX_WAITING_BYTES

    def _take_in(self, data: bytes, place: str) -> bool:
        if self.is_closed:
            return False
        self._waiting.append(_Payload(data, place))
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


class PayloadQueueReader:
    """A source whose payloads a thread brings.

    Args:
        name: of what they come from, for users.
        decoder: makes rows of them.
        work: the thread; it ends when nothing follows, or when `is_closed`. Raises `OperationFailed` for what no retry mends.
        interrupt: called when the reader is closed, so that the thread does not wait for what may never come.
    """

    stamps = True

    def __init__(
        self,
        name: str,
        decoder: Decoder,
        work: Callable[[PayloadQueue], None],
        interrupt: Callable[[], None] = _nothing,
    ) -> None:
        self._decoder, self._interrupt = decoder, interrupt
        self._examples = MalformedExamples()
        self.on_malformed = self._examples.on_malformed
        self._left: list[Any] = []
        self._payload_queue = PayloadQueue(name)
        self._thread = threading.Thread(target=self._run, args=(work,), name=f"incoming {name}", daemon=True)
        self._thread.start()

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        malformed: dict[str, int] = {}
        is_over, drained = False, False
        if not self._left:
            taken, lost, is_over = self._payload_queue.take(max_rows)
            drained = not taken
            for note in self._payload_queue.health.take_notices():
                self._examples.note(note)
            for reason, (count, text) in lost.items():
                malformed[reason] = count
                self._examples.add(reason, "", text, None)
            payloads = [payload.data for payload in taken]
            self._left = decoded(
                self._decoder, payloads, wall_ns, malformed, self._examples, lambda index: f"{taken[index].place}:"
            )
        rows, self._left = self._left[:max_rows], self._left[max_rows:]
        lines = len(rows) + sum(malformed.values())
        return Reading(rows, lines, malformed, is_over and not self._left, drained, self._examples.take())

    def fileno(self) -> int:
        """Readable when payloads have come."""
        return self._payload_queue.fileno()

    def connection_status(self) -> str:
        """Return why the source cannot be reached; empty when all is well."""
        return self._payload_queue.health.connection_status()

    def close(self) -> None:
        self._payload_queue.close(self._thread, self._interrupt)

    def _run(self, work: Callable[[PayloadQueue], None]) -> None:
        try:
            work(self._payload_queue)
        except AgileDartError as error:
            self._payload_queue.end(error)
        except Exception as error:  # noqa: BLE001  a library's
            self._payload_queue.end(OperationFailed(f"{self._payload_queue.name}: {type(error).__name__}: {error}"))
        else:
            self._payload_queue.end(None)
