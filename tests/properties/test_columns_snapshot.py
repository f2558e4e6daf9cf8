"""Windows over columns, in slices and by increments: whatever comes between, what is restored goes on as if nothing had been."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_dataflow.aggregation import columns_snapshot, named_panes, panes, vector_panes
from agiledart_dataflow.aggregation.columns_snapshot import ColumnsSnapshot
from agiledart_dataflow.aggregation.named_panes import NamedPanes
from agiledart_dataflow.aggregation.vector_panes import VectorPanes
from agiledart_dataflow.runtime import increments
from agiledart_dataflow.runtime.program import Program
from agiledart_dataflow.state import async_snapshot, indexed_state_snapshot
from agiledart_dataflow.state.dirty_keys import DirtyRows
from agiledart_dataflow.state.indexed_state_snapshot import all_of
from agiledart_dataflow.state.key_groups import StateSnapshot, restore_state
from agiledart_dataflow.state.open_windows import OpenWindows, common_of
from agiledart_kernel.randomness import RandomStream
from tests.properties.test_columnar_steps import Trip, opened
from tests.properties.test_increments import Kept, restored
from tests.properties.test_key_groups_in_columns import KEYS, PARTS, Part, cut_up, fed, window_of
from tests.properties.test_window_forms import RESULTS, WINDOWS, program_of, tables


@pytest.fixture(autouse=True, scope="module")
def soon() -> Iterator[None]:
    """Everything pays, is folded and compacted soon, and is done in small steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(increments, "WORTH", 1e9)
        patch.setattr(panes, "COMPACT_EVERY", 3)
        patch.setattr(panes, "LONG", 2)
        patch.setattr(named_panes, "_WORTH_COLUMNS", 4)
        patch.setattr(vector_panes, "FOLD_AT", 5)
        patch.setattr(vector_panes.OpenVectorWindow, "__init__", opened(5))
        patch.setattr(columns_snapshot, "BLOCK_ROWS", 4)
        for name in ("STEP_KEYS", "STEP_FREED"):
            patch.setattr(async_snapshot, name, 1)
        for module in (indexed_state_snapshot, columns_snapshot):
            patch.setattr(module, "STEP_INDEXED", 2)
        yield


def told(state: NamedPanes) -> list[Any]:
    """Output of a window if all inputs ended, in order."""
    return fed(state, [], Part(1, in_columns=False, is_asked=False), None)


class KeptWindows(Kept):
    """Which number a key has in its window says its place and nothing else, so what is whole is compared when it is restored."""

    def __init__(self, state: NamedPanes, program: Program) -> None:
        super().__init__(state)
        self._program = program
        self.in_columns = 0

    def save(self, state: Any, barrier: int, calls: int) -> None:
        """A barrier has come."""
        self.in_columns += state._vectors is not None
        super().save(state, barrier, calls)

    def _whole(self, barrier: int, onto: bytes, raw: bytes) -> None:
        name = self.at[barrier][0]
        self.elements[name] = onto, raw
        self.increments.written(barrier, name)
        if not onto:
            made, wanted = window_of(self._program), window_of(self._program)
            restore_state(made, msgspec.msgpack.decode(raw, type=StateSnapshot))
            restore_state(wanted, msgspec.msgpack.decode(self.at[barrier][1], type=StateSnapshot))
            one, other = made._rows.store.windows(), wanted._rows.store.windows()
            assert one == other, "it is not what the state was at the barrier"


class Played(NamedTuple):
    """How long the longest chain was that was restored, and how often columns were saved."""

    longest: int
    in_columns: int


def play(program: Program, calls: list[tuple[list[Trip], Part, int | None]], random: RandomStream) -> Played:
    """Feed a window, save it now and then, lose epochs and processes."""
    longest = in_columns = number = barrier = committed = lives = 0
    wanted: dict[int, list[tuple[int, str]]] = {}
    live = window_of(program)
    kept = KeptWindows(live, program)
    while number < len(calls):
        lines = fed(live, *calls[number])
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
        if lives < 6 and committed in kept.at and random.index(5) == 0:
            name, whole, since = kept.at[committed]
            chain = kept.chain(name)
            longest, in_columns, lives = max(longest, len(chain)), in_columns + kept.in_columns, lives + 1
            live, other = window_of(program), window_of(program)
            restored(live, chain[0], chain[1:])
            restored(other, whole, [])
            again = window_of(program)
            restored(again, chain[0], chain[1:])
            assert told(again) == told(other)
            kept, barrier, number = KeptWindows(live, program), committed, since
            kept.at[committed], kept.elements[name] = (name, whole, since), (b"", whole)
    return Played(longest, in_columns)


@settings(deadline=None, max_examples=60)
@given(
    tables(st.floats(-5, 5)),
    PARTS,
    st.sampled_from(sorted(KEYS)),
    st.sampled_from(sorted(WINDOWS)),
    st.sampled_from(sorted(set(RESULTS) - {"guarded"})),
    st.integers(0, 1_000_000),
)
def test_a_chain_restores_the_windows(
    rows: list[Trip], parts: list[Part], keys: str, window: str, results: str, seed: int
) -> None:
    play(program_of(KEYS[keys], window, results, "fail"), cut_up(rows, parts), RandomStream(seed, "increments"))


def rows_of(count: int, seed: int) -> list[Trip]:
    """Keys come, change and go."""
    random = RandomStream(seed, "rows")
    return [Trip(3 * at, "ab"[random.index(2)], random.index(7), random.index(9) / 4, None) for at in range(count)]


def longest_of(seeds: int, results: str = "several") -> Played:
    """Of some runs, in columns only."""
    longest = in_columns = 0
    for seed in range(seeds):
        program = program_of(KEYS["two"], sorted(WINDOWS)[seed % 2], results, "fail")
        calls = cut_up(rows_of(90, seed), [Part(3, in_columns=True, is_asked=False)])
        played = play(program, calls, RandomStream(seed, "plays"))
        longest, in_columns = max(longest, played.longest), in_columns + played.in_columns
    return Played(longest, in_columns)


@pytest.mark.parametrize("results", ["several", "count", "one"])
def test_columns_have_chains(results: str) -> None:
    longest, in_columns = longest_of(8, results)
    assert longest > 3
    assert in_columns > 20


def ranks_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Keys that came behind others stand before them."""
    join = columns_snapshot._joined
    patch.setattr(columns_snapshot, "_joined", lambda pieces: as_first(join(pieces)))


def as_first(block: Any) -> Any:
    """A block whose rows are the first of their window."""
    block.first = 0
    return block


def windows_that_were_opened_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A window is said to have been open before."""
    begin = ColumnsSnapshot.__init__

    def without(self: Any, *given: Any) -> None:
        begin(self, *given)
        if self.common:
            self.common = common_of([], adds=True)

    patch.setattr(ColumnsSnapshot, "__init__", without)


def rows_in_the_place_of_what_there_was(patch: pytest.MonkeyPatch) -> None:
    """Rows that came are taken for all rows of their keys."""
    patch.setattr(OpenWindows, "_add", OpenWindows._put)


def what_is_folded_is_no_change(patch: pytest.MonkeyPatch) -> None:
    """A fold forgets the notes of its pieces."""
    fold = VectorPanes._fold

    def forgetful(self: Any, window: Any) -> None:
        gone = window.pieces
        fold(self, window)
        for piece in gone if self._came is not None else ():
            self._came.pop(piece, None)

    patch.setattr(VectorPanes, "_fold", forgetful)


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    ranks_forgotten,
    windows_that_were_opened_forgotten,
    rows_in_the_place_of_what_there_was,
    what_is_folded_is_no_change,
]


@pytest.mark.parametrize("plant", MUTANTS, ids=lambda plant: plant.__name__)
def test_omitted_changes_are_detected(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError, IndexError)):
        longest_of(12)


def as_opened(rows_between: int) -> list[Any]:
    """Contents of a window at its opening, so many rows before its first step."""
    program = program_of(KEYS["one"], "tumbling", "several", "fail")
    window, again = window_of(program), window_of(program)
    part = Part(3, in_columns=True, is_asked=False)
    fed(window, rows_of(3, 0), part, 0)
    window.take_dirty_keys()
    opened = window.begin_snapshot(None)
    for number in range(rows_between):
        fed(window, rows_of(3, number), part, 0)
    restore_state(again, StateSnapshot(all_of(opened), b""))
    return told(again)


def test_rows_after_the_barrier_are_not_in_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    assert as_opened(0) == as_opened(1) == as_opened(5)
    monkeypatch.setattr(
        columns_snapshot, "islice", lambda some, *bounds: iter(some) if type(some) is list else islice(some, *bounds)
    )
    assert as_opened(0) != as_opened(1)


def test_pending_rows_beyond_the_useful_number_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of few keys and many rows: folded values are dropped, and the next snapshot is full."""
    monkeypatch.setattr(vector_panes, "MAX_DIRTY_KEYS", 50)
    window = window_of(program_of(KEYS["one"], "tumbling", "several", "fail"))
    part = Part(10, in_columns=True, is_asked=False)
    fed(window, rows_of(1, 0), part, 0)
    window.take_dirty_keys()
    rows = [row._replace(at=1) for row in rows_of(10, 1)]
    for _ in range(4):
        fed(window, rows, part, 0)
    assert isinstance(window.take_dirty_keys(), DirtyRows)
    for _ in range(20):
        fed(window, rows, part, 0)
    assert window.take_dirty_keys() is None
