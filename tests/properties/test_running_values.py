"""Named running values: rows and columns give the same to the last bit, in any mixture, with any error policy and schedule."""

from typing import Any, NamedTuple, NewType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import ReadTime, Topology, TopologyError, UserCodeError, col, collect, count, count_of, records
from agiledart_dataflow.aggregation import running_values
from agiledart_dataflow.aggregation.named_running import named_running
from agiledart_dataflow.aggregation.running_values import RunningValues
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.partitioning import key_group
from agiledart_dataflow.expressions.row_expression import KeyExpression, RowExpression
from agiledart_dataflow.graph.graph import Rows
from agiledart_dataflow.graph.streams import Stream
from agiledart_dataflow.state.entries import EntryCodec
from agiledart_dataflow.state.key_groups import restore_state, snapshot_of
from agiledart_dataflow.state.store import MemoryStore
from agiledart_dataflow.user_code.callsite import call_site
from agiledart_dataflow.user_code.error_policy import ErrorPolicy
from agiledart_executor.local_runs import local_run
from agiledart_executor.local_runs.local_run import run_topology
from tests.properties.test_columnar_steps import Batches, Trip, cuts, fresh, results, same, tables
from tests.reference.inline_host import InlineHost

RESULTS: dict[str, Any] = {
    "trips": count(),
    "fares": col("fare").sum(),
    "mean": col("fare").mean(),
    "least": (col("fare") * -1).min(),
    "greatest": col("vehicle").max(),
    "ids": (col("vehicle") * 3).sum(),
    "mean_id": col("vehicle").mean(),
}
KEYS: dict[str, Any] = {
    "zone": lambda: [col("zone")],
    "both": lambda: [col("zone"), col("vehicle")],
    "optional": lambda: [col("tip") > 0],
}


def topology_of(name: str, key: list[Any], on_error: ErrorPolicy = "fail", **named: Any) -> Topology:
    """A step, an expression behind it, a sink."""
    topology = Topology(name)
    (
        topology.source("trips", records([]), event_time="at", rows=Trip)
        .where(col("fare") != 7.0)
        .key_by(*key)
        .running("x", on_error=on_error, **(named or RESULTS))
        .where(col("at") >= 0)
        .sink("out", collect)
    )
    return topology


def run(topology: Topology, rows: list[Trip], sizes: list[tuple[int, bool]], **how: Any) -> list[Any]:
    """`results` with columns from the second row on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running_values, "FEW_ROWS", 2)
        patch.setattr(local_run, "_TRIED_BATCHES", 0)
        return results(topology, rows, sizes, **how)


def in_words(rows: list[Trip], key: str) -> list[tuple[Any, ...]]:
    """The slow reference: all rows of the key again at each row."""
    keys = {"zone": lambda r: r.zone, "both": lambda r: (r.zone, r.vehicle), "optional": lambda r: r.tip and r.tip > 0}
    key_of: Any = keys[key] if key != "optional" else lambda r: None if r.tip is None else r.tip > 0
    out = []
    rows = [row for row in rows if row.fare != 7.0]
    for number, row in enumerate(rows):
        mine = [other for other in rows[: number + 1] if key_of(other) == key_of(row)]
        fares = 0.0
        for one in mine:
            fares += one.fare
        ids = sum(one.vehicle for one in mine)
        least = min(one.fare * -1 for one in mine) + 0.0
        greatest = max(one.vehicle for one in mine)
        out.append((*row, len(mine), fares, fares / len(mine), least, greatest, ids * 3, ids / len(mine)))
    return out


@settings(deadline=None, max_examples=60)
@given(tables, cuts, st.sampled_from(list(KEYS)))
def test_rows_and_columns_agree_with_the_reference(rows: list[Trip], sizes: list[tuple[int, bool]], key: str) -> None:
    wanted = in_words(rows, key)
    for form, cut in (("rows", [(7, False)]), ("columns", [(7, True)]), ("mixed", sizes)):
        got = run(topology_of(form, KEYS[key]()), rows, cut)
        assert len(got) == len(wanted)
        assert all(same(tuple(a), b) for a, b in zip(got, wanted, strict=True)), (form, got, wanted)
    hostile = run(topology_of("spread", KEYS[key]()), rows, sizes, parallelism=3, schedule_seed=len(rows))
    assert all(same(tuple(a), b) for a, b in zip(hostile, wanted, strict=True))


@settings(deadline=None, max_examples=60)
@given(tables, cuts, st.integers(1, 4), st.integers(0, 1_000_000), st.integers(2, 9))
def test_columns_with_positions_agree_on_any_schedule(
    rows: list[Trip], sizes: list[tuple[int, bool]], parallelism: int, seed: int, few: int
) -> None:
    topology = Topology("hostile")
    (
        topology.source("trips", records([]), event_time="at", rows=Trip)
        .where(col("fare") != 7.0)
        .key_by(col("zone"))
        .running("x", **RESULTS)
        .with_columns(read=col("at").cast(ReadTime))  # for which the sink wants positions
        .sink("out", collect)
    )
    with pytest.MonkeyPatch.context() as patch:
        for module in ("operators.segments", "aggregation.running_values"):
            patch.setattr(f"agiledart_dataflow.{module}.FEW_ROWS", few)
        host = InlineHost(topology, parallelism=parallelism, seed=seed, restarts=0.1, barriers=1)
        host.read_from("trips", Batches(rows, sizes))
        got = host.run()["out"]
    wanted = [(*row, row[0]) for row in in_words(rows, "zone")]
    assert len(got) == len(wanted)
    assert all(same(tuple(a), b) for a, b in zip(got, wanted, strict=True))


ODD = st.sampled_from([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.5, 1e308])
ODD_ROWS = st.lists(
    st.builds(Trip, st.just(1), st.sampled_from("ab"), st.integers(-(2**63), 2**63 - 1), ODD, st.none()), max_size=20
)


@settings(deadline=None, max_examples=60)
@given(ODD_ROWS, cuts)
def test_nan_and_the_largest_ints_are_handled(rows: list[Trip], sizes: list[tuple[int, bool]]) -> None:
    wanted = run(topology_of("rows", [col("zone")]), rows, [(7, False)])
    got = run(topology_of("mixed", [col("zone")]), rows, sizes)
    assert len(got) == len(rows)
    assert all(map(same, got, wanted))


@settings(deadline=None, max_examples=60)
@given(tables, cuts, st.sampled_from(["skip", "dead_letter"]), st.integers(1, 3))
def test_rows_that_raise_leave_no_trace(
    rows: list[Trip], sizes: list[tuple[int, bool]], policy: ErrorPolicy, parallelism: int
) -> None:
    named: dict[str, Any] = {"trips": count(), "ratios": (100 // (col("vehicle") % 3)).sum()}
    good = [row for row in rows if row.vehicle % 3]
    wanted = run(topology_of("good", [col("zone")], **named), good, [(7, False)])
    topology = topology_of("bad", [col("zone")], policy, **named)
    if policy == "dead_letter":
        Stream(Rows(topology, topology.steps[2])).errors("letters").map(
            lambda one: one.record, "records", returns=Trip
        ).sink("bad", collect)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running_values, "FEW_ROWS", 2)
        assert run(topology, rows, sizes, parallelism=parallelism, schedule_seed=1) == wanted


def test_without_a_policy_the_row_at_fault_is_named() -> None:
    rows = [Trip(1, "a", number % 8, 3.0, None) for number in range(30)]
    with pytest.raises(UserCodeError, match=r"vehicle=0, fare=3\.0.*|x") as told:
        run(topology_of("bad", [col("zone")], ratios=(100 // col("vehicle")).sum()), rows, [(10, True)])
    assert "vehicle=0" in str(told.value)


def operator() -> RunningValues:
    """One instance of a step, with its own state."""
    where = call_site()
    named = named_running("x", Trip, RESULTS, where)
    key = KeyExpression((RowExpression(col("zone").node, Trip, where),))
    codec = EntryCodec("x", str, named.state_type, named.to_plain, named.from_plain)
    return RunningValues("x", key, named, MemoryStore(codec))


@settings(deadline=None, max_examples=30)
@given(tables | ODD_ROWS, st.integers(0, 60))
def test_a_key_group_continues_elsewhere(rows: list[Trip], cut: int) -> None:
    whole, before = operator(), operator()
    wanted, _ = whole.run(rows, None, (0,))
    made, _ = before.run(rows[:cut], None, (0,))
    after: dict[int, RunningValues] = {}
    for group in before.groups():
        after.setdefault(group % 2, operator()).restore_group(group, before.snapshot_group(group))
    for row in rows[cut:]:
        one = after.setdefault(key_group(row.zone) % 2, operator())
        made += one.run([row], None, (0,))[0]
    assert all(map(same, made, wanted))
    assert len(made) == len(wanted)


def test_columns_make_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = fresh([Trip(number, "a", number, 0.5, None) for number in range(200)])
    monkeypatch.setattr(Columns, "rows", lambda _: pytest.fail("rows were made"))
    made, order = operator().run_batch(columns, None, (0,))
    assert isinstance(made, Columns)
    assert order is None
    assert made.named("fares").to_list()[-1] == 100.0


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ({"fare": count()}, "already"),
        ({"x": col("fare")}, "no aggregate"),
        ({"x": col("zone").sum()}, "does not work on"),
        ({"x": col("tip").sum()}, "may be None"),
        ({"x": "fare"}, "no aggregate"),
    ],
)
def test_invalid_arguments_are_rejected_when_the_graph_is_built(named: dict[str, Any], reason: str) -> None:
    with pytest.raises(TopologyError, match=reason):
        topology_of("wrong", [col("zone")], **named)


def test_one_aggregator_or_named_ones_are_accepted() -> None:
    keyed = Topology("both").source("trips", records([]), event_time="at", rows=Trip).key_by(col("zone"))
    with pytest.raises(TopologyError, match="not both"):
        keyed.running("x", count_of(), trips=count())  # type: ignore[call-overload]


@pytest.mark.parametrize("in_columns", [True, False])
def test_the_run_counts_every_row(in_columns: bool) -> None:
    rows = [Trip(1, "a", number, 3.0, None) for number in range(30)]
    topology = topology_of("counted", [col("zone")], "skip", ratios=(100 // (col("vehicle") % 3)).sum())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running_values, "FEW_ROWS", 2)
        patch.setattr(local_run, "open_source", lambda *_, **__: Batches(rows, [(10, in_columns)]))
        counts = run_topology(topology).summary.steps["x"]
    assert (counts.rows_in, counts.rows_out, counts.taken, counts.skipped) == (30, 20, 20, 10)


Nanos = NewType("Nanos", int)


class Stamped(NamedTuple):
    """Times whose sums soon have more than 64 bits."""

    name: str
    at: ReadTime
    taken: Nanos


def test_named_int_sums_continue_elsewhere() -> None:
    rows = [Stamped("a", ReadTime(2**61 + n), Nanos(-(2**62) + n)) for n in range(12)]
    results = {
        "at_sum": col("at").sum(),
        "at_mean": col("at").mean(),
        "least": col("taken").min(),
        "all": col("taken").sum(),
    }
    where = call_site()
    named = named_running("x", Stamped, results, where)
    codec = EntryCodec("x", str, named.state_type, named.to_plain, named.from_plain)
    key = KeyExpression((RowExpression(col("name").node, Stamped, where),))
    before, after, whole = (RunningValues("x", key, named, MemoryStore(codec)) for _ in range(3))
    wanted, _ = whole.run(rows, None, (0,))
    made, _ = before.run(rows[:7], None, (0,))
    restore_state(after, snapshot_of(before))
    assert made + after.run(rows[7:], None, (0,))[0] == wanted


def test_a_bool_in_an_int_field_is_kept_as_an_int() -> None:
    """It counts as one everywhere else in Python; as a bool it could not be restored."""
    rows = [Stamped("a", ReadTime(1), Nanos(taken)) for taken in (False, True, 3)]
    where = call_site()
    named = named_running("x", Stamped, {"least": col("taken").min(), "most": col("taken").max()}, where)
    codec = EntryCodec("x", str, named.state_type, named.to_plain, named.from_plain)
    key = KeyExpression((RowExpression(col("name").node, Stamped, where),))
    before, after = (RunningValues("x", key, named, MemoryStore(codec)) for _ in range(2))
    made, _ = before.run(rows[:2], None, (0,))
    restore_state(after, snapshot_of(before))
    made += after.run(rows[2:], None, (0,))[0]
    assert [(type(row.least), row.least, row.most) for row in made] == [(int, 0, 0), (int, 0, 1), (int, 0, 3)]
