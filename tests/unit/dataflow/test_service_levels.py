"""Service levels: a builder states them, steps and sinks keep them or not, and users see the shares."""

from datetime import timedelta
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from agiledart import Topology, stdout
from agiledart_agent.metrics.application_figures import ApplicationFigures
from agiledart_agent.metrics.application_metrics import METRICS
from agiledart_agent.metrics.metric_declarations import NodeFigures, Scrape
from agiledart_cli.verbs.application_view import print_sums
from agiledart_dataflow.counts.interval_measures import MEASURES, IntervalMeasures
from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.counts.service_compliance import of_sink, of_step
from agiledart_dataflow.counts.statistics import InstanceStatistics, StepCounts
from agiledart_dataflow.plan.placement_rules import EXPECT
from agiledart_kernel.errors import TopologyError
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_node.records.application import SPECIFICATION_CODEC
from agiledart_node.records.summary import summary_of


class Row(NamedTuple):
    number: int


def built(**options: Any) -> Topology:
    topology = Topology("levels", **options)
    topology.source("rows", [Row(1)], rows=Row).map(lambda row: row, name="work").sink("out", stdout())
    return topology


def measures(rows: int, busy_ms: int, waiting: int) -> IntervalMeasures:
    return IntervalMeasures(5 * SECOND, rows, busy_ms * MILLISECOND, 0, (0.0,) * 5, (waiting,) * 5, (rows,))


@pytest.mark.parametrize("slo", ["500ms", timedelta(seconds=0.5)])
def test_the_service_level_of_a_topology_is_that_of_its_sinks_unless_they_have_their_own(slo: timedelta | str) -> None:
    rows, work, out = built(slo=slo).specification().steps
    assert (rows.slo_ms, work.slo_ms, out.slo_ms) == (None, None, 500.0)
    topology = built(slo=slo)
    topology.expect("out", slo="2s")
    topology.expect("work", ms=3, slo="20ms")
    steps = topology.specification().steps
    assert [step.slo_ms for step in steps] == [None, 20.0, 2_000.0]
    assert steps[1].expected.ms == 3.0
    assert built().specification().digest() != built(slo=slo).specification().digest()


@pytest.mark.parametrize("slo", ["0s", "-1s", "500", "soon", timedelta(0), 5])
def test_a_service_level_that_is_no_time_above_zero_is_refused(slo: Any) -> None:
    for build in (lambda: built(slo=slo), lambda: built().expect("work", slo=slo)):
        with pytest.raises(TopologyError, match='it is a time above 0 with its unit, as "500ms"'):
            build()


def test_a_specification_with_a_level_that_no_builder_writes_has_none() -> None:
    step = built().specification().steps[1]
    for text in ("{", '{"slo_ms": -1}', '{"slo_ms": "x"}'):
        assert msgspec.structs.replace(step, options=((EXPECT, text),)).slo_ms is None


def test_a_sink_keeps_its_level_by_the_latencies_of_its_rows() -> None:
    latencies = LatencyHistogram()
    for milliseconds, rows in ((50, 40), (150, 30), (400, 20), (900, 10)):
        latencies.add(milliseconds * MILLISECOND, rows)
    assert of_sink("out", 100.0, latencies).shares() == {"real_time": 0.4, "near_real_time": 0.7, "relaxed": 0.9}
    assert of_sink("out", 100.0, None).shares() == {}


def test_a_step_keeps_its_level_by_the_rows_that_wait_before_it() -> None:
    fast, slow, stuck = measures(100, 200, 0), measures(100, 4_000, 3), measures(0, 0, 50)
    # 2 ms of work; 40 ms of work and 3 rows of 50 ms each; no row passes.
    found = of_step("work", 100.0, [fast, slow])
    assert found.shares() == {"real_time": 0.5, "near_real_time": 1.0, "relaxed": 1.0}
    assert found.is_estimate
    assert of_step("work", 100.0, [fast, stuck]).shares()["relaxed"] == pytest.approx(100 / 150, abs=1e-6)
    assert of_step("work", 100.0, [measures(0, 0, 0)]).shares() == {}


def reports(step_measures: IntervalMeasures) -> dict[tuple[int, int], dict[str, Any]]:
    latencies = LatencyHistogram()
    latencies.add(50 * MILLISECOND, 3)
    latencies.add(900 * MILLISECOND)
    sink = InstanceStatistics(2, 0, {"out": StepCounts(4, 4)}, latency=latencies.to_plain())
    work = InstanceStatistics(1, 0, {"work": StepCounts(4, 4)}, sent=[(1, 0, 4)])
    return {
        (1, 0): {"statistics": msgspec.to_builtins(work), MEASURES: msgspec.to_builtins(step_measures)},
        (2, 0): {"statistics": msgspec.to_builtins(sink), "slo_ms": {"out": 100.0}},
    }


def test_status_shows_the_levels_of_sinks_and_the_estimates_of_other_steps(capsys: pytest.CaptureFixture[str]) -> None:
    topology = built(slo="100ms")
    topology.expect("work", slo="30ms")
    body = summary_of(SPECIFICATION_CODEC.encode(topology.specification()), reports(measures(100, 4_000, 0)))
    sink, work = body["service_levels"]
    assert (sink["step"], sink["slo_ms"], sink["rows"], sink["real_time"], sink["relaxed"]) == (
        "out",
        100.0,
        4,
        0.75,
        0.75,
    )
    assert (work["step"], work["is_estimate"], work["real_time"], work["near_real_time"]) == ("work", True, 0.0, 1.0)
    print_sums(body)
    shown = capsys.readouterr().out
    assert "out 75.0% within 100 ms, 75.0% within 200 ms, 75.0% within 500 ms" in shown
    assert "work 0.0% within 30.0 ms, 100.0% within 60.0 ms, 100.0% within 150 ms (estimate, last 5 s)" in shown


def test_a_metric_has_the_levels_of_a_sink() -> None:
    figures = ApplicationFigures()
    figures.reported("levels", 1, 2, 0, reports(measures(1, 1, 0))[2, 0])
    scrape = Scrape(NodeFigures(), "", {}, {}, {}, figures.look(0.0), *cast(Any, [None] * 3))
    (metric,) = (metric for metric in METRICS if metric.name == "agiledart_sla_compliance_ratio")
    samples = dict(metric.read(scrape))
    assert samples["levels", "out", "real_time"] == 0.75
    assert set(samples) == {("levels", "out", level) for level in ("real_time", "near_real_time", "relaxed")}
