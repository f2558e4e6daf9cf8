"""An executor saves the changes since a committed snapshot, and resumes from the full one and its increments."""

import asyncio
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from agiledart import Context, KeyedOperator, Topology, log
from agiledart_dataflow.plan.connectors import Connector
from agiledart_dataflow.plan.deployment import RestoreFrom, SnapshotChain
from agiledart_dataflow.runtime import increments
from agiledart_dataflow.runtime.increments import MAX_LINKS, MAX_SINCE
from agiledart_executor.snapshots.snapshot_file import DamagedSnapshot, read_header, run_folder, snapshot_path
from agiledart_executor.wire.agent_messages import AcknowledgeCheckpoint
from tests.unit.executor import test_instance_checkpointer
from tests.unit.executor.test_instance_checkpointer import COUNT, Life, Row, logged, to_the_end

KEYS, FEW = 1_000, 10
SUMS = 1
"""The stage that remembers something."""


class Total(NamedTuple):
    """Output."""

    key: int
    total: int


class Sums(KeyedOperator[int, Row, list[int], Total]):
    """The sum of each key, which is forgotten when a timer says so; a tenth of the keys is."""

    def initial(self, key: int) -> list[int]:
        return [0]

    def on_record(self, key: int, record: Row, state: list[int], context: Context[Total]) -> None:
        state[0] += record.value
        if key % 10 == 0:
            context.timer_at(context.time_ms + 25, name="forget")
        context.emit(Total(key, state[0]))

    def on_timer(self, key: int, payload: object, state: list[int], context: Context[Total]) -> None:
        context.emit(Total(key, -state[0]))
        context.forget()


def build() -> Topology:
    """First each key once, then ever again the same few."""
    topology = Topology("sums")
    rows = topology.source("rows", Connector("list", payload=[]), rows=Row, event_time=lambda row: row.at)
    keyed = rows.key_by(lambda row: row.at if row.at < KEYS else row.at % FEW, returns=int)
    keyed.stateful("sums", Sums()).sink("report", log("sums"))
    return topology


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """States of tests are small, and increments pay all the same."""
    monkeypatch.setattr(test_instance_checkpointer, "build", build)
    monkeypatch.setattr(increments.Increments.__init__, "__defaults__", (0,))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    root = tmp_path_factory.mktemp("undisturbed")

    async def play() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(test_instance_checkpointer, "build", build)
            await to_the_end(Life(root, 1, COUNT))

    asyncio.run(play())
    return logged(root)


class Chain:
    """The register's knowledge of the stage: the snapshots that the last committed one needs, oldest first."""

    def __init__(self) -> None:
        self.epoch = 0
        self.elements: dict[int, AcknowledgeCheckpoint] = {}
        self.links: list[AcknowledgeCheckpoint] = []

    def commit(self, attempt: Life, epoch: int, prepared: list[AcknowledgeCheckpoint]) -> None:
        """An epoch is committed."""
        (mine,) = (one for one in prepared if one.instance.stage == SUMS)
        digests = [one.digest for one in self.links]
        self.links = [*self.links[: digests.index(mine.onto) + 1], mine] if mine.onto else [mine]
        self.epoch, self.elements = epoch, {one.instance.stage: one for one in prepared}
        for running in attempt.running:
            attempt.epochs.commit(running, epoch)

    @property
    def since(self) -> RestoreFrom:
        """The next attempt's start."""
        before = tuple(one.digest for one in self.links[:-1])
        return RestoreFrom(
            self.epoch,
            tuple(
                SnapshotChain(stage, 0, one.digest, before if stage == SUMS else ())
                for stage, one in self.elements.items()
            ),
        )


async def lived(root: Path, number: int, since: RestoreFrom | None, upto: int) -> Life:
    """An attempt that has read so many rows, all of which its step has taken."""
    attempt = Life(root, number, upto, since)
    instance = attempt.running[SUMS].instance
    assert instance is not None
    await attempt.until(lambda: attempt.reader.at == upto and instance.statistics().steps["sums"].rows_in == upto)
    return attempt


async def more(attempt: Life, rows: int) -> None:
    """Let some more come."""
    attempt.allow(attempt.reader.at + rows)
    await attempt.until(lambda: attempt.reader.at == attempt.reader.allowed)


def test_a_run_resumes_from_a_chain(tmp_path: Path, undisturbed: list[object]) -> None:
    """Every third epoch is lost; its changes are in the next one. Then the next attempt begins a chain of its own."""

    async def play() -> None:
        chain, longest, whole = Chain(), 0, 0
        attempt = await lived(tmp_path, 1, None, KEYS)
        for number in (2, 3):
            for _ in range(6):
                epoch = attempt.running[SUMS].barrier + 1
                prepared = await attempt.save(epoch)
                if epoch % 3:
                    chain.commit(attempt, epoch, prepared)
                longest = max(longest, len(chain.links))
                await more(attempt, 70)
            sizes = [one.size for one in chain.links]
            whole = max(whole, sizes[0])
            assert max(sizes[1:]) < sizes[0] / 10
            assert [one.onto for one in chain.links] == [b"", *(one.digest for one in chain.links[:-1])]
            attempt.kill()
            attempt = Life(tmp_path, number, 0, chain.since)
            await more(attempt, 30)
        assert longest > 3
        await to_the_end(attempt)

    asyncio.run(play())
    assert logged(tmp_path) == undisturbed


def test_a_chain_has_a_maximum_length(tmp_path: Path) -> None:
    async def play() -> None:
        chain = Chain()
        attempt = await lived(tmp_path, 1, None, KEYS)
        lengths = []
        for epoch in range(1, MAX_LINKS + 4):
            chain.commit(attempt, epoch, await attempt.save(epoch))
            lengths.append(len(chain.links))
            await more(attempt, 5)
        assert lengths == [*range(1, MAX_LINKS + 1), 1, 2, 3]
        attempt.kill()

    asyncio.run(play())


def test_after_uncommitted_epochs_the_next_snapshot_is_full(tmp_path: Path) -> None:
    """The receiver of the changes may never take them."""

    async def play() -> None:
        chain = Chain()
        attempt = await lived(tmp_path, 1, None, KEYS)
        chain.commit(attempt, 1, await attempt.save(1))
        rests = []
        for epoch in range(2, MAX_SINCE + 4):
            prepared = await attempt.save(epoch)
            rests.append(next(one.onto for one in prepared if one.instance.stage == SUMS))
        assert rests == [*[chain.links[0].digest] * MAX_SINCE, b"", b""]
        attempt.kill()

    asyncio.run(play())


def test_many_changes_make_a_full_snapshot(tmp_path: Path) -> None:
    async def play() -> None:
        chain = Chain()
        attempt = await lived(tmp_path, 1, None, KEYS // 10)
        for epoch in range(1, 5):
            chain.commit(attempt, epoch, await attempt.save(epoch))
            assert len(chain.links) == 1
            await more(attempt, attempt.reader.at)
        attempt.kill()

    asyncio.run(play())


@pytest.mark.parametrize("wrong", ["backwards", "without the first", "without one"])
def test_a_wrong_chain_is_refused(tmp_path: Path, wrong: str) -> None:
    async def play() -> None:
        chain = Chain()
        attempt = await lived(tmp_path, 1, None, KEYS)
        for epoch in range(1, 5):
            chain.commit(attempt, epoch, await attempt.save(epoch))
            await more(attempt, 5)
        attempt.kill()
        folder = run_folder(tmp_path, "sums", 1)
        heads = [read_header(snapshot_path(folder, one.digest)) for one in chain.links]
        assert [head.onto for head in heads] == [one.onto for one in chain.links]
        if wrong == "backwards":
            chain.links[:-1] = chain.links[-2::-1]
        else:
            del chain.links[0 if wrong == "without the first" else 1]
        with pytest.raises(DamagedSnapshot, match="rests on another"):
            Life(tmp_path, 2, 0, chain.since)

    asyncio.run(play())


@pytest.mark.parametrize("origin", ["whole", "steps"])
def test_another_run_begins_from_a_chain(
    tmp_path: Path, undisturbed: list[object], origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"

    async def play() -> None:
        chain = Chain()
        attempt = await lived(before, 1, None, KEYS)
        for epoch in (1, 2, 3):
            chain.commit(attempt, epoch, await attempt.save(epoch))
            if epoch < 3:
                await more(attempt, 70)
        assert len(chain.links) == 3
        attempt.kill()
        run_folder(after, "sums", 1).mkdir(parents=True)
        shutil.copytree(run_folder(before, "sums", 1) / "elements", run_folder(after, "sums", 1) / "elements")
        monkeypatch.setattr(test_instance_checkpointer, "RUN", 8)
        again = Life(after, 2, 0, RestoreFrom(0, chain.since.snapshots, origin))
        await to_the_end(again)

    asyncio.run(play())
    assert logged(before) + logged(after) == undisturbed
