"""Bounded, credit-based channels between instances, without I/O.

A `SendingChannel` sends what it has at once while fewer than `window` data frames are unacknowledged; when the window
is full, rows collect and the next frame is larger (adaptive batching without timers). The receiver acknowledges a
data frame when its rows have been *taken by the operator*, so pressure travels upstream to the source.

A punctuation (a frame without rows that only carries the mark) needs no credit, or two inputs of a merge could wait
for each other for ever. It has a window of its own, acknowledged on receipt, and only the newest mark waits: marks are
monotone, so the older one says nothing more. Acknowledgements are cumulative counts, so a repeated or late one does
no harm.
"""

from collections import deque

from agiledart_dataflow.batch import Batch
from agiledart_dataflow.position import covering
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.limits import CHANNEL_WINDOW_FRAMES, MAX_BATCH_BYTES, MAX_BATCH_ROWS

PUNCTUATION_WINDOW = 4
"""Punctuations that may be under way: enough to fill a round trip, few enough to join up under load."""


class SendingChannel:
    """The upstream end of one channel: what waits, what is under way, what may go now.

    Args:
        window: data frames that may be unacknowledged.
        max_rows: rows in one frame.
        bound_rows: rows that may wait here before the instance must stop producing (`blocked`). One call of an
            operator may overshoot it, which is why the bound is checked before the call, not inside it.
    """

    __slots__ = (
        "_acknowledged",
        "_acknowledged_marks",
        "_bound_rows",
        "_head",
        "_mark",
        "_mark_sent",
        "_max_rows",
        "_pending",
        "_window",
        "frames_sent",
        "marks_sent",
        "rows_limit",
        "rows_sent",
        "rows_waiting",
    )

    def __init__(
        self,
        window: int = CHANNEL_WINDOW_FRAMES,
        max_rows: int = MAX_BATCH_ROWS,
        bound_rows: int = 2 * MAX_BATCH_ROWS,
    ) -> None:
        self._window, self._max_rows, self._bound_rows = window, max_rows, bound_rows
        self._pending: deque[Batch] = deque()
        self._head = 0  # rows of the first pending batch that are already sent
        self._mark: tuple[int, ...] | None = None
        self._mark_sent: tuple[int, ...] | None = None
        self.frames_sent = self.marks_sent = 0
        self._acknowledged = self._acknowledged_marks = 0
        self.rows_waiting = self.rows_sent = 0
        self.rows_limit = max_rows

    @property
    def blocked(self) -> bool:
        """Too much waits: the instance must not produce more for now. Large rows count for more: two frames' worth."""
        return self.rows_waiting > min(self._bound_rows, 2 * self.rows_limit)

    @property
    def idle(self) -> bool:
        """Everything put in was sent and acknowledged."""
        return (
            not self._pending
            and self._mark == self._mark_sent
            and self.frames_sent == self._acknowledged
            and self.marks_sent == self._acknowledged_marks
        )

    @property
    def in_flight(self) -> int:
        """Data frames under way."""
        return self.frames_sent - self._acknowledged

    def put(self, batch: Batch) -> None:
        """Queue a batch; its mark supersedes all earlier ones once its rows are sent."""
        if batch.rows:
            self._pending.append(batch)
            self.rows_waiting += len(batch.rows)
        self._mark = batch.mark

    def next_frame(self) -> Batch | None:
        """The next frame that may go now, or None. Call until None."""
        if self._pending:
            if self.frames_sent - self._acknowledged >= self._window:
                return None
            batch = self._take()
            self.frames_sent += 1
            self.rows_sent += len(batch.rows)
            self._mark_sent = batch.mark
            return batch
        if self._mark == self._mark_sent or self.marks_sent - self._acknowledged_marks >= PUNCTUATION_WINDOW:
            return None
        assert self._mark is not None
        self.marks_sent += 1
        self._mark_sent = self._mark
        return Batch([], [], self._mark)

    def _take(self) -> Batch:
        """Join what waits into one frame of at most `rows_limit` rows."""
        limit, pending = self.rows_limit, self._pending
        first = pending[0]
        if self._head == 0 and len(first.rows) <= limit and len(pending) == 1:
            pending.popleft()
            self.rows_waiting -= len(first.rows)
            return first if first.mark == self._mark else Batch(first.rows, first.positions, self._newest_mark())
        rows: list[object] = []
        positions: list[tuple[int, ...]] = []
        while pending and len(rows) < limit:
            batch = pending[0]
            start, end = self._head, min(len(batch.rows), self._head + limit - len(rows))
            rows += batch.rows[start:end]
            positions += batch.positions[start:end]
            if end == len(batch.rows):
                pending.popleft()
                self._head = 0
            else:
                self._head = end
        self.rows_waiting -= len(rows)
        # Rows come in strictly rising order, so what was sent last is a promise of its own when more is to follow.
        return Batch(rows, positions, covering(positions[-1]) if pending else self._newest_mark())

    def _newest_mark(self) -> tuple[int, ...]:
        assert self._mark is not None
        return self._mark

    def sized(self, rows: int, size: int) -> None:
        """Learn from a frame of so many rows and bytes how many rows fit into one."""
        if rows:
            self.rows_limit = max(1, min(self._max_rows, MAX_BATCH_BYTES * rows // max(1, size)))

    def acknowledge(self, frames: int, marks: int) -> None:
        """The receiver has taken so many data frames and seen so many punctuations, counted from the first.

        Raises:
            RemoteProtocolError: more than was ever sent.
        """
        if frames > self.frames_sent or marks > self.marks_sent:
            raise RemoteProtocolError("acknowledgement", f"{frames} of {self.frames_sent} frames acknowledged")
        self._acknowledged = max(self._acknowledged, frames)
        self._acknowledged_marks = max(self._acknowledged_marks, marks)


class ReceivingChannel:
    """The downstream end: counts frames, sees gaps and repeats, says when to acknowledge.

    Args:
        window: the sender's; with a smaller one there, half of this one would never be full.
    """

    __slots__ = ("_every", "_told", "_told_marks", "frames", "marks", "rows")

    def __init__(self, window: int = CHANNEL_WINDOW_FRAMES) -> None:
        self._every = max(1, window // 2)
        self._told = self._told_marks = 0
        self.frames = self.marks = self.rows = 0

    def accept(self, first_row: int, rows: int) -> None:
        """Count a frame that says it starts with row number `first_row`.

        Raises:
            RemoteProtocolError: a gap or a repeat (reason `gap`).
        """
        if first_row != self.rows:
            raise RemoteProtocolError("gap", f"row {first_row} came where {self.rows} was expected")
        if rows:
            self.frames += 1
            self.rows += rows
        else:
            self.marks += 1

    def due(self, taken: int, *, all_of_it: bool = False) -> tuple[int, int] | None:
        """What to acknowledge now, as totals, or None.

        Args:
            taken: data frames whose rows the operator has taken.
            all_of_it: acknowledge also less than half a window (nothing more will follow).
        """
        if taken - self._told >= self._every or self.marks > self._told_marks or (all_of_it and taken > self._told):
            self._told, self._told_marks = taken, self.marks
            return taken, self.marks
        return None
