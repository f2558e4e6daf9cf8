"""What there is to know of stages that change while rows flow: how well they keep up, how many there are, how changes ended."""

from collections import Counter
from dataclasses import dataclass, field

from agiledart_agent.metrics.application_figures import MAX_APPLICATIONS, MAX_LABEL, BoundedLabels
from agiledart_agent.metrics.metric_declarations import Figure, MetricDeclaration, Samples, Scrape, samples_of
from agiledart_recovery.wire.observations import ChangeFinalised, ChangeMeasured
from agiledart_recovery.wire.register_value import StageChange

MAX_REASONS = 16
"""Policies that are told apart."""

USER = "user"
"""Reason of a change that somebody asked for."""


@dataclass
class ChangeCounts:
    """Changes that runs of this node have settled, where this node coordinates them.

    Attributes:
        settled: by kind (scale, move, drain), reason (user, or the policy's name) and state.
        gaps: seconds for which rows of some key group stood still in the last change, by application; of many the last.
    """

    finalised: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    moved_bytes: int = 0
    changeover_pauses: dict[str, float] = field(default_factory=dict)
    _reasons: BoundedLabels = field(default_factory=lambda: BoundedLabels(MAX_REASONS))
    _kinds: BoundedLabels = field(default_factory=lambda: BoundedLabels(MAX_REASONS))

    def finalise(self, label: str, change: StageChange) -> None:
        """A change is over; `label`: of its application."""
        reason = USER if change.reason.startswith("asked by") else self._reasons.of(change.reason.partition(":")[0])
        self.finalised[self._kinds.of(change.kind), reason, change.fate.value] += 1
        self.moved_bytes += change.moved_bytes

    def measure(self, label: str, change: StageChange) -> None:
        """It is known for how long rows stood still; `label`: as above."""
        self.changeover_pauses.pop(label, None)
        self.changeover_pauses[label] = change.changeover_pause_ns / 1e9
        if len(self.changeover_pauses) > MAX_APPLICATIONS:
            del self.changeover_pauses[next(iter(self.changeover_pauses))]


def _of_stages(name: str, meaning: str, field_name: str) -> MetricDeclaration:
    """Shown with the operator that leads the stage."""

    def samples(scrape: Scrape) -> Samples:
        found: dict[tuple[str, ...], Figure] = {}
        for application, stage, figure in getattr(scrape.node, field_name):
            found.setdefault((scrape.app_label(application), stage.partition("+")[0][:MAX_LABEL]), figure)
        return found.items()

    return MetricDeclaration(name, "gauge", meaning, ("app", "operator"), samples)


def _changes(scrape: Scrape) -> Samples:
    return scrape.changes.finalised.items()


# fmt: off
METRICS: tuple[MetricDeclaration, ...] = (
    _of_stages("agiledart_scaling_score",
        "What a stage can do at 80 % of its time, as a share of the rows that are due: 1 is just enough, less is too few "
        "instances. Of stages with limits, told by the agent that coordinates their application.", "scaling_scores"),
    _of_stages("agiledart_scaling_instances",
        "Instances of a stage with limits, told by the agent that coordinates its application.", "scaling_instances"),
    MetricDeclaration("agiledart_scaling_changes_total", "counter",
        "Changes of stages that are over, told by the agent that coordinates the application; kind is scale, move or drain, reason "
        "user or the policy, state done, let-go (nothing has changed) or rolled-back (rows since the last epoch came again).",
        ("kind", "reason", "state"), _changes, ChangeFinalised),
    MetricDeclaration("agiledart_scaling_changeover_pause_seconds", "gauge",
        "For how long rows of some key group stood still in the last change of an application: from what an instance of the term "
        "before took last to what one of the new term took first, as the sender saw it.", ("app",),
        lambda scrape: samples_of(scrape.changes.changeover_pauses), ChangeMeasured),
    MetricDeclaration("agiledart_scaling_moved_bytes_total", "counter",
        "Bytes of state, as it was saved last, of key groups that went to another node.", (),
        lambda scrape: samples_of(scrape.changes.moved_bytes)),
)
# fmt: on
"""In the order of the reference."""
