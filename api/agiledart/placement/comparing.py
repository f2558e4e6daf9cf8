"""Comparison of strategies on one request, with one objective, over one seed or many."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

from agiledart.placement.running import PlacementOptions, PlacementResult, place, resolved
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.version import VERSION
from agiledart_placement.evaluation.terms import minimised
from agiledart_placement.files.result_file import COMPARISON_FORMAT
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import PlacementRequest
from agiledart_placement.registry import ALL_STRATEGIES, ENTRIES


@dataclass(frozen=True, slots=True)
class Comparison:
    """Results of several strategies, for one seed after the other.

    Attributes:
        results: of all strategies and seeds.
        parameters: inputs of the results.
    """

    results: tuple[PlacementResult, ...]
    parameters: dict[str, Any]

    def document(self) -> dict[str, Any]:
        """Return the comparison as a document `agiledart-comparison/1`."""
        return {
            "format": COMPARISON_FORMAT,
            "parameters": self.parameters,
            "rows": [result.document() for result in self.results],
            "summary": summary(self),
        }


def compare(
    request: PlacementRequest,
    strategies: Sequence[str] = (),
    options: PlacementOptions | None = None,
    seeds: Sequence[int] = (1,),
    progress: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Run strategies on one request; all are judged by one objective, the score unless another is given.

    Args:
        request: from `joined_request`.
        strategies: names; empty: all shipped ones.
        options: as for `place`; its seed is not used.
        seeds: each strategy runs once for each.
        progress: called with a short text before each run.

    Raises:
        ConfigurationError: the request, the objective or a name is wrong.
    """
    options = options or PlacementOptions()
    objective = options.objective or Objective("score")
    if objective.name == "weighted":
        objective = resolved(Problem(replace(request, objective=objective)), objective)
    results = []
    for seed in seeds:
        for name in strategies or ALL_STRATEGIES:
            progress(f"{name}, seed {seed}")
            only = ENTRIES[name].objectives if name in ENTRIES else ()
            aim = Objective(only[0]) if only and objective.name not in only else objective
            run = replace(options, objective=aim, seed=seed)
            try:
                results.append(_by_objective(place(request, name, run), objective))
            except ConfigurationError as error:
                if name in strategies and name not in ENTRIES:
                    raise
                results.append(
                    PlacementResult(name, Problem(replace(request, seed=seed)), objective, skipped=str(error))
                )
    parameters = {
        "version": VERSION,
        "objective": {"name": objective.name, "weights": dict(objective.weights), "ranges": dict(objective.ranges)},
        "seeds": list(seeds),
        "time_limit_s": options.time_limit_s,
        "formulation": options.formulation,
        "nodes": len(request.hosts),
        "operators": [[stage.name, stage.parallelism] for stage in request.stages],
    }
    return Comparison(tuple(results), parameters)


def _by_objective(result: PlacementResult, objective: Objective) -> PlacementResult:
    """Return a result judged by the objective of the comparison, whatever the strategy aimed at."""
    if result.objective == objective or result.placement is None or result.evaluation is None:
        return result
    from agiledart_placement.evaluation.evaluator import evaluate

    evaluation = evaluate(result.problem, result.placement.nodes, objective)
    return replace(result, objective=objective, evaluation=evaluation, ranges=dict(objective.ranges))


def summary(comparison: Comparison) -> list[dict[str, Any]]:
    """Return, for each strategy, mean and 95 % interval of the value, its share of the best, wins, time and evaluations.

    A strategy wins a seed when no other has a better feasible value; ties count for all. `of_best` is the mean of its value ÷ the
    best value of the seed. The interval is that of the normal distribution; None for one seed.
    """
    results = comparison.results
    values = {id(result): _value(result) for result in results}
    seeds = dict.fromkeys(result.problem.request.seed for result in results)
    best = {}
    for seed in seeds:
        known = [values[id(r)] for r in results if r.problem.request.seed == seed]
        best[seed] = min((value for value in known if value is not None), default=None)
    rows = []
    for name in dict.fromkeys(result.strategy for result in results):
        own = [result for result in results if result.strategy == name]
        pairs = [(values[id(r)], best[r.problem.request.seed]) for r in own]
        both = [(value, least) for value, least in pairs if value is not None and least is not None]
        column = [value for value, _ in both]
        mean = sum(column) / len(column) if column else None
        wins = sum(value <= least + 1e-9 * max(1.0, abs(least)) for value, least in both)
        ratios = [value / least for value, least in both if least > 0]
        objective = own[0].objective.name
        rows.append(
            {
                "strategy": name,
                "runs": len(own),
                "feasible": len(column),
                "mean": None if mean is None else _shown(objective, mean),
                "interval_95": _interval(column),
                "of_best": sum(ratios) / len(ratios) if ratios and len(ratios) == len(both) else None,
                "wins": wins,
                "seconds_mean": sum(result.seconds for result in own) / len(own),
                "skipped": own[0].skipped,
            }
        )
    return rows


def _value(result: PlacementResult) -> float | None:
    """Return the value of a feasible result so that less is better; None: it is not feasible."""
    if not result.is_feasible or result.evaluation is None:
        return None
    return _minimised(result.objective.name, result.evaluation.value)


def _minimised(name: str, value: float) -> float:
    return -value if name == "weighted" else minimised(name, value)


def _shown(name: str, value: float) -> float:
    return _minimised(name, value)


def _interval(values: Sequence[float]) -> float | None:
    """Return half the width of the 95 % interval of a mean; None for fewer than two values."""
    count = len(values)
    if count < 2:
        return None
    mean = sum(values) / count
    return 1.96 * sqrt(sum((value - mean) ** 2 for value in values) / (count - 1) / count)
