"""Barriers in a host whose receiver gives no credit: a source, a blocked step, and both after the end of the input."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from agiledart import Topology, collect, records
from agiledart_connectors.opening import open_source
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.position import is_final
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.channels import SendingChannel
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.program import compile_program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_dataflow.state.restoring_from_run import rows_waiting
from agiledart_executor.channels.local_channel import local_output
from agiledart_executor.instances.instance_host import InstanceHost
from agiledart_executor.instances.running_instance import InputEnd, OutputEnd, RunningInstance

MANY, FEW = 60, 6
"""Rows: more than channels take without credit, and so few that the source ends."""


class Reading(NamedTuple):
    """A row."""

    at: int
    value: int


class Held:
    """Source and step of one process; the receiver of the step's rows is silent, as a merge that waits for another input."""

    def __init__(self, count: int) -> None:
        made = Topology("held")
        rows = [Reading(n, n) for n in range(count)]
        left = made.source("left", records(rows, row_type=Reading), event_time=lambda row: row.at)
        right = made.source("right", records([], row_type=Reading), event_time=lambda row: row.at)
        left.map(lambda row: row, name="step", returns=Reading).union(right, name="both").sink("out", collect)
        program = compile_program(made, plan_stages(made.specification(), 1, "positions"))
        stage = next(stage.index for stage in program.plan.stages if stage.name == "step")
        into, out = program.plan.incoming(stage)[0].index, program.plan.outgoing(stage)[0].index
        endpoint = program.endpoint(0)
        reader = open_source(endpoint.connector, endpoint.row_type)
        self.failed: list[str] = []
        self.host = InstanceHost(lambda running: None, lambda running, text: self.failed.append(text))
        self.saved: dict[tuple[str, int], bytes] = {}
        self.host.barriers.on_barrier = self.keep
        self.source = RunningInstance(0, 0, "left", source=SourceInstance(program, 0, reader))
        self.step = RunningInstance(stage, 0, "step", instance=Instance(program, stage, 0))
        self.step.inputs[into, 0] = InputEnd()
        self.frames: list[Batch] = []
        self.channel = SendingChannel(1, 1, bound_rows=2, overtakes=True)
        self.step.outputs[out, 0] = OutputEnd(self.channel, lambda batch, first, channel: self.frames.append(batch))
        codec = program.codec(into)
        self.source.outputs[into, 0] = local_output(
            self.host, self.source, self.step, (into, 0), codec, lazy_watermarks=False
        )
        for running in (self.step, self.source):
            self.host.add(running)

    def keep(self, running: RunningInstance, epoch: int, snapshot: Any, began_ns: int, change: bytes) -> None:
        self.saved[running.name, epoch] = snapshot

    def take(self, most: int) -> None:
        """Take the step's rows that have come, up to so many."""
        rows = min(most, sum(len(frame) for frame in self.frames))
        self.host.acknowledged(self.step, *next(iter(self.step.outputs)), rows, self.channel.watermarks_sent)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the host work until then."""
        async with asyncio.timeout(20):
            while not condition():
                assert not self.failed, self.failed
                await asyncio.sleep(0)


def test_epochs_go_on_without_credit_and_behind_the_end_of_the_input() -> None:
    async def run() -> None:
        held = Held(MANY)
        held.host.start_reading()
        await held.until(lambda: held.channel.blocked)
        for epoch in (1, 2, 3):
            held.host.barriers.begin_epoch(epoch)
            await held.until(lambda epoch=epoch: ("step", epoch) in held.saved and ("left", epoch) in held.saved)
        assert [frame.barrier for frame in held.frames if frame.barrier] == [1, 2, 3]
        waiting = [rows_waiting(held.saved["step", 3]), rows_waiting(held.saved["left", 3])]
        read = held.source.source.statistics().source if held.source.source is not None else None
        assert read is not None
        assert sum(waiting) == read.records - 1, "every row but the one in flight is in a snapshot"
        sent = sum(len(frame) for frame in held.frames)
        while not held.channel.has_ended:  # the receiver takes the rows now, one after the other
            held.host.acknowledged(held.step, *next(iter(held.step.outputs)), sent, held.channel.watermarks_sent)
            await asyncio.sleep(0)
            sent = sum(len(frame) for frame in held.frames)
        assert sent == MANY
        assert is_final(held.frames[-1].watermark)

    asyncio.run(run())


@pytest.mark.parametrize("epochs", [1, 3])
def test_an_instance_behind_an_ended_input_begins_each_barrier_until_its_output_is_taken(epochs: int) -> None:
    async def run() -> None:
        held = Held(FEW)
        held.host.start_reading()
        instance = held.step.instance
        assert instance is not None
        taken = 0
        while not instance.has_ended_inputs:  # the receiver takes rows, but not the last ones
            taken = min(taken + 1, FEW - 3)
            taken = min(taken, sum(len(frame) for frame in held.frames))
            held.host.acknowledged(held.step, *next(iter(held.step.outputs)), taken, held.channel.watermarks_sent)
            await asyncio.sleep(0)
        assert not held.step.done
        for epoch in range(1, epochs + 1):
            held.host.barriers.begin_epoch(epoch)
            await held.until(lambda epoch=epoch: ("step", epoch) in held.saved)
        assert [frame.barrier for frame in held.frames if frame.barrier] == list(range(1, epochs + 1))
        assert rows_waiting(held.saved["step", epochs]) == FEW - sum(len(frame) for frame in held.frames)
        assert not any(is_final(frame.watermark) for frame in held.frames)

    asyncio.run(run())


def test_a_restored_instance_sends_its_end_where_it_had_not_left_and_nothing_elsewhere() -> None:
    async def run() -> None:
        held = Held(FEW)
        held.host.start_reading()
        assert held.source.source is not None
        assert held.step.instance is not None
        while not held.step.instance.has_ended_inputs:  # the end of the step waits behind its rows
            held.take(FEW - 3)
            await asyncio.sleep(0)
        held.host.barriers.begin_epoch(1)
        await held.until(lambda: ("step", 1) in held.saved)
        again = Held(FEW)
        assert again.source.source is not None
        assert again.step.instance is not None
        again.source.source.restore(held.source.source.snapshot())
        again.step.instance.restore(held.saved["step", 1])
        for running in (again.source, again.step):
            running.resume_outputs()
        assert [running.has_sent_end for running in (again.source, again.step)] == [True, False]
        again.host.start_reading()
        again.host.barriers.begin_epoch(2)

        def has_left() -> bool:
            again.take(FEW)
            return again.step.has_sent_end

        await again.until(has_left)
        assert is_final(again.frames[-1].watermark)

    asyncio.run(run())
