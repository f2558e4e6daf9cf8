"""Open state on disk: whatever rows, timers, evictions and steps come in between, it gives what a store in memory was."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_dataflow.state import async_snapshot, indexed_state_snapshot
from agiledart_dataflow.state.entries import EntryCodec, KeyEntry
from agiledart_dataflow.state.indexed_state_snapshot import all_of
from agiledart_executor.state import sqlite_snapshot
from agiledart_executor.state.sqlite_snapshot import SqliteSnapshot
from agiledart_executor.state.sqlite_store import SqliteStore
from agiledart_executor.state.timer_file import TimerFile
from agiledart_kernel.randomness import RandomStream
from tests.properties.test_async_snapshot import OPS, Model, read

Op = tuple[str, int, int]


@pytest.fixture(autouse=True, scope="module")
def bit_by_bit() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("STEP_KEYS", "STEP_TIMERS", "STEP_FREED"):
            patch.setattr(async_snapshot, name, 1)
        patch.setattr(sqlite_snapshot, "STEP_TIMERS", 1)
        patch.setattr(indexed_state_snapshot, "STEP_INDEXED", 1)
        patch.setattr(TimerFile.__init__, "__defaults__", (2,))
        yield


class OnDisk(SqliteStore):
    """A read changes its entry."""

    def _get(self, key: Any) -> KeyEntry | None:
        entry = super()._get(key)
        if entry is not None:
            self._changed[key] = None
        return entry


class OfDisk(Model):
    """A store on disk, beside one in memory that gives the expected contents."""

    def __init__(self, folder: Path, cached_keys: int) -> None:
        super().__init__()
        self.beside = Model()
        codec: EntryCodec = EntryCodec("sums", int, list[int], lambda state: state, lambda state: state)
        self.store: Any = OnDisk("sums", codec, folder, cached_keys)
        self.store.take_dirty_keys()

    def do(self, name: str, key: int, value: int) -> None:
        """The same in both."""
        if name != "step":
            self.beside.do(name, key, value)
        super().do(name, key, value)

    def barrier(self, *, is_whole: bool) -> None:
        """Open the store."""
        dirty_keys = self.store.take_dirty_keys()
        self.pieces = []
        is_whole = is_whole or dirty_keys is None
        self.lists = [] if is_whole else [*self.lists, dirty_keys]
        self.wanted = filled(self.beside.wanted)
        self.open = self.store.begin_snapshot(None if is_whole else list(self.lists), [{1: None}])

    def step(self) -> None:
        """Encode some more."""
        if self.open is None:
            return
        more = self.open.step()
        self.pieces += self.open.taken()
        if not more:
            assert not self.open.is_dropped
            assert filled(read(b"".join(self.pieces))) == self.wanted
            self.open, self.finished = None, self.finished + 1


def filled(groups: dict[int, Any]) -> dict[int, Any]:
    """Those in which there is something."""
    return {group: arrays for group, arrays in groups.items() if any(arrays)}


def played(ops: list[Op], cached_keys: int) -> int:
    """How many snapshots were completed."""
    with TemporaryDirectory() as folder:
        model = OfDisk(Path(folder), cached_keys)
        for op in ops:
            model.do(*op)
        while model.open is not None:
            model.step()
        model.store.close()
        return model.finished


@given(OPS, st.sampled_from([1, 3, 100]))
@settings(max_examples=150, deadline=None)
def test_the_snapshot_equals_that_of_a_store_in_memory(ops: list[Op], cached_keys: int) -> None:
    played([*ops, ("barrier", 0, 0)], cached_keys)


def is_seen(seeds: int) -> bool:
    """Does a fault show in one of some runs?"""
    for seed in range(seeds):
        try:
            played(some_ops(seed), (1, 3, 100)[seed % 3])
        except AssertionError:
            return True
    return False


def some_ops(seed: int) -> list[Op]:
    """Rows, timers and barriers; after each of them some steps."""
    random = RandomStream(seed, "ops")
    kinds = ["change", "change", "time", "time", "fire", "drop", "look", "step", "step", "step", "step", "barrier"]
    ops = [(kinds[random.index(len(kinds))], random.index(12), random.index(3)) for _ in range(160)]
    return [one for op in ops for one in ([op, *[("step", 0, 0)] * random.index(30)] if op[0] == "barrier" else [op])]


def test_many_snapshots_are_completed() -> None:
    assert sum(played(some_ops(seed), (1, 3, 100)[seed % 3]) for seed in range(12)) > 20


def nothing_is_encoded_first(patch: pytest.MonkeyPatch) -> None:
    """A key that changes while a file is read is encoded by the next visitor."""
    patch.setattr(SqliteSnapshot, "keep", lambda self, key, entry: None)


def timers_that_came_out_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Timers that were in the file at the barrier and are not any more, or were to be written, are in no snapshot."""
    patch.setattr(SqliteSnapshot, "moved", lambda self, rows: None)


def timers_written_since_too(patch: pytest.MonkeyPatch) -> None:
    """Timers that are written behind the barrier are taken for what was there."""
    some = TimerFile.some

    def with_all(self: Any, *given: Any) -> Any:
        kept, self._moment = self._moment, 1 << 40
        found = some(self, *given)
        self._moment = kept
        return found

    patch.setattr(TimerFile, "some", with_all)


def changed_in_memory_only_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The file alone knows a key whose newest entry was in memory at the barrier."""
    begin = SqliteSnapshot.__init__

    def without(self: Any, codec: Any, filed: Any, touched: Any, changed: Any, *others: Any) -> None:
        begin(self, codec, filed, touched, {}, *others)

    patch.setattr(SqliteSnapshot, "__init__", without)


def told_twice(patch: pytest.MonkeyPatch) -> None:
    """A key that is touched behind its turn is encoded once more."""
    keep = SqliteSnapshot.keep

    def again(self: Any, key: Any, entry: Any) -> None:
        self._behind = b""
        keep(self, key, entry)

    patch.setattr(SqliteSnapshot, "keep", again)


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    nothing_is_encoded_first,
    timers_that_came_out_forgotten,
    timers_written_since_too,
    changed_in_memory_only_forgotten,
    told_twice,
]


@pytest.mark.parametrize("plant", MUTANTS, ids=lambda plant: plant.__name__)
def test_omitted_changes_are_detected(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert is_seen(40)


def test_a_key_dropped_only_in_memory_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> dict[int, Any]:
        store: Any = OfDisk(tmp_path, 100).store
        for key in (1, 2):
            entry = KeyEntry()
            entry.state = [key]
            assert store.get(key) is None
            store.save(key, entry)
        store.groups()  # both are in the file now
        store.get(1)
        store.drop(1)
        store.take_dirty_keys()
        groups = all_of(store.begin_snapshot(None))
        store.close()
        return filled(read(msgspec.msgpack.encode(groups)))

    assert len(found()) == 1
    begin = SqliteSnapshot.__init__

    def without(self: Any, codec: Any, filed: Any, touched: Any, changed: Any, gone: Any, *others: Any) -> None:
        begin(self, codec, filed, touched, changed, (), *others)

    monkeypatch.setattr(SqliteSnapshot, "__init__", without)
    assert len(found()) == 2
