"""`OutputEnd.emit` sends at once what may go at once: the same rows, watermarks, barriers and counts as through the queue."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.runtime.channels import SendingChannel
from agiledart_executor.instances.running_instance import OutputEnd

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("rows", "rows", "rows", "mark", "barrier", "acknowledge", "shut", "open")), st.integers(0, 4)
    ),
    max_size=40,
)


class _Way:
    """A channel's way out that may be shut, and what came through it."""

    def __init__(self, window: int, *, lazy: bool) -> None:
        self.open = True
        self.frames: list[tuple[int, list[Any], Any, int]] = []
        self.channel = SendingChannel(window, max_rows=3, lazy_watermarks=lazy)
        self.end = OutputEnd(self.channel, self._deliver, lambda: self.open)

    def _deliver(self, batch: Batch, first_row: int, channel: SendingChannel) -> None:
        assert self.open
        assert channel is self.channel
        self.frames.append((first_row, list(batch.held), batch.watermark, batch.barrier))

    def acknowledge(self) -> None:
        self.channel.acknowledge(self.channel.frames_sent, self.channel.watermarks_sent)

    def story(self) -> list[Any]:
        """Rows, and barriers in their places."""
        assert [first for first, rows, _, _ in self.frames if rows] == _starts(self.frames)
        assert [watermark for _, _, watermark, _ in self.frames] == sorted(
            watermark for _, _, watermark, _ in self.frames
        )
        return [one for _, rows, _, barrier in self.frames for one in (rows or ([-barrier] if barrier else []))]


def _starts(frames: list[tuple[int, list[Any], Any, int]]) -> list[int]:
    found, total = [], 0
    for _, rows, _, _ in frames:
        if rows:
            found.append(total)
        total += len(rows)
    return found


@given(STEPS, st.integers(1, 3), st.booleans())
def test_rows_watermarks_and_barriers_leave_as_through_the_queue(steps: list[Step], window: int, lazy: bool) -> None:
    at_once, queued = _Way(window, lazy=lazy), _Way(window, lazy=lazy)
    number = barrier = 0
    for what, count in (*steps, ("open", 0)):
        batch = None
        if what == "rows":
            rows = list(range(number + 1, number + 1 + count))
            number += count + 1
            batch = Batch(rows, [(n, 1) for n in rows], (number, 1))
        elif what == "mark":
            number += count
            batch = Batch([], [], (number, 1))
        elif what == "barrier":
            barrier += 1
            batch = Batch([], None, (number, 1), barrier)
        for way in (at_once, queued):
            if what == "acknowledge":
                way.acknowledge()
            elif what in ("shut", "open"):
                way.open = what == "open"
            if batch is not None and way is at_once:
                way.end.emit(0, 0, batch)
            elif batch is not None:
                way.channel.put(batch)
            way.end.flush()
    for way in (at_once, queued):
        way.channel.release_watermark()
        while way.channel.has_more:
            way.acknowledge()
            way.end.flush()
        way.acknowledge()
        assert way.channel.idle
    assert at_once.story() == queued.story()
    assert at_once.frames[-1:] == [] or at_once.frames[-1][2] == queued.frames[-1][2]
    assert at_once.channel.rows_sent == queued.channel.rows_sent


def test_rows_with_no_waiting_instance_leave_before_a_flush() -> None:
    way = _Way(2, lazy=False)
    way.end.emit(0, 0, Batch([1], [(1, 1)], (1, 1)))
    assert way.story() == [1]
