"""The merge of a single channel against the merge of any number, over the same batches, takes and snapshots."""

from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart_dataflow.data.batch import Batch, as_rows, listed
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.position import END, Position, covering, final_watermark
from agiledart_dataflow.runtime import single_input_merge
from agiledart_dataflow.runtime.merge import Merge, merge_type
from agiledart_dataflow.runtime.single_input_merge import SingleInputMerge, merge_for

CHANNEL = (3, 1)

Move = tuple[str, int]
"""Next action, and its number of rows: offer, take, barrier, snapshot."""

moves = st.lists(
    st.tuples(st.sampled_from(("offer", "offer", "take", "take", "barrier", "snapshot")), st.integers(0, 4)),
    max_size=30,
)


class Played:
    """One merge and what was seen of it."""

    def __init__(self, merge: Merge) -> None:
        self.merge = merge
        self.seen: list[Any] = []
        self.rows = self.barriers = 0

    def offer(self, count: int) -> None:
        first, self.rows = self.rows, self.rows + count
        positions: list[Position] = [(n, 1, 0, n) for n in range(first, self.rows)]
        watermark = covering(positions[-1]) if positions else (self.rows, 0, END)
        self.merge.offer(*CHANNEL, Batch(list(range(first, self.rows)), positions or None, watermark))

    def barrier(self) -> None:
        self.barriers += 1
        self.merge.offer(*CHANNEL, Batch([], None, (self.rows, 0, END), self.barriers))

    def take(self, limit: int) -> None:
        merge = self.merge
        self.seen.append((merge.take(limit), merge.has_released, merge.queued_rows, merge.consumed(*CHANNEL)))
        while merge.barriers:
            number = merge.barriers.pop(0)
            self.seen.append((number, msgspec.msgpack.encode(merge.snapshot(number))))

    def snapshot(self) -> None:
        packed = msgspec.msgpack.encode(self.merge.snapshot())
        self.seen.append(packed)
        self.merge.restore(msgspec.msgpack.Decoder(merge_type(int)).decode(packed))

    def end(self) -> None:
        self.merge.offer(*CHANNEL, Batch([], None, final_watermark(self.rows)))
        while self.merge.has_released:
            self.take(3)
        self.seen.append((self.merge.received(), self.merge.queued_rows, self.merge.frontier))


def play(merge: Merge, script: list[Move]) -> Played:
    played = Played(merge)
    for move, count in script:
        if move == "offer":
            played.offer(count)
        elif move == "take":
            played.take(count + 1)
        elif move == "barrier":
            played.barrier()
        else:
            played.snapshot()
    played.end()
    return played


@given(moves, st.sampled_from([(), (-1, 2)]))
def test_one_input_equals_a_merge_of_one(script: list[Move], padding: Position) -> None:
    one = merge_for([(CHANNEL, padding)])
    assert type(one) is SingleInputMerge
    played, expected = play(one, script), play(Merge([(CHANNEL, padding)]), script)
    assert _rows(played) == _rows(expected) == list(range(played.rows))
    assert played.seen[-1] == expected.seen[-1]
    if not any(move == "snapshot" for move, _ in script):  # it ends the short way: batches may differ then
        assert played.seen == expected.seen


def _rows(played: Played) -> list[int]:
    found: list[int] = []
    for seen in played.seen:
        if isinstance(seen, tuple) and len(seen) == 4:
            found += seen[0][0]
    return found


class Pair(NamedTuple):
    """A row that can come in columns."""

    number: int
    word: str


@given(
    st.lists(st.tuples(st.sampled_from(("rows", "columns", "mark", "take", "barrier", "snapshot")), st.integers(0, 4)))
)
def test_columns_equal_the_rows_of_a_merge(script: list[Move]) -> None:
    one, expected = merge_for([(CHANNEL, ())]), Merge([(CHANNEL, ())])
    found: list[list[Any]] = [[], []]
    ends: list[Any] = []
    for merge, seen in zip((one, expected), found, strict=True):
        first = barriers = 0
        for move, count in [*script, ("columns", 3), ("columns", 2), ("take", 99)]:
            if move in ("rows", "columns"):
                rows = [Pair(n, str(n)) for n in range(first, first + count)]
                positions: list[Position] = [(n, 1, 0, n) for n in range(first, first + count)]
                first += count
                held: Any = Columns.from_rows(rows, Pair) if move == "columns" and rows else rows
                watermark = covering(positions[-1]) if positions else (first, 0, END)
                order = np.array(positions) if type(held) is not list and merge is one else positions or None
                merge.offer(*CHANNEL, Batch(held, order, watermark))
            elif move == "mark":
                merge.offer(*CHANNEL, Batch([], None, (first, 0, END)))
            elif move == "barrier":
                barriers += 1
                merge.offer(*CHANNEL, Batch([], None, (first, 0, END), barriers))
            elif move == "take":
                _take_all(merge, seen, count + 1)
            else:
                packed = msgspec.msgpack.encode(merge.snapshot())
                merge.restore(msgspec.msgpack.Decoder(merge_type(Pair)).decode(packed))
        merge.offer(*CHANNEL, Batch([], None, final_watermark(first)))
        _take_all(merge, seen, 3)
        ends.append((merge.received(), merge.queued_rows, merge.frontier, merge.consumed(*CHANNEL)))
    assert found[0] == found[1]
    assert ends[0] == ends[1]


def _take_all(merge: Merge, seen: list[Any], limit: int) -> None:
    while merge.has_released:
        held, positions, watermark = merge.take(limit)
        assert len(held) == len(positions)
        assert type(positions) is list or type(held) is not list
        positions = listed(positions)
        assert not positions or positions[-1] <= watermark
        seen += zip(as_rows(held), positions, strict=True)
        while merge.barriers:
            seen.append((merge.barriers[0], msgspec.msgpack.encode(merge.snapshot(merge.barriers.pop(0)))))


def test_columns_that_wait_together_stay_columns() -> None:
    merge = merge_for([(CHANNEL, ())])
    for first in (0, 3):
        rows = [Pair(n, "") for n in range(first, first + 3)]
        positions: list[Position] = [(n, 1, 0, n) for n in range(first, first + 3)]
        merge.offer(*CHANNEL, Batch(Columns.from_rows(rows, Pair), positions, covering(positions[-1])))
    merge.offer(*CHANNEL, Batch([], None, (9, 0, END)))
    held, positions, watermark = merge.take(2)
    assert isinstance(held, Columns)
    assert [row.number for row in held.rows()] == [0, 1, 2, 3, 4, 5]
    assert (len(positions), watermark, merge.consumed(*CHANNEL), merge.has_released) == (6, (9, 0, END), 3, False)


def test_columns_that_exceed_one_take_stay_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_input_merge, "MAX_COLUMN_ROWS", 5)
    merge = merge_for([(CHANNEL, ())])
    for first in (0, 3, 6):
        rows = [Pair(n, "") for n in range(first, first + 3)]
        positions: list[Position] = [(n, 1, 0, n) for n in range(first, first + 3)]
        held: Any = rows if first == 6 else Columns.from_rows(rows, Pair)
        merge.offer(*CHANNEL, Batch(held, positions, covering(positions[-1])))
    for first in (0, 3, 6):
        held, positions, watermark = merge.take(3)
        assert isinstance(held, Columns) == (first < 6)
        assert [row.number for row in as_rows(held)] == [first, first + 1, first + 2]
        assert (watermark, merge.has_released) == (covering(positions[-1]), first < 6)
