"""`Merge`: several ordered inputs → one ordered output, released up to the least watermark (docs/decisions/0003).

A barrier blocks nothing here: the queues and watermarks are part of the snapshot. It may have overtaken rows that its sender had no
credit for; these are in the sender's snapshot, and lie behind the barrier here. Rows that come again after a restore are
recognised by their position and dropped.

An upstream stage that begins a generation has other channels behind the barrier. All of them are added at once, at the watermark
of the first barrier that announces them: up to there all output of that stage has come, or is to come over its old channels. An
old channel ends at its barrier and no longer counts for the frontier; its waiting rows stay (scaling specification, section 8,
step 7).
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from itertools import chain
from operator import lt
from typing import Any, NamedTuple

import msgspec

from agiledart_dataflow.data.batch import Batch, Held, Order, listed
from agiledart_dataflow.data.position import END, START, Position, is_final
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.runtime.alignment import Alignment
from agiledart_dataflow.runtime.outbox import GONE
from agiledart_kernel.errors import LocalProtocolError, RemoteProtocolError

Channel = tuple[int, int]
"""(edge, upstream instance)."""


class AwaitedChannel(NamedTuple):
    """Input of a merge for which rows of others wait.

    Attributes:
        channel: the input.
        watermark: how far it is complete.
        holding: the inputs whose rows wait.
    """

    channel: Channel
    watermark: Position
    holding: list[Channel]


class _MergeInput:
    """One channel: its watermark, and its waiting batches."""

    __slots__ = ("appended", "consumed", "cuts", "joined", "padding", "rows", "waiting", "watermark")

    def __init__(self, padding: Position) -> None:
        self.watermark: Position = START
        self.padding = padding
        self.waiting: deque[Batch] = deque()
        self.joined: deque[int] = deque()
        self.consumed = 0
        self.rows = 0  # rows received
        self.appended = 0  # batches that were ever put into `waiting`
        self.cuts: dict[int, tuple[Position, int, int]] = {}  # barrier → watermark, rows, appended when it came


class Merge:
    """Inbox that puts the records of all channels into one order.

    Args:
        channels: every (edge, upstream instance) that enters, with the padding of its edge (`stages.Edge.padding`).

    Attributes:
        barriers: numbers of barriers that all inputs have reached; the reader removes them.
        acknowledges_early_until: rows before this barrier count as taken at once; 0: none. While a stage begins a generation its
            watermark stands still, here as in all merges downstream, and the barriers that it waits for must not wait behind rows
            for which this merge has no space. Rows behind the barrier wait as usual: no barrier needs to overtake them.
    """

    __slots__ = (
        "_alignment",
        "_at",
        "_closed",
        "_floor",
        "_gone",
        "_inputs",
        "_offered",
        "_positions",
        "_rows",
        "acknowledges_early_until",
        "barriers",
        "frontier",
        "queued_rows",
    )

    def __init__(self, channels: Iterable[tuple[Channel, Position]]) -> None:
        self._inputs = {channel: _MergeInput(padding) for channel, padding in channels}
        self._alignment = Alignment(self._inputs)
        # Channels of ended generations: their waiting rows are still to be taken.
        self._closed: dict[Channel, _MergeInput] = {}
        self._gone: dict[int, int] = {}  # edge → rows that came over forgotten channels
        self.barriers: list[int] = []
        self.acknowledges_early_until = 0
        self.queued_rows = 0
        self.frontier: Position = START
        self._rows: list[Any] = []
        self._positions: list[Position] = []
        self._at = 0
        self._offered = False
        self._floor: Position = START  # after a restore: rows at or below it were taken before

    def offer(self, edge: int, source: int, batch: Batch) -> None:
        """Take the next batch of a channel.

        Raises:
            RemoteProtocolError: `position` when a record lies at or below an earlier watermark, or the order is broken.
            LocalProtocolError: no such channel enters here.
        """
        channel = self._inputs.get((edge, source))
        if channel is None:
            raise LocalProtocolError(f"edge {edge} from instance {source} does not enter here")
        rows, positions, watermark = batch.rows, listed(batch.order) or [], batch.watermark
        if batch.barrier and watermark == START:  # it promises nothing: rows that it overtook follow, or the end
            watermark = channel.watermark
        self._check(edge, channel.watermark, positions, watermark, ascends=batch.ascends)
        channel.watermark = watermark
        self._offered = True
        if channel.padding:
            padding = channel.padding
            positions = [position + padding for position in positions]
            watermark = _last_watermark(channel)
        channel.rows += len(positions)
        if positions and positions[0] <= self._floor:  # it comes again after a restore, and was taken before
            cut = bisect_right(positions, self._floor)
            rows, positions = rows[cut:], positions[cut:]
        self.queued_rows += len(positions)
        if positions or not channel.waiting:
            channel.waiting.append(Batch(rows, positions, watermark))
            channel.joined.append(1)
            channel.appended += 1
        else:
            # A punctuation only moves the watermark of the rows waiting before it; both are consumed together.
            channel.waiting[-1].watermark = watermark
            channel.joined[-1] += 1
        if batch.barrier or is_final(batch.watermark):
            if batch.barrier:
                self._alignment.reach((edge, source), batch.barrier)
                channel.cuts[batch.barrier] = (channel.watermark, channel.rows, channel.appended)
            else:
                self._alignment.end((edge, source))
            self._complete()

    def offer_last(self, edge: int, source: int, batch: Batch, new: Iterable[tuple[Channel, Position]]) -> None:
        """Take the last barrier of a channel, which these channels continue in the next generation.

        Those of them that are here already stay as they are. Raises the errors of `offer`.
        """
        for channel, padding in new:
            if channel not in self._inputs:
                taken = self._inputs[channel] = _MergeInput(padding)
                taken.watermark = batch.watermark
                taken.cuts[batch.barrier] = (batch.watermark, 0, 0)  # rows over it lie behind the barrier
                self._alignment.take_in(channel, batch.barrier)
        self.offer(edge, source, batch)
        self._closed[edge, source] = self._inputs.pop((edge, source))
        self._alignment.leave((edge, source))

    def takes_in(self, edge: int, source: int) -> bool:
        """Report whether this channel enters now."""
        return (edge, source) in self._inputs

    def is_leaving(self, edge: int, source: int) -> bool:
        """Report whether the channel's last barrier has come, so that others continue it."""
        return (edge, source) in self._closed

    def forget(self, edge: int, source: int) -> bool:
        """Drop a channel of an ended generation; return False while rows wait in it."""
        channel = self._closed.get((edge, source))
        if channel is None or channel.waiting:
            return False
        del self._closed[edge, source]
        self._gone[edge] = self._gone.get(edge, 0) + channel.rows
        return True

    @property
    def has_ended(self) -> bool:
        """Return whether the end of every input has come; rows of them may wait here."""
        return self._alignment.has_ended

    @property
    def is_caught_up(self) -> bool:
        """Report whether all rows released beyond the restored barrier have come again."""
        return self._floor is START or all(_last_watermark(channel) >= self._floor for channel in self._inputs.values())

    def _complete(self) -> None:
        while self._alignment.advance():
            self.barriers.append(self._alignment.complete)

    @staticmethod
    def _check(edge: int, before: Position, positions: list[Position], watermark: Position, *, ascends: bool) -> None:
        if watermark < before:
            raise RemoteProtocolError("position", f"mark {watermark} after {before} on edge {edge}")
        if positions:
            if positions[0] <= before:
                raise RemoteProtocolError("position", f"a record at {positions[0]} after mark {before} on edge {edge}")
            if positions[-1] > watermark or not (ascends or all(map(lt, positions, positions[1:]))):
                raise RemoteProtocolError("position", f"records out of order before mark {watermark} on edge {edge}")

    def take(self, limit: int) -> tuple[Held, Order, Position]:
        """Return at most `limit` records in order, and the watermark up to which they are complete.

        Without a record the watermark is the frontier, the least watermark of all inputs.
        """
        if self._at >= len(self._rows):
            self._refill()
        start, stop = self._at, min(self._at + limit, len(self._rows))
        rows, positions = self._rows, self._positions
        self.queued_rows -= stop - start
        if start == 0 and stop == len(rows):
            self._rows, self._positions = [], []
            return rows, positions, self.frontier
        self._at = stop
        if stop == len(rows):
            return rows[start:], positions[start:], self.frontier
        return rows[start:stop], positions[start:stop], (*positions[stop - 1], END)

    @property
    def has_released(self) -> bool:
        """Report whether `take` has records in hand, or may find some among newly offered batches."""
        return self._at < len(self._rows) or self._offered

    def consumed(self, edge: int, source: int) -> int:
        """Return the number of batches of a channel that were taken in full."""
        channel = self._inputs.get((edge, source)) or self._closed[edge, source]
        if self.acknowledges_early_until and self.acknowledges_early_until not in channel.cuts:
            return channel.consumed + sum(channel.joined)
        return channel.consumed

    def awaited_input(self) -> AwaitedChannel | None:
        """Return the input for which rows wait; None while no row waits, or rows may be taken."""
        if not self.queued_rows or self.has_released:
            return None
        channel = min(self._inputs, key=lambda name: _last_watermark(self._inputs[name]))
        holding = [
            name for name, entry in (*self._inputs.items(), *self._closed.items()) if any(map(len, entry.waiting))
        ]
        return AwaitedChannel(channel, self._inputs[channel].watermark, holding)

    def received(self) -> list[tuple[int, int, int]]:
        """Return (edge, upstream instance, rows received) of each channel; those of ended generations together as `GONE`."""
        came = [(edge, source, channel.rows) for (edge, source), channel in self._inputs.items()]
        gone = dict(self._gone)
        for (edge, _), channel in self._closed.items():
            gone[edge] = gone.get(edge, 0) + channel.rows
        return came + [(edge, GONE, rows) for edge, rows in gone.items()]

    def _refill(self) -> None:
        """Release all rows at or below the least watermark."""
        self._at = 0
        self._offered = False
        watermarks = [_last_watermark(channel) for channel in self._inputs.values()]
        least = max(watermarks) if all(map(is_final, watermarks)) else min(watermarks)
        # After a restore inputs stand below the frontier until all rows have come again. A snapshot meanwhile must not let them
        # be taken once more.
        self.frontier = frontier = max(self.frontier, least)
        rows: list[list[Any]] = []
        positions: list[list[Position]] = []
        runs = 0
        for channel in chain(self._inputs.values(), self._closed.values()) if self._closed else self._inputs.values():
            before = len(rows)
            _release(channel, frontier, rows, positions)
            runs += len(rows) > before
        # the usual case: passed on unchanged; other holders may have the same lists, so they must not change
        if len(rows) == 1:
            self._rows, self._positions = rows[0], positions[0]
            return
        self._rows, self._positions = list(chain.from_iterable(rows)), list(chain.from_iterable(positions))
        if runs > 1:
            # Timsort finds the runs of the inputs and merges them.
            order = sorted(range(len(self._positions)), key=self._positions.__getitem__)
            self._positions = [self._positions[i] for i in order]
            self._rows = [self._rows[i] for i in order]

    def snapshot(self, barrier: int = 0) -> Any:
        """Return watermarks, queues and released records as plain data: (inputs, released rows, their positions, frontier,
        barriers).

        At a barrier each queue is as its input had filled it when it gave the barrier. Later rows come again, over new channels,
        perhaps through another instance; those already released are dropped then.
        """
        # At a barrier the counts of batches restart at 0: later rows come again over new channels, which count from 0.
        inputs: list[tuple[Any, ...]] = []
        for (edge, source), channel in (*self._inputs.items(), *self._closed.items()):
            waiting = [(batch.rows, batch.order, batch.watermark) for batch in channel.waiting]
            watermark, rows, consumed, joined = channel.watermark, channel.rows, channel.consumed, list(channel.joined)
            if barrier:
                # An input that has ended before the barrier has none: all its rows lie before.
                watermark, rows, appended = channel.cuts.pop(barrier, (watermark, rows, channel.appended))
                last = _as_merged(watermark, channel)
                before = max(0, len(waiting) - (channel.appended - appended))
                waiting = [
                    (rows_, order, min(batch_watermark, last)) for rows_, order, batch_watermark in waiting[:before]
                ]
                consumed, joined = 0, [0] * len(waiting)
            inputs.append((edge, source, watermark, consumed, rows, waiting, joined))
        inputs += [(edge, GONE, START, 0, rows, [], []) for edge, rows in self._gone.items()]
        alignment = self._alignment.snapshot(barrier)
        return inputs, self._rows[self._at :], self._positions[self._at :], self.frontier, alignment

    def count_from(self, barrier: int) -> None:
        """Continue with the barrier after this one, whatever was restored."""
        self._alignment.count_from(barrier)

    def restore(self, plain: Any) -> None:
        """Restore a snapshot whose rows have their types again. Rows that were released before may come again: they are dropped."""
        inputs, self._rows, self._positions, self.frontier, alignment = plain
        self._alignment.restore(alignment, [(edge, source) for edge, source, *_ in inputs[: len(alignment[0])]])
        self._at = 0
        self._offered = True
        self._floor = self.frontier
        self.queued_rows = len(self._rows)
        self._closed.clear()
        self._gone.clear()
        for edge, source, watermark, consumed, rows, waiting, joined in inputs:
            if source == GONE:
                self._gone[edge] = rows
                continue
            channel = self._inputs.get((edge, source))
            if channel is None:  # of a generation that ended before the snapshot: its queue remains
                padding = next(
                    known_channel.padding for (other, _), known_channel in self._inputs.items() if other == edge
                )
                channel = self._closed[edge, source] = _MergeInput(padding)
            channel.watermark, channel.consumed, channel.rows = watermark, consumed, rows
            channel.waiting, channel.joined = deque(Batch(*batch) for batch in waiting), deque(joined)
            channel.appended = len(channel.waiting)
            self.queued_rows += sum(len(batch) for batch in channel.waiting)


def _release(channel: _MergeInput, frontier: Position, rows: list[list[Any]], positions: list[list[Position]]) -> None:
    """Take a channel's rows at or below the frontier."""
    waiting = channel.waiting
    while waiting:
        batch = waiting[0]
        if batch.watermark <= frontier:
            waiting.popleft()
            channel.consumed += channel.joined.popleft()
            if batch.held:
                rows.append(batch.rows)
                positions.append(batch.order)
            continue
        cut = bisect_right(batch.order, frontier)
        if cut:
            rows.append(batch.rows[:cut])
            positions.append(batch.order[:cut])
            waiting[0] = Batch(batch.rows[cut:], batch.order[cut:], batch.watermark)
        return


def merge_type(row_type: Any) -> Any:
    """Return the type of `Merge.snapshot`, used to decode its bytes."""
    batch = generic(tuple, generic(list, row_type), list[Position], Position)
    channel = generic(tuple, int, int, Position, int, int, generic(list, batch), list[int])
    alignment = tuple[list[tuple[int, bool]], int]
    return generic(tuple, generic(list, channel), generic(list, row_type), list[Position], Position, alignment)


def typed_rows(plain: Any, row_types: dict[int, Any]) -> Any:
    """Decode the rows of a merge whose inputs have several row types; the snapshot was decoded with `merge_type(msgspec.Raw)`.

    Args:
        plain: the snapshot.
        row_types: by edge, in the order of the branches.
    """
    inputs, released, positions, frontier, alignment = plain
    decoders = [msgspec.msgpack.Decoder(generic(list, kind)) for kind in row_types.values()]
    by_edge = dict(zip(row_types, decoders, strict=True))
    typed = [
        (
            *before,
            [(_decoded(by_edge[before[0]], rows), order, watermark) for rows, order, watermark in waiting],
            joined,
        )
        for *before, waiting, joined in inputs
    ]
    rows = [_decoded(decoders[position[-1]], [row])[0] for row, position in zip(released, positions, strict=True)]
    return typed, rows, positions, frontier, alignment


def _decoded(decoder: "msgspec.msgpack.Decoder[Any]", rows: list[msgspec.Raw]) -> list[Any]:
    decoded: list[Any] = decoder.decode(msgspec.msgpack.encode(rows))
    return decoded


def _last_watermark(channel: _MergeInput) -> Position:
    """Return a channel's watermark in the positions of the merged order."""
    return _as_merged(channel.watermark, channel)


def _as_merged(watermark: Position, channel: _MergeInput) -> Position:
    """Return a watermark of a channel in the positions of the merged order."""
    return (*watermark, END) if channel.padding and not is_final(watermark) else watermark
