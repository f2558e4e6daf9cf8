"""`Arrivals`: inputs in order of arrival, where rows carry no positions. For a single channel that is its own order.

No row waits here for a slower input. Only a barrier holds its channel back until the same barrier has come through all others
(alignment). So everything before it on every channel, and nothing else, is in the snapshot. The channels of a new generation are
added with the first barrier that announces it, and count as having passed it.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from agiledart_dataflow.data.batch import Batch, Held, Order, joined_order, joined_rows, listed, part_of
from agiledart_dataflow.data.position import END, START, Position, is_final
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.runtime.alignment import Alignment
from agiledart_dataflow.runtime.merge import Channel
from agiledart_dataflow.runtime.outbox import GONE
from agiledart_kernel.errors import LocalProtocolError, RemoteProtocolError

MAX_COLUMN_ROWS = 16_384
"""Rows of columns that are joined into one call of a stage."""


class _ArrivalInput:
    """One channel: its watermark, the batches that wait behind a barrier, and the number of batches taken."""

    __slots__ = ("barrier_watermark", "barriers", "consumed", "ends", "held_back", "rows", "watermark")

    def __init__(self, watermark: Position = START) -> None:
        self.watermark = watermark
        self.barrier_watermark = watermark  # watermark at the last barrier
        self.ends = 0  # number of the last barrier of this channel
        self.held_back: deque[Batch] = deque()
        self.consumed = 0
        self.barriers = 0  # barriers received and not yet consumed
        self.rows = 0  # rows received


class Arrivals:
    """Inbox that takes batches as they come.

    Args:
        channels: every (edge, upstream instance) that enters.

    Attributes:
        queued_rows: rows that wait.
        frontier: the least watermark of all inputs, as far as batches have been taken.
        barriers: numbers of barriers that all inputs have reached; the reader removes them.
    """

    __slots__ = ("_alignment", "_at", "_closed", "_gone", "_inputs", "_ready", "barriers", "frontier", "queued_rows")

    def __init__(self, channels: Iterable[Channel]) -> None:
        self._inputs = {channel: _ArrivalInput() for channel in channels}
        self._alignment = Alignment(self._inputs)
        self._closed: dict[Channel, _ArrivalInput] = {}  # channels of ended generations whose rows are all taken
        self._gone: dict[int, int] = {}  # edge → rows that came over forgotten channels
        self._ready: deque[tuple[_ArrivalInput | None, Batch]] = deque()  # None: a barrier that is complete
        self._at = 0  # rows already taken of the first batch
        self.queued_rows = 0
        self.frontier: Position = START
        self.barriers: list[int] = []

    def offer(self, edge: int, source: int, batch: Batch) -> None:
        """Take the next batch of a channel.

        Raises:
            LocalProtocolError: no such channel enters here.
            RemoteProtocolError: `barrier` when a barrier is out of sequence.
        """
        channel = self._inputs.get((edge, source))
        if channel is None:
            raise LocalProtocolError(f"edge {edge} from instance {source} does not enter here")
        count = len(batch.held)
        self.queued_rows += count
        channel.rows += count
        self._flow((edge, source), channel, batch)

    def _flow(self, name: Channel, channel: _ArrivalInput, batch: Batch) -> None:
        alignment = self._alignment
        if channel.held_back or alignment.is_ahead(name):
            channel.held_back.append(batch)
            return
        if batch.barrier:
            channel.barriers += 1
            channel.barrier_watermark = batch.watermark
            alignment.reach(name, batch.barrier)
        else:
            self._ready.append((channel, batch))
            if not is_final(batch.watermark):
                return
            alignment.end(name)
        while alignment.advance():
            self._ready.append((None, Batch([], None, START, alignment.complete)))
            for ended_channel in [
                channel_name for channel_name, other in self._inputs.items() if other.ends == alignment.complete
            ]:
                alignment.leave(ended_channel)
            for other_name, other in self._inputs.items():
                waiting, other.held_back = other.held_back, deque()
                for held_batch in waiting:
                    self._flow(other_name, other, held_batch)

    def offer_last(self, edge: int, source: int, batch: Batch, new: Iterable[tuple[Channel, Position]]) -> None:
        """Take the last barrier of a channel, which these channels continue in the next generation.

        They are held back until the barrier is complete. Those that are here already stay as they are.

        Raises:
            RemoteProtocolError: `barrier` when an earlier one is not complete.
        """
        name = edge, source
        channel = self._inputs[name]
        if channel.held_back or self._alignment.is_ahead(name):
            raise RemoteProtocolError("barrier", f"barrier {batch.barrier} of a change beside another one")
        for other, _ in new:
            if other not in self._inputs:
                self._inputs[other] = _ArrivalInput(batch.watermark)
                self._alignment.take_in(other, batch.barrier)
        channel.ends = batch.barrier
        self.offer(edge, source, batch)

    def takes_in(self, edge: int, source: int) -> bool:
        """Report whether this channel enters now."""
        return (edge, source) in self._inputs

    def is_leaving(self, edge: int, source: int) -> bool:
        """Report whether the channel's last barrier has come. It still enters until that is complete; then others continue it."""
        channel = self._inputs.get((edge, source))
        return (edge, source) in self._closed if channel is None else channel.ends > 0

    def forget(self, edge: int, source: int) -> bool:
        """Drop a channel of an ended generation; return False while rows wait in it."""
        channel = self._closed.pop((edge, source), None)
        if channel is None:
            return False
        self._gone[edge] = self._gone.get(edge, 0) + channel.rows
        return True

    @property
    def has_ended(self) -> bool:
        """Return whether the end of every input has come, and no row waits here: a snapshot would not hold it."""
        return self._alignment.has_ended and not self._ready

    @property
    def is_caught_up(self) -> bool:
        """Return True: no row is taken beyond a barrier that is not in a snapshot."""
        return True

    @property
    def has_released(self) -> bool:
        """Report whether `take` may still return rows."""
        return bool(self._ready)

    def consumed(self, edge: int, source: int) -> int:
        """Return the number of batches of a channel that were taken in full."""
        channel = self._inputs.get((edge, source)) or self._closed[edge, source]
        return channel.consumed

    def received(self) -> list[tuple[int, int, int]]:
        """Return (edge, upstream instance, rows received) of each channel; those of ended generations together as `GONE`."""
        came = [(edge, source, channel.rows) for (edge, source), channel in self._inputs.items()]
        gone = dict(self._gone)
        for (edge, _), channel in self._closed.items():
            gone[edge] = gone.get(edge, 0) + channel.rows
        return came + [(edge, GONE, rows) for edge, rows in gone.items()]

    def take(self, limit: int) -> tuple[Held, Order, Position]:
        """Return rows of the next batches, joined: at most `limit` (of columns, a larger bound), and the frontier.

        Stops before and after a barrier, which is then in `barriers`.
        """
        ready = self._ready
        if not ready:
            return [], None, self.frontier
        if len(ready) == 1 and not self._at:
            channel, batch = ready[0]
            held = batch.held
            if channel is not None and (len(held) <= limit or type(held) is not list):
                ready.popleft()
                self._consume(channel, batch)
                self.queued_rows -= len(held)
                return held, batch.order, self.frontier
        return self._join(limit)

    def _join(self, limit: int) -> tuple[Held, Order, Position]:
        ready = self._ready
        parts: list[Any] = []
        orders: list[Order] = []
        count = 0
        while ready:
            channel, batch = ready[0]
            if channel is None:
                if not parts:
                    ready.popleft()
                    self._consume_barrier(batch.barrier)
                break
            held = batch.held
            is_list = type(held) is list
            if parts and is_list != (type(parts[0]) is list):
                break
            bound = limit if is_list else max(limit, MAX_COLUMN_ROWS)
            stop = min(len(held), self._at + bound - count)
            if stop > self._at:
                whole = not self._at and stop == len(held)
                parts.append(held if whole else part_of(held, self._at, stop))
                orders.append(batch.order if whole or batch.order is None else batch.order[self._at : stop])
                count += stop - self._at
            if stop < len(held):
                self._at = stop
                break
            self._at = 0
            ready.popleft()
            self._consume(channel, batch)
            if count >= bound:
                break
        self.queued_rows -= count
        return joined_rows(parts) if parts else [], joined_order(orders) if orders else None, self.frontier

    def _consume(self, channel: _ArrivalInput, batch: Batch) -> None:
        channel.consumed += 1
        if batch.watermark <= channel.watermark:
            return
        channel.watermark = batch.watermark
        if len(self._inputs) == 1:
            self.frontier = batch.watermark
            return
        self._advance()

    def _advance(self) -> None:
        watermarks = [channel.watermark for channel in self._inputs.values()]
        self.frontier = max(watermarks) if all(map(is_final, watermarks)) else min(watermarks)

    def _consume_barrier(self, barrier: int) -> None:
        self.barriers.append(barrier)
        for channel in self._inputs.values():
            if channel.barriers:
                channel.barriers -= 1
                channel.consumed += 1
        ends = [name for name, channel in self._inputs.items() if channel.ends == barrier]
        for name in ends:
            self._closed[name] = self._inputs.pop(name)
        if ends:
            self._advance()

    def reach_barrier(self) -> None:
        """Advance the time to where the inputs stood at the barrier with which this instance ends.

        That time is the same for all instances of a generation.
        """
        for channel in self._inputs.values():
            channel.watermark = max(channel.watermark, channel.barrier_watermark)
        self._advance()

    def snapshot(self, barrier: int = 0) -> Any:
        """Return watermarks and waiting batches as plain data: (inputs, waiting, frontier, barriers).

        At a barrier that has just been taken: without the waiting batches. They lie behind the barrier and will come again, over
        new channels.
        """
        if barrier:
            behind = dict.fromkeys(map(id, self._inputs.values()), 0)
            for channel, batch in self._ready:
                if channel is not None:
                    behind[id(channel)] += len(batch)
            inputs: list[tuple[Any, ...]] = []
            for (edge, source), channel in self._inputs.items():
                later = behind[id(channel)] + sum(map(len, channel.held_back))
                inputs.append((edge, source, channel.watermark, 0, 0, channel.rows - later, []))
            inputs += self._plain_gone()
            return inputs, [], self.frontier, self._alignment.snapshot(barrier)
        names = {id(channel): name for name, channel in self._inputs.items()}
        inputs = [
            (
                edge,
                source,
                channel.watermark,
                channel.consumed,
                channel.barriers,
                channel.rows,
                [_plain(batch) for batch in channel.held_back],
            )
            for (edge, source), channel in self._inputs.items()
        ]
        inputs += self._plain_gone()
        waiting = [(None if channel is None else names[id(channel)], _plain(batch)) for channel, batch in self._ready]
        if self._at:
            name, (rows, order, watermark, barrier) = waiting[0]
            waiting[0] = name, (rows[self._at :], None if order is None else order[self._at :], watermark, barrier)
        return inputs, waiting, self.frontier, self._alignment.snapshot()

    def _plain_gone(self) -> list[tuple[Any, ...]]:
        return [(edge, GONE, START, 0, 0, rows, []) for edge, source, rows in self.received() if source == GONE]

    def count_from(self, barrier: int) -> None:
        """Continue with the barrier after this one, whatever was restored."""
        self._alignment.count_from(barrier)

    def restore(self, plain: Any) -> None:
        """Restore a snapshot whose rows have their types again."""
        inputs, waiting, self.frontier, alignment = plain
        self._at = 0
        self._alignment.restore(alignment, [(edge, source) for edge, source, *_ in inputs[: len(alignment[0])]])
        self._closed.clear()
        self._gone.clear()
        for edge, source, watermark, consumed, barriers, rows, held_back in inputs:
            if source == GONE:
                self._gone[edge] = rows
                continue
            channel = self._inputs[edge, source]
            channel.watermark, channel.consumed, channel.barriers, channel.rows = watermark, consumed, barriers, rows
            channel.held_back = deque(Batch(*batch) for batch in held_back)
        self._ready = deque(
            (None if name is None else self._inputs[tuple(name)], Batch(*batch)) for name, batch in waiting
        )
        self.queued_rows = sum(len(batch) for _, batch in self._ready)
        self.queued_rows += sum(len(batch) for channel in self._inputs.values() for batch in channel.held_back)


class SingleInputArrivals(Arrivals):
    """`Arrivals` of a single channel, which waits for no other: less work for each batch."""

    __slots__ = ("_edge", "_input", "_source")

    def __init__(self, channel: Channel) -> None:
        super().__init__((channel,))
        self._edge, self._source = channel
        self._input = self._inputs[channel]

    def count_bypassed(self, rows: int) -> None:
        """Count rows that a caller took from the channel directly; no rows wait here."""
        self._input.rows += rows

    def offer(self, edge: int, source: int, batch: Batch) -> None:
        """Take the next batch of the channel; a barrier, an end and a wrong channel take the general path."""
        if batch.barrier or edge != self._edge or source != self._source or batch.watermark[0] == END:
            super().offer(edge, source, batch)
            return
        count = len(batch.held)
        self.queued_rows += count
        self._input.rows += count
        self._ready.append((self._input, batch))

    def passes(self, edge: int, source: int, batch: Batch) -> bool:
        """Count the rows of a batch as taken if no rows wait here, and return True; else return False and change nothing."""
        watermark = batch.watermark
        if (
            self._ready
            or self.barriers
            or batch.barrier
            or edge != self._edge
            or source != self._source
            or watermark[0] == END
            or watermark < self.frontier
        ):
            return False
        self._input.rows += len(batch.held)
        self._input.watermark = self.frontier = watermark
        return True

    def take(self, limit: int) -> tuple[Held, Order, Position]:
        """Return the rows of the next batch unchanged when it is the only one; else joined, as of several channels."""
        ready = self._ready
        if len(ready) != 1 or self._at:
            return super().take(limit)
        channel, batch = ready[0]
        held = batch.held
        count = len(held)
        if count > limit or channel is None:
            return super().take(limit)
        ready.clear()
        channel.consumed += 1
        self.queued_rows -= count
        if batch.watermark > self.frontier:
            channel.watermark = self.frontier = batch.watermark
        return held, batch.order, self.frontier

    def to_multi_input(self) -> Arrivals:
        """Return an inbox for any number of channels in the same state, in place of this one."""
        wide = Arrivals(())
        for name in Arrivals.__slots__:
            setattr(wide, name, getattr(self, name))
        return wide


def inbox_for(channels: Sequence[Channel]) -> Arrivals:
    """Return the inbox for these channels."""
    return SingleInputArrivals(channels[0]) if len(channels) == 1 else Arrivals(channels)


def arrivals_type(row_type: Any, order_type: Any) -> Any:
    """Return the type of `Arrivals.snapshot`, used to decode its bytes."""
    batch = generic(tuple, generic(list, row_type), order_type, Position, int)
    channel = generic(tuple, int, int, Position, int, int, int, generic(list, batch))
    waiting = generic(tuple, tuple[int, int] | None, batch)
    return generic(tuple, generic(list, channel), generic(list, waiting), Position, tuple[list[tuple[int, bool]], int])


def _plain(batch: Batch) -> tuple[list[Any], Any, Position, int]:
    return batch.rows, listed(batch.order), batch.watermark, batch.barrier
