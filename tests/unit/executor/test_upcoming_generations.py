"""Stages change their instances in mid-stream between two executors: groups that stay go by reference, others as a snapshot."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart import Topology, collect, tumbling
from agiledart.testing import run_local
from agiledart_connectors.opening import open_sink
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.plan.connectors import Reading
from agiledart_dataflow.plan.stage_plan import StagePlan, index_of
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.channels import SendingChannel
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.program import Program, compile_program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_executor.channels.local_channel import local_output
from agiledart_executor.checkpointing.instance_checkpointer import InstanceCheckpointer
from agiledart_executor.handover.upcoming_generations import UpcomingGenerations
from agiledart_executor.instances.instance_host import InstanceHost
from agiledart_executor.instances.running_instance import InputEnd, OutputEnd, RunningInstance
from agiledart_executor.wire.agent_messages import AcknowledgeCheckpoint, DeclineCheckpoint, PreviousStateStored

ROWS = 20_000


class Row(NamedTuple):
    """A reading."""

    at: int
    key: int


def made() -> Topology:
    """Counts by key in windows, of which a stage may have one to three instances."""
    topology = Topology("terms")
    source = topology.source(
        "rows", [Row(n // 4, n % 50) for n in range(ROWS)], rows=Row, event_time=lambda row: row.at
    )
    source.key_by(lambda row: row.key).window(tumbling(timedelta(milliseconds=500))).count("counts").sink(
        "out", collect
    )
    return topology


class Gate:
    """A live source: it gives as many of its rows as have come so far."""

    stamps = False

    def __init__(self, rows: list[Row]) -> None:
        self._rows, self.given, self.come = rows, 0, 0

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        rows = self._rows[self.given : min(self.given + max_rows, self.come)]
        self.given += len(rows)
        return Reading(rows, len(rows), {}, self.given == len(self._rows))

    def close(self) -> None:
        """Nothing is held."""


class Site:
    """One executor."""

    def __init__(self, mesh: "Mesh", folder: Path) -> None:
        self.broken: list[str] = []
        self.host = InstanceHost(mesh.finished, lambda running, why: self.broken.append(why))
        self.terms = UpcomingGenerations(self.host, self.host.fail)
        self.epochs = InstanceCheckpointer(
            folder, 1, 1, lambda stage: (mesh.program.plan.stages[stage].name,), mesh.told
        )
        self.host.barriers.on_barrier = self.epochs.at_barrier


class Mesh:
    """Two executors and what their agents would do; source and sink are at the first one."""

    def __init__(self, folder: Path, high: int = 3, topology: Topology | None = None) -> None:
        self.topology = topology or made()
        self.before: dict[bytes, tuple[bytes, ...]] = {}
        plan = plan_stages(self.topology.specification(), {"counts": (1, high) if high > 1 else 1})
        self.program = compile_program(self.topology, plan)
        self.prepared: list[AcknowledgeCheckpoint] = []
        self.left: list[str] = []
        self.ended: list[str] = []
        self.sites = [Site(self, folder), Site(self, folder)]
        self.rows: list[Any] = []
        for stage in plan.stages:
            for member in plan.members(stage.index):
                running = self.instance(self.program, stage.index, member)
                for channel in plan.inputs(stage.index, index_of(member)):
                    running.inputs[channel] = InputEnd()
                self.sites[0].host.running[stage.index, member] = running
        for edge, source, target in plan.channels():
            self.join(self.sites[0], self.sites[0].host.running[plan.edges[edge].source, source], edge, target)
        for running in tuple(self.sites[0].host.running.values()):
            self.sites[0].host.add(running)

    def instance(self, program: Program, stage: int, member: int) -> RunningInstance:
        running = RunningInstance(stage, member, program.plan.stages[stage].name)
        if program.plan.stages[stage].kind == "source":
            self.gate = Gate(program.endpoint(stage).connector.payload)
            running.source = SourceInstance(program, stage, self.gate)
            return running
        if program.plan.stages[stage].kind == "sink":
            endpoint = program.endpoint(stage)
            running.use_writer(open_sink(endpoint.connector, endpoint.row_type))
            assert running.sink.keeps_rows is not None  # of `collect`
            assert running.sink.keeps_rows.rows is not None
            self.rows = running.sink.keeps_rows.rows
        running.instance = Instance(program, stage, index_of(member), running.writer)
        return running

    def join(self, site: Site, up: RunningInstance, edge: int, target: int) -> None:
        """A channel within an executor, or with frames between two."""
        stage = self.program.plan.edges[edge].target
        there = next(one for one in self.sites if (stage, target) in one.host.running)
        down = there.host.running[stage, target]
        codec = self.program.codec(edge)
        if there is site:
            up.outputs[edge, target] = local_output(
                site.host,
                up,
                down,
                (edge, target),
                codec,
                lazy_watermarks=False,
            )
            return

        def deliver(batch: Batch, first_row: int, channel: SendingChannel) -> None:
            body = codec.encode(batch)
            came = codec.decode_barrier(body) if batch.barrier else codec.decode(body)
            came.barrier, came.overtakes = batch.barrier, batch.overtakes
            there.host.receive(down, edge, up.index, channel.last_number, first_row, came)

        up.outputs[edge, target] = OutputEnd(SendingChannel(), deliver)
        down.inputs[edge, up.index].acknowledge = lambda frames, watermarks: site.host.acknowledged(
            up, edge, target, frames, watermarks
        )

    def finished(self, running: RunningInstance) -> None:
        if running.has_handed_over:
            self.left.append(str(running.index))
            for site in self.sites:
                if site.host.running.get((running.stage, running.index)) is running:
                    del site.host.running[running.stage, running.index]
        else:
            self.ended.append(running.name)

    def told(self, message: AcknowledgeCheckpoint | DeclineCheckpoint) -> None:
        assert isinstance(message, AcknowledgeCheckpoint)
        self.prepared.append(message)
        self.before[message.digest] = (*self.before[message.onto], message.onto) if message.onto else ()
        if message.after and message.instance.stage == 1:
            for site in self.sites * 2:  # one that comes again changes nothing
                before = self.before[message.digest]
                receive_previous_state = PreviousStateStored(
                    message.epoch, message.instance, message.after, message.digest, before
                )
                asyncio.get_running_loop().create_task(
                    site.terms.receive_previous_state(receive_previous_state, site.epochs.restorer.read)
                )

    def prepare(self, name: bytes, plan: StagePlan, places: list[int]) -> None:
        """What `Launch` and `OpenGenerationChannels` do."""
        program = compile_program(self.topology, plan)
        for site in self.sites:
            site.terms.plan(name, program)
        for member, place in zip(plan.members(1), places, strict=True):
            self.sites[place].terms.wait(name, self.instance(program, 1, member))
        for site in self.sites:
            site.terms.open_inputs(name)
        for site in self.sites:
            for running, edge, target in site.terms.missing_outputs(name):
                self.join(site, running, edge, target)
                site.terms.opened(name, running, (edge, target))
        for site in self.sites:
            site.terms.ready(name)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():
                assert not any(site.broken for site in self.sites), [site.broken for site in self.sites]
                await asyncio.sleep(0)

    def instances(self) -> list[list[int]]:
        """Of the changing stage, by site."""
        return [sorted(index for stage, index in site.host.running if stage == 1) for site in self.sites]


@pytest.fixture
def whole() -> list[Any]:
    """The result of a run in which nothing changes."""
    return list(run_local(made()))


def begin(mesh: Mesh, epoch: int, change: bytes = b"") -> None:
    for site in mesh.sites:
        site.host.barriers.begin_epoch(epoch, change)


def giving_way(site: Site) -> list[str]:
    """Instances that let in whatever comes."""
    instances = [one.instance for one in site.host.running.values() if one.instance is not None]
    return [str(one.stage) for one in instances if getattr(one._inbox, "acknowledges_early_until", 0)]


def test_a_stage_moves_grows_and_shrinks_while_rows_flow(tmp_path: Path, whole: list[Any]) -> None:
    async def play() -> Mesh:
        mesh = Mesh(tmp_path)
        for site in mesh.sites:
            site.host.start_reading()
        plan, epoch = mesh.program.plan, 0
        for number, (instances, places) in enumerate([(2, [0, 1]), (2, [1, 0]), (1, [1]), (3, [0, 1, 0])]):
            before = len(mesh.rows)
            mesh.gate.come += 3_000
            await mesh.until(lambda before=before: len(mesh.rows) > before + 20)
            begin(mesh, epoch := epoch + 1)
            mesh.gate.come += 500
            old = plan.stages[1].parallelism
            plan = plan.next_generations({"counts": instances})
            mesh.prepare(name := b"plan %d" % number, plan, places)
            mesh.gate.come += 500
            begin(mesh, epoch := epoch + 1, name)
            mesh.gate.come += 500
            wanted = [[one for one, at in zip(plan.members(1), places, strict=True) if at == site] for site in (0, 1)]
            await mesh.until(lambda wanted=wanted: mesh.instances() == wanted)
            parties = 2 + old
            await mesh.until(lambda e=epoch, n=parties: sum(one.epoch == e for one in mesh.prepared) == n)
            assert {one.after for one in mesh.prepared if one.epoch == epoch} == {name}
            begin(mesh, epoch, name)  # an executor is notified late of rows that came by its channels
            assert not any(giving_way(site) for site in mesh.sites), "or rows would pile up there without bound"
            terms = range(2, number + 3)
            source = mesh.sites[0].host.running[0, 0]
            await mesh.until(lambda source=source: not source.changeover_pauses.watches)
            begin(mesh, epoch := epoch + 1)
            await mesh.until(lambda e=epoch: any(one.epoch == e and not one.instance.stage for one in mesh.prepared))
            told = next(one.changeover_pauses for one in mesh.prepared if one.epoch == epoch and not one.instance.stage)
            assert [(stage, generation) for stage, generation, _ in told] == [(1, terms[-1])], "of the last change"
            assert 0 < told[0][2] < 20e9
        mesh.gate.come = ROWS
        await mesh.until(lambda: mesh.ended.count("out") == 1)
        for site in mesh.sites:
            for running in site.host.running.values():
                assert len(running.inputs) <= 3, "channels of terms that have ended are forgotten"
                assert len(running.outputs) <= 3
            site.epochs.close()
        return mesh

    mesh = asyncio.run(play())
    assert mesh.rows == whole
    assert sorted(mesh.left) == ["0", "128", "129", "256", "257", "384"]


def test_a_non_parallel_stage_moves_while_rows_flow(tmp_path: Path, whole: list[Any]) -> None:
    async def play() -> Mesh:
        mesh = Mesh(tmp_path, high=1)
        for site in mesh.sites:
            site.host.start_reading()
        plan = mesh.program.plan
        for epoch, place in enumerate((1, 0, 0), 1):
            before = len(mesh.rows)
            mesh.gate.come += 3_000
            await mesh.until(lambda before=before: len(mesh.rows) > before + 20)
            plan = plan.next_generations({"counts": 1})
            mesh.prepare(name := b"plan %d" % epoch, plan, [place])
            begin(mesh, epoch, name)
            wanted = [plan.members(1) if at == place else [] for at in (0, 1)]
            await mesh.until(lambda wanted=wanted: mesh.instances() == [list(one) for one in wanted])
            await mesh.until(lambda e=epoch: sum(one.epoch == e for one in mesh.prepared) == 3)
        mesh.gate.come = ROWS
        await mesh.until(lambda: mesh.ended.count("out") == 1)
        for site in mesh.sites:
            assert all(len(running.inputs) <= 1 for running in site.host.running.values())
            site.epochs.close()
        return mesh

    mesh = asyncio.run(play())
    assert mesh.rows == whole
    assert sorted(mesh.left) == ["0", "128", "256"]


def test_an_instance_that_waits_for_its_generation_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not know its inputs' positions, so its own watermark would lie below one already sent downstream."""
    worked: list[int] = []
    work = Instance.work

    def noted(self: Instance, *given: Any) -> bool:
        worked.append(self.member)
        return work(self, *given)

    monkeypatch.setattr(Instance, "work", noted)

    async def play() -> None:
        mesh = Mesh(tmp_path)
        for site in mesh.sites:
            site.host.start_reading()
        plan = mesh.program.plan.next_generations({"counts": 2})
        mesh.prepare(b"to come", plan, [0, 1])
        for site in mesh.sites:
            site.host.wake_all()
        mesh.gate.come = 3_000
        await mesh.until(lambda: len(mesh.rows) > 20)
        assert worked
        assert not any(member in plan.members(1) for member in worked)

    asyncio.run(play())


def test_an_aborted_change_leaves_nothing(tmp_path: Path, whole: list[Any]) -> None:
    async def play() -> Mesh:
        mesh = Mesh(tmp_path)
        mesh.prepare(b"not to be", mesh.program.plan.next_generations({"counts": 2}), [0, 1])
        assert mesh.instances() == [[0, 128], [129]]
        for site in mesh.sites:
            site.terms.drop(b"not to be")
        assert mesh.instances() == [[0], []]
        assert [len(one.inputs) + len(one.outputs) for one in mesh.sites[0].host.running.values()] == [1, 2, 1]
        for site in mesh.sites:
            site.host.start_reading()
        mesh.gate.come = ROWS
        await mesh.until(lambda: mesh.ended.count("out") == 1)
        return mesh

    assert asyncio.run(play()).rows == whole
