"""Analysis of a stage's timeline: how soon it was stable, and when more instances did not help. All functions are pure."""

from collections.abc import Sequence
from dataclasses import dataclass

ENOUGH = 0.9
"""Least health score at which a policy takes no action: the lower edge of its dead band."""

NO_HELP = 1.1
"""Least factor on the rows a second by which more instances count as help; below it another resource is short."""


@dataclass(frozen=True, slots=True)
class StageSample:
    """Sample of a stage at one time.

    Attributes:
        second: seconds since the timeline began.
        instances: number of instances.
        score: health score; None: no rows are due, or the score is unknown.
        rows_a_second: rows a second that the stage took since the sample before; None: unknown.
        nodes: number of nodes with instances.
    """

    second: float
    instances: int
    score: float | None
    rows_a_second: float | None = None
    nodes: int = 1


def seconds_to_stable(looks: Sequence[StageSample]) -> float | None:
    """Return the seconds from the first sample with a low score to the first with lasting stability.

    A stage is stable while its score suffices and its number of instances stays. None: its score was never low, or it was not
    stable at the end.
    """
    span = _unstable(looks)
    return None if span is None else round(span[1] - span[0], 1)


def stays(looks: Sequence[StageSample], seconds: float) -> bool:
    """Return whether the score was low once, and the stage has been stable since for `seconds` seconds."""
    span = _unstable(looks)
    return span is not None and looks[-1].second - span[1] >= seconds


def _unstable(looks: Sequence[StageSample]) -> tuple[float, float] | None:
    """Return the seconds of the first sample with a low score and of the first stable one; None when either is missing.

    A sample without a score is not stable: the rate of an instance may be unknown because it is stuck.
    """
    short = next((n for n, look in enumerate(looks) if _is_short(look)), None)
    if short is None:
        return None
    last = max(
        n
        for n, look in enumerate(looks)
        if n >= short and (look.score is None or _is_short(look) or look.instances != looks[-1].instances)
    )
    return (looks[short].second, looks[last + 1].second) if last + 1 < len(looks) else None


def _is_short(look: StageSample) -> bool:
    return look.score is not None and look.score < ENOUGH


def helped(before: float, after: float) -> bool:
    """Return whether more instances increased the rows a second."""
    return after >= NO_HELP * before


def rate_between(looks: Sequence[StageSample], start: float, end: float) -> float:
    """Return the median of the rows a second sampled in a time span; 0.0 without samples."""
    seen = sorted(look.rows_a_second for look in looks if start <= look.second < end and look.rows_a_second is not None)
    return seen[len(seen) // 2] if seen else 0.0
