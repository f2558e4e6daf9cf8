"""Batches that pass through idle instances within one turn: counters, the instance that an error names, fairness."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from agiledart import Topology, collect, records
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.position import covering
from agiledart_dataflow.runtime.channels import ReceivingChannel, SendingChannel
from agiledart_executor.instances import instance_host as host_module
from agiledart_executor.instances import running_instance
from agiledart_executor.instances.running_instance import WORK_SLICE_NS, OutputEnd
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.limits import CHANNEL_WINDOW_FRAMES
from agiledart_kernel.randomness import RandomStream
from tests.unit.executor.host_clock import Clock
from tests.unit.executor.test_instance_host import Pipeline, Reading, rows


def frame(first: int, count: int, value: int = 0) -> Batch:
    """Some rows as they come over a link."""
    numbers = range(first, first + count)
    positions = [(number, 1, 0, number) for number in numbers]
    return Batch([Reading(number, value) for number in numbers], positions, covering(positions[-1]))


class Far:
    """A pipeline without its source: the middle instance's input comes from elsewhere, its output goes to the sink beside it."""

    def __init__(self) -> None:
        self.pipeline = Pipeline([], at_least="positions")
        self.host = self.pipeline.host
        _, self.middle, self.sink = self.pipeline.running
        self.middle.budget = self.sink.budget = 64
        self.acknowledged: list[tuple[int, int]] = []
        end = self.middle.inputs[0, 0]
        end.channel = ReceivingChannel(4)
        end.acknowledge = lambda frames, watermarks: self.acknowledged.append((frames, watermarks))
        self.sent = self.frames = 0

    def receive(self, *counts: int, value: int = 0) -> None:
        """Frames of so many rows come in one read of a link, which calls `gather` and `turn` around them."""
        self.host.gather()
        for number, count in enumerate(counts, 1):
            is_last = number == len(counts)
            self.take(self.sent, frame(self.sent, count, value), is_last=is_last)
            self.sent += count
        self.host.run_woken()

    def take(self, first_row: int, batch: Batch, *, is_last: bool) -> None:
        """The next frame comes."""
        self.frames += 1
        self.host.receive(self.middle, 0, 0, self.frames - 1, first_row, batch, is_last=is_last)

    def written(self) -> int:
        assert self.sink.instance is not None
        return self.sink.instance.statistics().steps["report"].rows_in


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def slow_sink(far: Far, clock: Clock, patch: pytest.MonkeyPatch, ns: int) -> None:
    """From now on a row costs the sink so much."""
    writer = far.sink.writer
    assert writer is not None
    write = writer.write

    def write_slowly(found: list[Any]) -> None:
        clock.now += ns * len(found)
        write(found)

    patch.setattr(writer, "write", write_slowly)


def in_a_loop(play: Any) -> Any:
    async def run() -> Any:
        return play()

    return asyncio.run(run())


def test_a_lone_frame_reaches_the_sink_before_receive_returns() -> None:
    def play() -> None:
        far = Far()
        local = far.middle.outputs[1, 0].channel
        for _ in range(10):
            far.receive(3)
            assert far.written() == far.sent
        assert (
            local.frames_sent == 3
        )  # the first are tried on the wire, and have one row until the neighbour has reported its rate
        assert local.idle
        assert far.acknowledged == [(2, 0), (4, 0), (6, 0), (8, 0), (10, 0)]  # of a window of four, two at a time
        assert far.middle.instance is not None
        assert far.middle.instance.statistics().received == [(0, 0, 30)]
        assert not far.pipeline.broken

    in_a_loop(play)


def test_frames_with_more_behind_them_are_processed_together() -> None:
    def play() -> None:
        far = Far()
        for _ in range(4):
            far.receive(1)
        calls = far.host.calls
        far.receive(1, 1, 1)
        assert far.written() == far.sent
        assert far.host.calls == calls + 2  # one call of the middle, and the sink's within it

    in_a_loop(play)


def test_a_frame_out_of_order_is_the_senders_error_and_breaks_no_instance() -> None:
    def play() -> None:
        far = Far()
        far.receive(3)
        batch = frame(3, 2)
        batch.order.reverse()
        with pytest.raises(RemoteProtocolError, match="order"):
            far.take(3, batch, is_last=True)
        with pytest.raises(RemoteProtocolError, match="was expected"):
            far.take(77, frame(77, 1), is_last=True)
        assert not far.pipeline.broken

    in_a_loop(play)


def test_an_error_within_a_pass_belongs_to_the_instance_that_raised() -> None:
    def play() -> None:
        far = Far()
        far.receive(1)
        far.receive(1, value=-66)
        assert far.middle.broken
        assert not far.sink.broken
        assert far.host.current is None
        (message,) = far.pipeline.broken
        assert "the beast" in message

    in_a_loop(play)


def test_a_source_continues_when_the_instance_beside_it_breaks() -> None:
    async def play() -> Pipeline:
        pipeline = Pipeline([*rows(40), Reading(50, -66), *[Reading(60 + n, 1) for n in range(40)]])
        await pipeline.run()
        return pipeline

    pipeline = asyncio.run(play())
    source, middle, _ = pipeline.running
    assert middle.broken
    assert not source.broken
    assert len(pipeline.broken) == 1


def test_time_within_a_pass_is_attributed_to_the_instance_that_worked(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that only user code moves: 3 µs in the step, 2 in the sink for each row, nothing in the source."""

    def slow(reading: Reading) -> Reading:
        clock.now += 3_000
        return reading

    made = Topology("host")
    readings = made.source("readings", records(rows(200), row_type=Reading), event_time=lambda reading: reading.at)
    readings.map(slow).sink("report", collect)

    async def run() -> Pipeline:
        pipeline = Pipeline([], made=made)
        writer = pipeline.running[2].writer
        assert writer is not None
        write = writer.write

        def write_slowly(found: list[Any]) -> None:
            clock.now += 2_000 * len(found)
            write(found)

        monkeypatch.setattr(writer, "write", write_slowly)
        await pipeline.run()
        return pipeline

    pipeline = asyncio.run(run())
    assert not pipeline.broken
    assert [running.busy_ns for running in pipeline.running] == [0, 600_000, 400_000]


def test_a_slow_instance_gets_fewer_rows_and_its_upstream_does_not(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """25 ms a row in the sink: it gets fewer rows at one time, not from within a turn; the middle's pace stays its own."""

    def play() -> None:
        far = Far()
        for _ in range(3):
            far.receive(1)
        slow_sink(far, clock, monkeypatch, 25_000_000)
        calls = far.host.calls
        far.receive(4)
        assert far.written() == far.sent
        assert far.host.calls == calls + 2
        assert far.sink.budget == 2
        assert far.middle.budget == 64
        written = far.written()
        far.receive(4)
        assert far.written() == written + 2  # two of them, and then it is the sockets' turn
        assert far.sink.busy_ns == 6 * 25_000_000
        assert far.middle.busy_ns == 0

    in_a_loop(play)


def test_a_slice_that_has_been_long_ends_between_neighbours(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def play() -> None:
        far = Far()
        for _ in range(3):
            far.receive(1)
        assert far.middle.instance is not None
        through = far.middle.instance.pass_through

        def slowly(edge: int, source: int, batch: Batch, emit: Any) -> bool:
            clock.now += WORK_SLICE_NS + 1
            return through(edge, source, batch, emit)

        monkeypatch.setattr(far.middle.instance, "pass_through", slowly)
        frames = far.middle.outputs[1, 0].channel.frames_sent
        far.receive(1)
        assert far.middle.outputs[1, 0].channel.frames_sent == frames + 1  # it went as a frame, for another turn

    in_a_loop(play)


def test_nested_passes_are_limited_in_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "MAX_NESTED", 1)

    def play() -> None:
        far = Far()
        for _ in range(5):
            far.receive(1)
            assert far.written() == far.sent
        assert far.middle.outputs[1, 0].channel.frames_sent == 5

    in_a_loop(play)


def test_dropped_rows_still_advance_time_downstream_at_once() -> None:
    def play() -> None:
        far = Far()
        for _ in range(3):
            far.receive(1)
        written = far.written()
        far.receive(1, value=1)  # odd: dropped
        assert far.written() == written
        assert far.sink.instance is not None
        assert far.middle.instance is not None
        assert far.sink.instance.watermark == far.middle.instance.watermark

    in_a_loop(play)


def test_a_sink_is_flushed_with_the_passed_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def play() -> None:
        far = Far()
        for _ in range(3):
            far.receive(1)
        flushed: list[int] = []
        monkeypatch.setattr(far.sink.writer, "flush", lambda: flushed.append(far.written()))
        far.take(far.sent, frame(far.sent, 2), is_last=True)
        assert flushed == [5]

    in_a_loop(play)


def test_rows_that_broke_an_instance_are_not_acknowledged() -> None:
    def play() -> None:
        far = Far()
        far.receive(1)
        far.receive(1, value=-66)
        assert far.middle.broken
        assert far.acknowledged == []

    in_a_loop(play)


def test_frames_wait_for_instances_that_were_woken_before() -> None:
    """A turn is due: frames that arrive now come behind it."""

    def play() -> None:
        far = Far()
        for _ in range(3):
            far.receive(1)
        far.host.gather()
        far.host.wake(far.sink)
        calls = far.host.calls
        far.take(far.sent, frame(far.sent, 1), is_last=True)
        assert far.host.calls == calls
        far.host.run_woken()
        assert far.host.calls > calls

    in_a_loop(play)


def test_an_instance_with_a_blocked_output_takes_no_more_frames() -> None:
    def play() -> None:
        far = Far()
        far.middle.outputs[1, 0] = OutputEnd(SendingChannel(1, bound_rows=1), lambda batch, first_row, channel: None)
        far.middle.take_outputs()
        far.receive(2)  # goes
        assert far.middle.instance is not None
        far.receive(2)  # waits in the channel
        assert far.middle.outputs[1, 0].channel.rows_waiting == 2
        far.receive(2)
        assert far.middle.instance.queued_rows == 2

    in_a_loop(play)


@pytest.mark.parametrize("seed", range(20))
def test_taken_rows_are_acknowledged_on_each_pass_so_no_window_stays_full(
    seed: int, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow receiver acknowledges late: of frames that were worked on in a turn of their own before, none may be forgotten."""

    def play() -> None:
        random = RandomStream(seed, "reads")
        far = Far()
        end = far.middle.inputs[0, 0]
        end.channel = ReceivingChannel(CHANNEL_WINDOW_FRAMES)
        far.middle.budget = 2
        slow_sink(far, clock, monkeypatch, 40_000_000)
        monkeypatch.setattr(running_instance, "time", SimpleNamespace(monotonic_ns=lambda: clock.now))
        for _ in range(300):
            told = far.acknowledged[-1][0] if far.acknowledged else 0
            room = CHANNEL_WINDOW_FRAMES - (far.frames - told)
            assert room > 0, f"{far.frames} frames came and were taken, {told} are acknowledged"
            far.receive(*([1] * (1 + random.index(min(room, 9)))) if random.index(2) else [1])
            while far.host._ready or far.host._run_scheduled:
                far.host._scheduled_run()
            clock.now += random.index(50) * 1_000_000

    in_a_loop(play)
