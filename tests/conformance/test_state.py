"""Stores of state by key: the one in memory and the one on disk do the same, and read each other's key groups."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_dataflow.data.partitioning import key_group
from agiledart_dataflow.state.entries import EntryCodec, KeyEntry
from agiledart_dataflow.state.plain_codec import FORMAT, StateFormatError
from agiledart_dataflow.state.store import KeyedStore, MemoryStore
from agiledart_executor.state.sqlite_store import SqliteStore
from agiledart_kernel.errors import OperationFailed, UserCodeError


@dataclass
class Taxi:
    """A state."""

    rides: int
    streets: list[tuple[str, int]] = field(default_factory=list)


def same(value: Any) -> Any:
    """The state as it is."""
    return value


def codec(state: Any = Taxi, key: Any = str) -> EntryCodec:
    """Of a step called `taxis`."""
    return EntryCodec("taxis", key, state, same, same)


Make = Callable[[EntryCodec], KeyedStore]


@pytest.fixture(params=["memory", "disk", "disk with hardly any memory"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes stores of one kind."""
    made: list[KeyedStore] = []

    def store(codec: EntryCodec) -> KeyedStore:
        if request.param == "memory":
            made.append(MemoryStore(codec))
        else:
            made.append(SqliteStore("taxis", codec, tmp_path, 20_000 if request.param == "disk" else 3))
        return made[-1]

    yield store
    for one in made:
        one.close()


def entry(rides: int, waiting: int = 0) -> KeyEntry:
    """An entry with a state."""
    made = KeyEntry()
    made.state = Taxi(rides, [("Main Street", rides)])
    made.waiting = waiting
    return made


KEYS = st.sampled_from([f"taxi {i}" for i in range(9)])
TURNS = st.lists(
    st.tuples(st.sampled_from(["save", "drop", "get", "push", "pop", "snapshot", "forget"]), KEYS, st.integers(0, 99))
)


@settings(max_examples=60, deadline=None)
@given(turns=TURNS)
def test_a_store_behaves_as_a_dictionary_and_a_queue(
    tmp_path_factory: pytest.TempPathFactory, turns: list[Any]
) -> None:
    directory = tmp_path_factory.mktemp("state")
    for store in (MemoryStore(codec()), SqliteStore("taxis", codec(), directory, 2)):
        known: dict[str, int] = {}
        timers: list[tuple[int, ...]] = []
        owners: dict[tuple[int, ...], str] = {}
        for number, (verb, key, value) in enumerate(turns):
            found = store.get(key)
            assert (None if found is None else found.state.rides) == known.get(key)
            if verb == "save":
                changed = entry(value) if found is None else found
                changed.state.rides = value
                store.save(key, changed)
                known[key] = value
            elif verb == "drop" and found is not None:
                store.drop(key)
                del known[key]
            elif verb == "push" and found is not None:
                timers.append((value, 0, 0, number))
                owners[timers[-1]] = key
                store.push((timers[-1], key, [value], ""))
            elif verb == "pop" and timers:
                timers.sort()
                assert store.near[0][0] == timers[0]
                position, _, payload, _ = store.pop()
                assert (position, payload) == (timers.pop(0), [position[0]])
            elif verb == "snapshot" and known:
                group = key_group(next(iter(known)))
                store.restore_group(group, store.snapshot_group(group))
            elif verb == "forget":
                store.drop_group(key_group(key))
                known = {one: rides for one, rides in known.items() if key_group(one) != key_group(key)}
                timers = [timer for timer in timers if key_group(owners[timer]) != key_group(key)]
            assert len(store) == len(known)
            assert bool(store.near) == bool(timers)
        assert store.groups() == sorted({key_group(key) for key in known})
        store.close()


def test_one_group_moves_and_the_others_stay(make: Make, tmp_path: Path) -> None:
    store = make(codec())
    keys = [f"taxi {i}" for i in range(300)]
    for i, key in enumerate(keys):
        store.save(key, entry(i, waiting=1))
        store.push(((i, 0, 0, i), key, None, ""))
    assert store.groups() == sorted({key_group(key) for key in keys})
    group = key_group(keys[7])
    inside = [key for key in keys if key_group(key) == group]
    saved = store.snapshot_group(group)
    for key in inside:
        found = store.get(key)
        assert found is not None
        found.state.rides = -1
        store.save(key, found)
    for other in (store, MemoryStore(codec()), SqliteStore("taxis", codec(), tmp_path)):
        other.restore_group(group, saved)
        restored = {key: other.get(key) for key in inside}
        assert {key: one.state.rides for key, one in restored.items() if one} == {key: int(key[5:]) for key in inside}
        assert len(other) == (300 if other is store else len(inside))
        assert other.snapshot_group(group) == saved
    taken = [store.pop()[0][0] for _ in keys]
    assert taken == list(range(300))


def test_more_timers_than_memory_holds_come_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agiledart_executor.state.timer_file.TimerFile.__init__.__defaults__", (8,))
    store = SqliteStore("taxis", codec(), tmp_path)
    wanted = [(i * 7919 % 1_000 - 500, 0, 0, i) for i in range(1_000)]
    for position in wanted:
        store.push((position, "k", None, "name"))
    taken = []
    while store.near:
        taken.append(store.pop()[0])
        if len(taken) == 400:
            store.push(((-600, 0, 0, 0), "k", None, ""))
            assert store.pop()[0] == (-600, 0, 0, 0)
    assert taken == sorted(wanted)
    assert len(store.near) == 0


@dataclass
class NewTaxi:
    """`Taxi` a version later: a field more, with a default."""

    rides: int
    streets: list[tuple[str, int]] = field(default_factory=list)
    colour: str = "yellow"


@dataclass
class OtherTaxi:
    """Something that `Taxi` cannot be read as."""

    licence: str


def test_a_state_with_a_new_field_is_read(make: Make) -> None:
    old = make(codec())
    old.save("t", entry(5))
    group = key_group("t")
    new = make(codec(NewTaxi))
    new.restore_group(group, old.snapshot_group(group))
    found = new.get("t")
    assert found is not None
    assert found.state == NewTaxi(5, [("Main Street", 5)], "yellow")


def test_a_state_that_does_not_fit_is_refused_with_the_name_of_the_step(make: Make) -> None:
    old = make(codec())
    old.save("t", entry(5))
    with pytest.raises(StateFormatError, match=r"the saved state of taxis .* missing required field `licence`"):
        make(codec(OtherTaxi)).restore_group(key_group("t"), old.snapshot_group(key_group("t")))


def test_ints_of_any_size_are_kept(make: Make) -> None:
    old, new = make(codec()), make(codec())
    wide = Taxi(2**70, [("Main Street", -(2**90)), ("High Street", 2**64 - 1)])
    for key, state in (("t", wide), ("u", Taxi(1, []))):
        found = KeyEntry()
        found.state, found.waiting = state, 1
        old.save(key, found)
        old.push(((5, 0, 0, 2**62), key, [2**80], ""))
        new.restore_group(key_group(key), old.snapshot_group(key_group(key)))
    assert [one.state for key in "tu" if (one := new.get(key))] == [wide, Taxi(1, [])]
    assert [new.pop()[2], new.pop()[2]] == [[2**80], [2**80]]


def test_a_future_format_is_refused(make: Make) -> None:
    with pytest.raises(StateFormatError, match=f"has format {FORMAT + 1}"):
        make(codec()).restore_group(3, msgspec.msgpack.encode((FORMAT + 1, [], [])))


@pytest.mark.parametrize("data", [b"", b"\x93", b"\x93\x01\xc0\xc0", b"\xff" * 40])
def test_bytes_that_are_no_snapshot_are_refused(make: Make, data: bytes) -> None:
    with pytest.raises(StateFormatError):
        make(codec()).restore_group(3, data)


def test_the_file_has_no_name_and_a_failing_disk_is_reported(tmp_path: Path) -> None:
    store = SqliteStore("taxis", codec(), tmp_path / "state", 2)
    assert list((tmp_path / "state").iterdir()) == []
    store.close()
    with pytest.raises(OperationFailed, match="taxis: its state on disk cannot be kept"):
        store.get("t")


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """No file gets longer than so many bytes."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


def rides_in(store: KeyedStore) -> dict[str, int]:
    """State of all keys, from the store's bytes."""
    groups = [codec().decode_group(store.snapshot_group(group))[0] for group in store.groups()]
    return {plain[0]: plain[2].rides for group in groups for plain in group}


def test_a_temporarily_full_disk_loses_no_state(tmp_path: Path) -> None:
    store = SqliteStore("taxis", codec(), tmp_path, 100)
    known: dict[str, int] = {}

    def drive(count: int) -> None:
        for number in range(count):
            rides = len(known)
            store.save(f"taxi {rides}", entry(rides))
            known[f"taxi {rides}"] = rides
            if number % 7 == 6:
                store.drop(f"taxi {rides}")
                del known[f"taxi {rides}"]

    drive(2_000)
    with disk_of(200_000), pytest.raises(OperationFailed, match="taxis: its state on disk cannot be kept"):
        drive(100_000)
    drive(500)
    assert rides_in(store) == known
    assert len(store) == len(known) > 2_500
    store.close()


def test_a_state_that_cannot_be_written_is_reported_and_loses_no_other(tmp_path: Path) -> None:
    store = SqliteStore("taxis", codec(), tmp_path, 10)
    for rides in range(10):
        store.save(f"taxi {rides}", entry(rides))
    broken = store.get("taxi 0")
    assert broken is not None
    broken.state.rides = object()
    store.save("taxi 0", broken)
    with pytest.raises(
        UserCodeError, match=r"^in taxis, state of key 'taxi 0': TypeError: Encoding objects of type object"
    ):
        store.snapshot_group(key_group("taxi 0"))
    broken.state.rides = 0
    assert rides_in(store) == {f"taxi {rides}": rides for rides in range(10)}
    store.close()


def test_a_timer_that_cannot_be_written_is_reported_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agiledart_executor.state.timer_file.TimerFile.__init__.__defaults__", (4,))
    store = SqliteStore("taxis", codec(), tmp_path)
    for time in range(8):
        store.push(((time, 0, 0, 0), f"taxi {time}", object() if time == 6 else None, ""))
    with pytest.raises(UserCodeError, match=r"^in taxis, timer of key 'taxi 6': TypeError"):
        store.push(((8, 0, 0, 0), "taxi 8", None, ""))
    assert len(store.near) == 9


def test_short_lived_keys_do_not_accumulate_in_memory(tmp_path: Path) -> None:
    store = SqliteStore("taxis", codec(), tmp_path, 10)
    store.save("stays", entry(1))
    for number in range(100):
        store.save(f"{number}", entry(number))
        store.drop(f"{number}")
        assert len(store._dropped) < 10  # no other observation shows that it is bounded
    assert len(store) == 1
    assert store.get("7") is None
    assert store.get("stays") is not None
    store.close()
