"""`Instance.pass_through` is `offer` and `work`: the same rows, watermarks, barriers, counts and snapshots, whenever it
says yes.
"""

from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart import Topology, col, collect, count, records, sum_of, tumbling
from agiledart_dataflow.data.batch import Batch, listed
from agiledart_dataflow.data.carries import Carries
from agiledart_dataflow.data.position import END, START, Position, covering, final_watermark
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.program import Program, compile_program
from agiledart_kernel.errors import RemoteProtocolError


class Row(NamedTuple):
    """A row."""

    at: int
    key: int


def is_stored(row: Row) -> bool:
    return row.key != 1


def moved(row: Row) -> Row:
    return Row(row.at, row.key + 1)


def repeated(row: Row) -> list[Row]:
    return [row] * row.key


def program(kind: str, at_least: Carries) -> Program:
    """A topology whose only operator is the one to test."""
    topology = Topology("t")
    rows = topology.source("rows", records([], row_type=Row), event_time=lambda row: row.at)
    made: Any
    if kind == "loop":
        made = rows.filter(is_stored).map(moved)
    elif kind == "many":
        made = rows.flat_map(repeated)
    elif kind == "running":
        made = rows.key_by(col("key")).running("totals", number=count(), last=col("at").max())
    elif kind == "window":
        keyed = rows.key_by(lambda row: row.key)
        made = keyed.window(tumbling(timedelta(milliseconds=5))).aggregate("sums", sum_of(lambda row: row.at))
    else:
        others = topology.source("others", records([], row_type=Row), event_time=lambda row: row.at)
        made = rows.union(others, name="both")
    made.sink("out", collect)
    return compile_program(topology, plan_stages(topology.specification(), 1, at_least))


class Played:
    """An instance and what was seen of it."""

    def __init__(self, program: Program) -> None:
        stage = next(stage.index for stage in program.plan.stages if stage.kind == "operator")
        self.instance = Instance(program, stage, 0)
        self.channel = self.instance.inputs[0]
        self.instance.on_barrier = lambda number, snapshot, _: self.story.append((number, snapshot))
        self.story: list[Any] = []
        self.watermarks: list[Position] = []

    def emit(self, edge: int, target: int, batch: Batch) -> None:
        assert not batch.order or len(batch.order) == len(batch.held)
        order = listed(batch.order) or [None] * len(batch.held)
        self.story += [("barrier", batch.barrier)] if batch.barrier else list(zip(batch.rows, order, strict=True))
        # A barrier that follows the end promises nothing.
        if not (batch.barrier and batch.watermark == START):
            self.watermarks.append(batch.watermark)

    def passes(self, batch: Batch) -> bool:
        return self.instance.pass_through(*self.channel, batch, self.emit)

    def take(self, batch: Batch, budget: int) -> None:
        self.instance.offer(*self.channel, batch)
        if budget:
            self.instance.work(self.emit, budget)

    def end(self, at: int) -> None:
        for edge, source in self.instance.inputs:
            self.instance.offer(edge, source, Batch([], None, final_watermark(at)))
        while self.instance.work(self.emit):
            pass

    def figures(self) -> Any:
        assert self.watermarks == sorted(self.watermarks)
        return self.story, self.watermarks[-1:], self.instance.statistics()


Move = tuple[str, int, int]
MOVES = st.lists(
    st.tuples(
        st.sampled_from(("rows", "rows", "rows", "mark", "barrier")), st.integers(1, 4), st.sampled_from((0, 1, 9, 9))
    ),
    max_size=25,
)
"""Kind of arrival, its number, and how much may be processed then: 0 lets it wait."""


def batches(moves: list[Move], carries: Carries) -> list[tuple[Batch, int]]:
    found: list[tuple[Batch, int]] = []
    number = barrier = 0
    watermark: Position = (0, 0, END)
    for what, much, budget in moves:
        if what == "rows":
            positions = [(n // 2, 1, 0, n) for n in range(number, number + much)]
            rows = [Row(n // 2, n % 3) for n in range(number, number + much)]
            number += much
            watermark = covering(positions[-1])
            order = {"positions": positions, "times": [row.at for row in rows], "rows": None}[carries]
            found.append((Batch(rows, order, watermark), budget))
        elif what == "mark":
            number += 2 * much
            watermark = ((number - 1) // 2, 1, 0, number - 1, END)
            found.append((Batch([], None, watermark), budget))
        else:
            barrier += 1
            found.append((Batch([], None, watermark, barrier), budget))
    return found


@pytest.mark.parametrize("at_least", ["rows", "positions"])
@pytest.mark.parametrize("kind", ["loop", "many", "running", "window", "union"])
@given(moves=MOVES)
def test_batches_passed_through_equal_those_queued(kind: str, at_least: Carries, moves: list[Move]) -> None:
    made = program(kind, at_least)
    passing, offered = Played(made), Played(made)
    passed = 0
    for batch, budget in batches(moves, made.plan.carries(passing.instance.stage)):
        if passing.passes(batch):
            passed += 1
            offered.take(batch, 9)
        else:
            passing.take(batch, budget)
            offered.take(batch, budget)
    for played in (passing, offered):
        played.end(100)
    assert passing.figures() == offered.figures()
    if kind == "union":
        assert not passed
    elif moves and moves[0][0] == "rows":
        assert passed


def test_rows_out_of_order_do_not_pass() -> None:
    """The caller that offers them is notified."""
    made = program("loop", "positions")
    for order in ([(3, 1, 0, 1), (2, 1, 0, 0)], [(9, 1, 0, 1), (9, 1, 0, 1)], [(5, 1, 0, 1), (99, 1, 0, 2)]):
        played = Played(made)
        batch = Batch([Row(1, 0), Row(1, 0)], order, (50, 1, 0, 9, END))
        assert not played.passes(batch)
        with pytest.raises(RemoteProtocolError):
            played.instance.offer(0, 0, batch)


def test_rows_below_the_watermark_do_not_pass() -> None:
    played = Played(program("loop", "positions"))
    assert played.passes(Batch([Row(5, 0)], [(5, 1, 0, 0)], (7, 1, 0, 0, END)))
    assert not played.passes(Batch([Row(6, 0)], [(6, 1, 0, 1)], (8, 1, 0, 1, END)))
