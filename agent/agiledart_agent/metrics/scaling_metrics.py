"""Metrics of stages that change while rows flow: how well they keep up, instances, placement, how changes ended."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from agiledart_agent.metrics.application_figures import MAX_APPLICATIONS, MAX_LABEL, BoundedLabels
from agiledart_agent.metrics.metric_declarations import (
    Figure,
    MetricDeclaration,
    NodeFigures,
    Samples,
    Scrape,
    samples_of,
)
from agiledart_recovery.wire.observations import ChangeFinalised, ChangeMeasured
from agiledart_recovery.wire.register_value import StageChange

MAX_REASONS = 16
"""Policies with a label of their own."""

USER = "user"
"""Reason of a change that a user requested."""


@dataclass
class ChangeCounts:
    """Changes that runs of this node have finalised, where this node coordinates them.

    Attributes:
        finalised: by kind (scale, move, drain), reason (user, or the policy's name) and state.
        changeover_pauses: seconds for which rows of some key group stood still in the last change, by application; of
            many the last.
    """

    finalised: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    moved_bytes: int = 0
    changeover_pauses: dict[str, float] = field(default_factory=dict)
    _reasons: BoundedLabels = field(default_factory=lambda: BoundedLabels(MAX_REASONS))
    _kinds: BoundedLabels = field(default_factory=lambda: BoundedLabels(MAX_REASONS))

    def finalise(self, label: str, change: StageChange) -> None:
        """Count a change that has ended. `label`: of its application."""
        reason = USER if change.reason.startswith("asked by") else self._reasons.of(change.reason.partition(":")[0])
        self.finalised[self._kinds.of(change.kind), reason, change.fate.value] += 1
        self.moved_bytes += change.moved_bytes

    def measure(self, label: str, change: StageChange) -> None:
        """Record the pause of a change. `label`: of its application."""
        self.changeover_pauses.pop(label, None)
        self.changeover_pauses[label] = change.changeover_pause_ns / 1e9
        if len(self.changeover_pauses) > MAX_APPLICATIONS:
            del self.changeover_pauses[next(iter(self.changeover_pauses))]


StageFigures = Callable[[NodeFigures], Iterable[tuple[str, str, Figure]]]
"""Figures of stages: application, stage, figure."""


def _of_stages(
    name: str, meaning: str, figures: Callable[[NodeFigures], Iterable[tuple[str, str, Figure]]]
) -> MetricDeclaration:
    """Declare a metric labelled with the operator that leads the stage."""

    def samples(scrape: Scrape) -> Samples:
        by_label: dict[tuple[str, ...], Figure] = {}
        for application, stage, figure in figures(scrape.node):
            by_label.setdefault((scrape.app_label(application), stage.partition("+")[0][:MAX_LABEL]), figure)
        return by_label.items()

    return MetricDeclaration(name, "gauge", meaning, ("app", "operator"), samples)


def _of_applications(
    name: str, meaning: str, figures: Callable[[NodeFigures], Iterable[tuple[str, Figure]]]
) -> MetricDeclaration:
    def samples(scrape: Scrape) -> Samples:
        by_label: dict[tuple[str, ...], Figure] = {}
        for application, figure in figures(scrape.node):
            by_label.setdefault((scrape.app_label(application),), figure)
        return by_label.items()

    return MetricDeclaration(name, "gauge", meaning, ("app",), samples)


def _changes(scrape: Scrape) -> Samples:
    return scrape.changes.finalised.items()


# fmt: off
METRICS: tuple[MetricDeclaration, ...] = (
    _of_stages("agiledart_scaling_score",
        "Rows that a stage can process at 80 % of its time, as a share of its input: 1 is just enough, less is too few "
        "instances. Of stages with limits, reported by the agent that coordinates their application.",
        lambda node: node.scaling_scores),
    _of_stages("agiledart_scaling_instances",
        "Instances of a stage with limits, reported by the agent that coordinates its application.",
        lambda node: node.scaling_instances),
    MetricDeclaration("agiledart_scaling_changes_total", "counter",
        "Changes of stages that have ended, reported by the coordinator of the application; kind is scale, move or drain, reason "
        "user or the policy, state done, let-go (nothing has changed) or rolled-back (rows since the last epoch were replayed).",
        ("kind", "reason", "state"), _changes, ChangeFinalised),
    MetricDeclaration("agiledart_scaling_changeover_pause_seconds", "gauge",
        "Longest pause of a key group in the last change of an application: from the last row that an instance of the earlier "
        "generation took to the first that one of the new generation took, as the sender saw it.", ("app",),
        lambda scrape: samples_of(scrape.changes.changeover_pauses), ChangeMeasured),
    MetricDeclaration("agiledart_scaling_moved_bytes_total", "counter",
        "Bytes of state, as last saved, of key groups that moved to another node.", (),
        lambda scrape: samples_of(scrape.changes.moved_bytes)),
    _of_applications("agiledart_placement_objective",
        "Value of the objective of an application's placement at the last look, in the unit of [placement] objective (response: "
        "ms), reported by the agent that coordinates it. Absent where figures are missing.",
        lambda node: node.placement_objectives),
    _of_applications("agiledart_placement_wanted",
        "1 where another node would pay for a stage of an application and the stage has not moved there, else 0; reported by the "
        "agent that coordinates it, where moves are on. `agiledart explain placement` names the move.",
        lambda node: node.placements_wanted),
    _of_applications("agiledart_placement_gap",
        "Distance of an application's last plan to the bound that no placement can beat, as a share; reported by the agent whose "
        "planner made it. Absent where the strategy has no bound.",
        lambda node: node.placement_bound_distances),
    MetricDeclaration("agiledart_placement_moves_total", "counter",
        "Moves of an application's stages that its coordinator started by itself; reason is rule (it ends a broken constraint), "
        "gain, plan (several moves of a planner's strategy) or wish (of its hosts, where moves are mopa).", ("app", "reason"),
        lambda scrape: [((app, reason), float(count)) for (app, reason), count in scrape.node.placement_moves]),
    MetricDeclaration("agiledart_mopa_messages_total", "counter",
        "Messages of this node about places of instances, where moves are mopa; kind is position (to hosts of neighbouring "
        "instances), question (for near nodes) or wish (to the coordinator).", ("kind",),
        lambda scrape: [((kind,), float(count)) for kind, count in scrape.node.mopa_messages.items()]),
    MetricDeclaration("agiledart_planner_seconds_total", "counter",
        "Seconds that searches of the planner process took.", (),
        lambda scrape: [((), scrape.node.planner_seconds)]),
    MetricDeclaration("agiledart_planner_plans_total", "counter",
        "Questions to the planner process; outcome is planned, or failed: it died, was late, found no placement, or its answer "
        "broke a rule. Then the application stays where it is, or the default strategy places it.", ("outcome",),
        lambda scrape: [((outcome,), float(count)) for outcome, count in scrape.node.plans.items()]),
)
# fmt: on
"""All metrics of scaling, in the order of the reference."""
