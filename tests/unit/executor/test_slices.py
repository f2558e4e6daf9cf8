"""A large state is saved in slices while rows flow: what is restored is what the barrier cut, whatever came in between."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from agiledart import Context, KeyedOperator, Topology, log
from agiledart_dataflow.plan.connectors import Connector
from agiledart_dataflow.runtime import increments
from agiledart_dataflow.state import open_groups
from agiledart_dataflow.state.entries import Entry, EntryCodec
from agiledart_dataflow.state.open_element import OpenElement, OpenState
from agiledart_dataflow.state.store import MemoryStore
from agiledart_executor.elements import ElementHeader, ElementWriter, run_folder
from agiledart_executor.host import InstanceHost
from agiledart_executor.messages import Prepared, Unprepared
from agiledart_executor.running_instance import Running
from agiledart_executor.snapshots import sliced_saving, slices
from agiledart_executor.snapshots.slices import Slices
from agiledart_recovery.config import RecoveryConfig
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


class Counted:
    """Something that has so many slices."""

    def __init__(self, count: int) -> None:
        self.left, self.waits, self.left_ns = count, False, 0
        self.lengths: list[int] = []

    def slice(self, until_ns: int) -> bool:
        self.lengths.append(until_ns - time.monotonic_ns())
        self.left -= 1
        return self.left > 0


class Followed(Counted):
    """Something behind which another begins at once, as the end of an instance behind its last barrier."""

    def __init__(self, turns: Slices) -> None:
        super().__init__(2)
        self._turns = turns

    def slice(self, until_ns: int) -> bool:
        more = super().slice(until_ns)
        if not more:
            self._turns.begin(Counted(2))
        return more


class Broken(Counted):
    """Something that raises, which it must not."""

    def slice(self, until_ns: int) -> bool:
        raise KeyError(until_ns)


class Loop:
    """Says what would be called, and when."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, Callable[[], None]]] = []

    def call_soon(self, call: Callable[[], None]) -> object:
        self.asked.append((0.0, call))
        return self

    def call_later(self, delay: float, call: Callable[[], None]) -> object:
        self.asked.append((delay, call))
        return self


def test_rows_have_the_time_between_slices_and_an_idle_loop_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "GAP_SECONDS", 0.009)
    loop: Any = Loop()
    turns = Slices(loop)
    calls, delays = 0, []
    turns.calls = lambda: calls
    turns.begin(Counted(3))
    turns.begin(Counted(4))
    for number in range(7):
        assert len(loop.asked) == 1, "one timer, however much is open"
        delay, call = loop.asked.pop()
        delays.append(delay)
        calls += number < 4  # rows come, at first
        call()
    assert delays == [0.009, 0.009, 0.009, 0.009, 0.009, 0.0, 0.0]
    assert not loop.asked, "nothing is open, so nothing is looked at"


def test_what_waits_is_not_asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "GAP_SECONDS", 0.009)
    loop: Any = Loop()
    turns, counted = Slices(loop), Counted(9)
    counted.waits = True
    turns.begin(counted)
    for _ in range(4):
        delay, call = loop.asked.pop()
        assert delay == 0.009
        call()


def test_a_disk_that_is_slow_holds_the_encoding_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_saving, "AHEAD_BYTES", 2_000)
    jobs: list[Callable[[], None]] = []
    store = MemoryStore(EntryCodec("sums", int, str, lambda state: state, lambda state: state))
    store.noted()
    for key in range(200):
        (entry := Entry()).state = "n" * 100
        store.save(key, entry)
    store.noted()
    element = OpenElement(1, b"", OpenState(store.open_groups(None), True, b"", lambda: None), b"")
    header = ElementHeader(1, 1, 1, 0, 0, ("sums",))
    done: list[int] = []
    saving = sliced_saving.Saving(
        element,
        [],
        ElementWriter(tmp_path, header),
        jobs.append,
        lambda step, until_ns: step(),
        lambda digest, size, waited, longest: done.append(size),
        lambda error: None,
        lambda: None,
    )
    for _ in range(1_000):
        assert saving.slice(0)
    assert saving.waits
    assert saving._given < 10_000
    while not done:
        while jobs:
            jobs.pop(0)()
        saving.slice(0)
    assert done[0] > 200 * 100


def test_slices_are_longer_for_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_NS", 10**12)
    loop: Any = Loop()
    turns, counted = Slices(loop), Counted(9)
    turns.begin(counted)
    began = time.monotonic_ns()
    for number in range(9):
        monkeypatch.setattr(time, "monotonic_ns", lambda number=number: began + number * slices.LONG_NS)
        loop.asked.pop()[1]()
    monkeypatch.undo()
    assert [round(one / 10**12) for one in counted.lengths] == [1, 2, 3, 3, 3, 3, 3, 3, 3]


def test_what_begins_within_the_last_slice_of_another_has_one_timer() -> None:
    loop: Any = Loop()
    turns = Slices(loop)
    turns.begin(Followed(turns))
    for _ in range(4):
        assert len(loop.asked) == 1
        loop.asked.pop()[1]()
    assert not loop.asked


def test_what_raises_does_not_hold_up_what_is_behind_it() -> None:
    loop: Any = Loop()
    turns, counted = Slices(loop), Counted(2)
    turns.begin(Broken(1))
    turns.begin(counted)
    with pytest.raises(KeyError):
        loop.asked.pop()[1]()
    while loop.asked:
        loop.asked.pop()[1]()
    assert counted.left == 0


def test_slices_of_an_idle_host_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are calls of the host themselves; what another instance does in between is one more."""
    monkeypatch.setattr(slices, "GAP_SECONDS", 0.009)

    async def play() -> list[float]:
        loop: Any = Loop()
        host = InstanceHost(lambda running: None, lambda running, text: None)
        running = Running(0, 0, "sums", instance=cast(Any, None))
        turns, delays = Slices(loop), list[float]()
        turns.calls = lambda: host.calls

        class OfHost(Counted):
            def slice(self, until_ns: int) -> bool:
                host.slice(running, lambda: False, until_ns)
                return super().slice(until_ns)

        turns.begin(OfHost(6))
        for number in range(6):
            delay, call = loop.asked.pop()
            delays.append(delay)
            if number == 4:
                host.slice(running, lambda: False, 0)  # something comes
            call()
        return delays

    assert asyncio.run(play()) == [0.009, 0.009, 0.0, 0.0, 0.0, 0.009]


class Large:
    """A state that takes so long to be encoded."""

    waits = False

    def __init__(self, clock: "Clock", left_ns: int) -> None:
        self._clock, self.left_ns, self.ended_ns = clock, left_ns, 0
        self.longest_ns = 0

    def slice(self, until_ns: int) -> bool:
        took = min(self.left_ns, until_ns - self._clock.now)
        self.longest_ns = max(self.longest_ns, took)
        self.left_ns, self._clock.now = self.left_ns - took, self._clock.now + took
        self.ended_ns = self._clock.now
        return self.left_ns > 0


class Clock:
    """A virtual one, with a loop in which rows take so much time whenever it looks."""

    def __init__(self, rows_ns: int) -> None:
        self.now, self._rows_ns = 10**12, rows_ns
        self.loop = Loop()
        self.turns = Slices(cast(Any, self.loop))
        self.turns.calls = lambda: self.now  # rows come always

    def monotonic_ns(self) -> int:
        return self.now

    def save(self, monkeypatch: pytest.MonkeyPatch, *sizes_ns: int) -> tuple[float, float]:
        """States that come at once: seconds until all are encoded, and milliseconds of the longest slice."""
        monkeypatch.setattr(slices, "time", self)
        monkeypatch.setattr(slices, "SLICE_NS", 1_000_000)
        monkeypatch.setattr(slices, "GAP_SECONDS", 0.009)
        began, states = self.now, [Large(self, size) for size in sizes_ns]
        for each in states:
            self.turns.begin(each)
        while self.loop.asked:
            delay, call = self.loop.asked.pop()
            self.now += max(int(delay * 1e9), self._rows_ns)
            call()
        return (states[-1].ended_ns - began) / 1e9, max(each.longest_ns for each in states) / 1e6


SECOND = 1_000_000_000


def test_however_large_states_are_they_are_whole_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that are open count: none is begun before those that came before it are whole."""
    assert RecoveryConfig().epoch_timeout_ns == 3 * slices.WITHIN_NS
    took, longest = Clock(200_000).save(monkeypatch, 8 * SECOND)
    assert took < 21
    assert longest < 8
    took, longest = Clock(200_000).save(monkeypatch, 5 * SECOND, 5 * SECOND, 2 * SECOND)
    assert took < 21
    took, longest = Clock(5_000_000).save(monkeypatch, 12 * SECOND)  # rows have the loop busy
    assert took < 21


def test_what_cannot_be_whole_in_time_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    took, longest = Clock(5_000_000).save(monkeypatch, 40 * SECOND)
    assert 40 < took < 50
    assert longest < 200


def test_small_states_need_no_more_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    took, longest = Clock(200_000).save(monkeypatch, SECOND // 2)
    assert took < 5.1
    assert longest < 2.1
