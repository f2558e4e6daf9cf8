"""The merge of a single channel against the merge of any number, over the same batches, takes and snapshots."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from agiledart_dataflow.batch import Batch
from agiledart_dataflow.merge import Merge, merge_type
from agiledart_dataflow.one_input import OneInput, merge_of
from agiledart_dataflow.position import END, Position, covering, final_mark

CHANNEL = (3, 1)

Move = tuple[str, int]
"""What to do next, and how many rows: offer, take, barrier, snapshot."""

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
        mark = covering(positions[-1]) if positions else (self.rows, 0, END)
        self.merge.offer(*CHANNEL, Batch(list(range(first, self.rows)), positions or None, mark))

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
        self.merge.offer(*CHANNEL, Batch([], None, final_mark(self.rows)))
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
def test_one_input_is_a_merge_of_one(script: list[Move], padding: Position) -> None:
    one = merge_of([(CHANNEL, padding)])
    assert type(one) is OneInput
    played, expected = play(one, script), play(Merge([(CHANNEL, padding)]), script)
    assert _rows(played) == _rows(expected) == list(range(played.rows))
    assert played.seen[-1] == expected.seen[-1]
    if not any(
        move == "snapshot" for move, _ in script
    ):  # it ends the short way: what is taken together may differ then
        assert played.seen == expected.seen


def _rows(played: Played) -> list[int]:
    found: list[int] = []
    for seen in played.seen:
        if isinstance(seen, tuple) and len(seen) == 4:
            found += seen[0][0]
    return found
