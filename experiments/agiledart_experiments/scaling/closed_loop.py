"""Experiment `closed-loop`: delay, changes and instance seconds of scaling policies in closed loop with queues.

The values `_other_run` come from an independent model of the same policies (scaling specification §7.4). Its noise is another
sequence, so the values agree in size, not to the digit. The paper shows no closed loop.
"""

from dataclasses import dataclass

from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_experiments.scaling.fluid import FLUID_ROWS, exact_rows
from agiledart_experiments.scaling.loads import FALL_S, HOUR_S, RISE_S, STEP_S, bursts, step
from agiledart_experiments.scaling.queue_model import (
    INTERVAL_S,
    TICKS_PER_SECOND,
    ClosedLoop,
    InstanceChange,
    LoopRun,
    QueueStage,
)
from agiledart_scaling.registry import policy_named
from agiledart_scaling.scaling_policy import ScalingPolicy

POLICIES = ("secant", "paper-floor", "paper", "ds2", "ds2-flink")
"""Policies to compare when the caller names none."""

BOUND_S = 1.0
REVERSAL_S = 60
"""Longest acceptable wait of a row, and the time within which a change back counts as a reversal, in seconds."""

PAPER = (20, 5)
SMALL = (6, 1)
"""Number of seeds of the short scenarios, and of the hour."""

OTHER_RUN: dict[tuple[str, str], dict[str, float]] = {
    ("secant", "times-4"): {"intervals_to_bound_worst": 3.1, "changes_worst": 1},
    ("paper-floor", "times-4"): {"intervals_to_bound_worst": 3.0, "changes_worst": 7},
    ("ds2", "times-4"): {"intervals_to_bound_worst": 8.7, "changes_worst": 12},
    ("ds2-flink", "times-4"): {"intervals_to_bound_worst": 5.7, "changes_worst": 2},
    ("secant", "hour"): {"changes": 13, "reversals_60s": 1.2},
    ("paper-floor", "hour"): {"changes": 164, "reversals_60s": 115},
    ("paper", "hour"): {"changes": 225, "reversals_60s": 136},
    ("ds2", "hour"): {"changes": 297, "reversals_60s": 235},
    ("ds2-flink", "hour"): {"changes": 31, "reversals_60s": 18},
}
"""Figures of that model by policy and scenario, from 20 seeds and 5 hours."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one run.

    Attributes:
        intervals: intervals from the rise of the rate until no row waits longer than the bound; None: never.
        changes: changes of the number of instances, from the rise to the fall or over the whole run.
        reversals: changes that reverted the previous change within a minute.
        instance_seconds: instance seconds used.
        late: share of the time in which an arriving row waits too long.
    """

    intervals: float | None
    changes: int
    reversals: int
    instance_seconds: float
    late: float


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each policy and scenario."""
    short, long = PAPER if settings.is_paper else SMALL
    names = (settings.policy,) if settings.policy else POLICIES
    rows: list[Row] = []
    for name in names:
        policy = policy_named(name)
        settings.progress(f"{name}: four times the rate, {short} seeds")
        rows.append(_row(name, "times-4", [times_four(policy, settings.seed + at) for at in range(short)]))
        settings.progress(f"{name}: three stages in sequence, {short} seeds")
        rows.append(_row(name, "three-stages", [three_stages(policy, settings.seed + at) for at in range(short)]))
        settings.progress(f"{name}: a slow instance, {short} seeds")
        rows.append(_row(name, "slow-instance", [slow_instance(policy, settings.seed + at) for at in range(short)]))
        settings.progress(f"{name}: an hour of bursts, {long} seeds")
        rows.append(_row(name, "hour", [hour(policy, settings.seed + at) for at in range(long)]))
    exact = exact_rows()
    parameters = {"policies": names, "seeds": short, "hours": long, "interval_s": INTERVAL_S, "bound_s": BOUND_S}
    notes = (
        "times-4: 300 → 1,200 → 300 rows/s, 100 a second an instance; changes are those upwards, intervals count from the rise",
        "paper starves, as the paper's score lets it; paper-floor has the floor `drain`, which is not the paper's",
        f"the rows of the fluid queue (specification §6 and §7.4) are compared to the digit: {len(FLUID_ROWS)}",
    )
    return ExperimentReport(parameters, (*rows, *exact), _goals(rows, exact), notes)


def times_four(policy: ScalingPolicy, seed: int) -> Figures:
    """Run a stage of four instances through four times the rate for two minutes."""
    done = ClosedLoop([QueueStage(100, 4)], step, policy, seed).go(STEP_S)
    ups = [change for change in done.changes if change.after > change.before and RISE_S <= change.second < FALL_S]
    return _figures(done, (RISE_S, FALL_S), len(ups))


def three_stages(policy: ScalingPolicy, seed: int) -> Figures:
    """Run three stages with back-pressure between them, selectivities 1 and 2; 100 → 400 rows/s."""
    stages = [QueueStage(100, 2), QueueStage(50, 3, 2.0), QueueStage(200, 2)]
    done = ClosedLoop(stages, lambda second: 400 if second >= RISE_S else 100, policy, seed).go(360)
    return _figures(done, (RISE_S, 360), len([change for change in done.changes if change.second > RISE_S]))


def slow_instance(policy: ScalingPolicy, seed: int) -> Figures:
    """Run a stage of six instances of which one has 30 % of the rate of the others from the start."""
    done = ClosedLoop([QueueStage(100, 6, slow={2: 0.3})], lambda _: 450, policy, seed).go(180)
    return _figures(done, (0, 180), len(done.changes))


def hour(policy: ScalingPolicy, seed: int) -> Figures:
    """Run an hour of bursts that end within seconds, before a new instance has started."""
    done = ClosedLoop([QueueStage(100, 4)], bursts(seed), policy, seed).go(HOUR_S)
    return _figures(done, None, len(done.changes))


def _figures(done: LoopRun, window: tuple[int, int] | None, changes: int) -> Figures:
    intervals = None
    if window:
        part = done.waits[window[0] * TICKS_PER_SECOND : window[1] * TICKS_PER_SECOND]
        late = [tick for tick, wait in enumerate(part) if wait > BOUND_S]
        if not late or late[-1] + 1 < len(part):
            intervals = (late[-1] + 1 if late else 0) / TICKS_PER_SECOND / INTERVAL_S
    share = sum(wait > BOUND_S for wait in done.waits) / len(done.waits)
    return Figures(intervals, changes, _reversals(done.changes), done.instance_seconds, share)


def _reversals(changes: list[InstanceChange]) -> int:
    """Count the changes of a stage in the opposite direction of its previous change, within a minute."""
    count = 0
    last: dict[int, InstanceChange] = {}
    for change in changes:
        before = last.get(change.stage)
        if before and change.second - before.second <= REVERSAL_S:
            count += (change.after - change.before) * (before.after - before.before) < 0
        last[change.stage] = change
    return count


def _row(policy: str, scenario: str, runs: list[Figures]) -> Row:
    known = OTHER_RUN.get((policy, scenario), {})
    reached = [figures.intervals for figures in runs if figures.intervals is not None]
    is_long = scenario == "hour"
    row: Row = {
        "policy": policy,
        "scenario": scenario,
        "intervals_to_bound": round(sum(reached) / len(reached), 2) if reached else None,
        "intervals_to_bound_worst": round(max(reached), 2) if len(reached) == len(runs) else None,
        "never": None if is_long else len(runs) - len(reached),
        "changes": round(sum(figures.changes for figures in runs) / len(runs), 2),
        "changes_worst": max(figures.changes for figures in runs),
        "reversals_60s": round(sum(figures.reversals for figures in runs) / len(runs), 2),
        "reversals_60s_worst": max(figures.reversals for figures in runs),
        "instance_seconds": round(sum(figures.instance_seconds for figures in runs) / len(runs)),
        "late_share": round(sum(figures.late for figures in runs) / len(runs), 4),
        "seeds": len(runs),
    }
    return row | {f"{name}_other_run": value for name, value in known.items()}


def _goals(rows: list[Row], exact: tuple[Row, ...]) -> tuple[Goal, ...]:
    goals = [Goal(f"{row['scenario']}: the run of the specification to the digit", row["is_exact"]) for row in exact]
    for row in rows:
        if row["policy"] != "secant":
            continue
        if row["scenario"] == "times-4":
            worst = row["intervals_to_bound_worst"]
            goals.append(
                Goal("secant: ×4 is met within 4 intervals in the worst seed", worst is not None and worst < 4)
            )
            goals.append(Goal("secant: ×4 takes at most 2 changes in the worst seed", row["changes_worst"] <= 2))
        if row["scenario"] == "hour":
            few = row["reversals_60s_worst"] <= 3
            goals.append(Goal("secant: an hour of bursts has at most 3 reversals within a minute", few))
    return tuple(goals)
