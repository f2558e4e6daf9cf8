"""Metrics of stage changes: their requesters, ends and costs; and labels that a stranger cannot multiply."""

from agiledart_agent.metrics.application_figures import MAX_APPLICATIONS
from agiledart_agent.metrics.scaling_metrics import MAX_REASONS, METRICS, ChangeCounts
from agiledart_recovery.wire.register_value import ChangeOutcome, StageChange


def test_changes_are_counted_by_kind_reason_and_state() -> None:
    counts = ChangeCounts()
    counts.finalise(
        "taxi",
        StageChange("1", 2, 1, 4, "scale", "secant: proportional: f 0.21", ChangeOutcome.DONE, moved_bytes=64),
    )
    counts.finalise("taxi", StageChange("1", 3, 4, 2, "scale", "asked by ann", ChangeOutcome.DROPPED, why="no room"))
    counts.finalise("taxi", StageChange("1", 4, 4, 4, "drain", "asked by ann", ChangeOutcome.DONE, moved_bytes=36))

    assert dict(counts.finalised) == {
        ("scale", "secant", "done"): 1,
        ("scale", "user", "let-go"): 1,
        ("drain", "user", "done"): 1,
    }
    assert (counts.moved_bytes, counts.changeover_pauses) == (100, {})
    for changeover_pause_ns in (120_000_000, 450_000_000):
        counts.measure(
            "taxi", StageChange("1", 2, 1, 4, fate=ChangeOutcome.DONE, changeover_pause_ns=changeover_pause_ns)
        )
    assert counts.changeover_pauses == {"taxi": 0.45}, "of the last change, as far as it is known"


def test_names_of_other_nodes_are_bounded() -> None:
    counts = ChangeCounts()
    for number in range(100):
        counts.finalise(
            "a", StageChange("1", number, 1, 2, f"kind{number}", f"policy{number}: why", ChangeOutcome.DONE)
        )
    assert len({reason for _, reason, _ in counts.finalised}) <= MAX_REASONS + 1
    assert len({kind for kind, _, _ in counts.finalised}) <= MAX_REASONS + 1
    for number in range(100):
        counts.measure(f"app-{number}", StageChange("1", number, 1, 2, changeover_pause_ns=1))
    assert len(counts.changeover_pauses) == MAX_APPLICATIONS
    assert "app-99" in counts.changeover_pauses


def test_every_metric_has_the_projects_prefix() -> None:
    assert [one.name.removeprefix("agiledart_") for one in METRICS] == [
        "scaling_score", "scaling_instances", "scaling_changes_total", "scaling_changeover_pause_seconds",
        "scaling_moved_bytes_total", "placement_objective", "placement_wanted",
            "placement_gap", "placement_moves_total", "mopa_messages_total", "planner_seconds_total", "planner_plans_total",
    ]  # fmt: skip
