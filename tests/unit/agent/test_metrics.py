"""Figures for Prometheus: named by the rules, bounded in their labels, and counters never go back."""

import inspect
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.core import Sample
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tools.metrics_reference import TARGET, reference

from agiledart_agent.metrics.agent_metrics import COUNTED, MAX_AGENT_REASONS, METRICS, AgentMetrics
from agiledart_agent.metrics.application_figures import MAX_APPLICATIONS, MAX_LABEL, MAX_OPERATORS, MAX_REASONS
from agiledart_agent.metrics.metric_declarations import NodeFigures, RecoveryFigures, SinkLogFigures
from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.counts.statistics import InstanceStatistics, SourceCounts, StepCounts
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observation
from agiledart_kernel.peer import Peer
from agiledart_node.scheduling import observations as of_scheduling
from agiledart_overlay.wire import observations
from agiledart_overlay.wire.observations import MessageDropped, NodeWasLate, PeerDeclaredFailed
from agiledart_overlay.wire.statistics import OverlayStatistics
from agiledart_recovery.wire import observations as of_recovery
from agiledart_sink_log.plain_files import bytes_below
from tests.unit.agent.promtool import lint

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
ALLOWED_LABELS = {
    "action",
    "gate",
    "outcome",
    "app",
    "operator",
    "level",
    "zone",
    "direction",
    "path",
    "phase",
    "reason",
    "state",
    "version",
    "python",
    "kind",
}


class World:
    """An agent's figures, with preset clocks."""

    def __init__(self) -> None:
        self.figures = NodeFigures()
        self.seconds = 0.0
        self.metrics = AgentMetrics(
            lambda: self.figures, "attic", wall_seconds=lambda: 1_000.0 + self.seconds, clock=lambda: self.seconds
        )

    def text(self, accept: str = "") -> str:
        self.seconds += 1
        return self.metrics.render(accept)[1].decode()

    def samples(self) -> list[Sample]:
        return [sample for family in parse_text(self.text()) for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        (found,) = [one.value for one in self.samples() if one.name == name and labels.items() <= one.labels.items()]
        return float(found)

    def report(self, app: str, statistics: InstanceStatistics, version: int = 1, **more: Any) -> None:
        report = {
            "statistics": msgspec.to_builtins(statistics),
            "busy_ns": 0,
            "waiting_rows": 0,
            "blocked": False,
            **more,
        }
        self.metrics.applications.reported(app, version, statistics.stage, statistics.index, report)


@pytest.fixture
def world() -> World:
    return World()


def source(records: int, late: int = 0, malformed: dict[str, int] | None = None, index: int = 0) -> InstanceStatistics:
    """A source's instance that is complete up to 990 s."""
    counts = SourceCounts(records + late, records, late, malformed or {})
    return InstanceStatistics(0, index, {"trips": StepCounts(records + late, records, 0)}, counts, event_time=990_000)


def sink(*latencies_ms: float) -> InstanceStatistics:
    """A sink's instance that wrote results so long after their cause."""
    histogram = LatencyHistogram()
    for latency in latencies_ms:
        histogram.add(int(latency * 1e6))
    counts = StepCounts(len(latencies_ms), len(latencies_ms), 0)
    return InstanceStatistics(1, 0, {"report": counts}, None, histogram.to_plain(), queued_rows=3, state_keys=7)


def test_names_and_labels_follow_the_rules() -> None:
    names = [one.name for one in METRICS]
    assert len(names) == len(set(names))
    for one in METRICS:
        assert one.name.startswith("agiledart_")
        assert (one.kind == "counter") == one.name.endswith("_total"), one.name
        assert (one.kind == "info") == one.name.endswith("_info"), one.name
        assert set(one.labels) <= ALLOWED_LABELS, one.name
        assert one.help.endswith("."), one.name


def test_the_reference_is_up_to_date() -> None:
    assert TARGET.read_text() == reference(), "run: python -m tools.metrics_reference"


def test_each_observation_is_counted_or_deliberately_left_out() -> None:
    modules = (observations, of_scheduling, of_recovery)
    members = [member for module in modules for member in inspect.getmembers(module, inspect.isclass)]
    there = [one for _, one in members if issubclass(one, Observation)]
    assert set(there) - {Observation} == set(COUNTED)


def route(by: str, direct: int, relayed: int, **moves: int) -> dict[str, Any]:
    """An executor's report of one path."""
    circuit = {"relay": by, "in_use": True, "cost_ms": 5.0, "round_trip_ms": 9.5, "success": 0.5, "answers": 7,
               "bytes_per_second": 12, "late": False}  # fmt: skip
    return {"edge": 0, "target": 0, "to": "a6", "paths": "auto", "relay": by, "since_ms": 1, "state": "works",
    "circuits": [circuit],
            "changes": [{"at_ms": 1, "from": "", "to": "a2", "reason": "slow"}], "moves": moves,
            "frames": {"direct": direct, "relayed": relayed, "local": 3}}  # fmt: skip


def test_paths_are_counted_by_kind_and_unknown_reasons_as_other(world: World) -> None:
    world.report("taxi", source(10), routes=[route("a2", 5, 7, slow=1), {**route("", 1, 1), "relay": 7}, "nonsense"])
    assert world.value("agiledart_path_frames_total", app="taxi", path="direct") == 5
    assert world.value("agiledart_path_frames_total", app="taxi", path="relayed") == 7
    assert world.value("agiledart_path_frames_total", app="taxi", path="local") == 3
    assert world.value("agiledart_link_success_ratio", app="taxi", path="relayed") == 0.5
    world.metrics.applications.ended("taxi", 1)
    local = {**route("", 1, 0, slow=1, invented=3), "kind": "local"}
    world.report("taxi", source(10), version=2, routes=[local])
    assert world.value("agiledart_link_success_ratio", app="taxi", path="local") == 0.5
    assert world.value("agiledart_route_changes_total", app="taxi", reason="slow") == 2
    assert world.value("agiledart_route_changes_total", app="taxi", reason="other") == 3


def test_duplicate_frames_are_counted_beyond_the_end_of_their_run(world: World) -> None:
    world.report("taxi", source(10), frames_resent=7, frames_doubled=2)
    world.report("taxi", sink(1), frames_doubled=3)
    world.metrics.applications.ended("taxi", 1)
    world.report("taxi", source(10), version=2, frames_resent=1)
    assert world.value("agiledart_channel_resent_frames_total", app="taxi") == 8
    assert world.value("agiledart_channel_duplicate_frames_total", app="taxi") == 5


def test_both_formats_are_read_by_their_parsers(world: World) -> None:
    world.report("taxi", source(10, 2, {"fields": 1}))
    world.report("taxi", sink(1, 20, 300))
    plain = {family.name for family in parse_text(world.text())}
    open_text = world.text(OPENMETRICS)
    assert open_text.endswith("# EOF\n")
    assert {family.name for family in parse_openmetrics(open_text)} >= {one for one in plain if "agiledart" in one} - {
        one for one in plain if one.endswith("_info")
    }
    assert {one.name.removesuffix("_total") for one in METRICS} <= plain


def test_promtool_reports_no_problem(world: World) -> None:
    world.report("taxi", source(10, 2, {'we"ird\n': 1}))
    world.report("taxi", sink(1, 20, 300))
    lint("check", "metrics", text=world.text())


def test_latency_samples_are_counted_after_the_run(world: World) -> None:
    name = "agiledart_application_latency_samples_total"

    def value(state: str) -> float | None:
        return world.value(name, app="taxi", operator="report", state=state)

    for version, kept in ((1, 5), (2, 7)):
        report = {"statistics": msgspec.to_builtins(sink(1)), "latency_samples": {"kept": kept, "lost": version}}
        world.metrics.applications.reported("taxi", version, 1, 0, report)
        world.metrics.applications.ended("taxi", version)
    assert (value("kept"), value("lost")) == (12, 3)


def test_metrics_of_the_node(world: World) -> None:
    overlay = OverlayStatistics(True, 4, 9, 5, 2, (("Probe", 3), ("Join", 1)), (("Probe", 2),), (("outside", 6),))
    world.figures = NodeFigures("", overlay, 3, {"dialling": 1}, {"grant": 5}, ())
    assert world.value("agiledart_agent_ready") == 1
    assert world.value("agiledart_agent_zone_info", zone="attic") == 1
    assert world.value("agiledart_overlay_leafset_peers") == 4
    assert world.value("agiledart_overlay_known_peers") == 9
    assert world.value("agiledart_overlay_messages_total", direction="out") == 4
    assert world.value("agiledart_overlay_messages_total", direction="in") == 2
    assert world.value("agiledart_overlay_dropped_messages_total", reason="outside") == 6
    assert world.value("agiledart_overlay_dropped_messages_total", reason="dialling") == 1
    assert world.value("agiledart_agent_refusals_total", reason="grant") == 5
    world.figures = NodeFigures("leaving")
    assert world.value("agiledart_agent_ready") == 0


def test_observations_are_counted(world: World) -> None:
    peer = Peer(NodeId(7), 1, "pi7")
    for observation in (NodeWasLate(5), NodeWasLate(6), PeerDeclaredFailed(peer, "silent"), MessageDropped("outside")):
        world.metrics.observed(observation)
    assert world.value("agiledart_overlay_late_timers_total") == 2
    assert world.value("agiledart_overlay_failed_peers_total", reason="silent") == 1
    assert "pi7" not in world.text()
    assert peer.node.hex not in world.text()


def test_metrics_of_an_application(world: World) -> None:
    world.report("taxi", source(10, 2, {"fields": 1, "time": 3}), busy_ns=1_500_000_000, waiting_rows=4)
    world.report("taxi", sink(0.5, 20, 300), blocked=True, unsaved="no space left on device")
    assert world.value("agiledart_application_records_total", app="taxi", operator="trips") == 10
    assert world.value("agiledart_application_snapshot_failed_instances", operator="trips") == 0
    assert world.value("agiledart_application_snapshot_failed_instances", operator="report") == 1
    assert world.value("agiledart_application_late_records_total", app="taxi") == 2
    assert world.value("agiledart_application_malformed_records_total", reason="time") == 3
    assert world.value("agiledart_application_dropped_records_total", operator="trips", reason="malformed") == 4
    assert world.value("agiledart_application_rows_total", operator="report", direction="in") == 3
    assert world.value("agiledart_application_busy_seconds_total", operator="trips") == 1.5
    assert world.value("agiledart_application_queue_length", operator="trips") == 4
    assert world.value("agiledart_application_queue_length", operator="report") == 3
    assert world.value("agiledart_application_state_keys", operator="report") == 7
    assert world.value("agiledart_application_instances", operator="report", state="blocked") == 1
    assert world.value("agiledart_application_instances", operator="trips", state="running") == 1
    assert world.value("agiledart_application_watermark_lag_seconds", operator="trips") == pytest.approx(10, abs=60)
    name = "agiledart_application_end_to_end_latency_seconds"
    assert [world.value(f"{name}_bucket", le=le) for le in ("0.001", "0.025", "0.25", "0.5", "+Inf")] == [1, 2, 2, 3, 3]
    assert world.value(f"{name}_count") == 3
    assert world.value(f"{name}_sum") == pytest.approx(0.3205, rel=0.03)


def test_the_lag_is_that_of_the_slowest_running_instance(world: World) -> None:
    slow, quick, ended = source(1), source(1, index=1), source(1, index=2)
    slow.event_time, quick.event_time = 800_000, 1_000_000
    ended.event_time, ended.finished = 100_000, True
    for one in (slow, quick, ended):
        world.report("taxi", one)
    now = 1_000 + world.seconds + 1
    assert world.value("agiledart_application_watermark_lag_seconds") == pytest.approx(now - 800)
    assert world.value("agiledart_application_instances", state="finished") == 1


def test_a_report_replaces_the_last_one_and_instances_add_up(world: World) -> None:
    world.report("taxi", source(10))
    world.report("taxi", source(15))
    world.report("taxi", source(5, index=1))
    assert world.value("agiledart_application_records_total") == 20


def test_counters_stay_when_a_run_ends_and_continue_with_the_next(world: World) -> None:
    world.report("taxi", source(10))
    world.metrics.applications.ended("taxi", 1)
    assert world.value("agiledart_application_records_total") == 10
    assert "agiledart_application_queue_length{" not in world.text()
    world.report("taxi", source(11))  # was under way when the run ended
    assert world.value("agiledart_application_records_total") == 10
    world.report("taxi", source(4), version=2)
    assert world.value("agiledart_application_records_total") == 14


def test_a_newer_run_closes_the_older_one(world: World) -> None:
    world.report("taxi", source(10))
    world.report("taxi", source(1), version=2)
    assert world.value("agiledart_application_records_total") == 11
    assert world.value("agiledart_application_instances", state="running") == 1


def test_metrics_of_sink_logs(world: World, tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "log.json").write_bytes(b"x" * 10)
    (tmp_path / "0" / "1.log").write_bytes(b"x" * 30)
    assert bytes_below(str(tmp_path)) == 40
    assert bytes_below(str(tmp_path / "gone")) == 0
    logs = SinkLogFigures(2, {"Fetched": 5, "unknown": 1}, 100, 3_000, (("taxi", 40), ("taxi", 2), ("other", 1)))
    world.figures = NodeFigures(sink_logs=logs)
    assert world.value("agiledart_sink_log_disk_bytes", app="taxi") == 42
    assert world.value("agiledart_sink_log_readers") == 2
    assert world.value("agiledart_sink_log_answers_total", reason="unknown") == 1
    assert world.value("agiledart_sink_log_sent_rows_total") == 100
    assert world.value("agiledart_sink_log_sent_bytes_total") == 3_000


def test_a_failure_is_counted_from_zero(world: World) -> None:
    world.report("taxi", source(1))
    assert world.value("agiledart_application_failures_total", app="taxi") == 0
    world.metrics.applications.failed("taxi")
    assert world.value("agiledart_application_failures_total", app="taxi") == 1


def test_a_malformed_report_gives_no_figure(world: World) -> None:
    world.metrics.applications.reported("taxi", 1, 0, 0, {"statistics": ["nonsense"], "busy_ns": "much"})
    world.report("taxi", source(3, index=1), busy_ns=-5, waiting_rows=None)
    assert world.value("agiledart_application_records_total") == 3
    assert world.value("agiledart_application_busy_seconds_total") == 0


def test_labels_are_bounded(world: World) -> None:
    reasons = {f"reason {number}": 1 for number in range(40)}
    for number in range(MAX_APPLICATIONS + 20):
        for index in range(60):
            steps = {f"step-{index}-{'x' * 300}": StepCounts(1, 1, 0)}
            counts = SourceCounts(1, 1, 0, reasons)
            world.report(f"app-{number}", InstanceStatistics(0, index, steps, counts))
    world.figures = NodeFigures(
        refusals=dict.fromkeys((f"r{number}" for number in range(200)), 1),
        executors=(("app-0", 1), (f"app-{MAX_APPLICATIONS + 5}", 1)),
    )
    samples = world.samples()

    def values(label: str, prefix: str) -> set[str]:
        return {one.labels[label] for one in samples if label in one.labels and one.name.startswith(prefix)}

    assert len(values("app", "agiledart_application")) == MAX_APPLICATIONS + 1
    assert len(values("operator", "agiledart")) == MAX_OPERATORS + 1
    assert len(values("reason", "agiledart_application_malformed")) == MAX_REASONS + 1
    assert len(values("reason", "agiledart_agent_refusals")) == MAX_AGENT_REASONS + 1
    assert values("app", "agiledart_executor") == {"app-0", "other"}
    assert max(len(value) for one in samples for value in one.labels.values()) <= MAX_LABEL
    total = sum(one.value for one in samples if one.name == "agiledart_application_records_total")
    assert total == (MAX_APPLICATIONS + 20) * 60, "values that share a label are added, not lost"
    lines = [(one.name, *sorted(one.labels.items())) for one in samples]
    assert len(lines) == len(set(lines))


def test_the_coordinator_exports_an_applications_name_without_local_instances(world: World) -> None:
    led = tuple((f"led-{number:02}", 1.0) for number in range(MAX_APPLICATIONS + 5))
    world.figures = NodeFigures(
        scaling_scores=(("taxi", "sums+short", 0.5), ("not-led", "sums", 0.7)),
        recovery=RecoveryFigures(commit_ages=(("taxi", 2.0),)),
    )
    assert world.value("agiledart_scaling_score", app="taxi", operator="sums") == 0.5
    assert world.value("agiledart_scaling_score", app="other", operator="sums") == 0.7
    assert world.value("agiledart_recovery_commit_age_seconds", app="taxi") == 2.0
    world.figures = NodeFigures(recovery=RecoveryFigures(commit_ages=led))
    told = {one.labels["app"] for one in world.samples() if one.name == "agiledart_recovery_commit_age_seconds"}
    assert len(told) == MAX_APPLICATIONS + 1, "of many the first, and others"


def test_an_ended_application_frees_its_labels(world: World) -> None:
    for number in range(MAX_APPLICATIONS):
        world.report(f"app-{number}", source(1))
    world.metrics.applications.ended("app-3", 1)
    world.report("new", source(2))
    assert world.value("agiledart_application_records_total", app="new") == 2
    assert 'app="app-3"' not in world.text()
    assert 'app="app-2"' in world.text()


def test_frequent_scrapes_take_a_twentieth_of_the_agent_at_most(world: World) -> None:
    made: list[float] = []

    def slow_look() -> NodeFigures:
        made.append(world.seconds)
        world.seconds += 0.25
        return NodeFigures()

    metrics = AgentMetrics(slow_look, clock=lambda: world.seconds)
    while world.seconds < 10:
        metrics.render("")
        world.seconds += 0.01
    assert made == pytest.approx([0, 5], abs=0.02)


def test_quick_scrapes_share_a_text(world: World) -> None:
    first = world.metrics.render("")
    world.report("taxi", source(1))
    assert world.metrics.render("") == first
    world.seconds += 1
    assert world.metrics.render("") != first
