"""Increments: whatever is changed, committed and lost, a chain of snapshots restores the same state as one full snapshot."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_dataflow.aggregation import panes
from agiledart_dataflow.aggregation.sliding import SlidingWindow, _SlidingSnapshot
from agiledart_dataflow.data.partitioning import key_group
from agiledart_dataflow.operators.base import Operator
from agiledart_dataflow.operators.top import Top, _RankingSnapshot
from agiledart_dataflow.runtime import increments
from agiledart_dataflow.runtime.increments import Increments
from agiledart_dataflow.runtime.program import Program
from agiledart_dataflow.state import async_snapshot, indexed_state_snapshot
from agiledart_dataflow.state.async_instance_snapshot import AsyncInstanceSnapshot, AsyncStateSnapshot
from agiledart_dataflow.state.async_snapshot import ChangedEntriesSnapshot, FullEntriesSnapshot
from agiledart_dataflow.state.dirty_keys import DirtyKeyTracker, Increment, StateChanges
from agiledart_dataflow.state.entries import EntryCodec, KeyEntry
from agiledart_dataflow.state.indexed_state_snapshot import IndexedStateSnapshot, all_of
from agiledart_dataflow.state.key_groups import Division, StateSnapshot, restore_state, snapshot_of
from agiledart_dataflow.state.open_windows import OpenWindows, common_of
from agiledart_dataflow.state.plain_codec import _PLAIN, FORMAT
from agiledart_dataflow.state.store import MemoryStore
from agiledart_executor.state import sqlite_snapshot
from agiledart_executor.state.sqlite_store import SqliteStore
from agiledart_kernel.randomness import RandomStream
from tests.conformance.operator_cases import Case
from tests.conformance.test_operators import ROWS
from tests.properties.test_key_groups import ALL_CASES, Input, Line, fed, operators, recorded
from tests.reference.rows import Row

BOTH: tuple[Division, ...] = "by group", "whole"
SEEDS = st.integers(0, 1_000_000)
Restore = Callable[[Operator, bytes, list[bytes]], None]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything pays, and what is kept of windows is compacted soon."""
    monkeypatch.setattr(increments, "WORTH", 1e9)
    monkeypatch.setattr(panes, "COMPACT_EVERY", 3)
    monkeypatch.setattr(panes, "LONG", 2)
    for name in ("STEP_KEYS", "STEP_TIMERS", "STEP_FREED"):
        monkeypatch.setattr(async_snapshot, name, 1)
    monkeypatch.setattr(sqlite_snapshot, "STEP_TIMERS", 1)
    monkeypatch.setattr("agiledart_executor.state.timer_file.TimerFile.__init__.__defaults__", (2,))
    for name in ("STEP_INDEXED", "STEP_LISTED"):
        monkeypatch.setattr(indexed_state_snapshot, name, 2)


def restored(state: Operator, whole: bytes, behind: list[bytes]) -> None:
    """As `Instance.restore` does."""
    before = msgspec.msgpack.decode(whole, type=StateSnapshot)
    changes = [msgspec.msgpack.decode(raw, type=Increment) for raw in behind]
    restore_state(state, StateSnapshot(before.groups, changes[-1].rest if changes else before.rest))
    for one in changes:
        state.apply(one.changes)


class Kept:
    """Snapshots of an operator: snapshots by name, and the chain of each."""

    def __init__(self, state: Operator) -> None:
        self.increments = Increments(state, 0)
        self.elements: dict[bytes, tuple[bytes, bytes]] = {}  # (onto, bytes)
        self.at: dict[int, tuple[bytes, bytes, int]] = {}  # barrier → (name, whole, calls before it)
        self.open: Callable[[], bool] | None = None

    def save(self, state: Operator, barrier: int, calls: int) -> None:
        """A barrier has come. Open groups are encoded gradually; groups not encoded by the next barrier are lost."""
        name, self.open = b"%d" % barrier, None
        made = self.increments.at(barrier)
        onto = self.increments.onto(barrier)
        self.at[barrier] = name, msgspec.msgpack.encode(snapshot_of(state)), calls
        if not isinstance(made, AsyncStateSnapshot):
            self._whole(barrier, onto, msgspec.msgpack.encode(made))
            return
        element = AsyncInstanceSnapshot(1, b"", made, b"")
        pieces: list[bytes] = []

        def go_on() -> bool:
            more = element.step()
            pieces.extend(element.taken())
            if not more:
                self._whole(barrier, onto, b"".join(pieces)[1:])
            return more

        self.open = go_on

    def go_on(self, steps: int) -> None:
        """Encode some more of what is open."""
        while self.open is not None and steps:
            steps -= 1
            if not self.open():
                self.open = None

    def _whole(self, barrier: int, onto: bytes, raw: bytes) -> None:
        name = self.at[barrier][0]
        self.elements[name] = onto, raw
        self.increments.written(barrier, name)
        if not onto:
            made, wanted = (msgspec.msgpack.decode(data, type=StateSnapshot) for data in (raw, self.at[barrier][1]))
            empty = [(group, [_PLAIN, FORMAT, [[], []]]) for group, _ in made.groups]
            groups, rest = told(made)
            groups = [one for one in groups if one not in empty]  # the file may still have keys that are gone
            assert (groups, rest) == told(wanted), "it is not what the state was at the barrier"

    def is_there(self, barrier: int) -> bool:
        """Is all of it on the disk?"""
        return barrier in self.at and self.at[barrier][0] in self.elements

    def chain(self, name: bytes) -> list[bytes]:
        """Contents of a snapshot, a full one first."""
        onto, raw = self.elements[name]
        return [*self.chain(onto), raw] if onto else [raw]


def same(one: Operator, other: Operator) -> None:
    """They remember the same; the order of keys within a group is unspecified."""
    assert told(snapshot_of(one)) == told(snapshot_of(other))


def told(state: StateSnapshot) -> Any:
    groups = [(group, _sorted(msgspec.msgpack.decode(data, strict=False))) for group, data in state.groups]
    return groups, state.rest


def _sorted(plain: Any) -> Any:
    return sorted(map(_sorted, plain), key=repr) if isinstance(plain, list) else plain


def play(
    program: Program,
    stage: int,
    calls: Sequence[Input],
    random: RandomStream,
    on_disk: Sequence[bool],
    restore: Restore = restored,
) -> int:
    """Feed an operator, save it now and then, lose epochs and processes; returns the longest chain that was restored."""
    longest = number = barrier = committed = 0
    wanted: dict[int, list[Line]] = {}
    with operators(program, stage, [on_disk[0], *on_disk, on_disk[1]] * 3) as made:
        live = made.pop()
        kept = Kept(live)
        while number < len(calls):
            lines = fed(live, calls[number])
            assert wanted.setdefault(number, lines) == lines
            number += 1
            kept.go_on(random.index(14))
            if random.index(2):
                barrier += 1
                kept.save(live, barrier, number)
                kept.go_on(10_000 if random.index(3) else random.index(8))
            if barrier > committed and kept.is_there(barrier):
                if random.index(3):
                    kept.increments.committed(barrier)
                    committed = barrier
            elif committed < barrier - 1 and kept.is_there(barrier - 1) and random.index(3) == 0:
                kept.increments.committed(barrier - 1)  # late, while the next one is open
                committed = barrier - 1
            if len(made) > 2 and committed in kept.at and random.index(4) == 0:
                name, whole, since = kept.at[committed]
                chain = kept.chain(name)
                longest = max(longest, len(chain))
                live, other = made.pop(), made.pop(0)
                restore(live, chain[0], chain[1:])
                restored(other, whole, [])
                same(live, other)
                kept, barrier, number = Kept(live), committed, since
                kept.at[committed] = name, whole, since
                kept.elements[name] = b"", whole
    return longest


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
@given(
    rows=ROWS,
    carries=st.sampled_from(["positions", "rows"]),
    on_disk=st.lists(st.booleans(), min_size=2, max_size=2),
    seed=SEEDS,
)
@settings(max_examples=8, deadline=None)
def test_a_chain_restores_the_same_state_as_a_full_snapshot(
    case: Case, rows: list[Row], carries: Any, on_disk: list[bool], seed: int
) -> None:
    rows = sorted(rows, key=lambda row: row.at)
    program, inputs = recorded(case, rows, seed, carries, BOTH)
    for stage, calls in inputs.items():
        play(program, stage, calls, RandomStream(seed, "increments"), on_disk)


def rows_of(count: int, seed: int) -> list[Row]:
    """Keys come, change and go."""
    random = RandomStream(seed, "rows")
    return [
        Row(number // 3, "abcdefgh"[random.index(8)], random.index(9) - 4, 0.5, number % 2) for number in range(count)
    ]


def longest_of(case: Case, seeds: int, restore: Restore = restored) -> int:
    """Of some runs of a case."""
    longest = 0
    for seed in range(seeds):
        program, inputs = recorded(case, rows_of(60, seed), seed, "positions" if seed % 2 else "rows", BOTH)
        for stage, calls in inputs.items():
            longest = max(
                longest, play(program, stage, calls, RandomStream(seed, "plays"), (seed % 3 == 0, False), restore)
            )
    return longest


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_every_kind_of_state_has_chains(case: Case) -> None:
    assert longest_of(case, 4) > 2


# ---- what must not be left out


def deletes_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Keys that are gone are not said."""
    encode = EntryCodec.encode_changes
    patch.setattr(EntryCodec, "encode_changes", lambda self, entries, gone, timers: encode(self, entries, [], timers))
    take = ChangedEntriesSnapshot._take
    patch.setattr(
        ChangedEntriesSnapshot, "_take", lambda self, keys: take(self, [key for key in keys if key in self._entries])
    )


def timers_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Entries come without their timers."""
    encode = EntryCodec.encode_changes
    patch.setattr(EntryCodec, "encode_changes", lambda self, entries, gone, timers: encode(self, entries, gone, []))
    patch.setattr(ChangedEntriesSnapshot, "_timer_steps", lambda self, part, timers: iter(()))


def closed_windows_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Windows that have closed stay in what is restored."""
    apply = OpenWindows.apply

    def with_all(self: Any, changes: Any) -> None:
        ends, adds = msgspec.msgpack.decode(changes.common)
        apply(self, changes._replace(common=common_of(sorted({*ends, *self.panes}), adds=adds)))

    patch.setattr(OpenWindows, "apply", with_all)


def forgotten_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """Changes before an epoch that is never committed are lost with it."""
    at = Increments.at

    def forgetful(self: Any, barrier: int) -> Any:
        made = at(self, barrier)
        self._lists.clear()
        return made

    patch.setattr(Increments, "at", forgetful)


def rests_on_what_was_lost(patch: pytest.MonkeyPatch) -> None:
    """An increment rests on the last snapshot that was written, and holds changes since the one before it that was committed."""
    committed = Increments.committed

    def late(self: Any, barrier: int) -> None:
        lists = dict(self._lists)
        committed(self, barrier)
        if lists:
            del lists[max(lists)]
            self._lists = {one: {} for one in lists}

    patch.setattr(Increments, "committed", late)


def rows_that_left_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Time that empties a window is no change."""
    leave = SlidingWindow._leave

    def unnoted(self: Any, *given: Any) -> None:
        kept, self.dirty_tracker.is_tracking = self.dirty_tracker.is_tracking, False
        leave(self, *given)
        self.dirty_tracker.is_tracking = kept

    patch.setattr(SlidingWindow, "_leave", unnoted)


def notes_lost_in_silence(patch: pytest.MonkeyPatch) -> None:
    """An operator that dropped its dirty keys reports no change."""

    def taken(self: Any) -> Any:
        keys = self.keys.copy()
        self.keys.clear()
        first, self.is_tracking = not self.is_tracking, True
        if first and not getattr(self, "was_asked", False):
            self.was_asked = True
            return None
        return keys

    def swap(self: Any) -> Any:
        keys = taken(self)
        self.keys = {}
        return keys

    patch.setattr(DirtyKeyTracker, "taken", taken)
    patch.setattr(DirtyKeyTracker, "swap", swap)
    drop, on_disk = MemoryStore.drop, SqliteStore.drop

    def dropped(self: Any, key: Any) -> None:
        drop(self, key) if isinstance(self, MemoryStore) else on_disk(self, key)
        self._dirty_tracker.invalidate()

    patch.setattr(MemoryStore, "drop", dropped)
    patch.setattr(SqliteStore, "drop", dropped)


def nothing_is_encoded_first(patch: pytest.MonkeyPatch) -> None:
    """A key that changes while a snapshot is open is encoded by the next visitor."""
    for kind in (FullEntriesSnapshot, ChangedEntriesSnapshot):
        patch.setattr(kind, "keep", lambda self, key: None)


def nothing_is_kept(patch: pytest.MonkeyPatch) -> None:
    """The same, of windows."""
    patch.setattr(IndexedStateSnapshot, "keep", lambda self, key: None)


def kept_without_its_rows(patch: pytest.MonkeyPatch) -> None:
    """Rows of a key that changes are those that it has then."""
    frozen = _SlidingSnapshot._frozen
    patch.setattr(_SlidingSnapshot, "_frozen", lambda self, plain: (frozen(self, plain)[0], []))


def keys_that_left_the_ranking_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A key without a value is not reported."""
    apply = Top.apply

    def without(self: Any, changes: Any) -> None:
        groups = [(group, self._codec.decode(data)) for group, data in changes.groups]
        there = [(group, [entry for entry in entries if entry[1] is not None]) for group, entries in groups]
        apply(self, changes._replace(groups=[(group, self._codec.encode(entries)) for group, entries in there]))

    patch.setattr(Top, "apply", without)


def ranked_as_it_is_then(patch: pytest.MonkeyPatch) -> None:
    """A change after the barrier is taken for the state at it."""
    patch.setattr(_RankingSnapshot, "keep", lambda self, key: None)


def encoded_as_it_is_then(patch: pytest.MonkeyPatch) -> None:
    """The same, and what came since the barrier is not left out."""
    begin = FullEntriesSnapshot.__init__
    nothing_is_encoded_first(patch)

    def untouched(self: Any, codec: Any, entries: Any, touched: Any, *others: Any, **named: Any) -> None:
        begin(self, codec, entries, (), *others, **named)

    patch.setattr(FullEntriesSnapshot, "__init__", untouched)


def timers_as_they_are_then(patch: pytest.MonkeyPatch) -> None:
    """Timers are not copied at the barrier."""
    steps = FullEntriesSnapshot._timer_steps

    def late(self: Any, part: Any, timers: Any) -> Any:
        (group,) = (one for one, each in self._parts.items() if each is part)
        near = self._closed.__self__.near
        return steps(self, part, [timer for timer in near if key_group(timer[1]) == group])

    patch.setattr(FullEntriesSnapshot, "_timer_steps", late)


MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    deletes_forgotten: "sessions",
    timers_forgotten: "sessions",
    closed_windows_forgotten: "tumbling",
    forgotten_before_the_commit: "sessions",
    rests_on_what_was_lost: "sessions",
    rows_that_left_forgotten: "sliding",
    notes_lost_in_silence: "sessions",
    nothing_is_encoded_first: "sessions",
    encoded_as_it_is_then: "sessions",
    nothing_is_kept: "tumbling",
    kept_without_its_rows: "sliding",
    keys_that_left_the_ranking_forgotten: "top",
    ranked_as_it_is_then: "top",
    timers_as_they_are_then: "sessions",
}


def case_named(begin: str) -> Case:
    return next(case for case in ALL_CASES if begin in case.name)


@pytest.mark.parametrize("plant", MUTANTS, ids=lambda plant: plant.__name__)
def test_omitted_changes_are_detected(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = case_named(MUTANTS[plant])
    assert longest_of(case, 12) > 2
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError, IndexError)):
        longest_of(case, 12)


def test_a_chain_in_another_order_is_detected() -> None:
    def backwards(state: Operator, whole: bytes, behind: list[bytes]) -> None:
        restored(state, whole, behind[::-1])

    with pytest.raises((AssertionError, KeyError)):
        longest_of(case_named("sessions"), 12, backwards)


class OneGroup:
    """A state of one group that can lose count of what has changed."""

    division = "by group"

    def __init__(self) -> None:
        self.dirty_tracker, self.entries = DirtyKeyTracker(), dict[str, int]()

    def put(self, key: str) -> None:
        """An entry comes."""
        self.entries[key] = 1
        self.dirty_tracker.note([key])

    def groups(self) -> list[int]:
        return [0]

    def snapshot_group(self, group: int) -> bytes:
        return repr(self.entries).encode()

    def snapshot_rest(self) -> bytes:
        return b""

    def take_dirty_keys(self) -> Any:
        return self.dirty_tracker.taken()

    def begin_snapshot(self, lists: Any, waste: Any) -> None:
        """It cannot."""

    def changes(self, keys: Any) -> StateChanges:
        return StateChanges([(0, repr({key: self.entries[key] for key in keys}).encode())])


def test_no_increment_rests_on_a_commit_after_its_changes_were_dropped() -> None:
    state = OneGroup()
    increments = Increments(cast(Any, state), 0)
    for barrier in (1, 2, 3):
        state.put(f"before {barrier}")
        increments.at(barrier)
        increments.written(barrier, b"%d" % barrier)
        if barrier < 3:
            increments.committed(barrier)
    state.put("between 3 and 4")
    state.dirty_tracker.invalidate()
    assert type(increments.at(4)) is StateSnapshot
    increments.written(4, b"4")
    increments.committed(3)  # late; the epoch of 4 is never committed
    state.put("behind 4")
    made = increments.at(5)
    assert type(made) is StateSnapshot, "it rests on 3, and lacks what came between 3 and 4"
    increments.written(5, b"5")
    increments.committed(5)
    state.put("behind 5")
    assert type(increments.at(6)) is Increment


def test_keys_of_a_state_on_disk_are_released_by_a_commit(tmp_path: Path) -> None:
    """Lists of keys are released gradually while the next snapshot is open."""
    store: Any = SqliteStore("sums", EntryCodec("sums", int, int, lambda state: state, lambda state: state), tmp_path)
    store.snapshot_rest = lambda: b""
    kept, links = Increments(store, 0), set[bool]()
    for barrier in range(1, 9):
        for key in range(50):
            (entry := KeyEntry()).state = key
            store.get(key)
            store.save(key, entry)
        made = kept.at(barrier)
        assert isinstance(made, AsyncStateSnapshot)
        links.add(made.is_whole)
        all_of(made.groups)
        made.encoded()
        kept.written(barrier, b"%d" % barrier)
        kept.committed(barrier)
        assert sum(map(len, kept._waste)) <= 50
        assert not kept._lists
    assert links == {True, False}
    store.close()
