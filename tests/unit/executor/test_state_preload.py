"""Instances that wait build what is committed of those before them; only the changes since are handed over then."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart import Context, KeyedOperator, Topology, collect
from agiledart.testing import run_local
from agiledart_dataflow.plan.deployment import SnapshotChain
from agiledart_dataflow.plan.stage_plan import StagePlan, index_of
from agiledart_dataflow.runtime import increments
from agiledart_dataflow.state.preloaded_state import PreloadedState
from agiledart_executor.handover import state_preload
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.wire.agent_messages import (
    AcknowledgeCheckpoint,
    InstanceName,
    PreloadSnapshots,
    PreviousStateStored,
)
from agiledart_kernel.errors import OperationFailed
from tests.unit.executor.test_upcoming_generations import Mesh, Row, begin

ROWS, KEYS = 20_000, 1_009


class Seen(NamedTuple):
    """Output."""

    key: int
    number: int


class Counts(KeyedOperator[int, Row, list[int], Seen]):
    """Counts rows of each key; a tenth of the keys is forgotten when a timer says so."""

    def initial(self, key: int) -> list[int]:
        return [0]

    def on_record(self, key: int, record: Row, state: list[int], context: Context[Seen]) -> None:
        state[0] += 1
        if key % 10 == 0:
            context.timer_at(context.time_ms + 90, name="forget")
        context.emit(Seen(key, state[0]))

    def on_timer(self, key: int, payload: object, state: list[int], context: Context[Seen]) -> None:
        context.emit(Seen(key, -state[0]))
        context.forget()


def counted() -> Topology:
    topology = Topology("ahead")
    rows = topology.source(
        "rows", [Row(n // 4, n * 7 % KEYS) for n in range(ROWS)], rows=Row, event_time=lambda row: row.at
    )
    rows.key_by(lambda row: row.key, returns=int).stateful("counts", Counts()).sink("out", collect)
    return topology


class Ahead(Mesh):
    """Two executors whose snapshots hold changes, and a register that commits them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 3, counted())
        self.epoch = 0
        self.plan: StagePlan = self.program.plan
        self.committed: dict[int, AcknowledgeCheckpoint] = {}

    def instance(self, *given: Any) -> RunningInstance:
        running = super().instance(*given)
        if running.instance is not None:
            running.instance.increments = increments.Increments(running.instance.state, 0)
        return running

    async def more(self, rows: int) -> None:
        self.gate.come = min(ROWS, self.gate.come + rows)
        await self.until(lambda: self.gate.given == self.gate.come)

    async def commit(self, *, is_heard: bool = True) -> None:
        """An epoch, with all that the register would know of the stage. `is_heard`: executors are notified that it is
        committed.
        """
        self.epoch += 1
        begin(self, self.epoch)
        parties = 2 + self.plan.stages[1].parallelism
        await self.until(lambda: sum(one.epoch == self.epoch for one in self.prepared) == parties)
        self.commit_at(*self.sites if is_heard else ())

    def commit_at(self, *sites: Any) -> None:
        self.committed = {
            one.instance.index: one
            for one in self.prepared
            if one.epoch == self.epoch
            and one.instance.stage == 1
            and one.instance.generation == self.plan.stages[1].generation
        }
        for site in sites:
            for running in site.host.running.values():
                site.epochs.commit(running, self.epoch)

    def wait(self, instances: int, places: list[int]) -> bytes:
        """The next term is made ready."""
        self.after = self.plan.next_generations({"counts": instances})
        self.prepare(name := b"term %d" % self.after.stages[1].generation, self.after, places)
        self.places = places
        return name

    async def build(self, name: bytes) -> None:
        """Waiting instances build committed state, unless it is beside them."""
        elements = tuple(
            SnapshotChain(1, index, one.digest, self.before[one.digest]) for index, one in self.committed.items()
        )
        for site in self.sites:
            await site.terms.preload_state(PreloadSnapshots(1, name, elements), site.epochs.restorer.read)

    async def change(self, name: bytes) -> None:
        """The barrier passes, and all have begun."""
        self.epoch += 1
        begin(self, self.epoch, name)
        await self.more(400)
        wanted = [
            sorted(m for m, at in zip(self.after.members(1), self.places, strict=True) if at == site) for site in (0, 1)
        ]
        await self.until(lambda: self.instances() == wanted)
        running = [running for site in self.sites for running in site.host.running.values()]
        await self.until(lambda: all(one.has_begun for one in running))
        parties = 2 + self.plan.stages[1].parallelism
        await self.until(lambda: sum(one.epoch == self.epoch for one in self.prepared) == parties)
        self.plan = self.after
        self.commit_at(*self.sites)

    async def end(self) -> None:
        self.gate.come = ROWS
        await self.until(lambda: self.ended.count("out") == 1)
        for site in self.sites:
            assert not any(generation.preloads for generation in site.terms._generations.values())
            site.epochs.close()

    def receive_previous_state(self) -> list[bool]:
        """The snapshots of the change's barrier, and which of them rest on another."""
        return [bool(one.onto) for one in self.prepared if one.epoch == self.epoch and one.instance.stage == 1]


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each snapshot that is applied to a share, whether it is full."""
    seen: list[bool] = []
    done = PreloadedState.put

    def noted(self: PreloadedState, digest: bytes, onto: bytes, snapshot: bytes) -> Iterator[None]:
        seen.append(not onto)
        return done(self, digest, onto, snapshot)

    monkeypatch.setattr(PreloadedState, "put", noted)
    return seen


@pytest.fixture(scope="module")
def whole() -> list[Any]:
    """The result of a run in which nothing changes."""
    return list(run_local(counted()))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may work after each slice, and increments of small states pay."""
    monkeypatch.setattr(state_preload, "SLICE_NS", 0)
    monkeypatch.setattr(state_preload, "PAUSE", 0.0)
    monkeypatch.setattr(increments, "WORTH", 1e9)


def test_only_changes_are_handed_over_when_a_stage_moves_grows_or_shrinks(
    tmp_path: Path, whole: list[Any], put: list[bool]
) -> None:
    async def play() -> Ahead:
        mesh = Ahead(tmp_path)
        for site in mesh.sites:
            site.host.start_reading()
        for instances, places in [(1, [1]), (2, [0, 1]), (2, [1, 0]), (1, [1]), (3, [0, 1, 0])]:
            await mesh.more(1_500)
            await mesh.commit()
            name = mesh.wait(instances, places)
            await mesh.build(name)
            put.clear()
            await mesh.more(300)
            await mesh.commit()
            await mesh.build(name)  # the link of an extra epoch
            assert not any(put), "built state is not built again"
            await mesh.more(300)
            put.clear()
            await mesh.change(name)
            assert all(mesh.receive_previous_state())
            assert not any(put), "nor is it when it is handed over"
            beside = sum(one.epoch == mesh.epoch and one.instance.stage == 1 for one in mesh.prepared)
            assert len(put) <= beside * instances
        await mesh.end()
        return mesh

    assert asyncio.run(play()).rows == whole


@pytest.mark.parametrize("missed", ["nothing was built", "a link", "another element"])
def test_an_increment_on_another_base_is_built_from_the_chain(
    tmp_path: Path, whole: list[Any], put: list[bool], missed: str
) -> None:
    async def play() -> Ahead:
        mesh = Ahead(tmp_path)
        for site in mesh.sites:
            site.host.start_reading()
        await mesh.more(1_500)
        await mesh.commit()
        name = mesh.wait(1, [1])
        if missed != "nothing was built":
            await mesh.build(name)
        await mesh.more(500)
        if missed == "another element":
            (at,) = (mesh.sites[0].host.running[1, 0],)
            assert at.instance is not None
            assert at.instance.increments is not None
            at.instance.increments._forget()  # the next one is whole
        await mesh.commit()
        await mesh.more(500)
        put.clear()
        await mesh.change(name)
        assert mesh.receive_previous_state() == [True]
        wholes = {"nothing was built": [True, False, False], "a link": [False, False], "another element": [True, False]}
        assert put == wholes[missed]
        await mesh.end()
        return mesh

    assert asyncio.run(play()).rows == whole


def test_a_commit_that_the_old_instance_receives_late_changes_nothing(tmp_path: Path, whole: list[Any]) -> None:
    """Its hand-over rests on the snapshot before."""

    async def play() -> Ahead:
        mesh = Ahead(tmp_path)
        for site in mesh.sites:
            site.host.start_reading()
        await mesh.more(1_500)
        await mesh.commit()
        name = mesh.wait(1, [1])
        await mesh.build(name)
        await mesh.more(500)
        await mesh.commit(is_heard=False)
        await mesh.build(name)
        await mesh.more(500)
        await mesh.change(name)
        await mesh.end()
        return mesh

    assert asyncio.run(play()).rows == whole


def test_an_aborted_preload_is_freed_and_a_partial_one_ends(tmp_path: Path, whole: list[Any]) -> None:
    async def play() -> Ahead:
        mesh = Ahead(tmp_path)
        for site in mesh.sites:
            site.host.start_reading()
        await mesh.more(1_500)
        await mesh.commit()
        name = mesh.wait(2, [1, 1])
        preload_of = asyncio.get_running_loop().create_task(mesh.build(name))
        await mesh.until(lambda: any(generation.preloads for generation in mesh.sites[1].terms._generations.values()))
        states = [
            weakref.ref(running.instance)
            for running, _ in mesh.sites[1].terms._generations[name].waiting.values()
            if running.instance is not None
        ]
        assert len(states) == 2
        generation = mesh.sites[1].terms._generations[name]
        for site in mesh.sites:
            site.terms.drop(name)
        await preload_of
        assert not generation.preloads  # no dropped instance begins to build
        del preload_of, generation
        # The thread that read the disk may hold its arguments a moment longer than the loop waits for its result.
        await mesh.until(lambda: gc.collect() >= 0 and [state() for state in states] == [None, None])
        assert gc.isenabled()
        again = mesh.wait(1, [1])
        await mesh.build(again)
        await mesh.change(again)
        await mesh.end()
        return mesh

    assert asyncio.run(play()).rows == whole


def test_other_instances_work_between_two_slices(tmp_path: Path) -> None:
    async def play() -> None:
        mesh = Ahead(tmp_path)
        for site in mesh.sites:
            site.host.start_reading()
        await mesh.more(1_500)
        await mesh.commit()
        name = mesh.wait(1, [1])
        preload_of = asyncio.get_running_loop().create_task(mesh.build(name))
        turns = 0
        while not preload_of.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > 50, "128 groups, each by itself"
        assert [index_of(one) for one in mesh.after.members(1)] == [0]
        for site in mesh.sites:
            site.epochs.close()

    asyncio.run(play())


@pytest.mark.parametrize("how", ["it was read", "it could not be read"])
def test_instances_that_start_or_stop_during_a_read_are_left_alone(tmp_path: Path, how: str) -> None:
    async def play() -> None:
        mesh = Ahead(tmp_path)
        for site in mesh.sites:
            site.host.start_reading()
        await mesh.more(1_500)
        await mesh.commit()
        name = mesh.wait(3, [1, 1, 1])
        terms, epochs = mesh.sites[1].terms, mesh.sites[1].epochs
        generation = terms._generations[name]
        first, second, third = generation.waiting
        done = generation.preload_of(first, epochs.restorer.read).receive_previous_state

        async def slow(saved: SnapshotChain) -> Any:
            found = await done(saved)
            del generation.waiting[second]  # as `_left` does, of one beside it
            if how == "it was read":
                return found
            del generation.waiting[first]
            raise OperationFailed("its file went with the change")

        generation.preload_of(first, epochs.restorer.read).receive_previous_state = slow  # type: ignore[method-assign]
        element = mesh.committed[0]
        await terms.receive_previous_state(
            PreviousStateStored(2, InstanceName(1, 0), name, element.digest), epochs.restorer.read
        )
        assert not mesh.sites[1].broken
        assert third not in generation.waiting, "it has begun with what was handed over"
        for site in mesh.sites:
            site.epochs.close()

    asyncio.run(play())


def test_an_old_instances_state_without_a_local_taker_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of those that wait: it reports the stage as it was, and so what each of them takes."""

    async def play() -> None:
        mesh = Ahead(tmp_path)
        for site in mesh.sites:
            site.host.start_reading()
        await mesh.more(1_500)
        await mesh.commit()
        await mesh.change(mesh.wait(3, [0, 0, 0]))
        name = mesh.wait(3, [1, 1, 1])
        terms = mesh.sites[1].terms
        await mesh.more(500)
        await mesh.commit()
        read: list[int] = []
        done = state_preload.StatePreload.receive_previous_state

        async def noted(self: state_preload.StatePreload, saved: SnapshotChain) -> Any:
            read.append(saved.index)
            return await done(self, saved)

        monkeypatch.setattr(state_preload.StatePreload, "receive_previous_state", noted)
        for index, element in sorted(mesh.committed.items()):
            before = mesh.before[element.digest]
            await terms.receive_previous_state(
                PreviousStateStored(9, InstanceName(1, index, 1), name, element.digest, before),
                mesh.sites[1].epochs.restorer.read,
            )
        assert read == [0, 1, 2], "groups that keep their owner go to no other"
        assert not terms._generations[name].waiting
        for site in mesh.sites:
            site.epochs.close()

    asyncio.run(play())
