"""When slices come and how long they are: rows have most of the time, and however large a state is, it comes to its end."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from agiledart_dataflow.state import async_snapshot
from agiledart_dataflow.state.async_instance_snapshot import AsyncInstanceSnapshot, AsyncStateSnapshot
from agiledart_dataflow.state.entries import EntryCodec, KeyEntry
from agiledart_dataflow.state.store import MemoryStore
from agiledart_executor.instances.instance_host import InstanceHost
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.snapshots import slice_scheduler, sliced_snapshot_write
from agiledart_executor.snapshots.slice_scheduler import SliceScheduler
from agiledart_executor.snapshots.snapshot_file import SnapshotHeader, SnapshotWriter
from agiledart_recovery.recovery_config import RecoveryConfig


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """States of tests are small: steps are, too."""
    monkeypatch.setattr(async_snapshot, "STEP_KEYS", 4)


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

    def __init__(self, turns: SliceScheduler) -> None:
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


def test_rows_get_the_time_between_slices_and_an_idle_loop_waits_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_scheduler, "PAUSE_SECONDS", 0.009)
    loop: Any = Loop()
    turns = SliceScheduler(loop)
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


def test_a_waiting_saving_is_not_polled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_scheduler, "PAUSE_SECONDS", 0.009)
    loop: Any = Loop()
    turns, counted = SliceScheduler(loop), Counted(9)
    counted.waits = True
    turns.begin(counted)
    for _ in range(4):
        delay, call = loop.asked.pop()
        assert delay == 0.009
        call()


def test_a_slow_disk_delays_the_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_snapshot_write, "AHEAD_BYTES", 2_000)
    jobs: list[Callable[[], None]] = []
    store = MemoryStore(EntryCodec("sums", int, str, lambda state: state, lambda state: state))
    store.take_dirty_keys()
    for key in range(200):
        (entry := KeyEntry()).state = "n" * 100
        store.save(key, entry)
    store.take_dirty_keys()
    element = AsyncInstanceSnapshot(
        1, b"", AsyncStateSnapshot(store.begin_snapshot(None), True, b"", lambda: None), b""
    )
    header = SnapshotHeader(1, 1, 1, 0, 0, ("sums",))
    done: list[int] = []
    saving = sliced_snapshot_write.SlicedSnapshotWrite(
        element,
        [],
        SnapshotWriter(tmp_path, header),
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


def test_slices_are_longer_for_slow_savings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_scheduler, "SLICE_NS", 10**12)
    loop: Any = Loop()
    turns, counted = SliceScheduler(loop), Counted(9)
    turns.begin(counted)
    began = time.monotonic_ns()
    for number in range(9):
        monkeypatch.setattr(time, "monotonic_ns", lambda number=number: began + number * slice_scheduler.LONG_NS)
        loop.asked.pop()[1]()
    monkeypatch.undo()
    assert [round(one / 10**12) for one in counted.lengths] == [1, 2, 3, 3, 3, 3, 3, 3, 3]


def test_a_saving_started_in_anothers_last_slice_has_one_timer() -> None:
    loop: Any = Loop()
    turns = SliceScheduler(loop)
    turns.begin(Followed(turns))
    for _ in range(4):
        assert len(loop.asked) == 1
        loop.asked.pop()[1]()
    assert not loop.asked


def test_a_saving_that_raises_does_not_block_the_next() -> None:
    loop: Any = Loop()
    turns, counted = SliceScheduler(loop), Counted(2)
    turns.begin(Broken(1))
    turns.begin(counted)
    with pytest.raises(KeyError):
        loop.asked.pop()[1]()
    while loop.asked:
        loop.asked.pop()[1]()
    assert counted.left == 0


def test_slices_of_an_idle_host_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are calls of the host themselves; the work of another instance in between is one more."""
    monkeypatch.setattr(slice_scheduler, "PAUSE_SECONDS", 0.009)

    async def play() -> list[float]:
        loop: Any = Loop()
        host = InstanceHost(lambda running: None, lambda running, text: None)
        running = RunningInstance(0, 0, "sums", instance=cast(Any, None))
        turns, delays = SliceScheduler(loop), list[float]()
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
        self.turns = SliceScheduler(cast(Any, self.loop))
        self.turns.calls = lambda: self.now  # rows come always

    def monotonic_ns(self) -> int:
        return self.now

    def save(self, monkeypatch: pytest.MonkeyPatch, *sizes_ns: int) -> tuple[float, float]:
        """States that come at once: seconds until all are encoded, and milliseconds of the longest slice."""
        monkeypatch.setattr(slice_scheduler, "time", self)
        monkeypatch.setattr(slice_scheduler, "SLICE_NS", 1_000_000)
        monkeypatch.setattr(slice_scheduler, "PAUSE_SECONDS", 0.009)
        began, states = self.now, [Large(self, size) for size in sizes_ns]
        for each in states:
            self.turns.begin(each)
        while self.loop.asked:
            delay, call = self.loop.asked.pop()
            self.now += max(int(delay * 1e9), self._rows_ns)
            call()
        return (states[-1].ended_ns - began) / 1e9, max(each.longest_ns for each in states) / 1e6


SECOND = 1_000_000_000


def test_states_of_any_size_are_complete_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that are open count: none is begun before those that came before it are whole."""
    assert RecoveryConfig().epoch_timeout_ns == 3 * slice_scheduler.WITHIN_NS
    took, longest = Clock(200_000).save(monkeypatch, 8 * SECOND)
    assert took < 21
    assert longest < 8
    took, longest = Clock(200_000).save(monkeypatch, 5 * SECOND, 5 * SECOND, 2 * SECOND)
    assert took < 21
    took, longest = Clock(5_000_000).save(monkeypatch, 12 * SECOND)  # rows have the loop busy
    assert took < 21


def test_a_state_that_cannot_be_complete_in_time_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    took, longest = Clock(5_000_000).save(monkeypatch, 40 * SECOND)
    assert 40 < took < 50
    assert longest < 200


def test_small_states_need_no_more_slices_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    took, longest = Clock(200_000).save(monkeypatch, SECOND // 2)
    assert took < 5.1
    assert longest < 2.1


@pytest.mark.parametrize("is_whole", [True, False], ids=["whole", "changes"])
def test_a_saving_estimates_its_remaining_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_whole: bool) -> None:
    """By what keys have cost; those that rows touch are encoded beside it."""
    clock, key_ns = Clock(0), 10_000
    monkeypatch.setattr(sliced_snapshot_write, "time", clock)
    store = MemoryStore(EntryCodec("sums", int, str, lambda state: state, lambda state: state))
    for _ in range(2):
        store.take_dirty_keys()
        for key in range(400):
            (entry := KeyEntry()).state = "n" * 100
            store.save(key, entry)
            store.get(key)
    lists = [store.take_dirty_keys() or {}]
    groups = store.begin_snapshot(None if is_whole else lists)
    element = AsyncInstanceSnapshot(1, b"", AsyncStateSnapshot(groups, is_whole, b"", lambda: None), b"")

    def step() -> bool:
        before = element.keys[0]
        more = element.step()
        clock.now += key_ns * (element.keys[0] - before)
        return more

    def work(step: Callable[[], bool], until_ns: int) -> bool:
        while step():
            if clock.now >= until_ns:
                return True
        return False

    while element.keys[0] < 4:  # at the barrier
        step()
    monkeypatch.setattr(sliced_snapshot_write, "AT_ONCE_NS", key_ns * element.keys[0])
    saving = sliced_snapshot_write.SlicedSnapshotWrite(
        element,
        element.taken(),
        SnapshotWriter(tmp_path, SnapshotHeader(1, 1, 1, 0, 0, ("sums",))),
        lambda call: None,
        lambda _, until_ns: work(step, until_ns),
        lambda digest, size, waited, longest: None,
        lambda error: None,
        lambda: None,
    )
    assert saving.left_ns == pytest.approx(396 * key_ns, rel=0.1)
    assert saving.slice(clock.now + 46 * key_ns)
    assert saving.left_ns == pytest.approx(350 * key_ns, rel=0.1)
    for key in range(300, 400):
        store.get(key)
    assert saving.left_ns == pytest.approx(250 * key_ns, rel=0.1)
    while saving.slice(clock.now + 50 * key_ns):
        pass
    assert saving.left_ns == 0
