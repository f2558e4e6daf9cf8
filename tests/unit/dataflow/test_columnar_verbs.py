"""Verbs with expressions: row types, names, specification, errors at build; which sources give columns and what they read."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart import ReadTime, Topology, TopologyError, col, collect, count, csv, null, tumbling, when
from agiledart_connectors.codecs.csv_columns_reader import CsvColumnsReader
from agiledart_connectors.files.line_reader import CsvReader
from agiledart_connectors.opening import open_source
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.schema import fields_of
from agiledart_dataflow.event_time.event_times import field_read
from agiledart_dataflow.expressions.row_expression import RowExpression
from agiledart_dataflow.graph.column_planning import fields_wanted, wants_columns
from agiledart_dataflow.graph.streams import Stream
from agiledart_dataflow.plan.connectors import Connector
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.program import compile_program
from agiledart_dataflow.user_code.callsite import call_site
from agiledart_executor.local_runs.local_run import run_topology


class Trip(NamedTuple):
    """A row."""

    at: int
    zone: str
    note: str
    fare: float
    tip: float | None
    read_at: ReadTime


def trips(topology: Topology, source: Any = None, **how: Any) -> Stream[Trip]:
    """A stream of trips."""
    return topology.source("trips", source or csv("trips.csv"), rows=Trip, **({"event_time": "at"} | how))


def built(build: Any) -> Topology:
    """The topology that `build(stream)` makes."""
    topology = Topology("example")
    build(trips(topology)).sink("out", collect)
    return topology


def test_rows_get_the_types_of_their_fields() -> None:
    topology = built(
        lambda s: s.with_columns(ratio=col("tip") / col("fare"), fare=col("fare").cast(int)).select(
            "ratio", "read_at", "fare"
        )
    )
    wide, narrow = (topology.steps[i].row_type for i in (1, 2))
    assert [(f.name, f.type) for f in fields_of(wide)] == [
        ("at", int), ("zone", str), ("note", str), ("fare", int), ("tip", float | None), ("read_at", ReadTime),
        ("ratio", float | None),
    ]  # fmt: skip
    assert [f.type for f in fields_of(narrow)] == [float | None, ReadTime, int]
    assert (wide.__name__, narrow.__name__) == ("WithColumns", "Select")


def test_step_names_are_the_verbs_numbered() -> None:
    topology = built(lambda s: s.where(col("fare") > 1).where(col("fare") > 2).where(col("fare") > 3, name="third"))
    assert [step.name for step in topology.steps] == ["trips", "where", "where-2", "third", "out"]


def test_the_meaning_of_an_expression_is_part_of_the_specification() -> None:
    def digest(build: Any) -> bytes:
        return built(build).specification().digest()

    one = digest(lambda s: s.where(col("fare") > 1))
    assert one == digest(lambda s: s.where(col("fare") > 1))
    assert one != digest(lambda s: s.where(col("fare") > 2))
    window = tumbling(timedelta(seconds=1))
    named = digest(lambda s: s.key_by(col("zone")).window(window).aggregate("a", n=count(), m=col("fare").max()))
    assert named != digest(
        lambda s: s.key_by(col("zone")).window(window).aggregate("a", n=count(), m=col("fare").min())
    )


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda s: s.where(lambda row: True), "where() takes an expression"),
        (lambda s: s.where(col("fare")), "True or False, not a value of type float"),
        (lambda s: s.where(col("fair") > 1), "no field 'fair'; did you mean 'fare'?"),
        (lambda s: s.where(col("fare").isin([1])), "no method 'isin': did you mean .is_in(…)?"),  # type: ignore[attr-defined]  # so
        (lambda s: s.where(col("fare") > 1 and col("tip") > 1), "join conditions with & | ~"),
        (lambda s: s.with_columns(), "with_columns() takes fields"),
        (lambda s: s.with_columns(_x=1), "cannot name a field"),
        (lambda s: s.with_columns(x=None), "always None"),
        (lambda s: s.with_columns(x=when(col("fare") > 1).then(1)), "end when(…).then(…) with .otherwise(…)"),
        (lambda s: s.with_columns(x=col("fare").sum()), "an aggregate belongs to a window"),
        (lambda s: s.with_columns(x=len), "a function works on rows"),
        (lambda s: s.select("fare", fare=1), "select() names 'fare' twice"),
        (lambda s: s.select(col("fare") + 1), "give a value a name of its own"),
        (lambda s: s.map_batches(takes_int), "map_batches() hands over"),
        (lambda s: s.key_by(col("zone"), "fare"), "not 'fare' beside an expression"),
        (lambda s: s.key_by(col("zone")).window(tumbling(timedelta(1))).aggregate("a", n=col("fare")), ".sum(), .mean()"),
        (lambda s: s.key_by(col("zone")).window(tumbling(timedelta(1))).aggregate("a", n=col("tip").sum()), ".fill_null(0)"),
        (lambda s: s.key_by(col("zone")).window(tumbling(timedelta(1))).aggregate("a", n=col("zone").sum()), "not work on str"),
        (lambda s: s.key_by(col("zone")).window(tumbling(timedelta(1))).aggregate("a", zone=count()), "field 'zone' already"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_with_the_users_line(build: Any, told: str) -> None:
    with pytest.raises(TopologyError) as error:
        built(build)
    assert told in str(error.value)
    assert str(error.value).startswith("test_columnar_verbs.py:")


def takes_int(batch: int) -> int:
    """No function of batches."""
    return batch


def test_an_event_time_is_a_function_a_field_or_an_expression() -> None:
    rows = [Trip(2_000, "a", "", 1.0, None, ReadTime(0))]
    for event_time in ("at", col("at"), lambda trip: trip.at, lambda trip: trip.at + 0):
        topology = Topology("timed")
        trips(topology, rows, event_time=event_time).key_by(col("zone")).window(
            tumbling(timedelta(seconds=1))
        ).aggregate("stats", n=count()).sink("out", collect)
        assert [tuple(row) for row in run_topology(topology).collected["out"]] == [("a", 2_000, 3_000, 1)]
    for wrong in ("zone", "tip", "when"):
        with pytest.raises(TopologyError):
            trips(Topology("timed"), rows, event_time=wrong)
    assert field_read(lambda trip: trip.at, Trip) == "at"
    assert field_read(lambda trip: trip.at + 1, Trip) is None
    assert field_read(lambda trip: trip.other, Trip) is None


def wanted(build: Any, **how: Any) -> tuple[bool, frozenset[str] | None]:
    """(whether the source gives columns, the fields that are looked at)."""
    topology = Topology("planned")
    build(trips(topology, **how)).sink("out", null())
    return wants_columns(topology, topology.steps[0]), fields_wanted(topology, topology.steps[0])


def test_columns_are_planned_where_expressions_come_first() -> None:
    assert wanted(lambda s: s.where(col("fare") > 1)) == (True, frozenset({"fare"}))
    assert wanted(lambda s: s.select("zone", x=col("tip")).where(col("x") > 1)) == (True, frozenset({"tip"}))
    assert wanted(lambda s: s.with_columns(x=col("tip") * 2)) == (True, frozenset({"tip"}))
    assert wanted(lambda s: s.filter(lambda row: True, "all")) == (False, None)
    assert wanted(lambda s: s.where(col("fare") > 1).filter(lambda row: True, "all")) == (True, None)
    window = tumbling(timedelta(seconds=1))
    assert wanted(lambda s: s.key_by(col("zone")).window(window).aggregate("a", n=count(), m=col("fare").max())) == (
        True,
        frozenset({"zone", "fare"}),
    )
    assert wanted(lambda s: s.key_by(lambda row: row.zone).window(window).aggregate("a", n=count()))[0] is False
    for how in (
        {"check": lambda row: None},
        {"max_out_of_order": timedelta(seconds=1)},
        {"event_time": lambda row: row.at + 1},
        {"overload": "shed_oldest"},
        {"source": csv("trips.csv", speed=60)},
    ):
        assert wanted(lambda s: s.where(col("fare") > 1), **how)[0] is False


def test_named_running_values_take_columns_and_read_their_own_fields() -> None:
    def running(key: Any, *fields: str) -> Any:
        return lambda s: s.key_by(key).running("x", n=count(), total=col("fare").sum()).select("total", *fields)

    assert wanted(running(col("zone"), "note")) == (True, frozenset({"zone", "fare"}))  # the sink looks at none
    kept = running(col("zone"), "note")
    assert wanted(lambda s: kept(s).where(col("note") != "")) == (True, frozenset({"zone", "fare", "note"}))
    assert wanted(running(lambda row: row.zone)) == (False, None)


def test_an_int_can_be_the_read_time() -> None:
    rows = [Trip(n, "a", "", 1.0, None, ReadTime(0)) for n in range(5)]
    topology = Topology("read")
    made = trips(topology, rows).select(read=col("at").cast(ReadTime), note=col("note"))
    assert fields_of(topology.steps[1].row_type)[0].is_read_time
    made.sink("out", collect)
    assert [row.read for row in run_topology(topology).collected["out"]] == [0, 1, 2, 3, 4]
    value = RowExpression(col("at").cast(ReadTime).node, Trip, call_site())
    assert value.column(Columns.from_rows(rows, Trip)).to_list() == [0, 1, 2, 3, 4]
    with pytest.raises(TopologyError, match="float cannot become ReadTime"):
        trips(Topology("read"), rows).select(read=col("fare").cast(ReadTime))


def test_all_fields_are_read_of_rows_that_travel_whole() -> None:
    def pinned(*places: str) -> frozenset[str] | None:
        topology = Topology("pinned")
        trips(topology, csv("trips.csv", at="a1")).where(col("fare") > 1).with_columns(x=col("tip") * 2)
        for index, place in enumerate(places, 1):
            topology.steps[index] = replace(topology.steps[index], at=place)
        return fields_wanted(topology, topology.steps[0])

    assert pinned("", "") == pinned("a1", "a1") == frozenset({"fare", "tip"})
    assert pinned("a2", "a2") is None
    assert pinned("a1", "a2") is None


def test_readers_follow_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "trips.csv"
    path.write_text("".join(f"{i},z{i % 3},n,{i}.5,\n" for i in range(1_000)) + "1000,z0,n,x,\n1001,z1,n,1.5,2.5\n")
    summaries = []
    for first in (lambda s: s, lambda s: s.filter(lambda row: True, "all")):
        topology = Topology("read")
        first(trips(topology, Connector("csv", str(path)))).where(col("fare") > 10).select(
            "zone", total=col("fare") + col("tip").fill_null(0.0)
        ).sink("out", collect)
        program = compile_program(topology, plan_stages(topology.specification()))
        end = program.endpoint(0)
        reader = open_source(end.connector, end.row_type, columns=end.columns, wanted=end.wanted)
        assert isinstance(reader, CsvColumnsReader if end.columns else CsvReader)
        reader.close()
        run = run_topology(topology)
        summaries.append((end.columns, run.collected["out"], run.summary.malformed, run.summary.records_in))
    assert [columns for columns, *_ in summaries] == [True, False]
    assert [tuple(row) for row in summaries[0][1]] == [tuple(row) for row in summaries[1][1]]
    assert summaries[0][2:] == summaries[1][2:] == ({"number": 1}, 1_002)
