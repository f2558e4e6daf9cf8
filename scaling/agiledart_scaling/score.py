"""Health scores of a stage, and the secant step from one number of instances to the next."""

from dataclasses import dataclass

NEARLY_SAME = 1e-9
"""Scores that differ by less say nothing of a slope."""

NOTHING = 1e-6
"""Rows, or rows/s, that are none: what smoothing leaves of a backlog that has gone."""


@dataclass(frozen=True, slots=True)
class ScoredTrial:
    """A number of instances, and the score that it had.

    Attributes:
        instances: x; 0 has score 0 without being tried.
        score: f(x).
    """

    instances: float
    score: float


ORIGIN = ScoredTrial(0.0, 0.0)
"""Known without measuring: nothing is done by no instance."""


@dataclass(frozen=True, slots=True)
class SecantStep:
    """A proposal, not yet rounded or limited, and the rule that made it."""

    instances: float
    rule: str


def paper_score(
    instances: float, rate: float, backlog_each: float, arriving: float, waiting: float, weight: float = 0.5
) -> float | None:
    """The paper's score f: 1 is just enough, less is too few instances.

    A term whose measure is 0 is void and drops out; the other one then weighs all. None: both are void, the stage is idle.

    Args:
        instances: x.
        rate: r, rows/s that one instance adds.
        backlog_each: q, waiting rows that one instance may hold.
        arriving: R, rows/s.
        waiting: Q, rows.
        weight: α of the rates, 0 … 1.

    Source: [AgileDART] IV-C, the health score.
    """
    terms = []
    if arriving > NOTHING and weight > 0:
        terms.append((weight, instances * rate / arriving))
    if waiting > NOTHING and weight < 1:
        terms.append((1 - weight, instances * backlog_each / waiting))
    total = sum(share for share, _ in terms)
    return sum(share * need for share, need in terms) / total if terms else None


def need_score(capacity: float, offered: float, backlog: float, drain_s: float, busy_share: float) -> float | None:
    """Share of the rows due within `drain_s` that can be done at a busy share; 1 is just enough. None: nothing is due.

    Args:
        capacity: C, rows/s of all instances.
        offered: R, rows/s.
        backlog: Q, rows.
        drain_s: T, seconds in which the backlog shall be gone.
        busy_share: ρ, 0 … 1.

    Departs: [AgileDART] IV-C takes a weighted mean of two scores, in which the smaller need hides the larger one: while
    the backlog is small it asks for less capacity than arrives. Here the needs are added.
    """
    due = offered + backlog / drain_s
    return busy_share * capacity / due if due > NOTHING else None


def secant_step(now: ScoredTrial, before: ScoredTrial, target: float = 1.0) -> SecantStep:
    """Where the line through two trials has the target.

    Two trials that say nothing of the slope (one number, one score, or a score that falls as instances are added) leave the line
    from the origin, which is the proportional rule; a score of 0 leaves one instance more.

    Source: [AgileDART] IV-C, the secant method.
    """
    run, rise = now.instances - before.instances, now.score - before.score
    if run and abs(rise) > NEARLY_SAME and run * rise > 0:
        rule = "proportional" if before == ORIGIN else "secant"
        return SecantStep(now.instances + (target - now.score) * run / rise, rule)
    if now.score > 0:
        return SecantStep(now.instances * target / now.score, "proportional")
    return SecantStep(now.instances + 1, "one more")
