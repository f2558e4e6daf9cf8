"""Output at the end of the input is the same for any parallelism and schedule, also downstream."""

from datetime import timedelta
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from agiledart import Context, KeyedOperator, Topology, collect, records, session, sliding
from agiledart_executor.local_runs.local_run import run_topology


class Row(NamedTuple):
    """A row."""

    at: int
    key: str


class Ticks(KeyedOperator[str, Row, list[int], tuple[str, int]]):
    """Puts out the time every 10 ms from a key's first row on, as long as time passes."""

    def initial(self, key: str) -> list[int]:
        return []

    def on_record(self, key: str, record: Row, state: list[int], context: Context[tuple[str, int]]) -> None:
        if not state:
            state.append(record.at)
            context.timer_at(context.time_ms + 10, name="tick")

    def on_timer(self, key: str, payload: Any, state: list[int], context: Context[tuple[str, int]]) -> None:
        context.emit((key, context.time_ms))
        context.timer_at(context.time_ms + 10, name="tick")


def ms(span: int) -> timedelta:
    return timedelta(milliseconds=span)


def ticking(rows: list[Row]) -> Topology:
    """The last row may be filtered out: time has passed all the same."""
    made = Topology("t")
    source = made.source("rows", records(rows, row_type=Row), event_time=lambda row: row.at)
    kept = source.filter(lambda row: row.key != "c", name="kept").key_by(lambda row: row.key)
    kept.stateful("ticks", Ticks()).sink("out", collect)
    return made


def visits(rows: list[Row]) -> Topology:
    """The last sessions close behind the last row, and are rows of a sliding window."""
    made = Topology("t")
    source = made.source("rows", records(rows, row_type=Row), event_time=lambda row: row.at)
    closed = source.key_by(lambda row: row.key).window(session(ms(20))).count("visits")
    closed.key_by(lambda pane: pane.key).window(sliding(ms(2))).count("open").sink("out", collect)
    return made


ROWS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from("abc")), min_size=1, max_size=8)


@given(ROWS, st.sampled_from([ticking, visits]), st.integers(1, 1_000))
def test_every_instance_learns_the_final_event_time(steps: list[tuple[int, str]], job: Any, seed: int) -> None:
    rows, at = [], 0
    for step, key in steps:
        at += step
        rows.append(Row(at, key))
    wanted = run_topology(job(rows)).collected["out"]
    for parallelism in (1, 2, 3, 4):
        assert run_topology(job(rows), parallelism=parallelism, schedule_seed=seed).collected["out"] == wanted
