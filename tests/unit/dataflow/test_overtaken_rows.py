"""Snapshots at a barrier that overtakes rows: a blocked instance, a source, and the attempt that begins there."""

from typing import Any, NamedTuple

import msgspec
import pytest

from agiledart import Topology, collect, records
from agiledart_connectors.opening import open_source
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.position import covering, final_watermark
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.channels import SendingChannel
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.overtaken_rows import WaitingOutput
from agiledart_dataflow.runtime.program import Program, compile_program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_dataflow.state.restoring_from_run import rows_waiting


class Reading(NamedTuple):
    """A row."""

    at: int
    value: int


def program() -> Program:
    """Two sources, a step behind the first one, and their union."""
    made = Topology("two")
    left, right = (
        made.source(name, records([Reading(n, n) for n in range(5)], row_type=Reading), event_time=lambda row: row.at)
        for name in ("left", "right")
    )
    left.map(lambda row: row, name="same", returns=Reading).union(right, name="both").sink("out", collect)
    return compile_program(made, plan_stages(made.specification(), {"same": 1}, "positions"))


class Sender:
    """An instance or a source, and its one output, whose receiver gives credit for one frame."""

    def __init__(self, part: Instance | SourceInstance) -> None:
        self.part, self.channel = part, SendingChannel(1, 1, overtakes=True)
        self.saved: dict[int, bytes] = {}
        part.waiting_output = self.waiting
        if isinstance(part, Instance):
            part.on_barrier = self.keep

    def keep(self, barrier: int, snapshot: Any, change: bytes) -> None:
        self.saved[barrier] = snapshot

    def waiting(self) -> list[WaitingOutput]:
        overtaken = self.channel.overtaken()
        return [] if overtaken is None else [WaitingOutput(self.edge, 0, *overtaken)]

    def emit(self, edge: int, target: int, batch: Batch) -> None:
        self.edge = edge
        self.channel.put(batch)
        self.channel.next_frame()

    def restored(self) -> tuple[list[Any], Any]:
        """The rows that leave first in the attempt that begins at barrier 1, and the watermark behind them."""
        (_, _, batches, watermark) = self.part.take_unsent()[0]
        assert self.part.take_unsent() == [], "once"
        return [row for batch in batches for row in batch.rows], watermark


def batches(instance: Instance, count: int) -> None:
    """Give rows to an instance's only input, a row a batch."""
    for number in range(count):
        position = (number, 1, 0, number)
        instance.offer(*instance.inputs[0], Batch([Reading(number, number)], [position], covering(position)))


def stage_named(made: Program, name: str) -> int:
    return next(stage.index for stage in made.plan.stages if name in stage.name.split("+"))


def blocked_step(made: Program) -> Sender:
    """The step with five rows processed, of which one is sent."""
    sender = Sender(Instance(made, stage_named(made, "same"), 0))
    assert isinstance(sender.part, Instance)
    batches(sender.part, 5)
    while sender.part.work(sender.emit, 1):
        """One row after the other."""
    return sender


def test_a_blocked_instance_passes_the_barrier_and_saves_the_rows_it_overtakes() -> None:
    made = program()
    sender = blocked_step(made)
    instance = sender.part
    assert isinstance(instance, Instance)
    position = (5, 1, 0, 5)
    edge, source = instance.inputs[0]
    instance.offer(edge, source, Batch([Reading(5, 5)], [position], covering(position)))  # waits before the barrier
    instance.offer_barrier(edge, source, Batch([], None, covering(position), 1))
    instance.pass_barriers(sender.emit)
    assert rows_waiting(sender.saved[1]) == 4 + 1, "at its output, and at its input"
    restored = Sender(Instance(made, instance.stage, 0))
    assert isinstance(restored.part, Instance)
    restored.part.restore(sender.saved[1])
    assert restored.restored() == ([Reading(n, n) for n in range(1, 5)], covering((4, 1, 0, 4)))
    assert restored.part.queued_rows == 1


def test_a_barrier_with_a_change_overtakes_nothing() -> None:
    sender = blocked_step(program())
    instance = sender.part
    assert isinstance(instance, Instance)
    instance.programs = {b"same plan": instance._program}
    edge, source = instance.inputs[0]
    instance.offer_barrier(edge, source, Batch([], None, covering((4, 1, 0, 4)), 1, change=b"same plan"))
    instance.pass_barriers(sender.emit)
    assert not sender.saved, "it waits until the instance may work"
    instance.work(sender.emit)
    assert rows_waiting(sender.saved[1]) == 0
    assert sender.channel.overtaken() is None, "and stays in line"


def test_an_instance_behind_ended_inputs_begins_the_barrier() -> None:
    sender = blocked_step(program())
    instance = sender.part
    assert isinstance(instance, Instance)
    could_begin = instance.has_ended_inputs
    instance.offer(*instance.inputs[0], Batch([], [], final_watermark(4)))
    assert (could_begin, instance.has_ended_inputs) == (False, True)
    instance.work(sender.emit)
    assert instance.finished
    instance.pass_barrier(1, sender.emit)
    restored = Sender(Instance(program(), instance.stage, 0))
    assert isinstance(restored.part, Instance)
    restored.part.restore(sender.saved[1])
    assert restored.part.finished
    assert restored.restored() == ([Reading(n, n) for n in range(1, 5)], final_watermark(4))


def test_a_source_saves_the_rows_that_its_barrier_overtakes() -> None:
    made = program()
    endpoint = made.endpoint(0)
    sender = Sender(SourceInstance(made, 0, open_source(endpoint.connector, endpoint.row_type)))
    source = sender.part
    assert isinstance(source, SourceInstance)
    for _ in range(3):
        polled = source.poll(0, 0, 1)
        assert polled.batch is not None
        source.send(polled.batch, sender.emit)
    snapshot = source.send_barrier(1, sender.emit)
    assert rows_waiting(snapshot) == 2
    restored = Sender(SourceInstance(made, 0, open_source(endpoint.connector, endpoint.row_type)))
    assert isinstance(restored.part, SourceInstance)
    restored.part.restore(snapshot)
    assert restored.restored() == ([Reading(1, 1), Reading(2, 2)], covering((2, 1, 0, 2)))


def test_snapshots_of_before_are_read() -> None:
    made = program()
    sender = Sender(Instance(made, stage_named(made, "same"), 0))
    assert isinstance(sender.part, Instance)
    snapshot = sender.part.snapshot()
    assert len(msgspec.msgpack.decode(snapshot)[2]) == 3, "nothing waits, so its form is the one of before"
    sender.part.restore(snapshot)
    assert sender.part.take_unsent() == []
    assert rows_waiting(snapshot) == 0


@pytest.mark.parametrize("count", [0, 3])
def test_rows_waiting_counts_rows_of_all_places(count: int) -> None:
    made = program()
    instance = Instance(made, stage_named(made, "both"), 0)
    batches(instance, count)
    assert rows_waiting(instance.snapshot()) == count
