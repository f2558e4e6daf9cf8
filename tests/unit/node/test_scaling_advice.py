"""Advice out of reports: demand from the sources, voids with their reasons, the words for what stands in the way."""

from typing import Any, NamedTuple

import msgspec
import pytest

from agiledart import Topology, collect, records
from agiledart_dataflow.counts.interval_measures import INTERVAL_NS, EdgeMeasures, IntervalMeasures
from agiledart_dataflow.counts.statistics import InstanceStatistics, SourceCounts
from agiledart_dataflow.plan.parallelism_request import RequestedParallelism
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_node.records.summary import measures_of
from agiledart_node.user_commands.scaling_advice import advice, stage_states
from agiledart_node.wire.scaling_responses import ScalingStageRow
from agiledart_scaling.one_pass import ChangeKind, StageState, propose
from agiledart_scaling.policies.secant import Secant

Reports = dict[tuple[int, int], dict[str, Any]]


class Row(NamedTuple):
    """A row."""

    at: int


def job() -> Topology:
    """rows → work → counts → best (runs once) → out."""
    topology = Topology("job")
    rows = topology.source("rows", records([], row_type=Row), event_time=lambda row: row.at)
    counts = rows.map(lambda row: row, name="work").key_by(lambda row: row.at).running_count("counts")
    counts.top("best", n=3).sink("out", collect)
    return topology


def report(
    rows: int,
    *,
    busy: float = 0.5,
    blocked: float = 0.0,
    waiting: int = 0,
    offered: float = 0.0,
    sent: int | None = None,
    edge: int | None = None,
    paced: bool | None = None,
    groups: tuple[tuple[int, int], ...] = (),
) -> dict[str, Any]:
    """Of one instance that did the same in each of three intervals; `paced`: of a source."""
    data_paths = () if edge is None else (EdgeMeasures(edge, (rows if sent is None else sent,) * 3, (0,) * 5),)
    measures = IntervalMeasures(
        INTERVAL_NS,
        rows,
        round(busy * INTERVAL_NS),
        round(blocked * INTERVAL_NS),
        (offered,) * 5,
        (waiting,) * 5,
        (rows,) * 3,
        data_paths,
        groups,
    )
    source = None if paced is None else SourceCounts(paced=paced)
    statistics = InstanceStatistics(0, 0, source=source)
    return {"statistics": msgspec.to_builtins(statistics), "measures": msgspec.to_builtins(measures)}


def asked_of(parallelism: RequestedParallelism, reports: Reports) -> dict[str, ScalingStageRow]:
    """Rows by stage."""
    topology = job()
    wanted: dict[str, RequestedParallelism] = {"work": parallelism}
    plan: StagePlan = plan_stages(topology.specification(), wanted)
    return {row.name: row for row in advice(plan, topology.specification(), reports, Secant())}


def flowing(work: dict[str, Any], offered: float = 300, **source: Any) -> Reports:
    """A source of 300 rows/s, one instance of the work, and what follows."""
    usual: dict[str, Any] = {"busy": 0.1, "offered": offered, "edge": 0, "paced": True}
    return {
        (0, 0): report(1500, **(usual | source)),
        (1, 0): work,
        (2, 0): report(1500, busy=0.1, edge=2),
        (3, 0): report(1500, busy=0.1, edge=3),
        (4, 0): report(1500, busy=0.1),
    }


def test_a_stage_that_keeps_up_needs_no_change() -> None:
    rows = asked_of((1, 8), flowing(report(1500, busy=0.5, edge=1)))
    work = rows["work"]
    assert work.health_score == pytest.approx(0.8 * 600 / 300)
    assert (work.needed, work.wanted, work.unknown_reason) == (1, 1, "")
    figures = work.measures
    assert (figures.offered, figures.backlog, figures.true_rate, figures.capacity) == (300, 0, 600, 600)
    assert (figures.busy, figures.blocked, figures.selectivity) == (0.5, 0.0, 1.0)
    assert rows["rows"].why == "it runs once"
    assert rows["best"].health_score == pytest.approx(0.8 * 3000 / 300, abs=1e-3)


def test_demand_is_the_sources_rate_when_less_arrives() -> None:
    """It works off 100 of 300 rows a second; the others wait here and at the source."""
    reports = flowing(report(500, busy=1.0, waiting=2000, edge=1), waiting=1000)
    work = asked_of((1, 8), reports)["work"]
    assert work.measures.offered == 300
    assert work.measures.backlog == 3000
    assert work.health_score == pytest.approx(0.8 * 100 / (300 + 3000 / 5), abs=1e-3)
    assert (work.needed, work.wanted) == (5, 5), (
        "at most four times and one at a time, and it was short in every second"
    )


def test_instances_that_share_an_executor_do_not_look_idle() -> None:
    """Each is busy half of the time and has rows all the time: together they do 200, not 400."""
    half = report(500, busy=0.5, waiting=900, edge=1)
    work = asked_of((2, 8), flowing(half) | {(1, 1): half})["work"]
    assert (work.measures.true_rate, work.measures.capacity) == (100, 200)
    assert work.health_score is not None
    assert work.health_score < 0.5


def test_an_unpaced_source_that_is_blocked_reports_its_possible_rate() -> None:
    slow = report(500, busy=1.0, waiting=2000, edge=1)
    rows = asked_of((1, 8), flowing(slow, offered=100, paced=False, blocked=0.9, busy=0.2))
    assert rows["work"].measures.offered == 1500
    assert "the demand is what it could read" in rows["rows"].why
    assert "as fast as it can" in rows["work"].why
    held = asked_of((1, 8), flowing(slow, blocked=0.9))["rows"]
    assert "there may be more input than it has read" in held.why


def test_a_hot_key_is_named_and_adding_instances_does_not_help() -> None:
    hot = report(500, busy=1.0, waiting=2000, edge=2, groups=((7, 270), (9, 30)))
    cool = report(100, busy=0.2, edge=2, groups=((1, 30), (2, 30)))
    others = {copy: one for copy, one in flowing(report(1500, edge=1)).items() if copy[0] != 2}

    def counts(*instances: dict[str, Any]) -> tuple[ScalingStageRow, StageState]:
        reports = others | {(2, index): one for index, one in enumerate(instances)}
        topology = job()
        plan = plan_stages(topology.specification(), {"counts": (len(instances), 8)})
        (row,) = [row for row in advice(plan, topology.specification(), reports, Secant()) if row.name == "counts"]
        (state,) = stage_states(plan, reports, ())
        return row, state

    row, state = counts(hot, cool)
    assert (row.hot_group, row.hot_share) == (7, 0.75)
    assert (
        row.why
        == "key group 7 alone has 75% of the rows, more than one instance can process; more instances do not help"
    )
    (proposal,) = propose([state], {}, Secant().decide, {"counts": 2}, None)
    assert (proposal.kind, proposal.instances, proposal.why) == (ChangeKind.NOTHING, 2, row.why)

    spread = report(500, busy=1.0, waiting=2000, edge=2, groups=tuple((group, 10) for group in range(0, 64, 2)))
    row, state = counts(spread, cool)
    assert (row.hot_group, row.hot_share) == (None, None)
    (proposal,) = propose([state], {}, Secant().decide, {"counts": 2}, None)
    assert proposal.kind is ChangeKind.GROW, "agents move no single groups, so uneven keys are met with more instances"

    few = report(500, busy=1.0, waiting=2000, edge=2, groups=((7, 20),))
    assert counts(few, cool)[0].hot_group is None, "too few rows were looked at"


@pytest.mark.parametrize("missing", [0, 1])
def test_missing_measurements_and_what_depends_on_them_are_reported(missing: int) -> None:
    reports = flowing(report(1500, edge=1))
    reports[missing, 0].pop("measures")
    rows = asked_of((1, 8), reports)
    names = ["rows", "work"]
    assert rows[names[missing]].unknown_reason.startswith("an instance has run for less than 5 s")
    assert rows["counts"].unknown_reason.startswith(("what is asked of work", "what work makes"))
    assert rows["best"].unknown_reason == "what is asked of counts is not known"
    assert rows["best"].needed is None


def test_too_few_rows_give_no_advice() -> None:
    work = asked_of((1, 8), flowing(report(10, edge=1)))["work"]
    assert work.unknown_reason.startswith("not measured")
    assert (work.health_score, work.wanted) == (None, None)


def test_an_ended_source_leaves_a_known_demand() -> None:
    """Nothing comes any more, whatever it made of a row: rows waiting at the stage are all."""
    reports = flowing(report(500, busy=1.0, waiting=4000, edge=1))
    reports[0, 0] = report(0, edge=0, paced=True)
    work = asked_of((1, 8), reports)["work"]
    assert (work.measures.offered, work.measures.backlog, work.unknown_reason) == (0, 4000, "")


def test_obstacles_to_scaling_are_described_in_these_words() -> None:
    starving = flowing(report(500, busy=1.0, waiting=9000, edge=1))
    plain = asked_of(1, starving)["work"]
    assert (plain.limits, plain.scales, plain.wanted, plain.needed) == ([1, 1], False, 1, 5)
    assert plain.why.endswith("planned for 1 at most: --parallelism work=1..5 when it is submitted")
    number = asked_of(4, starving | {(1, index): report(500, busy=0.1, edge=1) for index in range(4)})["work"]
    assert "it was given a number, not limits" in number.why
    once = flowing(report(1500, edge=1))
    once[3, 0] = report(500, busy=1.0, waiting=9000, edge=3)
    best = asked_of((1, 8), once)["best"]
    assert (best.limits, best.wanted) == ([1, 1], 1)
    assert best.why.endswith("best runs once, and cannot keep up")


def test_broadcast_rows_count_once() -> None:
    topology = job()
    plan = plan_stages(topology.specification(), {"work": 4})
    edges = [
        msgspec.structs.replace(edge, partitioning="broadcast") if edge.index == 0 else edge for edge in plan.edges
    ]
    broadcast = msgspec.structs.replace(plan, edges=tuple(edges))
    reports = flowing(report(1500, edge=1), sent=6000) | {(1, index): report(1500, edge=1) for index in range(4)}
    rows = advice(broadcast, topology.specification(), reports, Secant())
    assert rows[1].measures.offered == 300
    assert rows[0].measures.selectivity == 1.0


@pytest.mark.parametrize("nonsense", [None, 7, "x", [1], [1] * 8, {"rows": 1}])
def test_malformed_reports_count_as_unmeasured(nonsense: object) -> None:
    assert measures_of({"measures": nonsense}) is None
    assert measures_of({}) is None
