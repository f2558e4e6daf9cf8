"""Bounded, credit-based channels between instances, without I/O.

A `SendingChannel` sends its rows at once while fewer than `window` data frames are unacknowledged. When the window is full, rows
collect and the next frame is larger (adaptive batching without timers). The receiver acknowledges a data frame when the *operator
has taken* its rows, so pressure travels upstream to the source.

A punctuation (a frame without rows that carries only the watermark) needs no credit, or two inputs of a merge could wait for each
other for ever. It has a window of its own, acknowledged on receipt, and only the newest watermark waits: watermarks are monotone,
so it includes the older one. A barrier that overtakes is sent and acknowledged like a punctuation. It leaves before the rows that
wait here, and these are saved with the sender (decision 0014). Acknowledgements are cumulative counts, so a repeated or late one
does no harm. The size of frames and the number of waiting frames follow from the rate of the receiver (`receive_rate`).
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from agiledart_dataflow.data.batch import Batch, Order, has_positions, joined_order, joined_rows, part_of, place
from agiledart_dataflow.data.position import START, Position, covering, is_final
from agiledart_dataflow.runtime.receive_rate import FIRST_ROWS, LEAST_FRAMES, MOST_FRAME_ROWS
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.limits import (
    CHANNEL_WINDOW_FRAMES,
    MAX_BATCH_BYTES,
    MAX_BATCH_ROWS,
    MAX_COLUMN_BATCH_BYTES,
    MAX_COLUMN_BATCH_ROWS,
)

PUNCTUATION_WINDOW = 4
"""Punctuations that may be unacknowledged: enough to fill a round trip, few enough to be joined under load."""


_WATERMARKS_PER_ACKNOWLEDGEMENT = PUNCTUATION_WINDOW // 2
"""Punctuations that are acknowledged together."""


ROW_BYTES_WEIGHT: Final = 0.3
"""Weight of a frame in the average bytes of its rows."""


class SendingChannel:
    """Upstream end of one channel: the waiting batches, the frames in flight, and the frames that may go now.

    Args:
        window: data frames that may be unacknowledged.
        max_rows: rows in one frame.
        bound_rows: rows that may wait here before the instance must stop producing (`blocked`). One call of an operator may
            overshoot it, so the bound is checked before the call, not inside it.
        lazy_watermarks: a watermark waits for rows, for the end, or until `release_watermark`: no step downstream needs it.
        paced: frames are small until the receiver has reported how many rows they may have.
        overtakes: barriers overtake waiting rows, because the receiver merges by position. A barrier with a change does not.

    Attributes:
        rows_limit, columns_limit: rows that a frame may have.
        has_more: a batch was put in that was not sent.
        row_bytes: average bytes of an encoded row; 0: none was encoded yet.
    """

    __slots__ = (
        "_acknowledged",
        "_acknowledged_watermarks",
        "_barriers",
        "_bound_rows",
        "_fitting",
        "_fitting_columns",
        "_head",
        "_lazy",
        "_max_rows",
        "_pending",
        "_receiver_row_limit",
        "_released",
        "_watermark",
        "_watermark_sent",
        "_window",
        "columns_limit",
        "frames_sent",
        "has_more",
        "overtakes",
        "row_bytes",
        "rows_limit",
        "rows_sent",
        "rows_waiting",
        "watermarks_sent",
    )

    def __init__(
        self,
        window: int = CHANNEL_WINDOW_FRAMES,
        max_rows: int = MAX_BATCH_ROWS,
        bound_rows: int = 2 * MAX_BATCH_ROWS,
        *,
        lazy_watermarks: bool = False,
        paced: bool = False,
        overtakes: bool = False,
    ) -> None:
        self.overtakes = overtakes
        self._barriers: deque[Batch] = deque()  # they leave before all that waits
        self._lazy, self._released = lazy_watermarks, False
        self._window, self._max_rows, self._bound_rows = window, max_rows, bound_rows
        self._pending: deque[Batch] = deque()
        self._head = 0  # rows of the first pending batch that are already sent
        self._watermark: tuple[int, ...] | None = None
        self._watermark_sent: tuple[int, ...] | None = None
        self.frames_sent = self.watermarks_sent = 0
        self._acknowledged = self._acknowledged_watermarks = 0
        self.rows_waiting = self.rows_sent = 0
        self._fitting, self._fitting_columns = max_rows, MAX_COLUMN_BATCH_ROWS
        self._receiver_row_limit = FIRST_ROWS if paced else MOST_FRAME_ROWS
        self.has_more = False
        self.row_bytes = 0.0
        self._limit()

    @property
    def blocked(self) -> bool:
        """Report whether too much waits, so that the instance must pause. Large rows count for more: two frames' worth."""
        waiting = self.rows_waiting
        if not waiting:
            return False
        if self._pending and type(self._pending[0].held) is not list:
            return waiting > 2 * self.columns_limit
        return waiting > min(self._bound_rows, 2 * self.rows_limit)

    @property
    def free_rows(self) -> int:
        """Return about how many rows may be put in before too much waits; at least one, so that no sender stalls."""
        frames = self._window + 2 - (self.frames_sent - self._acknowledged)
        return max(1, frames * self.rows_limit - self.rows_waiting)

    @property
    def idle(self) -> bool:
        """Report whether everything put in was sent and acknowledged."""
        return (
            not self._pending
            and not self._barriers
            and self._watermark == self._watermark_sent
            and self.frames_sent == self._acknowledged
            and self.watermarks_sent == self._acknowledged_watermarks
        )

    @property
    def last_number(self) -> int:
        """Return the number of the last frame sent, watermarks included, from 0."""
        return self.frames_sent + self.watermarks_sent - 1

    @property
    def in_flight(self) -> int:
        """Return the number of data frames in flight."""
        return self.frames_sent - self._acknowledged

    def put(self, batch: Batch) -> None:
        """Queue a batch; its watermark supersedes all earlier ones once its rows are sent."""
        count = len(batch.held)
        if count:
            self._pending.append(batch)
            self.rows_waiting += count
        elif batch.barrier:
            self._put_barrier(batch)
            return
        if self._watermark is None or batch.watermark > self._watermark:
            self._watermark = batch.watermark
        self.has_more = bool(self._pending or self._barriers) or self._watermark != self._watermark_sent

    def _put_barrier(self, batch: Batch) -> None:
        """Queue a barrier: in its place, or before all that waits. A channel whose end is sent carries none any more."""
        if self.has_ended:
            return
        self.has_more = True
        if batch.change or not self.overtakes or self._has_barrier_in_line:
            self._keep_end_back()
            self._pending.append(batch)
        else:
            # For the receiver the overtaken rows lie behind the barrier, so the barrier promises nothing then.
            promised = START if self._waits else batch.watermark
            self._barriers.append(Batch([], None, promised, batch.barrier, overtakes=True))
            if promised is START:
                return
        if self._watermark is None or batch.watermark > self._watermark:
            self._watermark = batch.watermark

    def _keep_end_back(self) -> None:
        """Let the end of the input follow a barrier in line, where the last waiting rows would have carried it."""
        if self._pending and is_final(self._pending[-1].watermark):
            last = self._pending[-1]
            self._pending[-1] = Batch(last.held, last.order, START, ascends=last.ascends)

    @property
    def has_ended(self) -> bool:
        """Return whether the end is sent."""
        return self._watermark_sent is not None and is_final(self._watermark_sent)

    @property
    def _has_barrier_in_line(self) -> bool:
        """Return whether a barrier waits in its place; those that follow stay behind it."""
        return any(waiting_batch.barrier for waiting_batch in self._pending)

    @property
    def _waits(self) -> bool:
        """Return whether rows or the end wait to be sent."""
        return bool(self._pending) or self._is_ending

    @property
    def _is_ending(self) -> bool:
        """Return whether the end waits to be sent."""
        watermark = self._watermark
        return watermark is not None and is_final(watermark) and watermark != self._watermark_sent

    def overtaken(self) -> tuple[list[Batch], Position] | None:
        """Return the rows that a barrier without a change would overtake now, and the watermark behind them.

        The end of the input follows a barrier that keeps its place, so it is returned without rows. None where nothing would lie
        behind the barrier.
        """
        if not self.overtakes or self._has_barrier_in_line:
            return ([], self._newest_watermark()) if self._is_ending else None
        if not self._waits:
            return None
        batches = list(self._pending)
        if self._head:
            first = batches[0]
            order = None if first.order is None else first.order[self._head :]
            rows = part_of(first.held, self._head, len(first.held))
            batches[0] = Batch(rows, order, first.watermark, ascends=first.ascends)
        return batches, self._newest_watermark()

    def resume(self, batches: Iterable[Batch], watermark: Position) -> None:
        """Queue the rows that a barrier overtook, in the attempt that begins there; before any other row is put in."""
        for batch in batches:
            self.put(batch)
        self.put(Batch([], None, watermark))

    def resume_behind(self, end: Position) -> None:
        """Send nothing more: the receiver had the end before the barrier of the attempt that begins there."""
        self._watermark = self._watermark_sent = end

    @property
    def has_barrier(self) -> bool:
        """Return whether a barrier is to leave at once, whatever waits and whether or not the receiver has space."""
        return bool(self._barriers)

    def passes(self, batch: Batch) -> bool:
        """Count a batch as sent if it may go at once, unchanged, and return True; else return False and change nothing.

        It does what `put` and `next_frame` do with rows when none wait: the usual frame of a slow stream.
        """
        count, watermark = len(batch.held), batch.watermark
        if (
            self._pending
            or self._barriers
            or not count
            or count > (self.rows_limit if type(batch.held) is list else self.columns_limit)
            or self.frames_sent - self._acknowledged >= self._window
            or (self._watermark is not None and watermark < self._watermark)
        ):
            return False
        self._watermark = self._watermark_sent = watermark
        self.frames_sent += 1
        self.rows_sent += count
        self.has_more = False
        return True

    def may_bypass(self, watermark: tuple[int, ...]) -> bool:
        """Report whether rows with this watermark may bypass the channel, because none waits or is in flight.

        Then the watermark counts as sent. If the caller finds no other path, it puts the same rows in here next, and they carry
        the watermark.
        """
        if (
            self._pending
            or self._barriers
            or self.frames_sent != self._acknowledged
            or (self._watermark is not None and watermark < self._watermark)
        ):
            return False
        self._watermark = self._watermark_sent = watermark
        self.has_more = False
        return True

    def next_frame(self) -> Batch | None:
        """Return the next frame that may go now, or None; call until it returns None."""
        if self._barriers:
            batch = self._barriers.popleft()
            self.watermarks_sent += 1
            if batch.watermark > (self._watermark_sent or START):
                self._watermark_sent = batch.watermark
            self.has_more = bool(self._barriers or self._pending) or self._watermark != self._watermark_sent
            return batch
        if self._pending:
            if self.frames_sent - self._acknowledged >= self._window:
                return None
            batch = self._take()
            self.frames_sent += 1
            self.rows_sent += len(batch.held)
            self._watermark_sent = batch.watermark
            self.has_more = bool(self._pending) or self._watermark != batch.watermark
            return batch
        if (
            self._watermark == self._watermark_sent
            or self.watermarks_sent - self._acknowledged_watermarks >= PUNCTUATION_WINDOW
        ):
            return None
        assert self._watermark is not None
        if self._lazy and not is_final(self._watermark) and not self._released:
            return None
        self._released = False
        self.watermarks_sent += 1
        self._watermark_sent = self._watermark
        self.has_more = False
        return Batch([], None, self._watermark)

    def release_watermark(self) -> None:
        """Let the newest watermark go without rows: now and then, so that figures downstream do not stand still."""
        self._released = True

    def _take(self) -> Batch:
        """Join waiting batches, up to a barrier, into one frame of bounded size; rows and columns are not joined."""
        pending = self._pending
        first = pending[0]
        if first.barrier:
            return pending.popleft()
        is_list = type(first.held) is list
        limit = self.rows_limit if is_list else self.columns_limit
        if self._head == 0 and len(first.held) <= limit and len(pending) == 1:
            pending.popleft()
            self.rows_waiting -= len(first.held)
            return (
                first
                if first.watermark == self._watermark
                else Batch(first.held, first.order, self._newest_watermark())
            )
        parts: list[Any] = []
        orders: list[Order] = []
        count, watermark = 0, START
        while pending and count < limit:
            batch = pending[0]
            if batch.barrier or (type(batch.held) is list) != is_list:
                break
            start, end = self._head, min(len(batch.held), self._head + limit - count)
            parts.append(part_of(batch.held, start, end))
            orders.append(None if batch.order is None else batch.order[start:end])
            count += end - start
            if end == len(batch.held):
                pending.popleft()
                self._head = 0
                watermark = max(watermark, batch.watermark)
            else:
                self._head = end
        self.rows_waiting -= count
        order = joined_order(orders)
        if not pending:
            watermark = self._newest_watermark()
        elif has_positions(order):
            # Rows come in strictly rising order, so the last sent position is itself a watermark when more rows follow.
            watermark = covering(place(order, -1))
        return Batch(joined_rows(parts), order, watermark)

    def _newest_watermark(self) -> tuple[int, ...]:
        assert self._watermark is not None
        return self._watermark

    def learn_frame_size(self, rows: int, size: int, *, columns: bool = False) -> None:
        """Learn from a frame's number of rows and bytes how many rows fit into one."""
        if not rows:
            return
        self.learn_row_bytes(rows, size)
        if columns:
            fitting = MAX_COLUMN_BATCH_BYTES * rows // max(1, size)
            self._fitting_columns = max(1, min(MAX_COLUMN_BATCH_ROWS, fitting))
        else:
            self._fitting = max(1, min(self._max_rows, MAX_BATCH_BYTES * rows // max(1, size)))
        self._limit()

    def learn_row_bytes(self, rows: int, size: int) -> None:
        """Learn from encoded rows how many bytes a row has, as a moving average."""
        before = self.row_bytes
        self.row_bytes = before + ROW_BYTES_WEIGHT * (size / rows - before) if before else size / rows

    def _limit(self) -> None:
        self.rows_limit = min(self._fitting, self._receiver_row_limit)
        self.columns_limit = min(self._fitting_columns, self._receiver_row_limit)

    def acknowledge(self, frames: int, watermarks: int, frame_rows: int = 0) -> None:
        """Take an acknowledgement: data frames taken and punctuations received, counted from the first.

        Args:
            frame_rows: rows that a frame may have from now on; 0: not given.

        Raises:
            RemoteProtocolError: more were acknowledged than were ever sent.
        """
        if frames > self.frames_sent or watermarks > self.watermarks_sent:
            raise RemoteProtocolError("acknowledgement", f"{frames} of {self.frames_sent} frames acknowledged")
        if frame_rows != self._receiver_row_limit and frames >= self._acknowledged:
            self._receiver_row_limit = frame_rows or MOST_FRAME_ROWS
            self._limit()
        self._acknowledged = max(self._acknowledged, frames)
        self._acknowledged_watermarks = max(self._acknowledged_watermarks, watermarks)


class ReceivingChannel:
    """Downstream end: it counts frames, detects gaps and duplicates, and decides when to acknowledge.

    Args:
        window: the sender's; if the sender's were smaller, half of this one would never be full.

    Attributes:
        acknowledgement_due: enough has come that `due` may return a value; else the caller need not ask before the end.
        frame_rows: rows that a frame may have, which goes with each acknowledgement; 0: any number.
    """

    __slots__ = (
        "_acknowledged_watermarks",
        "_every",
        "_held_back",
        "_large",
        "_last_acknowledged",
        "_window",
        "acknowledgement_due",
        "frame_rows",
        "frames",
        "rows",
        "watermarks",
    )

    def __init__(self, window: int = CHANNEL_WINDOW_FRAMES) -> None:
        self._window = window
        self._every, self._held_back = max(1, window // 2), 0
        self._last_acknowledged = self._acknowledged_watermarks = self._large = self.frame_rows = 0
        self.frames = self.watermarks = self.rows = 0
        self.acknowledgement_due = False

    @property
    def expected(self) -> int:
        """Return the number of the next frame in sequence."""
        return self.frames + self.watermarks

    def limit_rows_in_flight(self, rows: int) -> None:
        """Limit the rows that may wait here and in flight: frames become that much smaller.

        Where the limit is less than a row per frame, surplus frames are acknowledged only when later ones have come.
        """
        frame_rows = min(MOST_FRAME_ROWS, max(1, rows // self._window))
        if frame_rows == self.frame_rows and frame_rows > 1:
            return
        self.frame_rows = frame_rows
        frames = max(min(LEAST_FRAMES, self._window), min(self._window, rows))
        self._every, self._held_back = max(1, frames // 2), self._window - frames

    @property
    def last_acknowledged(self) -> tuple[int, int]:
        """Return the totals that were acknowledged last."""
        return self._last_acknowledged, self._acknowledged_watermarks

    def acknowledge_next(self) -> None:
        """Acknowledge the next frame alone when it is taken.

        It is large, and its sender keeps few like it; or it is the first of a generation, and its sender measures how long it
        waits.
        """
        self._large = self.frames + 1
        self.acknowledgement_due = True

    def accept(self, number: int, first_row: int, rows: int, *, barrier: bool = False) -> None:
        """Count a frame with this number, which starts with row number `first_row`.

        Raises:
            RemoteProtocolError: a gap or a duplicate (reason `gap`).
        """
        if number != self.frames + self.watermarks:
            raise RemoteProtocolError("gap", f"frame {number} came where {self.frames + self.watermarks} was expected")
        if first_row != self.rows:
            raise RemoteProtocolError("gap", f"row {first_row} came where {self.rows} was expected")
        if rows or barrier:
            self.frames += 1
            self.rows += rows
            self.acknowledgement_due = (
                self.acknowledgement_due or self.frames - self._last_acknowledged >= self._every + self._held_back
            )
        else:
            self.watermarks += 1
            self.acknowledgement_due = (
                self.acknowledgement_due
                or self.watermarks - self._acknowledged_watermarks >= _WATERMARKS_PER_ACKNOWLEDGEMENT
            )

    def due(self, taken: int, *, all_of_it: bool = False) -> tuple[int, int] | None:
        """Return the totals to acknowledge now, or None.

        Args:
            taken: data frames whose rows the operator has taken.
            all_of_it: acknowledge also less than half a window (no more frames will follow).
        """
        watermarks = self.watermarks - self._acknowledged_watermarks
        is_large = taken >= self._large > self._last_acknowledged
        ready = taken if all_of_it or is_large else max(self._last_acknowledged, taken - self._held_back)
        due = None
        if (
            ready - self._last_acknowledged >= self._every
            or watermarks >= _WATERMARKS_PER_ACKNOWLEDGEMENT
            or is_large
            or (all_of_it and (taken > self._last_acknowledged or watermarks))
        ):
            self._last_acknowledged, self._acknowledged_watermarks = ready, self.watermarks
            due = ready, self.watermarks
        self.acknowledgement_due = (
            self.frames - self._last_acknowledged >= self._every + self._held_back or self._large > taken
        )
        return due
