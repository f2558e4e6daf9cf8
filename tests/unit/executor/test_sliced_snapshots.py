"""A large state is saved in slices while rows flow: the restored state is the one at the barrier, whatever came in between."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from agiledart import Context, KeyedOperator, Topology, log
from agiledart_dataflow.plan.connectors import Connector
from agiledart_dataflow.runtime import increments
from agiledart_dataflow.state import async_snapshot
from agiledart_executor.snapshots import slice_scheduler, sliced_snapshot_write
from agiledart_executor.snapshots.snapshot_file import SnapshotWriter, run_folder
from agiledart_executor.wire.agent_messages import AcknowledgeCheckpoint, DeclineCheckpoint
from tests.unit.executor import test_instance_checkpointer
from tests.unit.executor.test_increments import SUMS, Chain, Total, build, lived
from tests.unit.executor.test_instance_checkpointer import COUNT, Life, Row, logged, to_the_end

__all__ = ("undisturbed",)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """States of tests are small, and saved in slices of one key all the same."""
    monkeypatch.setattr(test_instance_checkpointer, "build", build)
    monkeypatch.setattr(increments.Increments.__init__, "__defaults__", (0,))
    monkeypatch.setattr(sliced_snapshot_write, "AT_ONCE_NS", -1)
    monkeypatch.setattr(slice_scheduler, "SLICE_NS", 0)
    monkeypatch.setattr(slice_scheduler, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(async_snapshot, "STEP_KEYS", 4)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    root = tmp_path_factory.mktemp("undisturbed")

    async def play() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(test_instance_checkpointer, "build", build)
            await to_the_end(Life(root, 1, COUNT))

    asyncio.run(play())
    return logged(root)


async def opened(attempt: Life, epoch: int) -> None:
    """An epoch is begun, and the state is open at its barrier."""
    attempt.host.barriers.begin_epoch(epoch)
    await attempt.until(lambda: attempt.running[SUMS].barrier == epoch)
    assert attempt.epochs._open_writes


async def saved_while_rows_flow(attempt: Life, epoch: int, rows: int) -> list[AcknowledgeCheckpoint]:
    """Rows come from the barrier until the snapshot is there, and beyond."""
    await opened(attempt, epoch)
    for _ in range(rows):
        attempt.allow(attempt.reader.at + 1)
        await attempt.until(lambda: attempt.reader.at == attempt.reader.allowed)
    await attempt.until(lambda: len(attempt.prepared(epoch)) == 3)
    return attempt.prepared(epoch)


def test_a_run_resumes_from_a_snapshot_taken_while_rows_arrived(tmp_path: Path, undisturbed: list[object]) -> None:
    """Whole ones and increments; some epochs are lost. Rows behind the barrier come again, and are not in it."""

    async def play() -> None:
        chain, longest = Chain(), 0
        attempt = await lived(tmp_path, 1, None, 1_000)
        for number in (2, 3, 4):
            for _ in range(4):
                epoch = attempt.running[SUMS].barrier + 1
                prepared = await saved_while_rows_flow(attempt, epoch, 60)
                if epoch % 3:
                    chain.commit(attempt, epoch, prepared)
                longest = max(longest, len(chain.links))
            attempt.kill()
            attempt = Life(tmp_path, number, 0, chain.since)
            attempt.allow(attempt.reader.at + 30)
            await attempt.until(lambda attempt=attempt: attempt.reader.at == attempt.reader.allowed)
        assert longest > 2
        await to_the_end(attempt)

    asyncio.run(play())
    assert logged(tmp_path) == undisturbed


def test_a_skipped_epoch_is_discarded_at_the_next_barrier(tmp_path: Path, undisturbed: list[object]) -> None:
    async def play() -> None:
        chain = Chain()
        attempt = await lived(tmp_path, 1, None, 1_000)
        await opened(attempt, 1)
        first = next(iter(attempt.epochs._open_writes.values()))
        prepared = await saved_while_rows_flow(attempt, 2, 10)
        assert first._is_over
        assert all(one.epoch != 1 for one in prepared if one.instance.stage == SUMS)
        assert not [one for one in attempt.prepared(1) if one.instance.stage == SUMS]
        chain.commit(attempt, 2, prepared)
        attempt.kill()
        await to_the_end(Life(tmp_path, 2, 0, chain.since))

    asyncio.run(play())
    assert logged(tmp_path) == undisturbed
    assert not list((run_folder(tmp_path, "sums", 1) / "elements").glob(".*"))


def test_the_end_arrives_while_a_snapshot_is_open(tmp_path: Path, undisturbed: list[object]) -> None:
    """Its state at the barrier is reported, then its state at its end."""

    async def play() -> None:
        attempt = await lived(tmp_path, 1, None, 2_900)
        await opened(attempt, 1)
        attempt.allow(COUNT)
        await attempt.until(
            lambda: sum(isinstance(one, AcknowledgeCheckpoint) and one.ended for one in attempt.told) == 3
        )
        mine = [one for one in attempt.told if isinstance(one, AcknowledgeCheckpoint) and one.instance.stage == SUMS]
        assert [(one.epoch, one.ended) for one in mine] == [(1, False), (2, True)]
        chain = Chain()
        chain.commit(
            attempt, 1, [one for one in attempt.told if isinstance(one, AcknowledgeCheckpoint) and one.epoch == 1]
        )
        attempt.kill()
        await to_the_end(Life(tmp_path, 2, 0, chain.since))

    asyncio.run(play())
    assert logged(tmp_path) == undisturbed


def test_a_disk_that_fills_during_a_snapshot_abandons_the_epoch(
    tmp_path: Path, undisturbed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    add, calls = SnapshotWriter.add, list[int]()

    def full(self: SnapshotWriter, pieces: Any) -> None:
        calls.append(self._header.stage)
        if calls.count(SUMS) == 5:
            self.drop()
            raise OSError(28, "No space left on device")
        add(self, pieces)

    async def play() -> None:
        attempt = await lived(tmp_path, 1, None, 1_000)
        with monkeypatch.context() as patch:
            patch.setattr(SnapshotWriter, "add", full)
            await opened(attempt, 1)
            await attempt.until(lambda: any(isinstance(one, DeclineCheckpoint) for one in attempt.told))
        await attempt.until(lambda: not attempt.epochs._open_writes)
        (told,) = [one for one in attempt.told if isinstance(one, DeclineCheckpoint)]
        assert (told.epoch, told.instance.stage) == (1, SUMS)
        assert "no space left" in told.reason
        chain = Chain()
        chain.commit(attempt, 2, await saved_while_rows_flow(attempt, 2, 10))
        attempt.kill()
        await to_the_end(Life(tmp_path, 2, 0, chain.since))

    asyncio.run(play())
    assert logged(tmp_path) == undisturbed


class Odd(KeyedOperator[int, Row, list[int], Total]):
    """Remembers what is no plain data of one key, which came long ago."""

    def initial(self, key: int) -> list[int]:
        return [cast(Any, object()) if key == 617 else 0]

    def on_record(self, key: int, record: Row, state: list[int], context: Context[Total]) -> None:
        context.emit(Total(key, 0))


def odd(operator: Odd | None = None) -> Topology:
    topology = Topology("sums")
    rows = topology.source("rows", Connector("list", payload=[]), rows=Row, event_time=lambda row: row.at)
    rows.key_by(lambda row: row.at, returns=int).stateful("sums", operator or Odd()).sink("report", log("sums"))
    return topology


async def until_broken(attempt: Life) -> None:
    async with asyncio.timeout(60):
        with pytest.raises(AssertionError):
            await attempt.until(lambda: False)


@pytest.mark.parametrize("touched", [False, True], ids=["in a slice", "when a row touches it"])
def test_a_state_that_is_not_plain_data_fails_the_run_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, touched: bool
) -> None:
    monkeypatch.setattr(test_instance_checkpointer, "build", odd)

    async def play() -> list[str]:
        attempt = await lived(tmp_path, 1, None, 1_000)
        attempt.epochs.on_failure, attempt.epochs.slice = attempt.host.fail, attempt.host.slice
        await opened(attempt, 1)
        if touched:
            with pytest.raises(Exception) as raised:
                attempt.running[SUMS].instance.state.store.get(617)  # type: ignore[union-attr]
            attempt.host._fail_with(attempt.running[SUMS], raised.value)
        await until_broken(attempt)
        assert not touched or attempt.running[SUMS].broken
        attempt.epochs.close()
        return list(attempt.broken)  # instances that work on while the loop ends find the checkpointer closed

    (text,) = asyncio.run(play())
    assert "sums, state of key 617: TypeError" in text
    assert "object" in text


class OddAtEnd(Odd):
    """Its state of one key is no plain data from the last rows on."""

    def initial(self, key: int) -> list[int]:
        return [0]

    def on_record(self, key: int, record: Row, state: list[int], context: Context[Total]) -> None:
        if key == COUNT - 50:
            state[0] = cast(Any, object())
        super().on_record(key, record, state, context)


def test_a_state_that_is_not_plain_data_at_the_end_is_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its snapshot of the last barrier is still open when its end comes; that is encoded at once when this is done."""
    monkeypatch.setattr(test_instance_checkpointer, "build", lambda: odd(OddAtEnd()))

    async def play() -> list[str]:
        attempt = await lived(tmp_path, 1, None, COUNT - 100)
        attempt.epochs.on_failure, attempt.epochs.slice = attempt.host.fail, attempt.host.slice
        await opened(attempt, 1)
        monkeypatch.setattr(sliced_snapshot_write, "AT_ONCE_NS", 10**12)
        attempt.allow(COUNT)
        await until_broken(attempt)
        assert attempt.running[SUMS].broken
        attempt.epochs.close()
        return list(attempt.broken)  # instances that work on while the loop ends find the checkpointer closed

    (text,) = asyncio.run(play())
    assert f"sums, state of key {COUNT - 50}: TypeError" in text
