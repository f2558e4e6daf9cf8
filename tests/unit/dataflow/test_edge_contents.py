"""Contents carried on each edge: positions for the DEBS queries, times for windows, nothing for stateless jobs."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from agiledart import (
    Context,
    KeyedOperator,
    ReadTime,
    Topology,
    all_of,
    collect,
    csv,
    mean_of,
    null,
    sliding,
    sum_of,
    tumbling,
)
from agiledart_dataflow.aggregation.aggregators import Aggregator
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_examples import debs2015


class Row(NamedTuple):
    """A row."""

    at: int
    key: int
    value: float


class Timed(NamedTuple):
    """A row that says when it was read."""

    at: int
    read_at: ReadTime


def kept(row: Row) -> bool:
    return row.value > 1


class Newest(Aggregator[Row, list[float], float]):
    """A user's own: its value depends on the order of rows."""

    def create(self) -> list[float]:
        return []

    def add(self, state: list[float], row: Row) -> list[float]:
        return [row.value]

    def result(self, state: list[float]) -> float:
        return state[0]


class Largest(Newest):
    """And one that says that it does not."""

    commutative = True


class Quiet(KeyedOperator[int, Row, list[int], int]):
    """No timers."""

    def initial(self, key: int) -> list[int]:
        return []

    def on_record(self, key: int, record: Row, state: list[int], context: Context[int]) -> None:
        context.emit(key)


class Ticking(Quiet):
    """Timers."""

    def on_timer(self, key: int, payload: Any, state: list[int], context: Context[int]) -> None:
        context.emit(key)


def plan(build: Callable[[Any], Any], parallelism: int = 1, sink: Any = collect) -> StagePlan:
    topology = Topology("t")
    source = topology.source("rows", [Row(0, 0, 0.0)], event_time=lambda row: row.at)
    build(source).sink("out", sink)
    return plan_stages(topology.specification(), parallelism)


def carries(build: Callable[[Any], Any], parallelism: int = 1, sink: Any = collect) -> list[str]:
    return [edge.carries for edge in plan(build, parallelism, sink).edges]


SECOND = tumbling(timedelta(seconds=1))


def windowed(aggregator: Any, window: Any = SECOND) -> Callable[[Any], Any]:
    return lambda rows: rows.filter(kept).key_by(lambda row: row.key).window(window).aggregate("sums", aggregator)


SUMS: Any = all_of(sum_of(lambda row: row.value), mean_of(lambda row: row.value))


@pytest.mark.parametrize(
    ("build", "parallelism", "sink", "expected"),
    [
        (lambda rows: rows.filter(kept), 1, collect, ["rows", "rows"]),
        # Several instances write into one sink: its file must not depend on which was faster.
        (lambda rows: rows.filter(kept), 2, collect, ["positions", "positions"]),
        (lambda rows: rows.filter(kept), 2, null(), ["rows", "rows"]),
        (windowed(SUMS), 1, collect, ["times", "times", "rows"]),
        (windowed(SUMS), 2, collect, ["positions", "positions", "positions"]),
        (windowed(SUMS), 2, null(), ["times", "times", "rows"]),
        (windowed(Newest()), 1, collect, ["positions", "positions", "rows"]),
        (windowed(Largest()), 1, collect, ["times", "times", "rows"]),
        (windowed(SUMS, sliding(timedelta(seconds=1))), 1, collect, ["positions", "positions", "rows"]),
        (windowed(all_of(sum_of(lambda row: row.value), Newest())), 1, null(), ["positions", "positions", "rows"]),
        (
            lambda rows: rows.union(rows.filter(kept), name="both"),
            1,
            collect,
            ["positions", "positions", "positions", "rows"],
        ),
        (lambda rows: rows.union(rows.filter(kept), name="both"), 1, null(), ["rows", "rows", "rows", "rows"]),
    ],
)
def test_edges_carry_only_needed_contents(build: Any, parallelism: int, sink: Any, expected: list[str]) -> None:
    assert carries(build, parallelism, sink) == expected


def test_panes_of_panes_need_positions_when_their_order_is_visible() -> None:
    """The order in which keys come from panes is not the order of the records behind them."""
    twice = lambda rows: (  # noqa: E731  as short as the others
        windowed(SUMS)(rows).key_by(lambda pane: pane.key).window(tumbling(timedelta(seconds=5))).count("again")
    )
    assert carries(twice) == ["positions", "positions", "positions", "rows"]
    assert carries(twice, sink=null()) == ["times", "times", "times", "rows"]


@pytest.mark.parametrize("parallelism", [1, 4])
def test_the_debs_queries_carry_positions_on_every_edge(parallelism: int) -> None:
    for build in (debs2015.frequent_routes, debs2015.profitable_areas):
        topology = build(csv("trips.csv"), csv("out.csv"))
        edges = plan_stages(topology.specification(), parallelism).edges
        assert {edge.carries for edge in edges} == {"positions"}


def test_a_sink_with_sampled_latencies_knows_the_record_behind_a_row() -> None:
    topology = Topology("t")
    topology.source("rows", [Timed(0, ReadTime(0))], event_time=lambda row: row.at).sink("out", null())
    assert [edge.carries for edge in plan_stages(topology.specification()).edges] == ["positions"]


@pytest.mark.parametrize(
    ("build", "parallelism", "expected"),
    [
        (lambda rows: rows.filter(kept), 1, [True, True]),
        (lambda rows: rows.filter(kept), 2, [False, False]),
        (windowed(SUMS), 1, [False, False, True]),
        (lambda rows: rows.key_by(lambda row: row.key).stateful("state", Quiet()), 1, [True, True]),
        (lambda rows: rows.key_by(lambda row: row.key).stateful("state", Ticking()), 1, [False, True]),
    ],
)
def test_watermarks_wait_for_rows_when_no_step_needs_them_early(
    build: Any, parallelism: int, expected: list[bool]
) -> None:
    assert [edge.lazy_watermarks for edge in plan(build, parallelism).edges] == expected
