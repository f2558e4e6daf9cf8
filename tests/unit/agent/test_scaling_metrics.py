"""What is counted of changes of stages: by whom, how they ended, what they cost; and labels that a stranger cannot multiply."""

from agiledart_agent.metrics.application_figures import MAX_APPLICATIONS
from agiledart_agent.metrics.scaling_metrics import MAX_REASONS, METRICS, ChangeCounts
from agiledart_recovery.wire.value import Change, Fate


def test_changes_are_counted_by_kind_reason_and_state() -> None:
    counts = ChangeCounts()
    counts.settle(
        "taxi",
        Change("1", 2, 1, 4, "scale", "secant: proportional: f 0.21", Fate.DONE, moved_bytes=64),
    )
    counts.settle("taxi", Change("1", 3, 4, 2, "scale", "asked by ann", Fate.LET_GO, why="no room"))
    counts.settle("taxi", Change("1", 4, 4, 4, "drain", "asked by ann", Fate.DONE, moved_bytes=36))

    assert dict(counts.settled) == {
        ("scale", "secant", "done"): 1,
        ("scale", "user", "let-go"): 1,
        ("drain", "user", "done"): 1,
    }
    assert (counts.moved_bytes, counts.gaps) == (100, {})
    for gap_ns in (120_000_000, 450_000_000):
        counts.measure("taxi", Change("1", 2, 1, 4, fate=Fate.DONE, gap_ns=gap_ns))
    assert counts.gaps == {"taxi": 0.45}, "of the last change, as far as it is known"


def test_names_of_others_do_not_grow_without_bound() -> None:
    counts = ChangeCounts()
    for number in range(100):
        counts.settle("a", Change("1", number, 1, 2, f"kind{number}", f"policy{number}: why", Fate.DONE))
    assert len({reason for _, reason, _ in counts.settled}) <= MAX_REASONS + 1
    assert len({kind for kind, _, _ in counts.settled}) <= MAX_REASONS + 1
    for number in range(100):
        counts.measure(f"app-{number}", Change("1", number, 1, 2, gap_ns=1))
    assert len(counts.gaps) == MAX_APPLICATIONS
    assert "app-99" in counts.gaps


def test_every_metric_has_the_prefix_of_the_house() -> None:
    assert [one.name.removeprefix("agiledart_scaling_") for one in METRICS] == [
        "score", "instances", "changes_total", "change_gap_seconds", "moved_bytes_total",
    ]  # fmt: skip
