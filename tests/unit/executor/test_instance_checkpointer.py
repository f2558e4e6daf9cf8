"""An executor's instances are saved at barriers and restored: the log holds what one undisturbed run writes."""

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from agiledart import Topology, log, sum_of, tumbling
from agiledart_connectors.opening import open_sink
from agiledart_connectors.sink_origin import SinkOrigin
from agiledart_dataflow.plan.connector_abilities import DeliveryCallback
from agiledart_dataflow.plan.connectors import Connector, Reading
from agiledart_dataflow.plan.deployment import REGISTER_BYTES_EACH, RestoreFrom, SnapshotChain
from agiledart_dataflow.plan.losses import StateLost
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime import increments
from agiledart_dataflow.runtime.increments import Increments
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.program import Program, compile_program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_dataflow.state.restoring_from_run import rows_waiting
from agiledart_executor.channels.local_channel import local_output
from agiledart_executor.checkpointing.instance_checkpointer import InstanceCheckpointer
from agiledart_executor.instances.instance_host import InstanceHost
from agiledart_executor.instances.running_instance import InputEnd, RunningInstance
from agiledart_executor.snapshots.snapshot_file import (
    DamagedSnapshot,
    SnapshotHeader,
    read_snapshot,
    run_folder,
    snapshot_bytes,
    snapshot_path,
    write_snapshot,
)
from agiledart_executor.wire.agent_messages import AcknowledgeCheckpoint, DeclineCheckpoint
from agiledart_kernel.errors import OperationFailed
from agiledart_sink_log.layout import log_directory
from agiledart_sink_log.log_reader import LogReader
from agiledart_sink_log.partition_writer import PartitionWriter

RUN = 7
COUNT = 3_000


class Row(NamedTuple):
    at: int
    key: str
    value: int


class Readings:
    """A source that can go back. It gives no more than it is allowed, so a test says when things happen."""

    stamps = False

    def __init__(self, allowed: int) -> None:
        self.at, self.allowed = 0, allowed

    def read(self, max_rows: int, _wall_ns: int) -> Reading:
        stop = min(self.at + max_rows, self.allowed, COUNT)
        rows = [Row(n, "abc"[n % 3], n % 7) for n in range(self.at, stop)]
        self.at = stop
        return Reading(rows, len(rows), {}, stop == COUNT)

    def position(self) -> bytes:
        return msgspec.msgpack.encode(self.at)

    def seek(self, position: bytes) -> None:
        self.at = msgspec.msgpack.decode(position)

    def close(self) -> None: ...


def build(lost: StateLost = "wait") -> Topology:
    topology = Topology("sums", delivery="exactly-once", on_state_lost=lost)
    rows = topology.source("rows", Connector("list", payload=[]), rows=Row, event_time=lambda row: row.at)
    sums = rows.key_by(lambda row: row.key).window(tumbling(timedelta(milliseconds=10)))
    sums.aggregate("sums", sum_of(lambda row: row.value)).sink("report", log("sums"))
    return topology


class Life:
    """One execution of the plan in one host."""

    def __init__(
        self,
        root: Path,
        number: int,
        allowed: int,
        since: RestoreFrom | None = None,
        *lost: StateLost,
        register_bytes: int = 0,
    ) -> None:
        self.root = root
        self.program: Program = compile_program(made := build(*lost), plan_stages(made.specification()))
        self.host = InstanceHost(lambda running: self.epochs.at_end(running), self._broke)
        self.told: list[AcknowledgeCheckpoint | DeclineCheckpoint] = []
        self.broken: list[str] = []
        folder = run_folder(root, "sums", 1)
        self.epochs = InstanceCheckpointer(folder, RUN, number, self._steps, self.told.append, register_bytes)
        self.host.barriers.on_barrier = self.epochs.at_barrier
        self.reader = Readings(allowed)
        endpoint = self.program.endpoint(2)
        keep = None if since is None else self.epochs.restorer.kept(2, 0, since)
        origin = SinkOrigin("sums", 1, root, 0.0, True, keep, emits_at_once=register_bytes > 0)
        writer = open_sink(endpoint.connector, endpoint.row_type, origin=origin)
        self.running = [
            RunningInstance(0, 0, "rows", source=SourceInstance(self.program, 0, self.reader)),
            RunningInstance(1, 0, "sums", instance=Instance(self.program, 1, 0)),
            RunningInstance(2, 0, "report", instance=Instance(self.program, 2, 0, writer), writer=writer),
        ]
        for edge in (0, 1):
            up, down = self.running[edge], self.running[edge + 1]
            down.inputs[edge, 0] = InputEnd()
            codec = self.program.codec(edge)
            up.outputs[edge, 0] = local_output(self.host, up, down, (edge, 0), codec, lazy_watermarks=False)
        for running in reversed(self.running):
            if since is None:
                self.epochs.opened(running)
            else:
                self.restore(running, since)
            self.host.add(running)
        self.host.start_reading()

    def restore(self, running: RunningInstance, since: RestoreFrom) -> None:
        self.epochs.restorer.restore(running, since)

    def _steps(self, stage: int) -> tuple[str, ...]:
        return tuple(step.name for step in self.program.steps(stage))

    def _broke(self, running: RunningInstance, text: str) -> None:
        self.broken.append(text)

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                assert not self.broken
                await asyncio.sleep(0)
                if not self.running[0].queued:
                    self.host.wake(self.running[0])

    def allow(self, rows: int) -> None:
        self.reader.allowed = rows

    def prepared(self, epoch: int) -> list[AcknowledgeCheckpoint]:
        """Report of an epoch, with the instances that ended before it."""
        return [
            one for one in self.told if isinstance(one, AcknowledgeCheckpoint) and (one.epoch == epoch or one.ended)
        ]

    async def save(self, epoch: int) -> list[AcknowledgeCheckpoint]:
        self.host.barriers.begin_epoch(epoch)
        await self.until(lambda: len(self.prepared(epoch)) == 3)
        return self.prepared(epoch)

    def kill(self) -> None:
        """State after a kill -9: files as they are."""
        writer: Any = self.running[2].writer
        for partition in writer._log.partitions:
            partition._hand_over()
            partition._release()
        writer._log.partitions = []
        writer._log.close()
        self.epochs.close()


def since(epoch: int, prepared: list[AcknowledgeCheckpoint]) -> RestoreFrom:
    elements = (SnapshotChain(one.instance.stage, one.instance.index, one.digest) for one in prepared)
    return RestoreFrom(epoch, tuple(elements))


def logged(root: Path) -> list[Any]:
    reader = LogReader(log_directory(root, "sums"))
    rows: list[Any] = []
    offset, end = 0, reader.ends(0).committed
    while offset < end:
        batches, offset, _ = reader.fetch(0, offset, 10_000, 1 << 20)
        for batch in batches:
            rows += msgspec.msgpack.decode(batch.body)
    return rows


async def to_the_end(attempt: Life) -> None:
    attempt.allow(COUNT)
    await attempt.until(lambda: sum(isinstance(one, AcknowledgeCheckpoint) and one.ended for one in attempt.told) == 3)
    attempt.epochs.commit(attempt.running[2], 99)
    attempt.host.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    root = tmp_path_factory.mktemp("undisturbed")

    async def play() -> None:
        await to_the_end(Life(root, 1, COUNT))

    asyncio.run(play())
    rows = logged(root)
    assert len(rows) == 3 * COUNT // 10
    return rows


@pytest.mark.parametrize("committed", [0, 1, 2])
@pytest.mark.parametrize("more", [0, 7, 900])
def test_a_killed_run_resumes_from_the_committed_epoch(
    tmp_path: Path, undisturbed: list[Any], committed: int, more: int
) -> None:
    """Epochs 1 and 2 are prepared; the register's word comes for one of them, or for none. Rows behind it come again."""

    async def play() -> None:
        attempt = Life(tmp_path, 1, 800)
        await attempt.until(lambda: attempt.reader.at == 800)
        prepared = {0: list[AcknowledgeCheckpoint](), 1: await attempt.save(1)}
        attempt.allow(1_500)
        await attempt.until(lambda: attempt.reader.at == 1_500)
        prepared[2] = await attempt.save(2)
        assert logged(tmp_path) == []
        attempt.allow(1_500 + more)
        await attempt.until(lambda: attempt.reader.at == 1_500 + more)
        if committed == 1:
            attempt.epochs.commit(attempt.running[2], 1)
            seen = logged(tmp_path)
            assert seen == undisturbed[: len(seen)]
            assert len(seen) == 79 * 3  # the windows that had closed before the barrier
        attempt.kill()
        again = Life(tmp_path, 2, 0, since(committed, prepared[committed]))
        kept = logged(tmp_path)
        assert kept == undisturbed[: len(kept)]
        await to_the_end(again)

    asyncio.run(play())
    assert logged(tmp_path) == undisturbed


def elements(root: Path) -> list[str]:
    """Snapshots on the disk."""
    return [path.name for path in (run_folder(root, "sums", 1) / "elements").glob("*")]


def test_positions_and_counts_go_to_the_register_and_only_state_to_the_disk(
    tmp_path: Path, undisturbed: list[Any]
) -> None:
    """Content of the register is put on the disk of the host that takes over, and restored like any snapshot."""

    async def play() -> None:
        attempt = Life(tmp_path, 1, 800, register_bytes=REGISTER_BYTES_EACH)
        await attempt.until(lambda: attempt.reader.at == 800)
        prepared = await attempt.save(1)
        (state,) = [one for one in prepared if not one.content]
        assert state.instance.stage == 1, "only the windows have state"
        assert elements(tmp_path) == [state.digest.hex()]
        assert all(sha256(one.content).digest() == one.digest for one in prepared if one.content)
        attempt.epochs.commit(attempt.running[2], 1)
        attempt.kill()
        for one in prepared:
            if one.content:
                snapshot_path(run_folder(tmp_path, "sums", 1), one.digest).write_bytes(one.content)
        await to_the_end(Life(tmp_path, 2, 0, since(1, prepared), register_bytes=REGISTER_BYTES_EACH))

    asyncio.run(play())
    assert sorted(set(map(tuple, logged(tmp_path)))) == sorted(map(tuple, undisturbed)), "no row is lost"


def test_a_snapshot_larger_than_the_register_takes_goes_to_the_disk(tmp_path: Path) -> None:
    async def play() -> None:
        attempt = Life(tmp_path, 1, 800, register_bytes=16)
        prepared = await attempt.save(1)
        assert not any(one.content for one in prepared)
        assert sorted(elements(tmp_path)) == sorted(one.digest.hex() for one in prepared)
        attempt.kill()

    asyncio.run(play())


def test_a_snapshot_has_the_same_bytes_in_memory_and_in_its_file(tmp_path: Path) -> None:
    header, blocks = SnapshotHeader(RUN, 1, 3, 0, 0, ("rows",)), [b"state", b"position"]
    digest, size = write_snapshot(tmp_path, header, blocks)
    content = snapshot_bytes(header, blocks, 500)
    assert content == snapshot_path(tmp_path, digest).read_bytes()
    assert len(content) == size
    assert snapshot_bytes(header, blocks, size - 1) == b""
    assert snapshot_bytes(header, [b"x" * 5_000], 500) == b""


def test_a_run_rolled_back_one_epoch_withdraws_and_loses_no_row(tmp_path: Path, undisturbed: list[Any]) -> None:
    """A state of epoch 2 is lost: all go on from epoch 1, and the sink behind what it has shown of epoch 2."""
    counts: list[int] = []

    async def play() -> None:
        attempt = Life(tmp_path, 1, 0)
        prepared: dict[int, list[AcknowledgeCheckpoint]] = {}
        for epoch, rows in ((1, 800), (2, 1_500)):
            attempt.allow(rows)
            await attempt.until(lambda rows=rows: attempt.reader.at == rows)
            prepared[epoch] = await attempt.save(epoch)
            attempt.epochs.commit(attempt.running[2], epoch)
            counts.append(len(logged(tmp_path)))
        attempt.kill()
        emitted_rows = tuple(one for one in since(2, prepared[2]).snapshots if one.stage == 2)
        again = Life(tmp_path, 2, 0, RestoreFrom(2, since(1, prepared[1]).snapshots, "", emitted_rows))
        assert logged(tmp_path) == undisturbed[: counts[1]]
        again.allow(1_700)
        await again.until(lambda: again.reader.at == 1_700)
        await again.save(3)
        again.epochs.commit(again.running[2], 3)
        assert len(logged(tmp_path)) > counts[1], "barriers go on behind what is committed"
        await to_the_end(again)

    asyncio.run(play())
    assert 0 < counts[0] < counts[1]
    assert logged(tmp_path) == undisturbed[: counts[1]] + undisturbed[counts[0] :]


@pytest.mark.parametrize(("lost", "cut"), [("wait", [800, 900, 1_000]), ("previous", [800, 900])])
def test_a_log_is_truncated_only_below_the_rollback_epoch(tmp_path: Path, lost: StateLost, cut: list[int]) -> None:
    async def play() -> None:
        attempt = Life(tmp_path, 1, 0, None, lost)
        trimmed: list[int] = []
        reader: Any = attempt.reader
        reader.trim = lambda place: trimmed.append(msgspec.msgpack.decode(place))
        source = attempt.running[0].source
        assert source is not None
        source.reader = reader  # opened again, now with `trim`
        for epoch, rows in ((1, 800), (2, 900), (3, 1_000)):
            attempt.allow(rows)
            await attempt.until(lambda rows=rows: attempt.reader.at == rows)
            await attempt.save(epoch)
            attempt.epochs.commit(attempt.running[0], epoch)
        attempt.kill()
        assert trimmed == cut

    asyncio.run(play())


def test_repeated_attempts_and_uncommitted_epochs_lose_nothing(tmp_path: Path, undisturbed: list[Any]) -> None:
    async def play() -> None:
        at = RestoreFrom(0)
        for number in range(1, 8):
            attempt = Life(tmp_path, number, 350 * number, at if number > 1 else None)
            await attempt.until(lambda attempt=attempt, number=number: attempt.reader.at == 350 * number)
            prepared = await attempt.save(at.epoch + 1)
            if number % 2:
                at = since(at.epoch + 1, prepared)
            attempt.kill()
        await to_the_end(Life(tmp_path, 8, COUNT, at))

    asyncio.run(play())
    assert logged(tmp_path) == undisturbed


def test_a_run_that_had_ended_when_it_was_killed_stays_ended(tmp_path: Path, undisturbed: list[Any]) -> None:
    async def play() -> None:
        attempt = Life(tmp_path, 1, COUNT)
        await attempt.until(
            lambda: sum(isinstance(one, AcknowledgeCheckpoint) and one.ended for one in attempt.told) == 3
        )
        prepared = attempt.prepared(9)
        attempt.kill()
        assert logged(tmp_path) == []
        again = Life(tmp_path, 2, 0, since(9, prepared))
        await again.until(lambda: sum(isinstance(one, AcknowledgeCheckpoint) and one.ended for one in again.told) == 3)
        again.host.close()

    asyncio.run(play())
    assert logged(tmp_path) == undisturbed


def test_a_snapshot_other_than_the_committed_one_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        attempt = Life(tmp_path, 1, 400)
        await attempt.until(lambda: attempt.reader.at == 400)
        prepared = await attempt.save(1)
        attempt.kill()
        (saved,) = [one for one in prepared if one.instance.stage == 1]
        path = snapshot_path(run_folder(tmp_path, "sums", 1), saved.digest)
        raw = bytearray(path.read_bytes())
        raw[60] ^= 1
        path.write_bytes(raw)
        with pytest.raises(DamagedSnapshot, match="is not what was written"):
            Life(tmp_path, 2, 0, since(1, prepared))

    asyncio.run(play())


def test_a_full_disk_abandons_the_epoch_and_the_flow_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: list[Any]
) -> None:
    async def play() -> None:
        attempt = Life(tmp_path, 1, 400)
        await attempt.until(lambda: attempt.reader.at == 400)
        with monkeypatch.context() as patch:
            patch.setattr("agiledart_executor.checkpointing.instance_checkpointer.write_snapshot", _full)
            attempt.host.barriers.begin_epoch(1)
            await attempt.until(lambda: sum(isinstance(one, DeclineCheckpoint) for one in attempt.told) == 3)
        assert "no space left on device" in next(
            one.reason for one in attempt.told if isinstance(one, DeclineCheckpoint)
        )
        for running in attempt.running:
            assert f"{attempt.root}/runs/sums.1 cannot be written: no space left" in str(running.report()["unsaved"])
        assert len(await attempt.save(2)) == 3
        assert not any("unsaved" in running.report() for running in attempt.running)
        await to_the_end(attempt)

    asyncio.run(play())
    assert logged(tmp_path) == undisturbed


def test_a_marker_that_a_full_disk_refused_is_written_with_the_next_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: list[Any]
) -> None:
    """The register has it, so nothing is lost; only readers wait."""

    def full(self: PartitionWriter, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def play() -> None:
        attempt = Life(tmp_path, 1, 400)
        await attempt.until(lambda: attempt.reader.at == 400)
        sink = attempt.running[2]
        assert len(await attempt.save(1)) == 3
        with monkeypatch.context() as patch:
            patch.setattr(PartitionWriter, "_put", full)
            attempt.epochs.commit(sink, 1)
        assert "sink-logs/sums/0 cannot be written: no space left on device" in str(sink.report()["unsaved"])
        assert logged(tmp_path) == []
        attempt.allow(600)
        await attempt.until(lambda: attempt.reader.at == 600)
        assert len(await attempt.save(2)) == 3
        attempt.epochs.commit(sink, 2)
        assert "unsaved" not in sink.report()
        assert logged(tmp_path) == undisturbed[: len(logged(tmp_path))] != []
        await to_the_end(attempt)

    asyncio.run(play())
    assert logged(tmp_path) == undisturbed


class Slow:
    """A sink that delivers when the test lets it."""

    def __init__(self) -> None:
        self.waiting: list[DeliveryCallback] = []

    def when_delivered(self, told: DeliveryCallback) -> None:
        self.waiting.append(told)

    def flush(self) -> None: ...


def test_an_end_that_the_disk_refused_is_saved_when_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: list[Any]
) -> None:
    """No later barrier comes by: without another try the run would never end."""
    monkeypatch.setattr("agiledart_executor.checkpointing.instance_checkpointer.END_AGAIN_SECONDS", 0.01)

    async def play() -> None:
        with monkeypatch.context() as patch:
            patch.setattr("agiledart_executor.checkpointing.instance_checkpointer.write_snapshot", _full)
            attempt = Life(tmp_path, 1, COUNT)
            await attempt.until(lambda: {one.instance.stage for one in attempt.told} == {0, 1, 2})
            assert not attempt.prepared(1)
        await attempt.until(lambda: {one.instance.stage for one in attempt.prepared(1)} == {0, 1, 2})
        for running in attempt.running:
            attempt.epochs.commit(running, 1)
        attempt.kill()

    asyncio.run(play())
    assert logged(tmp_path) == undisturbed


@pytest.mark.parametrize("fault", [None, OperationFailed("the table is gone")])
def test_an_epoch_waits_until_a_sink_has_delivered(tmp_path: Path, fault: OperationFailed | None) -> None:
    async def play() -> None:
        attempt = Life(tmp_path, 1, 400)
        failed: list[str] = []
        attempt.epochs.on_failure = lambda running, text: failed.append(text)
        slow: Any = Slow()
        attempt.running[2].writer.close()  # type: ignore[union-attr]
        attempt.running[2].use_writer(slow)
        attempt.epochs.at_barrier(attempt.running[2], 1, b"", 0)
        attempt.epochs.at_barrier(attempt.running[1], 1, b"", 0)
        await attempt.until(lambda: attempt.told)
        assert [one.instance.stage for one in attempt.told] == [1]
        slow.waiting.pop()(fault)
        await attempt.until(lambda: len(attempt.told) == 2 or failed)
        assert failed == ([] if fault is None else ["report: the table is gone"])
        attempt.running[2].use_writer(None)
        attempt.epochs.close()

    asyncio.run(play())


def _full(*_: Any) -> Any:
    raise OSError(28, "No space left on device")


def test_an_instance_without_a_snapshot_is_named(tmp_path: Path) -> None:
    async def play() -> None:
        with pytest.raises(OperationFailed, match="no snapshot of its stage is named for epoch 3"):
            Life(tmp_path, 2, 0, RestoreFrom(3))

    asyncio.run(play())


def test_after_a_holding_barrier_a_source_reads_nothing(tmp_path: Path) -> None:
    async def play() -> None:
        attempt = Life(tmp_path, 1, 400)
        await attempt.until(lambda: attempt.reader.at == 400)
        attempt.allow(10_000)
        attempt.host.barriers.begin_epoch(1, holds=True)
        await attempt.until(lambda: len(attempt.prepared(1)) == 3)
        at = attempt.reader.at
        for _ in range(200):
            attempt.host.wake(attempt.running[0])
            await asyncio.sleep(0)
        assert attempt.reader.at == at
        assert not attempt.running[0].ended
        attempt.kill()

    asyncio.run(play())


@pytest.mark.parametrize("origin", ["whole", "steps"])
def test_another_run_begins_from_a_saved_snapshot(
    tmp_path: Path, undisturbed: list[Any], origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    monkeypatch.setattr(Increments.__init__, "__defaults__", (0,))  # states of tests are small
    monkeypatch.setattr(increments, "WORTH", 100.0)

    async def play() -> None:
        attempt = Life(before, 1, 400)
        await attempt.until(lambda: attempt.reader.at == 400)
        await attempt.save(1)
        for running in attempt.running:
            attempt.epochs.commit(running, 1)
        attempt.allow(700)
        await attempt.until(lambda: attempt.reader.at == 700)
        prepared = await attempt.save(2)
        attempt.epochs.commit(attempt.running[2], 2)
        attempt.kill()
        (chained,) = (one for one in prepared if one.onto)
        last = read_snapshot(run_folder(before, "sums", 1), chained.digest)[1][0]
        assert rows_waiting(last) == 0, "an increment says it as well as a whole one"
        run_folder(after, "sums", 1).mkdir(parents=True)
        shutil.copytree(run_folder(before, "sums", 1) / "elements", run_folder(after, "sums", 1) / "elements")
        monkeypatch.setattr("tests.unit.executor.test_instance_checkpointer.RUN", 8)
        elements = tuple(
            SnapshotChain(one.instance.stage, one.instance.index, one.digest, (one.onto,) if one.onto else ())
            for one in prepared
        )
        again = Life(after, 2, 0, RestoreFrom(0, elements, origin))
        assert again.reader.at == 700
        again.allow(COUNT)
        await to_the_end(again)

    asyncio.run(play())
    assert logged(before) + logged(after) == undisturbed
