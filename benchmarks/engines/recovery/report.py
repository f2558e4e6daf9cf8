"""What the turns say beside the goal: medians of engines, ratios within rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from benchmarks.engines.pairing import ratios, spread
from benchmarks.engines.recovery.failure_runs import FailureRun, RecoveryLoad

OURS: Final = "ours"
BOUND: Final = 0.5
"""Ours ÷ Flink, of seconds and of CPU time, by the median of the rounds."""

COMPARED: Final = ("next_result_s", "committed_s", "cpu_s", "steady_cores")
WORDS: Final = {
    "next_result_s": "seconds to the next result",
    "committed_s": "seconds to the first checkpoint after it",
    "cpu_s": "CPU seconds from the failure",
    "steady_cores": "cores before the failure",
}


@dataclass(frozen=True)
class GoalResult:
    """A goal and what was found."""

    what: str
    found: float
    bound: float
    met: bool


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that so many of them do not exceed; of few values the largest."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def values(turns: Sequence[FailureRun], engine: str, figure: str) -> dict[int, float]:
    """A figure of each round in which the engine had a turn."""
    return {turn.number: getattr(turn.strike, figure) for turn in turns if turn.engine == engine}


def engines(turns: Sequence[FailureRun]) -> list[str]:
    """Ours first, others as they came."""
    return sorted(dict.fromkeys(turn.engine for turn in turns), key=lambda name: name != OURS)


def summary(turns: Sequence[FailureRun], engine: str) -> dict[str, Any]:
    """Medians, and the 95th percentile of what is waited for."""
    found: dict[str, Any] = {"turns": len([turn for turn in turns if turn.engine == engine])}
    for figure in COMPARED:
        of_rounds = list(values(turns, engine, figure).values())
        middle = spread(of_rounds)
        assert middle is not None
        found[figure] = {"median": round(middle.median, 3), "p95": percentile(of_rounds, 0.95)}
    theirs = [turn for turn in turns if turn.engine == engine]
    repeated = spread(turn.twice for turn in theirs)
    assert repeated is not None
    return {
        **found,
        "lost": sum(turn.lost for turn in theirs),
        "twice": {"median": repeated.median, "all": sum(t.twice for t in theirs)},
    }


def compared(turns: Sequence[FailureRun]) -> dict[str, dict[str, dict[str, float]]]:
    """Ours ÷ each other engine, by figure: median and quartiles of the rounds that have both."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for engine in engines(turns):
        for figure in COMPARED if engine != OURS else ():
            of_rounds = spread(ratios(values(turns, OURS, figure), values(turns, engine, figure)))
            if of_rounds is not None:
                found.setdefault(engine, {})[figure] = of_rounds.plain()
    return found


def evaluated(turns: Sequence[FailureRun]) -> list[GoalResult]:
    """The goals; those of ratios only where both were measured."""
    found = [
        GoalResult(f"{WORDS[figure]}, ours ÷ {engine}", one[figure]["median"], BOUND, one[figure]["median"] <= BOUND)
        for engine, one in compared(turns).items()
        for figure in ("next_result_s", "cpu_s")
    ]
    ours = [turn for turn in turns if turn.engine == OURS]
    if ours:
        found.append(_none("rows of ours that are lost", sum(turn.lost for turn in ours)))
        found.append(_none("rows of ours that come twice", sum(turn.twice for turn in ours)))
    return found


def _none(what: str, count: int) -> GoalResult:
    return GoalResult(what, count, 0, count == 0)


def as_json(
    load: RecoveryLoad, about: Mapping[str, Any], turns: Sequence[FailureRun], failed: Sequence[str]
) -> dict[str, Any]:
    """Everything."""
    return {
        **about,
        "job": {**asdict(load), "state_bytes": load.keys * (load.padding_bytes + 14)},
        "engines": {engine: summary(turns, engine) for engine in engines(turns)},
        "ratios": compared(turns),
        "goals": [asdict(goal) for goal in evaluated(turns)],
        "failed": list(failed),
        "turns": [
            {
                "engine": one.engine,
                "round": one.number,
                **asdict(one.strike),
                "rows": one.rows,
                "lost": one.lost,
                "twice": one.twice,
            }
            for one in turns
        ],
    }


def as_text(turns: Sequence[FailureRun], failed: Sequence[str]) -> str:
    """For people."""
    heads = (
        ("next result s", 15),
        ("p95", 8),
        ("committed s", 13),
        ("repeated", 10),
        ("lost", 6),
        ("CPU s", 8),
        ("cores before", 14),
    )
    lines = [f"{'engine':16}{'turns':>6}" + "".join(f"{head:>{width}}" for head, width in heads)]
    for engine in engines(turns):
        one = summary(turns, engine)
        lines.append(
            f"{engine:16}{one['turns']:>6}{one['next_result_s']['median']:>15.2f}{one['next_result_s']['p95']:>8.2f}"
            f"{one['committed_s']['median']:>13.2f}{one['twice']['median']:>10.0f}{one['lost']:>6}"
            f"{one['cpu_s']['median']:>8.1f}{one['steady_cores']['median']:>14.2f}"
        )
    lines += [
        "",
        *(
            f"{'met   ' if one.met else 'MISSED'} {one.what}: {one.found:.2f} (at most {one.bound:g})"
            for one in evaluated(turns)
        ),
    ]
    return "\n".join([*lines, *(f"failed: {text}" for text in failed)])
