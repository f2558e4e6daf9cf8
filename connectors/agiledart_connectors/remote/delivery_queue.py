"""`DeliveryQueue`: rows on their way to something that may be slow or away, such as a database or an HTTP server.

A thread of its own delivers rows, a batch at a time, in order, and again and again while the receiver is away. The executor's
loop never waits for it. The queue is bounded: when it is full, the sink takes no more, and pressure travels upstream.
`DeliveryQueueWriter` is the sink around it: each kind of sink says how to render a row, and how to deliver a batch.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from agiledart_connectors.latency_recorder import LatencyRecorder
from agiledart_connectors.rejections import Rejections, RejectsRows, RowsRefusedError, rendered_rows
from agiledart_connectors.remote.connection_health import ConnectionHealth
from agiledart_connectors.remote.thread_errors import RetryLaterError, fault_text
from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.plan.connector_abilities import DeliveryCallback
from agiledart_kernel.errors import AgileDartError, OperationFailed

MAX_ROWS_WAITING: Final = 10_000
MAX_AT_ONCE: Final = 1_000

END_SECONDS: Final = 10.0
"""Time that the end of the input waits for the receiver to take the next batch."""


class DeliveryQueue:
    """A queue and the thread that empties it.

    Args:
        name: of what takes the rows, for users.
        deliver: takes a batch, all of it or (raising) nothing. Raises `RetryLaterError`, or `OperationFailed` when no retry helps.
        rejections: take the rows that `deliver` refuses (`RowsRefusedError`): batches are halved until those are alone.
        max_batch_rows: most rows of a batch.
    """

    def __init__(
        self,
        name: str,
        deliver: Callable[[list[Any]], None],
        rejections: Rejections,
        *,
        max_batch_rows: int = MAX_AT_ONCE,
    ) -> None:
        self._name, self._deliver, self._most_at_once = name, deliver, max_batch_rows
        self._rejections, self._at_once = rejections, max_batch_rows
        self._queue: deque[Any] = deque()
        self._changed = threading.Condition()
        self._ends = self._is_closed = False
        self._failure: AgileDartError | None = None
        self._taken = self._arrived = 0
        self._waiters: deque[tuple[int, DeliveryCallback]] = deque()  # row number up to which a caller waits
        self._health = ConnectionHealth(f"{name} takes rows again")
        self._thread = threading.Thread(target=self._run, name=f"outgoing {name}", daemon=True)
        self._thread.start()

    def ready(self) -> bool:
        """Return whether more rows may come; the next `put` raises a failure."""
        return len(self._queue) < MAX_ROWS_WAITING or self._failure is not None

    def put(self, rows: list[Any]) -> None:
        """Queue rows; waits for free space when the caller has not asked `ready`. Raises an error of the delivery."""
        with self._changed:
            while len(self._queue) >= MAX_ROWS_WAITING and self._failure is None:
                self._changed.wait()  # only in a run of one process
            self.check()
            self._queue.extend(rows)
            self._taken += len(rows)
            self._changed.notify_all()

    def check(self) -> None:
        """Raise what delivering raised."""
        if self._failure is not None:
            raise self._failure

    def when_delivered(self, on_delivered: DeliveryCallback) -> None:
        """Call back when all rows so far have arrived, as `ConfirmsDelivery` says."""
        with self._changed:
            failure = self._failure
            if failure is None and self._arrived < self._taken:
                self._waiters.append((self._taken, on_delivered))
                return
        on_delivered(failure)

    def take_notices(self) -> list[str]:
        """Return and forget notices for users."""
        return self._health.take_notices()

    def connection_status(self) -> str:
        """Return why rows wait; empty when all is well."""
        return self._health.connection_status(f"{len(self._queue):,} rows wait, ")

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
            why = f" ({self._health.why})" if self._health.why else ""
            raise OperationFailed(f"{len(self._queue):,} rows were not taken by {self._name} before the end{why}")

    # ---- the thread

    def _run(self) -> None:
        batch: list[Any] = []  # one that is sent again is the same
        while True:
            with self._changed:
                while not self._queue and not self._ends:
                    self._changed.wait()
                if self._ends:
                    return
                batch = batch or list(islice(self._queue, self._at_once))
            try:
                self._deliver_or_refuse(batch)
            except RowsRefusedError:
                self._at_once = len(batch) // 2
                batch = batch[: self._at_once]
                continue
            except RetryLaterError as error:
                wait = self._health.report_failure(str(error), error.after, error.what)
                with self._changed:
                    self._changed.wait_for(lambda: self._ends, wait)
                continue
            except AgileDartError as error:
                self._fail(error)
                return
            except BaseException as error:  # noqa: BLE001  a driver's; a thread that ended unseen would keep the rows for ever
                self._fail(OperationFailed(f"{self._name}: {fault_text(error)}"))
                return
            self._health.report_success()
            self._at_once = min(2 * self._at_once, self._most_at_once)
            with self._changed:
                for _ in batch:
                    self._queue.popleft()
                self._arrived += len(batch)
                batch = []
                self._changed.notify_all()
            self._notify_waiters()

    def _deliver_or_refuse(self, batch: list[Any]) -> None:
        """Deliver a batch; reject its only row when that is refused. Raises `RowsRefusedError` for several rows."""
        try:
            self._deliver(batch)
        except RowsRefusedError as error:
            if len(batch) > 1:
                raise
            self._rejections.refuse(batch[0], str(error))

    def _fail(self, error: AgileDartError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        """Those whose rows have arrived; all of them when no more will."""
        with self._changed:
            failure, due = self._failure, []
            while self._waiters and (failure is not None or self._waiters[0][0] <= self._arrived):
                due.append(self._waiters.popleft()[1])
        for on_delivered in due:
            on_delivered(failure)


class DeliveryQueueWriter(RejectsRows):
    """A sink to what may be away. Kinds say what is missing: `deliver` and `disconnect`.

    Args:
        name: of what takes the rows, for users.
        times: of the rows' type.
        render: (row, wall time) → what waits for it; called by the instance.
        max_batch_rows: most rows of a batch.
    """

    def __init__(
        self, name: str, times: LatencyRecorder, render: Callable[[Any, int], Any], *, max_batch_rows: int = MAX_AT_ONCE
    ) -> None:
        super().__init__()
        self._times, self._render = times, render
        self._out = DeliveryQueue(name, self.deliver, self.rejections, max_batch_rows=max_batch_rows)

    def deliver(self, batch: list[Any]) -> None:
        """Deliver what was rendered; called by the thread, raises as `DeliveryQueue` says.

        After a `RetryLaterError` the same batch comes again, after a `RowsRefusedError` its first half.
        """
        raise NotImplementedError

    def skip_row(self) -> None:
        """A row was rejected before it was rendered; sinks that number rows count it."""

    def disconnect(self) -> None:
        """Nothing follows; the thread has ended."""

    @property
    def latency(self) -> LatencyHistogram:
        """Time from reading to handing over."""
        return self._times.histogram

    def ready(self) -> bool:
        """Return whether more rows may come."""
        return self._out.ready()

    def when_delivered(self, on_delivered: DeliveryCallback) -> None:
        """Call back when all rows so far have arrived, as `ConfirmsDelivery` says."""
        self._out.when_delivered(on_delivered)

    def take_notices(self) -> list[str]:
        """Return and forget notices for users about the receiver of rows, and rows that were rejected."""
        return self._out.take_notices() + super().take_notices()

    def connection_status(self) -> str:
        """Return why rows wait; empty when all is well."""
        return self._out.connection_status()

    def write(self, rows: list[Any]) -> None:
        now = self._times.count(rows)
        self._out.put(rendered_rows(rows, now, self._render, self.rejections, self.skip_row))

    def flush(self) -> None:
        """Rows leave by themselves."""
        self._out.check()

    def close(self) -> None:
        try:
            self._out.close()
        finally:
            self.disconnect()
