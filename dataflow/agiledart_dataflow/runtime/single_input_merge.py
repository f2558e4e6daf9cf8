"""`SingleInputMerge`: the merge of a single channel, which is already in order: less work per batch, and columns stay columns."""

from collections.abc import Sequence
from operator import lt
from typing import Any

from agiledart_dataflow.data.batch import Batch, Held, Order, concatenated, listed, place
from agiledart_dataflow.data.position import END, START, Position
from agiledart_dataflow.data.position_arrays import is_strictly_ascending
from agiledart_dataflow.runtime.arrivals import MAX_COLUMN_ROWS
from agiledart_dataflow.runtime.merge import Channel, Merge
from agiledart_kernel.errors import RemoteProtocolError


class SingleInputMerge(Merge):
    """Inbox that takes batches of one channel as they come; all unusual cases go through `Merge`.

    Args:
        channel: the one that enters.
        padding: of its edge.
    """

    __slots__ = ("_edge", "_only", "_ready", "_source")

    def __init__(self, channel: Channel, padding: Position) -> None:
        super().__init__(((channel, padding),))
        self._edge, self._source = channel
        self._only = self._inputs[channel]
        self._ready: list[Batch] = []  # batches with no rows waiting before them; of several, columns come first

    def offer(self, edge: int, source: int, batch: Batch) -> None:
        """Take the next batch of the channel; it waits behind the ready batches."""
        only, watermark, held = self._only, batch.watermark, batch.held
        if (
            (self._ready and not self._waits_beside(held))
            or only.waiting
            or only.padding
            or self._rows
            or batch.barrier
            or watermark[0] == END
            or self._floor is not START
            or edge != self._edge
            or source != self._source
        ):
            self._fall_back_to_merge()
            super().offer(edge, source, batch)
            if self._floor is not START and len(batch.held) and place(batch.order, 0) > self._floor:
                self._floor = START  # all rows taken before a restore have come again
            return
        positions = batch.order
        if positions is None or (type(positions) is not list and not len(positions)):
            positions = []
            batch = Batch(held, positions, watermark)
        if type(positions) is list:
            self._check(edge, only.watermark, positions, watermark, ascends=batch.ascends)
        elif batch.ascends or is_strictly_ascending(positions):
            self._check(edge, only.watermark, [place(positions, 0), place(positions, -1)], watermark, ascends=True)
        else:
            raise RemoteProtocolError("position", f"records out of order on edge {edge}")
        only.watermark = watermark
        count = len(positions)
        only.rows += count
        self.queued_rows += count
        self._ready.append(batch)

    def passes(self, edge: int, source: int, batch: Batch) -> bool:
        """Count the rows of a batch as taken if no rows wait here, and return True; else return False and change nothing.

        Rows out of order are never taken here: `offer` reports them.
        """
        only, watermark, positions = self._only, batch.watermark, batch.order
        if (
            self._ready
            or only.waiting
            or only.padding
            or self._rows
            or self._floor is not START
            or self.barriers
            or batch.barrier
            or edge != self._edge
            or source != self._source
            or watermark[0] == END
            or type(positions) is not list
            or positions[0] <= only.watermark
            or positions[-1] > watermark
            or not (batch.ascends or all(map(lt, positions, positions[1:])))
        ):
            return False
        only.rows += len(positions)
        only.watermark = self.frontier = watermark
        return True

    def _waits_beside(self, held: Held) -> bool:
        """Report whether these rows may wait with the ready batches: behind columns, or without rows; other rows need a merge."""
        first = self._ready[0].held
        return type(first) is not list or (not len(first) and (type(held) is not list or not len(held)))

    def take(self, limit: int) -> tuple[Held, Order, Position]:
        """Return the next rows and their watermark; of columns all that are ready, within a bound."""
        ready = self._ready
        if not ready:
            return super().take(limit)
        stop = 1 if len(ready) == 1 else self._joined()
        batch = ready[0] if stop == 1 else concatenated(ready[:stop])
        count = len(batch.held)
        if count > limit and type(batch.held) is list:
            self._fall_back_to_merge()
            return super().take(limit)
        self._only.consumed += stop
        del ready[:stop]
        self.queued_rows -= count
        self.frontier = batch.watermark
        return batch.held, batch.order, batch.watermark

    def _joined(self) -> int:
        """Return how many ready batches can leave together: rows, or columns, and watermarks without rows."""
        rows = 0
        form: type | None = None
        for number, batch in enumerate(self._ready):
            held = batch.held
            if not len(held):
                continue
            rows += len(held)
            if form is not None and (type(held) is list or type(held) is not form or rows > MAX_COLUMN_ROWS):
                return number
            form = type(held)
        return len(self._ready)

    @property
    def has_released(self) -> bool:
        """Report whether `take` may still return rows."""
        return bool(self._ready) or self._offered or self._at < len(self._rows)

    def snapshot(self, barrier: int = 0) -> Any:
        """Return the snapshot of a merge; ready batches first move into its queue."""
        self._fall_back_to_merge()
        return super().snapshot(barrier)

    def restore(self, plain: Any) -> None:
        """Restore a snapshot of a merge; no batch is ready then."""
        self._ready.clear()
        super().restore(plain)

    def to_multi_input(self) -> Merge:
        """Return a merge of any number of channels in the same state, in place of this one."""
        self._fall_back_to_merge()
        wide = Merge(())
        for name in Merge.__slots__:
            setattr(wide, name, getattr(self, name))
        return wide

    def _fall_back_to_merge(self) -> None:
        """Move the ready batches into the queue of the general merge."""
        ready, self._ready = self._ready, []
        only = self._only
        for batch in ready:
            self._offered = True
            batch.order = listed(batch.order)
            if len(batch.held) or not only.waiting:
                only.waiting.append(batch)
                only.joined.append(1)
                only.appended += 1
            else:
                only.waiting[-1].watermark = batch.watermark
                only.joined[-1] += 1


def merge_for(channels: Sequence[tuple[Channel, Position]]) -> Merge:
    """Return the merge for these channels, each with its padding."""
    return SingleInputMerge(*channels[0]) if len(channels) == 1 else Merge(channels)
