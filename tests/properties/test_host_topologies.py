"""Random graphs in one executor's host, some channels as links with delay: the results of a plain run, and a ledger that adds up.

Batches go from instance to instance as calls while nothing waits and as frames when something does; links shut and open, frames
come one by one or many at a time, acknowledgements late. Nothing of this may show in the results.
"""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart import Pane, Topology, collect, count, records, sum_of, tumbling
from agiledart_connectors.opening import open_sink, open_source
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.carries import Carries
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.channels import ReceivingChannel, SendingChannel
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.ledger import audit
from agiledart_dataflow.runtime.program import Program, compile_program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_executor.channels.local_channel import local_output
from agiledart_executor.instances.instance_host import InstanceHost
from agiledart_executor.instances.running_instance import InputEnd, OutputEnd, RunningInstance
from agiledart_executor.local_runs.local_run import run_topology
from agiledart_kernel.randomness import RandomStream
from tests.properties.test_pass_through import Row, is_stored, moved

WINDOW = tumbling(timedelta(milliseconds=9))


def repeated(row: Row) -> list[Row]:
    return [row] * (row.key % 3)


def as_row(pane: Pane[int, int]) -> Row:
    return Row(pane.end_ms, pane.value % 7)


def key_of(row: Row) -> int:
    return row.key


def topology(seed: int, rows: int) -> Topology:
    """One or two sources, up to six steps, and a sink for every stream."""
    random = RandomStream(seed, "topology")
    made = Topology("t")
    streams: list[Any] = []
    for number in range(1 + random.index(2)):
        data = [Row(n // (3 - number), random.index(7)) for n in range(rows)]
        streams.append(made.source(f"s{number}", records(data, row_type=Row), event_time=lambda row: row.at))
    for number in range(1 + random.index(6)):
        stream, name, kind = random.choice(streams), f"n{number}", random.index(6)
        others = [one for one in streams if one is not stream]
        if kind == 0:
            stream = stream.filter(is_stored, name=name)
        elif kind == 1:
            stream = stream.flat_map(repeated, name=name)
        elif kind == 2:
            stream = stream.distinct(name)
        elif kind == 3 and others:
            stream = stream.union(random.choice(others), name=name)
        elif kind == 4:
            panes = stream.key_by(key_of).window(WINDOW).aggregate(name, sum_of(lambda row: row.at))
            stream = panes.map(as_row, name=f"m{number}")
        elif kind == 5:
            counted = stream.key_by(key_of).window(WINDOW).aggregate(name, count=count())
            stream = counted.map(lambda row: Row(row.end_ms, row.count), name=f"m{number}", returns=Row)
        else:
            stream = stream.map(moved, name=name)
        streams.append(stream)
    for number, stream in enumerate(streams):
        stream.sink(f"out{number}", collect)
    return made


class _DelayedLink:
    """A channel between two instances whose frames and acknowledgements wait until the test releases them."""

    def __init__(
        self, host: InstanceHost, up: RunningInstance, down: RunningInstance, way: tuple[int, int], window: int
    ) -> None:
        self._host, self._up, self._down, self._way = host, up, down, way
        self.open = True
        self._frames: list[tuple[int, int, Batch]] = []
        self._acknowledgements: list[tuple[int, int]] = []
        end = down.inputs[way[0], up.index]
        end.channel = ReceivingChannel(window)
        end.acknowledge = lambda frames, watermarks: self._acknowledgements.append((frames, watermarks))

    def deliver(self, batch: Batch, first_row: int, channel: SendingChannel) -> None:
        self._frames.append((channel.last_number, first_row, batch))

    def move(self, random: RandomStream) -> None:
        """Some of what waits arrives, as from one read of a socket; now and then the link shuts or opens."""
        edge, target = self._way
        if self._frames and random.index(3):
            count = 1 + random.index(len(self._frames))
            some, self._frames = self._frames[:count], self._frames[count:]
            self._host.gather()
            for left, (number, first_row, batch) in zip(range(count - 1, -1, -1), some, strict=True):
                self._host.receive(self._down, edge, self._up.index, number, first_row, batch, is_last=not left)
            self._host.run_woken()
        if self._acknowledgements and random.index(3):
            some_acknowledgements, self._acknowledgements = self._acknowledgements, []
            self._host.gather()
            for frames, watermarks in some_acknowledgements:
                self._host.acknowledged(self._up, edge, target, frames, watermarks)
            self._host.run_woken()
        if not random.index(10):
            self.open = not self.open
            if self.open:
                self._host.wake_all()


class _Mesh:
    """All instances of a program in one host."""

    def __init__(self, program: Program, random: RandomStream) -> None:
        self.program, self._random = program, random
        self.done = asyncio.Event()
        self.broken: list[str] = []
        self._finished = 0
        self._host = InstanceHost(self._has_finished, self._broke)
        self._links: list[_DelayedLink] = []
        plan = program.plan
        self.running = {
            (stage.index, index): self._made(stage.index, index)
            for stage in plan.stages
            for index in range(stage.parallelism)
        }
        for edge, source, target in plan.channels():
            up, down = self.running[plan.edges[edge].source, source], self.running[plan.edges[edge].target, target]
            up.outputs[edge, target] = self._joined(edge, target, up, down)
        for running in self.running.values():
            self._host.add(running)

    def _made(self, stage: int, index: int) -> RunningInstance:
        plan, program = self.program.plan, self.program
        running = RunningInstance(stage, index, f"{plan.stages[stage].name}#{index}")
        endpoint = None if plan.stages[stage].kind == "operator" else program.endpoint(stage)
        if plan.stages[stage].kind == "source" and endpoint is not None:
            running.source = SourceInstance(program, stage, open_source(endpoint.connector, endpoint.row_type))
            return running
        if endpoint is not None:
            running.writer = open_sink(endpoint.connector, endpoint.row_type)
        running.instance = Instance(program, stage, index, running.writer)
        running.inputs.update({channel: InputEnd() for channel in plan.inputs(stage, index)})
        return running

    def _joined(self, edge: int, target: int, up: RunningInstance, down: RunningInstance) -> OutputEnd:
        lazy = self.program.plan.edges[edge].lazy_watermarks
        if self._random.index(5) < 3:
            return local_output(self._host, up, down, (edge, target), self.program.codec(edge), lazy_watermarks=lazy)
        window = self._random.choice((1, 2, 4, 16))
        link = _DelayedLink(self._host, up, down, (edge, target), window)
        self._links.append(link)
        return OutputEnd(SendingChannel(window, lazy_watermarks=lazy), link.deliver, lambda: link.open)

    def _has_finished(self, _: RunningInstance) -> None:
        self._finished += 1
        if self._finished == len(self.running):
            self.done.set()

    def _broke(self, _: RunningInstance, message: str) -> None:
        self.broken.append(message)
        self.done.set()

    async def run(self) -> None:
        self._host.start_reading()
        for _ in range(200_000):
            if self.done.is_set():
                return
            await asyncio.sleep(0)
            for link in self._links:
                link.move(self._random)
            if not self._random.index(50):
                for running in self.running.values():
                    running.release_watermarks()
        raise AssertionError(f"it hangs: {[one.name for one in self.running.values() if not one.reported]}")

    def collected(self) -> dict[str, list[Any]]:
        sinks = [stage for stage in self.program.plan.stages if stage.kind == "sink"]
        writers: list[tuple[str, Any]] = [(stage.name, self.running[stage.index, 0].writer) for stage in sinks]
        return {name: writer.rows for name, writer in writers}


def judge(seed: int, at_least: Carries) -> None:
    """One graph, drawn from the seed, twice."""
    random = RandomStream(seed, "case")
    rows, parallelism = random.choice((20, 100, 300)), 1 + random.index(2)
    made = topology(seed, rows)
    plan = plan_stages(made.specification(), parallelism, at_least)

    async def play() -> _Mesh:
        mesh = _Mesh(compile_program(made, plan), RandomStream(seed, "mesh"))
        await mesh.run()
        return mesh

    mesh = asyncio.run(play())
    assert not mesh.broken, seed
    wanted = run_topology(topology(seed, rows)).collected
    found = mesh.collected()
    assert {name: sorted(one) for name, one in found.items()} == {n: sorted(one) for n, one in wanted.items()}, seed
    parts = [running.instance or running.source for running in mesh.running.values()]
    statistics = [part.statistics() for part in parts if part is not None]
    assert not audit(mesh.program.specification, statistics, plan), seed


@pytest.mark.parametrize("at_least", ["rows", "positions"])
@given(st.integers(0, 10**6))
def test_host_results_equal_those_of_a_plain_run(at_least: Carries, seed: int) -> None:
    judge(seed, at_least)


@pytest.mark.soak
@pytest.mark.parametrize("at_least", ["rows", "positions"])
@pytest.mark.parametrize("first", range(0, 1_000, 250))
def test_host_results_equal_those_of_a_plain_run_for_many_seeds(at_least: Carries, first: int) -> None:
    for seed in range(first, first + 250):
        judge(seed, at_least)
