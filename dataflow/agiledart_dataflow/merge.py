"""`Merge`: several ordered inputs → one ordered output, released up to the least mark (docs/decisions/0003)."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from operator import lt
from typing import Any

from agiledart_dataflow.batch import Batch
from agiledart_dataflow.position import END, START, Position, is_final
from agiledart_kernel.errors import LocalProtocolError, RemoteProtocolError

Channel = tuple[int, int]
"""(edge, upstream instance)."""


class _Input:
    """One channel: what it promised, and what waits."""

    __slots__ = ("consumed", "joined", "mark", "padding", "waiting")

    def __init__(self, padding: Position) -> None:
        self.mark: Position = START
        self.padding = padding
        self.waiting: deque[Batch] = deque()
        self.joined: deque[int] = deque()
        self.consumed = 0


class Merge:
    """Puts the records of all channels into one order.

    Args:
        channels: every (edge, upstream instance) that enters, with the padding of its edge (`stages.Edge.padding`).
    """

    __slots__ = ("_at", "_inputs", "_offered", "_positions", "_rows", "frontier", "queued_rows")

    def __init__(self, channels: Iterable[tuple[Channel, Position]]) -> None:
        self._inputs = {channel: _Input(padding) for channel, padding in channels}
        self.queued_rows = 0
        self.frontier: Position = START
        self._rows: list[Any] = []
        self._positions: list[Position] = []
        self._at = 0
        self._offered = False

    def offer(self, edge: int, source: int, batch: Batch) -> None:
        """Take the next batch of a channel.

        Raises:
            RemoteProtocolError: `position` when a record lies at or below a mark already given, or the order is broken.
            LocalProtocolError: no such channel enters here.
        """
        channel = self._inputs.get((edge, source))
        if channel is None:
            raise LocalProtocolError(f"edge {edge} from instance {source} does not enter here")
        positions, mark = batch.positions, batch.mark
        if mark < channel.mark:
            raise RemoteProtocolError("position", f"mark {mark} after {channel.mark} on edge {edge}")
        if positions:
            if positions[0] <= channel.mark:
                raise RemoteProtocolError(
                    "position", f"a record at {positions[0]} after mark {channel.mark} on edge {edge}"
                )
            if positions[-1] > mark or not all(map(lt, positions, positions[1:])):
                raise RemoteProtocolError("position", f"records out of order before mark {mark} on edge {edge}")
        channel.mark = mark
        self._offered = True
        if channel.padding:
            padding = channel.padding
            batch = Batch(batch.rows, [position + padding for position in positions], _last_mark(channel))
        self.queued_rows += len(positions)
        if positions or not channel.waiting:
            channel.waiting.append(batch)
            channel.joined.append(1)
        else:
            # A punctuation only moves the mark of what waits before it; both are consumed together.
            last = channel.waiting[-1]
            channel.waiting[-1] = Batch(last.rows, last.positions, batch.mark)
            channel.joined[-1] += 1

    def take(self, limit: int) -> tuple[list[Any], list[Position], Position]:
        """At most `limit` records in order, and the mark up to which they are complete.

        Without a record the mark is the frontier, the least mark of all inputs.
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
        """True when `take` still has records in hand, or may find some in what was offered since it last looked."""
        return self._at < len(self._rows) or self._offered

    def consumed(self, edge: int, source: int) -> int:
        """How many batches of a channel have been taken wholly."""
        return self._inputs[edge, source].consumed

    def _refill(self) -> None:
        """Release everything at or below the least mark."""
        self._at = 0
        self._offered = False
        self._rows, self._positions = [], []
        marks = [_last_mark(channel) for channel in self._inputs.values()]
        self.frontier = frontier = max(marks) if all(map(is_final, marks)) else min(marks)
        runs = 0
        for channel in self._inputs.values():
            before = len(self._positions)
            self._release(channel, frontier)
            runs += len(self._positions) > before
        if runs > 1:
            # Timsort finds the runs of the inputs and merges them.
            positions, rows = self._positions, self._rows
            order = sorted(range(len(positions)), key=positions.__getitem__)
            self._positions = [positions[i] for i in order]
            self._rows = [rows[i] for i in order]

    def _release(self, channel: _Input, frontier: Position) -> None:
        waiting = channel.waiting
        while waiting:
            batch = waiting[0]
            if batch.mark <= frontier:
                waiting.popleft()
                channel.consumed += channel.joined.popleft()
                self._rows += batch.rows
                self._positions += batch.positions
                continue
            cut = bisect_right(batch.positions, frontier)
            if cut:
                self._rows += batch.rows[:cut]
                self._positions += batch.positions[:cut]
                waiting[0] = Batch(batch.rows[cut:], batch.positions[cut:], batch.mark)
            return

    def snapshot(self) -> Any:
        """Marks, queues and released records as plain data: (inputs, released rows, their positions, frontier)."""
        inputs = [
            (
                edge,
                source,
                channel.mark,
                channel.consumed,
                [(batch.rows, batch.positions, batch.mark) for batch in channel.waiting],
                list(channel.joined),
            )
            for (edge, source), channel in self._inputs.items()
        ]
        return inputs, self._rows[self._at :], self._positions[self._at :], self.frontier

    def restore(self, plain: Any) -> None:
        """Go back to a snapshot whose rows have their types again."""
        inputs, self._rows, self._positions, self.frontier = plain
        self._at = 0
        self._offered = True
        self.queued_rows = len(self._rows)
        for edge, source, mark, consumed, waiting, joined in inputs:
            channel = self._inputs[edge, source]
            channel.mark, channel.consumed = mark, consumed
            channel.waiting, channel.joined = deque(Batch(*batch) for batch in waiting), deque(joined)
            self.queued_rows += sum(len(batch) for batch in channel.waiting)


def _last_mark(channel: _Input) -> Position:
    """How far a channel has promised, in the positions of the merged order."""
    return (*channel.mark, END) if channel.padding and not is_final(channel.mark) else channel.mark
