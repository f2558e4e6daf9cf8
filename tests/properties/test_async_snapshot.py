"""Open key groups: however looks, changes, timers and steps come in between, they give what the store was when they were opened."""

from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_dataflow.data.position import Position
from agiledart_dataflow.operators.base import StoreBackedState
from agiledart_dataflow.runtime.increments import Increments
from agiledart_dataflow.state import async_snapshot
from agiledart_dataflow.state import store as stores
from agiledart_dataflow.state.async_instance_snapshot import AsyncStateSnapshot
from agiledart_dataflow.state.async_snapshot import AsyncSnapshot, ChangedEntriesSnapshot, FullEntriesSnapshot
from agiledart_dataflow.state.dirty_keys import DirtyKeys
from agiledart_dataflow.state.entries import NOTHING, EntryCodec, KeyEntry, NamedTimer
from agiledart_dataflow.state.key_groups import StateSnapshot
from agiledart_dataflow.state.store import MemoryStore
from agiledart_kernel.errors import UserCodeError

KEYS = st.integers(0, 11)
OPS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), KEYS, st.integers(-3, 3)),
        st.tuples(st.just("widen"), KEYS, st.integers(0, 1)),
        st.tuples(st.just("time"), KEYS, st.integers(0, 9)),
        st.tuples(st.just("fire"), KEYS, st.just(0)),
        st.tuples(st.just("drop"), KEYS, st.just(0)),
        st.tuples(st.just("look"), KEYS, st.just(0)),
        st.tuples(st.just("move"), KEYS, st.just(0)),
        st.tuples(st.just("step"), KEYS, st.just(0)),
        st.tuples(st.just("step"), KEYS, st.just(0)),
        st.tuples(st.just("barrier"), KEYS, st.integers(0, 2)),
    ),
    max_size=80,
)


@pytest.fixture(autouse=True, scope="module")
def bit_by_bit() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("STEP_KEYS", "STEP_TIMERS", "STEP_FREED"):
            patch.setattr(async_snapshot, name, 1)
        yield


def made() -> MemoryStore:
    return MemoryStore(EntryCodec("sums", int, list[int], lambda state: state, lambda state: state))


def read(raw: bytes) -> dict[int, Any]:
    """Items of each group in bytes, in no order; each entry and each timer once."""
    found = {}
    for group, data in msgspec.msgpack.decode(raw):
        _, _, arrays = msgspec.msgpack.decode(data, ext_hook=lambda code, wide: (code, bytes(wide)))
        found[group] = [sorted(map(repr, array)) for array in arrays]
        if len(found[group]) == 2 and not any(found[group]):
            del found[group]
    return found


class Model:
    """A store and its expected contents."""

    def __init__(self) -> None:
        self.store = made()
        self.store.take_dirty_keys()
        self.number = 0
        self.lists: list[DirtyKeys] = []
        self.open: AsyncSnapshot | None = None
        self.pieces: list[bytes] = []
        self.wanted: dict[int, Any] = {}
        self.finished = 0

    def do(self, name: str, key: int, value: int) -> None:
        """One thing that an operator, a barrier or the loop does."""
        store = self.store
        if name == "step":
            self.step()
        elif name == "barrier":
            self.barrier(is_whole=value == 0)
        elif name == "move":
            group = store.groups()[key % len(store.groups())] if store.groups() else 0
            data = store.snapshot_group(group)
            store.drop_group(group)
            store.restore_group(group, data)
        elif name == "fire":
            if store.near:
                _, of, *_ = store.pop()
                entry = store.get(of)
                assert entry is not None
                entry.waiting -= 1
                self.forget(of, entry)
        else:
            self.touch(name, key, value)

    def touch(self, name: str, key: int, value: int) -> None:
        """Effect of a row on its key."""
        store, entry = self.store, self.store.get(key)
        if name in ("change", "time", "widen") and entry is None:
            entry = KeyEntry()
            store.save(key, entry)
        if entry is None or name == "look":
            return
        if name == "drop":
            entry.state = NOTHING
            self.forget(key, entry)
        elif name == "time":
            self.number += 1
            position: Position = (value, 1, self.number)
            entry.waiting += 1
            entry.named = {f"t{value}": NamedTimer(position, position, value)}
            store.push((position, key, value, ""))
        else:
            entry.state = [] if entry.state is NOTHING else entry.state
            entry.state.append(value << (70 if name == "widen" else 0))

    def forget(self, key: int, entry: KeyEntry) -> None:
        """As `KeyedStep`: an entry stays while a timer of it waits."""
        if entry.state is NOTHING and not entry.waiting:
            self.store.drop(key)

    def barrier(self, *, is_whole: bool) -> None:
        """Open the store, and note what it is."""
        dirty_keys = self.store.take_dirty_keys()
        self.pieces = []
        if dirty_keys is None:  # groups have moved
            self.lists, is_whole = [], True
        elif not is_whole:
            self.lists.append(dirty_keys)
        if is_whole:
            raw = [(group, self.store.snapshot_group(group)) for group in self.store.groups()]
            self.lists = []
        else:
            raw = self.store.changes({key: None for keys in self.lists for key in keys}).groups
        self.wanted = read(msgspec.msgpack.encode(raw))
        self.open = self.store.begin_snapshot(None if is_whole else list(self.lists), [{1: None, 2: None}])

    def step(self) -> None:
        """Encode some more."""
        if self.open is None:
            return
        more = self.open.step()
        self.pieces += self.open.taken()
        if not more:
            assert not self.open.is_dropped
            assert read(b"".join(self.pieces)) == self.wanted
            self.open, self.finished = None, self.finished + 1


def played(ops: list[tuple[str, int, int]]) -> Model:
    model = Model()
    for op in ops:
        model.do(*op)
    while model.open is not None:
        model.step()
    return model


@given(OPS)
@settings(max_examples=300, deadline=None)
def test_the_snapshot_equals_the_store_at_the_barrier(ops: list[tuple[str, int, int]]) -> None:
    played([*ops, ("barrier", 0, 0)])


def grown(steps: int, then: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Twelve keys with timers, a barrier, so many steps, and what comes then."""
    rows = [("change", key, key) for key in range(12)] + [("time", key, key % 10) for key in range(0, 12, 2)]
    return [*rows, ("barrier", 0, 0), *[("step", 0, 0)] * steps, *then]


CHANGES = [(what, key, 2) for key in range(12) for what in ("change", "time", "drop", "change")]
FIRES = [("fire", 0, 0)] * 6


def found(then: list[tuple[str, int, int]], second: bool) -> bool:
    """Does a fault show, however far it was? `second`: at a barrier for what has changed."""
    for steps in range(60):
        ops = grown(steps, then)
        if second:
            ops = [*grown(200, CHANGES), ("barrier", 0, 1), *[("step", 0, 0)] * steps, *then]
        try:
            played(ops)
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("second", [False, True], ids=["whole", "changes"])
@pytest.mark.parametrize("then", [CHANGES, FIRES], ids=["rows", "timers"])
def test_a_key_is_encoded_before_it_changes(
    then: list[tuple[str, int, int]], second: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not found(then, second)
    for kind in (FullEntriesSnapshot, ChangedEntriesSnapshot):
        monkeypatch.setattr(kind, "keep", lambda self, key: None)
    assert found(then, second), "an omission would not be visible"


@pytest.mark.parametrize("second", [False, True], ids=["whole", "changes"])
def test_a_key_is_encoded_once(second: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (FullEntriesSnapshot, ChangedEntriesSnapshot):

        def anew(self: Any, key: Any, keep: Any = kind.keep) -> None:
            self._passed.pop(key, None)
            keep(self, key)

        monkeypatch.setattr(kind, "keep", anew)
    assert found(CHANGES, second)


def test_groups_that_arrive_or_leave_finish_the_snapshot_first(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = [*CHANGES[:20], ("move", 9, 0), *CHANGES[:20]]
    assert not found(moved, False)
    monkeypatch.setattr(MemoryStore, "_invalidate_dirty_keys", lambda self: self._dirty_tracker.invalidate())
    assert found(moved, False)


def test_the_next_barrier_ends_an_open_snapshot() -> None:
    model = Model()
    for op in grown(2, []):
        model.do(*op)
    before = model.open
    assert before is not None
    model.do("barrier", 0, 0)
    assert before.is_dropped
    assert not before.step()
    assert not before.taken()


class Sums(StoreBackedState[MemoryStore]):
    """A state that is all in a store."""

    def __init__(self) -> None:
        self.store = made()


def test_no_barrier_iterates_over_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it costs is in steps; also at the first one."""
    state = Sums()
    increments, store = Increments(state, 0), state.store
    for key in range(1_000):
        (entry := KeyEntry()).state = [key]
        assert store.get(key) is None
        store.save(key, entry)
    for barrier in (1, 2):
        with monkeypatch.context() as patch:
            for module in (async_snapshot, stores):
                patch.setattr(module, "key_group", lambda key: pytest.fail(f"it looked at {key}"))
            opened = increments.at(barrier)
        assert isinstance(opened, AsyncStateSnapshot)
        while opened.groups.step():
            pass
        opened.encoded()
        increments.written(barrier, b"1")
        increments.committed(barrier)
        for key in range(10):
            store.get(key)


def test_a_state_that_is_not_plain_data_names_its_key_wherever_it_is_encoded() -> None:
    for touches in (False, True):
        store = made()
        store.take_dirty_keys()
        for key in range(40):
            entry = store.get(key) or KeyEntry()
            entry.state = [object()] if key == 17 else [key]
            store.save(key, entry)
        store.take_dirty_keys()
        opened = cast(FullEntriesSnapshot, store.begin_snapshot(None))
        with pytest.raises(UserCodeError, match="sums, state of key 17"):
            store.get(17) if touches else opened.finish()


def test_a_full_snapshot_is_read_as_before() -> None:
    """Also where some ints are too wide for MessagePack, and others not."""
    model = Model()
    for op in grown(0, []):
        model.do(*op)
    for key in range(0, 12, 3):
        model.do("widen", key, 1)
    model.do("barrier", 0, 0)
    assert model.open is not None
    pieces = []
    while model.open.step():
        pieces += model.open.taken()
    raw = b"".join([b"\x92", *pieces, *model.open.taken(), msgspec.msgpack.encode(b"")])
    saved = msgspec.msgpack.decode(raw, type=StateSnapshot)
    other = made()
    for group, data in saved.groups:
        other.restore_group(group, data)
    for key in range(12):
        here, there = model.store.get(key), other.get(key)
        assert here is not None
        assert there is not None
        assert (here.state, here.waiting, here.named) == (there.state, there.waiting, there.named)
    assert sorted(other.near) == sorted(model.store.near)
