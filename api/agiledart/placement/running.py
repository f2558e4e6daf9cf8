"""Run one strategy on one request: objective, time limit, isolation, evaluation; an error of a strategy becomes a reason."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agiledart.placement.isolation import IsolatedFailure, run_isolated
from agiledart.placement.name_ring import with_paths
from agiledart.placement.user_strategies import is_users, load_strategy
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_placement.evaluation.evaluator import Evaluation, Violation, evaluate, shortfalls
from agiledart_placement.files.result_file import result_document
from agiledart_placement.local_search.payoff import payoff_ranges
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement, PlacementRequest, SearchReport
from agiledart_placement.registry import ENTRIES

GRACE_S = 1.0
"""The command ends a strategy in a process of its own at the limit and this second."""

DEFAULT_LIMIT_S = 60.0
"""Time limit of strategies that run in a process of their own, when none is given."""

MEMORY_BYTES = 4 * 2**30


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """Outcome of one strategy.

    Attributes:
        strategy: its name.
        problem: the request as arrays.
        objective: the aim.
        placement, evaluation: None: the strategy found none.
        shortfall: constraints that no placement can meet, or the reason of the strategy.
        ranges: metric → range of the normalised terms of `weighted`, as users see them.
        seconds: wall time.
        skipped: why the strategy could not run; None: it ran.
    """

    strategy: str
    problem: Problem
    objective: Objective
    placement: Placement | None = None
    evaluation: Evaluation | None = None
    shortfall: tuple[Violation, ...] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    seconds: float = 0.0
    skipped: str | None = None

    @property
    def is_feasible(self) -> bool:
        """Return whether there is a placement that breaks no constraint."""
        return self.evaluation is not None and self.evaluation.is_feasible

    def document(self) -> dict[str, Any]:
        """Return the result as a document `agiledart-placement/1`."""
        return result_document(
            self.strategy,
            self.problem,
            self.objective,
            placement=self.placement,
            evaluation=self.evaluation,
            shortfall=self.shortfall,
            ranges=self.ranges,
            seconds=self.seconds,
            skipped=self.skipped,
        )


@dataclass(frozen=True, slots=True)
class PlacementOptions:
    """Settings of a run.

    Args:
        objective: None: the default of each strategy.
        time_limit_s: None: searches run to their own end, and repeat.
        seed: of all random choices.
        formulation: of the integer programme: `cuts`, `plain` or `standard`.
        is_isolated: run users' strategies in a process of their own.
    """

    objective: Objective | None = None
    time_limit_s: float | None = None
    seed: int = 1
    formulation: str = "cuts"
    is_isolated: bool = True


def place(request: PlacementRequest, strategy: str, options: PlacementOptions | None = None) -> PlacementResult:
    """Place all instances with one strategy, and judge the result.

    Args:
        request: from `joined_request`.
        strategy: name of a shipped one or of a package, or `FILE.py:CLASS`.
        options: see `PlacementOptions`.

    Raises:
        ConfigurationError: the strategy, the objective or the request is wrong. Failures inside a strategy are in the result.
    """
    options = options or PlacementOptions()
    usual = ENTRIES[strategy].objective if strategy in ENTRIES else "score"
    objective = options.objective or Objective(usual)
    request = replace(request, objective=objective, seed=options.seed)
    problem = Problem(request)
    if objective.name == "weighted":
        objective = resolved(problem, objective)
        request = replace(request, objective=objective)
        problem = Problem(request)
    check_request(problem, objective)
    if strategy in ENTRIES and (only := ENTRIES[strategy].objectives) and objective.name not in only:
        reason = f"{strategy} follows {', '.join(only)} only"
        return PlacementResult(strategy, problem, objective, skipped=reason)
    if problem.emptied_by:
        return PlacementResult(strategy, problem, objective, shortfall=tuple(shortfalls(problem)))
    started = time.monotonic()
    try:
        placement = _run(request, problem, strategy, options)
    except OperationFailed as error:
        reasons = tuple(shortfalls(problem)) or ({"kind": "strategy", "reason": str(error)},)
        return PlacementResult(strategy, problem, objective, shortfall=reasons, seconds=time.monotonic() - started)
    except IsolatedFailure as error:
        return PlacementResult(strategy, problem, objective, skipped=str(error), seconds=time.monotonic() - started)
    seconds = time.monotonic() - started
    ranges = dict(objective.ranges)
    if not placement.nodes and problem.instances:
        return PlacementResult(
            strategy,
            problem,
            objective,
            placement,
            shortfall=tuple(shortfalls(problem)),
            ranges=ranges,
            seconds=seconds,
        )
    try:
        evaluation = evaluate(problem, placement.nodes, objective)
    except ConfigurationError as error:
        return PlacementResult(strategy, problem, objective, skipped=str(error), seconds=seconds)
    return PlacementResult(strategy, problem, objective, placement, evaluation, ranges=ranges, seconds=seconds)


def resolved(problem: Problem, objective: Objective) -> Objective:
    """Return a weighted objective with a range for every metric: given ones, and those of the pay-off table."""
    missing = [name for name, weight in objective.weights.items() if weight and name not in objective.ranges]
    ranges = (
        {
            **payoff_ranges(problem, missing, [name for name, weight in objective.weights.items() if weight]),
            **objective.ranges,
        }
        if missing
        else dict(objective.ranges)
    )
    return replace(objective, ranges=ranges)


def check_request(problem: Problem, objective: Objective) -> None:
    """Check what no strategy can repair. Raises ConfigurationError: a pair without link, a price or watts that is missing."""
    from agiledart_placement.evaluation.terms import metric_terms

    for name in objective.weights or (objective.name,):
        metric_terms(problem, name)
    if problem.nodes:
        assert len(problem.delay) == len(problem.nodes)


def deadline(limit_s: float | None) -> Callable[[], bool]:
    """Return a function that says whether this many seconds have passed; None: never."""
    if limit_s is None:
        return lambda: False
    end = time.monotonic() + limit_s
    return lambda: time.monotonic() >= end


def _run(request: PlacementRequest, problem: Problem, strategy: str, options: PlacementOptions) -> Placement:
    if strategy == "along_path":
        request = with_paths(request)
    limit = options.time_limit_s
    if strategy == "odp":
        return _run_odp(request, options)
    if is_users(strategy) and options.is_isolated:
        within = DEFAULT_LIMIT_S if limit is None else limit
        answer = run_isolated(_call_strategy, (strategy, request, within), within + GRACE_S, MEMORY_BYTES)
        return _checked_answer(answer, strategy)
    request = replace(request, time_is_up=deadline(limit))
    return _checked_answer(load_strategy(strategy).place(request), strategy)


def _call_strategy(strategy: str, request: PlacementRequest, limit_s: float) -> object:
    """Run a strategy in this process, which is its own."""
    return load_strategy(strategy).place(replace(request, time_is_up=deadline(limit_s)))


def _checked_answer(answer: object, strategy: str) -> Placement:
    if not isinstance(answer, Placement):
        raise IsolatedFailure(f"strategy {strategy} returned {type(answer).__name__} instead of Placement")
    return answer


def _run_odp(request: PlacementRequest, options: PlacementOptions) -> Placement:
    """Solve the integer programme in a process of its own; when it does not end in time, return its heuristic start."""
    from agiledart_placement.integer_programme.odp import heuristic_start, require_solver

    require_solver()
    limit = DEFAULT_LIMIT_S if options.time_limit_s is None else options.time_limit_s
    began = time.monotonic()
    start = heuristic_start(replace(request, time_is_up=deadline(min(1.0, limit / 4))))
    left = max(0.1, limit - (time.monotonic() - began))
    try:
        answer = run_isolated(_solve_odp, (request, start, options.formulation, left), left + GRACE_S / 2, MEMORY_BYTES)
    except IsolatedFailure as error:
        report = SearchReport(
            "time_limit", notes=(f"HiGHS gave no answer: {error}; this is the heuristic's placement",)
        )
        if start is None:
            raise
        return Placement(start, search=report)
    return _checked_answer(answer, "odp")


def _solve_odp(
    request: PlacementRequest, start: Mapping[tuple[int, int], Any] | None, formulation: str, limit_s: float
) -> object:
    from agiledart_placement.integer_programme.odp import Odp

    end = time.monotonic() + limit_s
    return Odp(formulation, known=start, seconds_left=lambda: end - time.monotonic()).place(request)
