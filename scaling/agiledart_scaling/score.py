"""Health scores of a stage, and the secant step from one number of instances to the next."""

from dataclasses import dataclass

NEARLY_SAME = 1e-9
"""Scores that differ by less give no slope."""

NOTHING = 1e-6
"""Rows, or rows/s, that count as none: smoothing leaves such a rest of a backlog that has gone."""


@dataclass(frozen=True, slots=True)
class ScoredTrial:
    """Number of instances with the score that was measured for it.

    Attributes:
        instances: x; 0 has score 0 without being tried.
        score: f(x).
    """

    instances: float
    score: float


ORIGIN = ScoredTrial(0.0, 0.0)
"""Trial that is known without measuring: no instance does no work."""


@dataclass(frozen=True, slots=True)
class SecantStep:
    """Proposed number of instances, neither rounded nor limited, with the rule that gave it."""

    instances: float
    rule: str


def paper_score(
    instances: float, rate: float, backlog_each: float, arriving: float, waiting: float, weight: float = 0.5
) -> float | None:
    """Return the paper's score f: 1 is just enough, a lower score means too few instances.

    A term whose measure is 0 is void and drops out; the other one then has the whole weight. None: both are void, the stage is
    idle.

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
    """Return the share of the rows due within `drain_s` that the stage can process at a busy share; 1 is just enough.

    None: no rows are due.

    Args:
        capacity: C, rows/s of all instances.
        offered: R, rows/s.
        backlog: Q, rows.
        drain_s: T, seconds within which the backlog must be gone.
        busy_share: ρ, 0 … 1.

    Departs: [AgileDART] IV-C takes a weighted mean of two scores, in which the smaller need hides the larger one: while
    the backlog is small it asks for less capacity than arrives. Here the needs are added.
    """
    due = offered + backlog / drain_s
    return busy_share * capacity / due if due > NOTHING else None


def secant_step(now: ScoredTrial, before: ScoredTrial, target: float = 1.0) -> SecantStep:
    """Return the number of instances at which the line through two trials reaches the target.

    Two trials may give no slope: the same number, the same score, or a score that falls as instances are added. Then the line
    from the origin counts, which is the proportional rule; a score of 0 gives one instance more.

    Source: [AgileDART] IV-C, the secant method.
    """
    run, rise = now.instances - before.instances, now.score - before.score
    if run and abs(rise) > NEARLY_SAME and run * rise > 0:
        rule = "proportional" if before == ORIGIN else "secant"
        return SecantStep(now.instances + (target - now.score) * run / rise, rule)
    if now.score > 0:
        return SecantStep(now.instances * target / now.score, "proportional")
    return SecantStep(now.instances + 1, "one more")
