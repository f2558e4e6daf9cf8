"""Problem out of reports, and what other hosts would change, against values computed by hand."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from agiledart import Topology, collect, records
from agiledart_dataflow.counts.interval_measures import INTERVAL_NS, EdgeMeasures, IntervalMeasures
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_kernel.node_id import NodeId
from agiledart_node.forming.network_of_loads import UNKNOWN_MS
from agiledart_node.live_placement.measured_topology import EXPECTED, MEASURED, UNKNOWN, measured_topology
from agiledart_node.live_placement.placement_explanation import PlacementExplanation, explained
from agiledart_node.live_placement.run_problem import without_own_instances
from agiledart_placement.files.network_file import NetworkDescription
from agiledart_placement.problem.network_view import FigureSource, LinkFigures, TableNetwork
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.request import HostState, PlacementRequest, StageDemand, StreamLoad
from tests.unit.dataflow.test_placement_rules import Row

A, B, C = NodeId(1), NodeId(2), NodeId(3)
NAMES = {"a": A, "b": B, "c": C}


def job() -> Topology:
    """rows → work → out."""
    topology = Topology("job")
    rows = topology.source("rows", records([], row_type=Row), event_time=lambda row: row.at)
    rows.map(lambda row: row, name="work").sink("out", collect)
    return topology


def report(rows: int, busy_ns: int, edge: int | None = None, sent: int = 0, row_bytes: int = 0) -> dict[str, Any]:
    paths = () if edge is None else (EdgeMeasures(edge, (sent,), (0,) * 5, row_bytes),)
    measures = IntervalMeasures(INTERVAL_NS, rows, busy_ns, 0, (rows / 5,) * 5, (0,) * 5, (rows,), paths)
    return {"measures": msgspec.to_builtins(measures)}


def test_measured_rates_and_times_count_before_expected_ones() -> None:
    topology = job()
    topology.expect("rows", rows_per_s=7, bytes=40)
    topology.expect("work", ms=9, bytes=10)
    plan = plan_stages(topology.specification())
    reports = {(0, 0): report(500, 0, 0, 500), (1, 0): report(500, 1_000_000_000, 1, 250)}
    measured = measured_topology("job", plan, topology.specification(), reports, {(1, 0): 0.5}, NAMES)
    assert [stage.execution_ms for stage in measured.description.stages] == [0, 1.0, 0], "2 ms a row on half a core"
    assert measured.description.loads == (StreamLoad(100.0, 40.0), StreamLoad(50.0, 10.0))
    assert measured.rate_sources == (MEASURED, MEASURED, MEASURED)
    assert measured.time_sources == (MEASURED, MEASURED, UNKNOWN), "the sink reports nothing"
    assert measured.notes == ()


def test_measured_bytes_of_rows_count_before_expected_ones_and_only_where_all_are_known() -> None:
    topology = job()
    topology.expect("rows", bytes=40)
    plan = plan_stages(topology.specification())
    first, second = report(500, 0, 0, 500, row_bytes=64), report(500, 0, 1, 250, row_bytes=12)
    measured = measured_topology("job", plan, topology.specification(), {(0, 0): first, (1, 0): second}, {}, NAMES)
    assert measured.description.loads == (StreamLoad(100.0, 64.0), StreamLoad(50.0, 12.0))
    unknown = report(500, 0, 1, 250)
    measured = measured_topology("job", plan, topology.specification(), {(0, 0): first, (1, 0): unknown}, {}, NAMES)
    assert measured.description.loads == (StreamLoad(100.0), StreamLoad(50.0)), "rows, or bytes: never a sum of both"


def test_without_reports_the_builders_figures_count_and_others_are_unknown() -> None:
    topology = job()
    topology.expect("rows", rows_per_s=80)
    topology.expect("work", ms=3, selectivity=0.25)
    plan = plan_stages(topology.specification())
    measured = measured_topology("job", plan, topology.specification(), {}, {}, NAMES)
    assert measured.description.loads == (StreamLoad(80.0), StreamLoad(20.0))
    assert measured.description.stages[1].execution_ms == 3
    assert (measured.rate_sources, measured.time_sources[1]) == ((EXPECTED, EXPECTED, UNKNOWN), EXPECTED)
    assert "bytes of rows are not known" in measured.notes[0]


def request(**work: Any) -> PlacementRequest:
    """s on a → work → t on c; a–b 10 ms, b–c 10 ms, a–c 50 ms; b is twice as fast."""
    links = {(A, B): 10.0, (B, C): 10.0, (A, C): 50.0}
    both = {pair: LinkFigures(ms) for (a, b), ms in links.items() for pair in ((a, b), (b, a))}
    hosts = {
        A: HostState(A, name="a", resources={"slots": 4}, zone="attic"),
        B: HostState(B, name="b", resources={"slots": 1}, speed=2.0),
        C: HostState(C, name="c", resources={"slots": 4}),
    }
    stages = (StageDemand(0, "s"), StageDemand(1, "work", execution_ms=8, **work), StageDemand(2, "t"))
    return PlacementRequest(
        stages, ((0, 1), (1, 2)), (), hosts, loads=(StreamLoad(100), StreamLoad(10)), network=TableNetwork(both)
    )


def judged(objective: str = "response", movable: tuple[int, ...] = (1,), **work: Any) -> PlacementExplanation:
    now = {(0, 0): A, (1, 0): A, (2, 0): C}
    return explained(request(**work), now, movable, Objective(objective), lambda instance, node: "only zone attic")


def test_other_hosts_are_ranked_by_their_change() -> None:
    judgement = judged()
    assert judgement.value == 58.0  # 8 ms, then 50 ms to c
    (unit,) = judgement.units
    assert (unit.instances, unit.node) == (((1, 0),), A)
    # On b: 10 + 4 + 10; on c: 50 + 8.
    assert [(other.node, other.value, other.change, other.forbidden) for other in unit.alternatives] == [
        (B, 24.0, -34.0, ()),
        (C, 58.0, 0.0, ()),
    ]


def test_a_forbidden_host_is_shown_with_the_rule() -> None:
    (unit,) = judged(zone="attic").units
    assert [(other.node, other.forbidden) for other in unit.alternatives] == [
        (B, ("work: only zone attic",)),
        (C, ("work: only zone attic",)),
    ]


def test_a_full_host_names_its_capacity() -> None:
    (unit,) = judged(demand={"slots": 2}).units
    assert unit.alternatives[0].forbidden == ("b has 1 slots, and 2 are needed",)


def test_usage_is_bytes_in_flight() -> None:
    judgement = judged("usage")
    assert judgement.value == pytest.approx(10 * 0.050)
    assert {other.node: other.value for other in judgement.units[0].alternatives} == {
        B: pytest.approx(100 * 0.010 + 10 * 0.010),
        C: pytest.approx(100 * 0.050),
    }


def test_stages_that_stay_are_no_units() -> None:
    assert judged(movable=()).units == ()


def test_instances_that_run_already_do_not_count_twice() -> None:
    hosts = {A: HostState(A, name="a", resources={"slots": 4}, used={"slots": 3, "cores": 1})}
    network = NetworkDescription("live", hosts, {"a": A}, TableNetwork({}))
    freed = without_own_instances(network, {(0, 0): A, (1, 0): A})
    assert freed.hosts[A].used == {"slots": 1, "cores": 1}


def test_a_host_that_ends_one_broken_constraint_and_breaks_another_is_forbidden() -> None:
    full = request(zone="attic")
    hosts = {**full.hosts, C: replace(full.hosts[C], zone="attic", used={"slots": 4})}
    now = {(0, 0): A, (1, 0): B, (2, 0): A}
    judgement = explained(replace(full, hosts=hosts), now, (1,), Objective("response"), lambda *_: "only zone attic")
    assert judgement.violations == ("work: only zone attic",)
    assert {other.node: other.forbidden for other in judgement.units[0].alternatives} == {
        A: (),
        C: ("c has 4 slots, and 5 are needed",),
    }


def test_a_host_behind_a_link_of_unknown_delay_is_no_alternative() -> None:
    plain = request()
    assert isinstance(plain.network, TableNetwork)
    unknown = LinkFigures(UNKNOWN_MS, source=FigureSource.UNKNOWN)
    network = TableNetwork({**plain.network.links(), (B, C): unknown, (C, B): unknown})
    now = {(0, 0): A, (1, 0): A, (2, 0): C}
    judgement = explained(replace(plain, network=network), now, (1,), Objective("response"), lambda *_: "")
    assert [other.node for other in judgement.units[0].alternatives] == [C]


def test_a_rule_that_is_broken_now_and_there_forbids_the_move() -> None:
    now = {(0, 0): A, (1, 0): B, (2, 0): C}
    (unit,) = explained(request(zone="cellar"), now, (1,), Objective("response"), lambda *_: "only zone cellar").units
    assert [other.forbidden for other in unit.alternatives] == [("work: only zone cellar",)] * 2
