"""Results of the runs compared with the goals: medians of engines, ratios within rounds."""

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
    """A goal and the measured value."""

    what: str
    found: float
    bound: float
    met: bool


def percentile(values: Sequence[float], share: float) -> float:
    """Return the least value that this share of the values does not exceed; of few values the largest."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def values(runs: Sequence[FailureRun], engine: str, figure: str) -> dict[int, float]:
    """Return a figure for each round in which the engine had a turn."""
    return {turn.number: getattr(turn.strike, figure) for turn in runs if turn.engine == engine}


def engines(runs: Sequence[FailureRun]) -> list[str]:
    """Return the names of the engines: ours first, the others in order of appearance."""
    return sorted(dict.fromkeys(turn.engine for turn in runs), key=lambda name: name != OURS)


def summary(runs: Sequence[FailureRun], engine: str) -> dict[str, Any]:
    """Return medians, and the 95th percentile of waiting times."""
    figures: dict[str, Any] = {"runs": len([turn for turn in runs if turn.engine == engine])}
    for figure in COMPARED:
        of_rounds = list(values(runs, engine, figure).values())
        middle = spread(of_rounds)
        assert middle is not None
        figures[figure] = {"median": round(middle.median, 3), "p95": percentile(of_rounds, 0.95)}
    theirs = [turn for turn in runs if turn.engine == engine]
    repeated = spread(turn.twice for turn in theirs)
    assert repeated is not None
    return {
        **figures,
        "lost": sum(turn.lost for turn in theirs),
        "twice": {"median": repeated.median, "all": sum(t.twice for t in theirs)},
    }


def compared(runs: Sequence[FailureRun]) -> dict[str, dict[str, dict[str, float]]]:
    """Return ours ÷ each other engine, by figure: median and quartiles of the rounds that have both."""
    spreads: dict[str, dict[str, dict[str, float]]] = {}
    for engine in engines(runs):
        for figure in COMPARED if engine != OURS else ():
            of_rounds = spread(ratios(values(runs, OURS, figure), values(runs, engine, figure)))
            if of_rounds is not None:
                spreads.setdefault(engine, {})[figure] = of_rounds.plain()
    return spreads


def evaluated(runs: Sequence[FailureRun]) -> list[GoalResult]:
    """Return the goals; goals of ratios only where both engines were measured."""
    results = [
        GoalResult(
            f"{WORDS[figure]}, ours ÷ {engine}", ratios[figure]["median"], BOUND, ratios[figure]["median"] <= BOUND
        )
        for engine, ratios in compared(runs).items()
        for figure in ("next_result_s", "cpu_s")
    ]
    ours = [turn for turn in runs if turn.engine == OURS]
    if ours:
        results.append(_none("rows of ours that are lost", sum(turn.lost for turn in ours)))
        results.append(_none("rows of ours that come twice", sum(turn.twice for turn in ours)))
    return results


def _none(what: str, count: int) -> GoalResult:
    return GoalResult(what, count, 0, count == 0)


def as_json(
    load: RecoveryLoad, about: Mapping[str, Any], runs: Sequence[FailureRun], failed: Sequence[str]
) -> dict[str, Any]:
    """Return all results for JSON."""
    return {
        **about,
        "job": {**asdict(load), "state_bytes": load.keys * (load.padding_bytes + 14)},
        "engines": {engine: summary(runs, engine) for engine in engines(runs)},
        "ratios": compared(runs),
        "goals": [asdict(goal) for goal in evaluated(runs)],
        "failed": list(failed),
        "runs": [
            {
                "engine": turn.engine,
                "round": turn.number,
                **asdict(turn.strike),
                "rows": turn.rows,
                "lost": turn.lost,
                "twice": turn.twice,
            }
            for turn in runs
        ],
    }


def as_text(runs: Sequence[FailureRun], failed: Sequence[str]) -> str:
    """Return the results as tables."""
    heads = (
        ("next result s", 15),
        ("p95", 8),
        ("committed s", 13),
        ("repeated", 10),
        ("lost", 6),
        ("CPU s", 8),
        ("cores before", 14),
    )
    lines = [f"{'engine':16}{'runs':>6}" + "".join(f"{head:>{width}}" for head, width in heads)]
    for engine in engines(runs):
        figures = summary(runs, engine)
        lines.append(
            f"{engine:16}{figures['runs']:>6}{figures['next_result_s']['median']:>15.2f}{figures['next_result_s']['p95']:>8.2f}"
            f"{figures['committed_s']['median']:>13.2f}{figures['twice']['median']:>10.0f}{figures['lost']:>6}"
            f"{figures['cpu_s']['median']:>8.1f}{figures['steady_cores']['median']:>14.2f}"
        )
    lines += [
        "",
        *(
            f"{'met   ' if result.met else 'MISSED'} {result.what}: {result.found:.2f} (at most {result.bound:g})"
            for result in evaluated(runs)
        ),
    ]
    return "\n".join([*lines, *(f"failed: {text}" for text in failed)])
