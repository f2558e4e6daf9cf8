"""Operators with much state that `benchmarks.snapshot_pauses` measures, each with a function that feeds it a batch of rows."""

import itertools
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import numpy as np

from agiledart import Topology, col, collect, count, hopping, records, sliding, sum_of, tumbling
from agiledart_dataflow.aggregation.named_panes import NamedPanes
from agiledart_dataflow.data.column import Column
from agiledart_dataflow.data.column_schema import schema_of
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.data.rows import Change
from agiledart_dataflow.operators.base import Operator
from agiledart_dataflow.operators.keyed import Context, KeyedOperator
from agiledart_dataflow.operators.keyed_step import KeyedStep
from agiledart_dataflow.operators.top import Top, emitted_type, ranked_type
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.program import compile_program
from agiledart_dataflow.state.entries import EntryCodec
from agiledart_dataflow.state.plain_codec import PlainCodec
from agiledart_dataflow.state.store import MemoryStore
from agiledart_executor.state.sqlite_store import SqliteStore

PADDING_BYTES: Final = 400
BATCH_MS: Final = 5
FILLED_AT_ONCE: Final = 10_000

Feed = Callable[[list[str], int], None]
"""(keys, number of the batch): a row for each of these keys."""


class Subject(NamedTuple):
    """An operator and the function that feeds it a batch."""

    operator: Operator
    feed: Feed


class KeyedRow(NamedTuple):
    """Input row of the window operators."""

    at: int
    key: str
    value: int


class PaddedSums(KeyedOperator[str, tuple[str, int], list[Any], int]):
    """State of a key: sum and number of its values, with padding text."""

    def __init__(self, timers: bool) -> None:
        self._timers = timers

    def initial(self, key: str) -> list[Any]:
        return [0, 0, key.ljust(PADDING_BYTES)]

    def on_record(self, key: str, record: tuple[str, int], state: list[Any], context: Context[int]) -> None:
        state[0] += record[1]
        state[1] += 1
        if self._timers and state[1] == 1:
            context.timer_at(context.time_ms + 10**12, name="some day")
        context.emit(state[0])


def keyed(*, timers: bool = False, on_disk: bool = False) -> Subject:
    """Return a keyed step with 430 bytes of state per key."""
    codec = EntryCodec("sums", str, list[Any], lambda state: state, lambda state: state)
    folder = Path(tempfile.mkdtemp(prefix="state-")) if on_disk else None
    store = MemoryStore(codec) if folder is None else SqliteStore("sums", codec, folder)
    step = KeyedStep("sums", (lambda row: row[0],), PaddedSums(timers), store)
    numbers = itertools.count()

    def feed(keys: list[str], number: int) -> None:
        rows = [(key, number % 41) for key in keys]
        positions: list[Position] = [(number, 1, 0, next(numbers), 0) for _ in keys]
        step.run(rows, positions, positions[-1])

    return Subject(step, feed)


def window(shape: Any, *, columns: bool) -> Subject:
    """Return a window that stays open: number and sum of a key's values."""
    topology = Topology("windows")
    grouped = topology.source("rows", records([], row_type=KeyedRow), event_time="at", rows=KeyedRow).key_by(col("key"))
    grouped.window(shape).aggregate("x", n=count(), total=col("value").sum()).sink("out", collect)
    operator = compile_program(topology, plan_stages(topology.specification(), 1, "rows")).operator(1)
    assert isinstance(operator, NamedPanes)

    def feed(keys: list[str], number: int) -> None:
        at, value = number * BATCH_MS, number % 41
        if columns:
            times = np.full(len(keys), at)
            made = [Column("int", times), Column("text", keys), Column("int", np.full(len(keys), value))]
            operator.run_batch(Columns(schema_of(KeyedRow), made, len(keys)), times, (at,))
        else:
            operator.run_batch([KeyedRow(at, key, value) for key in keys], [at] * len(keys), (at,))

    return Subject(cast(Operator, operator), feed)


def sliding_window() -> Subject:
    """Return a sliding window: number and sum of a key's values of the last thousand seconds."""
    topology = Topology("windows")
    source = topology.source("rows", records([], row_type=KeyedRow), event_time="at", rows=KeyedRow)
    source.key_by(col("key")).window(sliding(timedelta(seconds=1_000))).aggregate(
        "x", sum_of(lambda row: row.value)
    ).sink("out", collect)
    operator = compile_program(topology, plan_stages(topology.specification(), 1, "positions")).operator(1)
    assert operator is not None

    def feed(keys: list[str], number: int) -> None:
        rows = [KeyedRow(number * BATCH_MS, key, number % 41) for key in keys]
        positions: list[Position] = [(row.at, 1, 0, number * len(keys) + index) for index, row in enumerate(rows)]
        operator.run(rows, positions, positions[-1])

    return Subject(operator, feed)


def ranking() -> Subject:
    """Return a ranking: the ten best of all keys."""
    codec = PlainCodec("top", lambda: ranked_type(str, int))
    rest = PlainCodec("top", lambda: emitted_type(str, int, Any))
    operator = Top("top", lambda value: value, codec, rest, n=10, newest_first=True)

    def feed(keys: list[str], number: int) -> None:
        rows = [Change(key, (number * 7 + index) % 1_000, None) for index, key in enumerate(keys)]
        positions: list[Position] = [(number, 1, 0, index, 0) for index in range(len(keys))]
        operator.run(rows, positions, positions[-1])

    return Subject(operator, feed)


LONG: Final = timedelta(seconds=1_000)
SUBJECTS: Final[dict[str, Callable[[], Subject]]] = {
    "keyed": keyed,
    "keyed-timers": lambda: keyed(timers=True),
    "disk": lambda: keyed(on_disk=True),
    "disk-timers": lambda: keyed(timers=True, on_disk=True),
    "tumbling-columns": lambda: window(tumbling(LONG), columns=True),
    "hopping-columns": lambda: window(hopping(LONG, LONG / 4), columns=True),
    "tumbling-rows": lambda: window(tumbling(LONG), columns=False),
    "hopping-rows": lambda: window(hopping(LONG, LONG / 4), columns=False),
    "sliding": sliding_window,
    "top": ranking,
}


def filled(name: str, keys: list[str]) -> Subject:
    """Return a subject whose state has all keys."""
    subject = SUBJECTS[name]()
    subject.operator.groups()  # an executor does so when it opens the operator
    for start in range(0, len(keys), FILLED_AT_ONCE):
        subject.feed(keys[start : start + FILLED_AT_ONCE], 0)
    return subject
