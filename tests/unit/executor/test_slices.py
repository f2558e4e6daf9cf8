"""A large state is saved in slices while rows flow: what is restored is what the barrier cut, whatever came in between."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from agiledart import Context, KeyedOperator, Topology, log
from agiledart_dataflow.plan.connectors import Connector
from agiledart_dataflow.runtime import increments
from agiledart_dataflow.state import open_groups
from agiledart_executor.elements import ElementWriter, run_folder
from agiledart_executor.messages import Prepared, Unprepared
from agiledart_executor.snapshots import sliced_saving, slices
from tests.unit.executor import test_epochs
from tests.unit.executor.test_epochs import COUNT, Life, Row, logged, to_the_end
from tests.unit.executor.test_increments import SUMS, Chain, Total, build, lived

__all__ = ("undisturbed",)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """States of tests are small, and saved in slices of one key all the same."""
    monkeypatch.setattr(test_epochs, "build", build)
    monkeypatch.setattr(increments.Increments.__init__, "__defaults__", (0,))
    monkeypatch.setattr(sliced_saving, "AT_ONCE_NS", -1)
    monkeypatch.setattr(slices, "SLICE_NS", 0)
    monkeypatch.setattr(slices, "GAP_SECONDS", 0.0)
    monkeypatch.setattr(open_groups, "STEP_KEYS", 4)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    root = tmp_path_factory.mktemp("undisturbed")

    async def play() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(test_epochs, "build", build)
            await to_the_end(Life(root, 1, COUNT))

    asyncio.run(play())
    return logged(root)


async def opened(life: Life, epoch: int) -> None:
    """An epoch is begun, and the state is open at its barrier."""
    life.host.begin_epoch(epoch)
    await life.until(lambda: life.running[SUMS].barrier == epoch)
    assert life.epochs._savings


async def saved_while_rows_flow(life: Life, epoch: int, rows: int) -> list[Prepared]:
    """Rows come from the barrier until the element is there, and beyond."""
    await opened(life, epoch)
    for _ in range(rows):
        life.allow(life.reader.at + 1)
        await life.until(lambda: life.reader.at == life.reader.allowed)
    await life.until(lambda: len(life.prepared(epoch)) == 3)
    return life.prepared(epoch)


def test_a_run_goes_on_from_what_was_saved_while_rows_came(tmp_path: Path, undisturbed: list[object]) -> None:
    """Whole ones and increments; some epochs are lost. Rows behind the barrier come again, and are not in it."""

    async def play() -> None:
        chain, longest = Chain(), 0
        life = await lived(tmp_path, 1, None, 1_000)
        for number in (2, 3, 4):
            for _ in range(4):
                epoch = life.running[SUMS].barrier + 1
                prepared = await saved_while_rows_flow(life, epoch, 60)
                if epoch % 3:
                    chain.commit(life, epoch, prepared)
                longest = max(longest, len(chain.links))
            life.kill()
            life = Life(tmp_path, number, 0, chain.since)
            life.allow(life.reader.at + 30)
            await life.until(lambda life=life: life.reader.at == life.reader.allowed)
        assert longest > 2
        await to_the_end(life)

    asyncio.run(play())
    assert logged(tmp_path) == undisturbed


def test_an_epoch_that_is_passed_over_is_let_go_at_the_next_barrier(tmp_path: Path, undisturbed: list[object]) -> None:
    async def play() -> None:
        chain = Chain()
        life = await lived(tmp_path, 1, None, 1_000)
        await opened(life, 1)
        first = next(iter(life.epochs._savings.values()))
        prepared = await saved_while_rows_flow(life, 2, 10)
        assert first._is_over
        assert all(one.epoch != 1 for one in prepared if one.instance.stage == SUMS)
        assert not [one for one in life.prepared(1) if one.instance.stage == SUMS]
        chain.commit(life, 2, prepared)
        life.kill()
        await to_the_end(Life(tmp_path, 2, 0, chain.since))

    asyncio.run(play())
    assert logged(tmp_path) == undisturbed
    assert not list((run_folder(tmp_path, "sums", 1) / "elements").glob(".*"))


def test_the_end_comes_while_it_is_open(tmp_path: Path, undisturbed: list[object]) -> None:
    """What it was at the barrier is told, then what it is at its end."""

    async def play() -> None:
        life = await lived(tmp_path, 1, None, 2_900)
        await opened(life, 1)
        life.allow(COUNT)
        await life.until(lambda: sum(isinstance(one, Prepared) and one.ended for one in life.told) == 3)
        mine = [one for one in life.told if isinstance(one, Prepared) and one.instance.stage == SUMS]
        assert [(one.epoch, one.ended) for one in mine] == [(1, False), (2, True)]
        chain = Chain()
        chain.commit(life, 1, [one for one in life.told if isinstance(one, Prepared) and one.epoch == 1])
        life.kill()
        await to_the_end(Life(tmp_path, 2, 0, chain.since))

    asyncio.run(play())
    assert logged(tmp_path) == undisturbed


def test_a_disk_that_is_full_in_the_middle_gives_the_epoch_up(
    tmp_path: Path, undisturbed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    add, calls = ElementWriter.add, list[int]()

    def full(self: ElementWriter, pieces: Any) -> None:
        calls.append(self._header.stage)
        if calls.count(SUMS) == 5:
            self.drop()
            raise OSError(28, "No space left on device")
        add(self, pieces)

    async def play() -> None:
        life = await lived(tmp_path, 1, None, 1_000)
        with monkeypatch.context() as patch:
            patch.setattr(ElementWriter, "add", full)
            await opened(life, 1)
            await life.until(lambda: any(isinstance(one, Unprepared) for one in life.told))
        await life.until(lambda: not life.epochs._savings)
        (told,) = [one for one in life.told if isinstance(one, Unprepared)]
        assert (told.epoch, told.instance.stage) == (1, SUMS)
        assert "no space left" in told.reason
        chain = Chain()
        chain.commit(life, 2, await saved_while_rows_flow(life, 2, 10))
        life.kill()
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


async def until_broken(life: Life) -> None:
    async with asyncio.timeout(60):
        with pytest.raises(AssertionError):
            await life.until(lambda: False)


@pytest.mark.parametrize("touched", [False, True], ids=["in a slice", "when a row touches it"])
def test_a_state_that_is_no_plain_data_ends_the_run_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, touched: bool
) -> None:
    monkeypatch.setattr(test_epochs, "build", odd)

    async def play() -> list[str]:
        life = await lived(tmp_path, 1, None, 1_000)
        life.epochs.on_failure, life.epochs.slice = life.host.fail, life.host.slice
        await opened(life, 1)
        if touched:
            with pytest.raises(Exception) as raised:
                life.running[SUMS].instance.state.store.get(617)  # type: ignore[union-attr]
            life.host._went_wrong(life.running[SUMS], raised.value)
        await until_broken(life)
        assert not touched or life.running[SUMS].broken
        life.epochs.close()
        return life.broken

    (text,) = asyncio.run(play())
    assert "sums, state of key 617: TypeError" in text
    assert "object" in text


class OddAtEnd(Odd):
    """What it remembers of one key is no plain data from the last rows on."""

    def initial(self, key: int) -> list[int]:
        return [0]

    def on_record(self, key: int, record: Row, state: list[int], context: Context[Total]) -> None:
        if key == COUNT - 50:
            state[0] = cast(Any, object())
        super().on_record(key, record, state, context)


def test_a_state_that_is_no_plain_data_at_the_end_is_named_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was at the last barrier is still open when its end comes; that is encoded at once when this is done."""
    monkeypatch.setattr(test_epochs, "build", lambda: odd(OddAtEnd()))

    async def play() -> list[str]:
        life = await lived(tmp_path, 1, None, COUNT - 100)
        life.epochs.on_failure, life.epochs.slice = life.host.fail, life.host.slice
        await opened(life, 1)
        monkeypatch.setattr(sliced_saving, "AT_ONCE_NS", 10**12)
        life.allow(COUNT)
        await until_broken(life)
        assert life.running[SUMS].broken
        life.epochs.close()
        return life.broken

    (text,) = asyncio.run(play())
    assert f"sums, state of key {COUNT - 50}: TypeError" in text
