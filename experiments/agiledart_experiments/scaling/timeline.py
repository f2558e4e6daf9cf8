"""What a timeline of a stage says: how soon it was stable, and when more instances were no help. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

ENOUGH = 0.9
"""A health score from here on leaves a policy alone: the lower edge of its dead band."""

NO_HELP = 1.1
"""More instances that do not bring so many times as many rows are none: something else is short."""


@dataclass(frozen=True, slots=True)
class StageSample:
    """What was seen of a stage at one time.

    Attributes:
        second: since the timeline began.
        instances: of the stage.
        score: its health score; None: nothing is due, or nobody knows.
        rows_a_second: that it took since the look before; None: nobody knows.
        nodes: on which it has instances.
    """

    second: float
    instances: int
    score: float | None
    rows_a_second: float | None = None
    nodes: int = 1


def seconds_to_stable(looks: Sequence[StageSample]) -> float | None:
    """From the first look that finds too little to the first from which on there is enough and the number stays as it is.

    None: it never had too little, or was not stable at the end.
    """
    span = _unstable(looks)
    return None if span is None else round(span[1] - span[0], 1)


def stays(looks: Sequence[StageSample], seconds: float) -> bool:
    """Has it had too little, and been stable since for so long?"""
    span = _unstable(looks)
    return span is not None and looks[-1].second - span[1] >= seconds


def _unstable(looks: Sequence[StageSample]) -> tuple[float, float] | None:
    """Seconds of the first look that finds too little, and of the first from which on all is well; None without either."""
    short = next((n for n, look in enumerate(looks) if _is_short(look)), None)
    if short is None:
        return None
    last = max(
        n for n, look in enumerate(looks) if n >= short and (_is_short(look) or look.instances != looks[-1].instances)
    )
    return (looks[short].second, looks[last + 1].second) if last + 1 < len(looks) else None


def _is_short(look: StageSample) -> bool:
    return look.score is not None and look.score < ENOUGH


def helped(before: float, after: float) -> bool:
    """Did more instances bring more rows a second?"""
    return after >= NO_HELP * before


def rate_between(looks: Sequence[StageSample], start: float, end: float) -> float:
    """Median of the rows a second that were seen in a span of time; 0.0 where none were."""
    seen = sorted(look.rows_a_second for look in looks if start <= look.second < end and look.rows_a_second is not None)
    return seen[len(seen) // 2] if seen else 0.0
