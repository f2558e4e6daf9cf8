"""The host of instances: a whole pipeline in one loop, with credit, errors and ends."""

import asyncio
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from agiledart import Topology, collect, records
from agiledart_connectors.opening import open_sink, open_source
from agiledart_dataflow.counts.key_sample import KeySample
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.carries import Carries
from agiledart_dataflow.data.partitioning import key_group
from agiledart_dataflow.data.position import covering
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.channels import ReceivingChannel, SendingChannel
from agiledart_dataflow.runtime.instance import WORK_BUDGET, Instance
from agiledart_dataflow.runtime.program import Program, compile_program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_executor.channels.local_channel import local_output
from agiledart_executor.instances.instance_host import InstanceHost
from agiledart_executor.instances.running_instance import SOURCE_ROWS, InputEnd, OutputEnd, RunningInstance
from agiledart_kernel.errors import RemoteProtocolError
from tests.unit.executor.host_clock import Clock


class Reading(NamedTuple):
    """A row."""

    at: int
    value: int


class Unusual(BaseException):
    """An exception that `except Exception` does not catch."""


def keep_even(reading: Reading) -> bool:
    if reading.value == -66:
        raise ValueError("the beast")
    if reading.value == -67:
        raise Unusual("no Exception")
    if reading.value == -68:
        sys.exit(4)
    return reading.value % 2 == 0


def eightfold(reading: Reading) -> list[Reading]:
    return [reading] * 8


def topology(rows: list[Reading], expand: Callable[[Reading], list[Reading]] | None = None) -> Topology:
    made = Topology("host")
    readings = made.source("readings", records(rows, row_type=Reading), event_time=lambda reading: reading.at)
    if expand is None:
        readings.filter(keep_even).sink("report", collect)
    else:
        readings.flat_map(expand).sink("report", collect)
    return made


class Pipeline:
    """All instances of a topology in one host, channels as within an executor between them, or such with a given window."""

    def __init__(
        self,
        rows: list[Reading],
        window: int | None = None,
        expand: Callable[[Reading], list[Reading]] | None = None,
        at_least: Carries = "rows",
        made: Topology | None = None,
    ) -> None:
        made = made or topology(rows, expand)
        self.program: Program = compile_program(made, plan_stages(made.specification(), at_least=at_least))
        self.finished: list[str] = []
        self.broken: list[str] = []
        self.all_done = asyncio.Event()
        self.host = InstanceHost(self._finished, self._broke)
        plan = self.program.plan
        self.running: list[RunningInstance] = []
        for stage in plan.stages:
            running = RunningInstance(stage.index, 0, stage.name)
            endpoint = self.program.endpoint(stage.index) if stage.kind != "operator" else None
            if stage.kind == "source" and endpoint is not None:
                running.source = SourceInstance(
                    self.program, stage.index, open_source(endpoint.connector, endpoint.row_type)
                )
            else:
                if endpoint is not None:
                    running.use_writer(open_sink(endpoint.connector, endpoint.row_type))
                running.instance = Instance(self.program, stage.index, 0, running.writer)
            for incoming, source in plan.inputs(stage.index, 0):
                running.inputs[incoming, source] = InputEnd(channel=ReceivingChannel(window or 1))
            self.running.append(running)
        for edge in plan.edges:
            self._join(edge.index, self.running[edge.source], self.running[edge.target], window)
        for running in self.running:
            self.host.add(running)

    def _join(self, edge: int, up: RunningInstance, down: RunningInstance, window: int | None) -> None:
        if window is None:
            codec = self.program.codec(edge)
            up.outputs[edge, 0] = local_output(self.host, up, down, (edge, 0), codec, lazy_watermarks=False)
            return

        def deliver(batch: Batch, first_row: int, channel: SendingChannel) -> None:
            self.host.receive(down, edge, 0, channel.last_number, first_row, batch)

        up.outputs[edge, 0] = OutputEnd(SendingChannel(window), deliver)
        down.inputs[edge, 0].acknowledge = lambda frames, watermarks: self.host.acknowledged(
            up, edge, 0, frames, watermarks
        )

    def _finished(self, running: RunningInstance) -> None:
        self.finished.append(running.name)
        if len(self.finished) == len(self.running):
            self.all_done.set()

    def _broke(self, running: RunningInstance, message: str) -> None:
        self.broken.append(message)
        self.all_done.set()

    async def run(self) -> None:
        self.host.start_reading()
        await asyncio.wait_for(self.all_done.wait(), 10)


def rows(count: int) -> list[Reading]:
    return [Reading(n, n) for n in range(count)]


@pytest.mark.parametrize("window", [None, 1, 2, 16])
def test_a_pipeline_runs_to_its_end(window: int | None) -> None:
    async def play() -> Pipeline:
        pipeline = Pipeline(rows(5_000), window)
        await pipeline.run()
        return pipeline

    pipeline = asyncio.run(play())
    assert sorted(pipeline.finished) == ["keep_even", "readings", "report"]
    report = pipeline.running[-1].report()
    assert report["waiting_rows"] == 0
    assert not report["blocked"]
    for running in pipeline.running:
        assert all(end.channel.idle for end in running.outputs.values())


def test_rows_pass_all_instances_in_the_callback_that_brought_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn of the loop lies between a source's socket and the sink behind it."""
    Clock(monkeypatch)

    async def play() -> Pipeline:
        pipeline = Pipeline(rows(1))
        pipeline.host.reading = True
        pipeline.host.wake_now(pipeline.running[0])
        return pipeline

    assert sorted(asyncio.run(play()).finished) == ["keep_even", "readings", "report"]


def test_a_frame_is_sent_before_its_instances_bookkeeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait for it at the other end of a link is for nothing else."""
    seen: list[str] = []
    Clock(monkeypatch, ns_a_look=1)

    async def play() -> None:
        pipeline = Pipeline(rows(1))
        host, middle = pipeline.host, pipeline.running[1]
        link: Any = SimpleNamespace(flush=lambda: seen.append("frame"))
        middle.outputs[1, 0].deliver = lambda batch, first_row, channel: host.cork.links.append(link)
        middle.adapt_budget = lambda rows, ns: seen.append("books")  # type: ignore[method-assign]
        host.gather()
        host.receive(middle, 0, 0, 0, 0, Batch([Reading(0, 0)], [(0, 1, 0, 0)], (0, 1, 0, 0)))
        host.run_woken()

    asyncio.run(play())
    assert seen[:2] == ["frame", "books"]


def test_an_instance_woken_during_frame_gathering_waits_for_the_last_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)

    async def play() -> tuple[list[int], int]:
        pipeline = Pipeline([], window=16)
        sink = pipeline.running[2]
        assert sink.instance is not None
        waiting: list[int] = []
        pipeline.host.gather()
        for n in range(3):
            batch = Batch([Reading(n, n)], None, covering((n, 1, 0, n)))
            pipeline.host.receive(sink, 1, 0, n, n, batch)
            await asyncio.sleep(0)
            waiting.append(sink.instance.queued_rows)
        pipeline.host.run_woken()
        return waiting, sink.instance.queued_rows

    assert asyncio.run(play()) == ([1, 2, 3], 0)


def test_an_instance_with_excess_work_continues_once_per_loop_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many sockets have something, the loop comes round: their frames wait for the turn that is due."""
    Clock(monkeypatch, ns_a_look=500_000)

    async def play() -> list[int]:
        pipeline = Pipeline(rows(60_000))
        host, source = pipeline.host, pipeline.running[0]
        host.reading = True
        calls = []
        for _ in range(3):
            host.wake_now(source)
            calls.append(host.calls)
        await asyncio.sleep(0)
        return [*calls, host.calls]

    first, second, third, after = asyncio.run(play())
    assert 0 < first == second == third < after


def test_space_freed_by_a_flush_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """An acknowledgement opens half the window, the flush makes room: no further one comes to wake the instance."""
    Clock(monkeypatch)

    async def play() -> int:
        pipeline = Pipeline([], expand=eightfold)
        middle = pipeline.running[1]
        assert middle.instance is not None
        # 2,048 rows: sixteen frames go, 448 rows wait and block, then five frames are too few to be acknowledged.
        middle.budget = 256
        far_end = ReceivingChannel(16)
        middle.outputs[1, 0] = OutputEnd(
            SendingChannel(16, max_rows=100, bound_rows=250),
            lambda batch, first_row, channel: far_end.accept(channel.last_number, first_row, len(batch.rows)),
        )
        middle.take_outputs()
        batch = Batch([Reading(n, n) for n in range(2_000)], None, covering((1_999, 1, 0, 1_999)))
        pipeline.host.receive(middle, 0, 0, 0, 0, batch)
        for _ in range(1_000):
            await asyncio.sleep(0)
            if due := far_end.due(far_end.frames):
                pipeline.host.acknowledged(middle, 1, 0, *due)
        assert far_end.rows + middle.outputs[1, 0].channel.rows_waiting + 8 * middle.instance.queued_rows == 16_000
        return middle.instance.queued_rows

    assert asyncio.run(play()) == 0


def test_nothing_is_read_before_the_start() -> None:
    async def play() -> Pipeline:
        pipeline = Pipeline(rows(10))
        for _ in range(20):
            await asyncio.sleep(0)
        return pipeline

    pipeline = asyncio.run(play())
    source = pipeline.running[0].source
    assert source is not None
    counts = source.statistics().source
    assert counts is not None
    assert counts.lines == 0


def test_user_code_that_raises_breaks_its_instance_and_is_located() -> None:
    async def play() -> Pipeline:
        pipeline = Pipeline([*rows(10), Reading(11, -66)])
        await pipeline.run()
        return pipeline

    pipeline = asyncio.run(play())
    (message,) = pipeline.broken
    assert "keep_even" in message
    assert "the beast" in message
    assert "-66" in message


@pytest.mark.parametrize(("value", "said"), [(-67, "Unusual: no Exception"), (-68, "SystemExit: 4")])
def test_a_base_exception_breaks_its_instance_too(value: int, said: str) -> None:
    """Rows would be missing from the result if the host went on."""

    async def play() -> Pipeline:
        pipeline = Pipeline([*rows(10), Reading(11, value), *rows(20)[12:]])
        await pipeline.run()
        return pipeline

    pipeline = asyncio.run(play())
    (message,) = pipeline.broken
    assert said in message
    assert "keep_even" in message
    assert "keep_even" not in pipeline.finished


def test_a_sink_given_an_unwritable_value_breaks() -> None:
    async def play() -> Pipeline:
        pipeline = Pipeline(rows(10))
        sink = pipeline.running[-1]
        assert sink.writer is not None
        sink.writer.write = lambda rows: [][0]  # type: ignore[method-assign]
        await pipeline.run()
        return pipeline

    pipeline = asyncio.run(play())
    (message,) = pipeline.broken
    assert message.endswith("in report: IndexError: list index out of range")


def test_a_slow_step_gets_few_rows_at_a_time() -> None:
    """Or its process would count as stuck while it treats thousands of them."""

    async def play() -> RunningInstance:
        running = Pipeline(rows(1)).running[1]
        for count in (1, 2, 4, 8):
            running.adapt_budget(count, 1_000_000)
        assert running.budget == 16
        running.adapt_budget(16, 300_000_000)
        assert running.budget == 8
        running.adapt_budget(3, 300_000_000)
        assert running.budget == 1
        running.adapt_budget(0, 1_000_000)
        assert running.budget == 1
        for _ in range(40):
            running.adapt_budget(10_000, 1_000_000)
        return running

    assert asyncio.run(play()).budget == WORK_BUDGET


def test_rows_do_not_pile_up_between_a_fast_source_and_a_slow_local_step() -> None:
    """A process that gets little of a busy machine is slow in all its steps, and would fill whatever room there is."""
    waiting: list[int] = []

    async def play() -> None:
        def counted(reading: Reading) -> list[Reading]:
            waiting.append(queued())
            return [reading]

        pipeline = Pipeline(rows(20_000), expand=counted)
        source, step = pipeline.running[:2]

        def queued() -> int:
            assert step.instance is not None
            return step.instance.queued_rows + sum(end.channel.rows_waiting for end in source.outputs.values())

        step.budget, source.budget = 1, SOURCE_ROWS
        step.adapt_budget = lambda rows, ns: None  # type: ignore[method-assign]  # as slow as it began
        await pipeline.run()

    asyncio.run(play())
    assert len(waiting) == 20_000
    assert max(waiting) <= 5 * SOURCE_ROWS


def test_drain_ends_a_source_early_and_the_pipeline_with_it() -> None:
    async def play() -> Pipeline:
        pipeline = Pipeline(rows(300_000))
        pipeline.host.start_reading()
        for _ in range(5):
            await asyncio.sleep(0)
        pipeline.host.end_input()
        await asyncio.wait_for(pipeline.all_done.wait(), 10)
        return pipeline

    pipeline = asyncio.run(play())
    source = pipeline.running[0].source
    assert source is not None
    counts = source.statistics().source
    assert counts is not None
    assert 0 < counts.lines < 300_000
    assert counts.lines == counts.records
    assert len(pipeline.finished) == 3


def test_invalid_frames_are_the_peers_error() -> None:
    async def play() -> None:
        pipeline = Pipeline(rows(10))
        middle = pipeline.running[1]
        with pytest.raises(RemoteProtocolError, match="channel"):
            pipeline.host.receive(middle, 9, 0, 0, 0, Batch([], [], (1,)))
        with pytest.raises(RemoteProtocolError, match="gap"):
            pipeline.host.receive(middle, 0, 0, 0, 7, Batch([Reading(1, 1)], [(1, 1, 0, 0)], (1, 1, 0, 0)))
        with pytest.raises(RemoteProtocolError, match="channel"):
            pipeline.host.acknowledged(middle, 0, 5, 1, 0)
        with pytest.raises(RemoteProtocolError, match="acknowledgement"):
            pipeline.host.acknowledged(middle, 1, 0, 99, 0)

    asyncio.run(play())


@pytest.mark.parametrize("window", [None, 4])
def test_key_groups_are_sampled_from_rows_of_every_arrival_path(window: int | None) -> None:
    async def play() -> tuple[tuple[int, int], ...]:
        pipeline = Pipeline(rows(30_000), window)
        sink = pipeline.running[-1]
        ((edge, _),) = sink.inputs
        sink.keys = KeySample({edge: lambda reading: "one"})
        await pipeline.run()
        assert not pipeline.broken
        return sink.keys.counts(0)

    ((group, count),) = asyncio.run(play())
    assert group == key_group("one")
    assert 0 < count < 15_000
