"""`OneInput`: the merge of a single channel, which is in order by itself: less to do for each batch."""

from collections.abc import Sequence
from typing import Any

from agiledart_dataflow.batch import Batch, listed
from agiledart_dataflow.merge import Channel, Merge
from agiledart_dataflow.position import END, START, Position


class OneInput(Merge):
    """Takes batches of one channel as they come; all that is unusual goes the way of every merge.

    Args:
        channel: the one that enters.
        padding: of its edge.
    """

    __slots__ = ("_edge", "_next", "_only", "_source")

    def __init__(self, channel: Channel, padding: Position) -> None:
        super().__init__(((channel, padding),))
        self._edge, self._source = channel
        self._only = self._inputs[channel]
        self._next: Batch | None = None  # has come, and nothing waits before it

    def offer(self, edge: int, source: int, batch: Batch) -> None:
        """As above."""
        only, mark = self._only, batch.mark
        if (
            self._next is not None
            or only.waiting
            or only.padding
            or self._rows
            or batch.barrier
            or mark[0] == END
            or self._floor is not START
            or edge != self._edge
            or source != self._source
        ):
            self._go_the_usual_way()
            super().offer(edge, source, batch)
            return
        rows, positions = batch.rows, listed(batch.order) or []
        self._check(edge, only.mark, positions, mark)
        only.mark = mark
        count = len(positions)
        only.rows += count
        self.queued_rows += count
        self._next = Batch(rows, positions, mark)

    def take(self, limit: int) -> tuple[list[Any], list[Position], Position]:
        """As above."""
        batch = self._next
        if batch is None:
            return super().take(limit)
        count = len(batch.held)
        if count > limit:
            self._go_the_usual_way()
            return super().take(limit)
        self._next = None
        self.queued_rows -= count
        self._only.consumed += 1
        self.frontier = batch.mark
        return batch.held, batch.order, batch.mark

    @property
    def has_released(self) -> bool:
        """As above."""
        return self._next is not None or super().has_released

    def snapshot(self, barrier: int = 0) -> Any:
        """As above."""
        self._go_the_usual_way()
        return super().snapshot(barrier)

    def restore(self, plain: Any) -> None:
        """As above."""
        self._next = None
        super().restore(plain)

    def _go_the_usual_way(self) -> None:
        """Let what has come wait as in any merge."""
        batch, self._next = self._next, None
        if batch is not None:
            self._only.waiting.append(batch)
            self._only.joined.append(1)
            self._only.appended += 1
            self._offered = True


def merge_of(channels: Sequence[tuple[Channel, Position]]) -> Merge:
    """For these channels, each with its padding."""
    return OneInput(*channels[0]) if len(channels) == 1 else Merge(channels)
