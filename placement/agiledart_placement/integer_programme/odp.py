"""Optimal placement (ODP): the integer programme solved by HiGHS, from a heuristic start, with ties broken.

Source: spec of placement §2, Cardellini et al.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import inf, isqrt
from typing import TYPE_CHECKING, Any

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.node_id import NodeId
from agiledart_placement.evaluation.movable_assignment import MovableAssignment, path_ends
from agiledart_placement.evaluation.terms import Terms, metric_terms
from agiledart_placement.integer_programme.model import (
    FORMULATIONS,
    ColumnLayout,
    PlacementProgramme,
    with_ordered_twins,
)
from agiledart_placement.integer_programme.response_bounds import least_response, longest_execution
from agiledart_placement.local_search.hill_climbing import HillClimbing, terms_of
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement, PlacementRequest, SearchReport

if TYPE_CHECKING:
    from agiledart_placement.integer_programme.model import Numbers

MOST_PAIRS = 20_000
RELATIVE_TOLERANCE = 1e-6
TIE_BREAKERS = ("availability", "response", "usage")
"""Metrics that decide between optima, in this order; then the fewest moves from the present placement."""

START_TRIALS = 20_000


def require_solver() -> None:
    """Check that HiGHS is installed. Raises ConfigurationError, which says how to install it."""
    if find_spec("highspy") is None or find_spec("numpy") is None:
        raise ConfigurationError('odp needs HiGHS: pip install "agiledart[placement]"')


def heuristic_start(request: PlacementRequest) -> Mapping[tuple[int, int], NodeId] | None:
    """Return a feasible placement by hill climbing, or the present one if it is feasible and better; None: none is known."""
    problem = Problem(request)
    if problem.emptied_by or not problem.instances:
        return None
    terms = terms_of(problem)
    known = [HillClimbing().place(replace(request, start=None)).nodes]
    if request.start:
        known.append(HillClimbing().place(request).nodes)
    states = [MovableAssignment(problem, terms, problem.where_of(nodes)) for nodes in known]
    best = min(states, key=lambda state: (state.excess, state.value()))
    return problem.placement(best.where).nodes if best.excess <= 0 else None


@dataclass(frozen=True, slots=True)
class _Solution:
    """Answer of the solver: its status, node of each instance or None, bound, and gap."""

    status: str
    where: list[int] | None
    bound: float
    gap: float | None
    value: float


class Odp:
    """Placement strategy that solves the integer programme.

    Args:
        formulation: `cuts`, `plain` or `standard`.
        known: feasible placement to start from; None: hill climbing makes one.
        seconds_left: seconds until the search must end; the default has no end.
        breaks_ties: choose among optima by `TIE_BREAKERS`.
        most_pairs: y of the model; beyond that each instance keeps some candidates only.
        starts: use a start at all.
    """

    keeps_balance = False

    def __init__(
        self,
        formulation: str = "cuts",
        *,
        known: Mapping[tuple[int, int], NodeId] | None = None,
        seconds_left: Callable[[], float] = lambda: inf,
        breaks_ties: bool = True,
        most_pairs: int = MOST_PAIRS,
        starts: bool = True,
    ) -> None:
        if formulation not in FORMULATIONS:
            raise ConfigurationError(f"formulation {formulation!r}: use one of {', '.join(FORMULATIONS)}.")
        self._formulation, self._known, self._seconds_left = formulation, known, seconds_left
        self._breaks_ties, self._most_pairs, self._starts = breaks_ties, most_pairs, starts

    def place(self, request: PlacementRequest) -> Placement:
        """Return a node for every instance, an empty placement when there is none; see `PlacementStrategy.place`."""
        require_solver()
        problem = Problem(request)
        if not problem.instances:
            return problem.placement((), SearchReport("optimal"))
        if problem.emptied_by:
            return Placement({}, search=SearchReport("infeasible"))
        known = self._known
        if known is None and self._starts:
            known = heuristic_start(request)
        start = problem.where_of(known) if known is not None else None
        candidates = chosen_candidates(problem, start, self._most_pairs)
        is_sampled = any(len(a) < len(b) for a, b in zip(candidates, problem.candidates, strict=True))
        search = _Search(problem, ColumnLayout(problem, candidates), self._formulation, start, self._seconds_left)
        solution = search.best(breaks_ties=self._breaks_ties)
        notes = ("streams that lead backward do not count in the response time",) if problem.has_backward else ()
        objective = request.objective or Objective("score")
        bound = -solution.bound if objective.name in ("availability", "weighted") else solution.bound
        status = "sampled" if is_sampled and solution.status == "optimal" else solution.status
        report = SearchReport(
            status,
            bound if abs(bound) < inf and not is_sampled else None,
            solution.gap if not is_sampled else None,
            candidates=f"{max(map(len, candidates))} of {len(problem.nodes)}" if is_sampled else "all",
            seconds=search.seconds,
            notes=notes,
            figures={
                "variables_x": search.layout.variables_x,
                "variables_y": search.layout.variables_y,
                "rows": search.rows,
            },
        )
        if solution.where is None:
            if start is not None and status == "time_limit":
                return problem.placement(start, report)
            return Placement({}, search=report)
        return problem.placement(solution.where, report)


def chosen_candidates(problem: Problem, start: Sequence[int] | None, most_pairs: int) -> list[tuple[int, ...]]:
    """Return the candidates of each instance so that the model has at most `most_pairs` y.

    Each keeps its node in the start, then the nodes nearest to the hosts of its neighbours there.
    """
    pairs = dict.fromkeys((edge.above, edge.below) for edge in problem.edges)
    if sum(len(problem.candidates[a]) * len(problem.candidates[b]) for a, b in pairs) <= most_pairs:
        return list(problem.candidates)
    width = max(2, isqrt(most_pairs // len(pairs)))
    near: list[dict[int, bool]] = [{} for _ in problem.instances]
    for a, b in pairs:
        near[a][b] = near[b][a] = True
    chosen = []
    for i, nodes in enumerate(problem.candidates):
        if start is None:
            chosen.append(tuple(nodes[:width]))
            continue
        hosts = dict.fromkeys((start[i], *(start[j] for j in near[i])))
        rank = {u: (u != start[i], u not in hosts, sum(problem.delay[u][start[j]] for j in near[i]), u) for u in nodes}
        chosen.append(tuple(sorted(sorted(nodes, key=lambda u: rank[u])[:width])))
    return chosen


class _Search:
    """Solves one programme with HiGHS, once for the objective and once for each tie-breaker."""

    def __init__(
        self,
        problem: Problem,
        layout: ColumnLayout,
        formulation: str,
        start: Sequence[int] | None,
        seconds_left: Callable[[], float],
    ) -> None:
        import highspy
        import numpy

        self._highs, self._np = highspy, numpy
        self.problem, self.layout = problem, layout
        self._left = seconds_left
        self._programme = PlacementProgramme(problem, layout, formulation)
        self._terms = terms_of(problem)
        self.rows = len(self._programme.lower)
        self.seconds = 0.0
        execution = longest_execution(problem)
        self._least_response = least_response(problem) if formulation == "cuts" else execution
        self._constant = self._terms.response * execution
        """Part of the response time that no placement changes; without it the gap speaks of delays."""
        self._solver = self._loaded(start)

    def _loaded(self, start: Sequence[int] | None) -> Any:
        highspy, np, layout, programme = self._highs, self._np, self.layout, self._programme
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = layout.columns, self.rows
        cost, constant = programme.costs(self._terms)
        upper = np.ones(layout.columns)
        upper[layout.t :] = highspy.kHighsInf
        upper[programme.forbidden()] = 0.0
        lower = np.zeros(layout.columns)
        lower[layout.r] = self._least_response
        upper = np.where((cost == inf) & (np.arange(len(cost)) < layout.z), 0.0, upper)
        cost = np.where(cost == inf, 0.0, cost)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, lower, upper
        lp.offset_ = constant - self._constant
        lp.row_lower_ = np.array([-highspy.kHighsInf if low == -inf else low for low in programme.lower])
        lp.row_upper_ = np.array([highspy.kHighsInf if high == inf else high for high in programme.upper])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = programme.matrix()
        binary, continuous = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
        lp.integrality_ = [binary] * layout.variables_x + [continuous] * (layout.columns - layout.variables_x)
        solver = _quiet_solver()
        for option, value in (
            ("threads", 1),
            ("mip_rel_gap", RELATIVE_TOLERANCE),
            ("mip_abs_gap", 1e-9),
            ("random_seed", self.problem.request.seed % 2**31),
        ):
            solver.setOptionValue(option, value)
        solver.passModel(lp)
        if start is not None:
            self._set_start(solver, start, lp)
        return solver

    def _set_start(self, solver: Any, start: Sequence[int], lp: Any) -> None:
        start = with_ordered_twins(self.problem, start, self.layout.candidates)
        point = self._programme.point(start, lambda timed: path_ends(self.problem, start, with_execution=timed))
        if point is None:
            return
        is_response_alone = self._terms.response and not lp.col_cost_[: self.layout.r].any() and not self._terms.latency
        if is_response_alone:
            solver.changeColBounds(self.layout.r, self._least_response, point[self.layout.r] * (1 + 1e-9) + 1e-9)
        solution = self._highs.HighsSolution()
        solution.col_value = point.tolist()
        solver.setSolution(solution)

    def best(self, *, breaks_ties: bool) -> _Solution:
        """Return the solution of the objective, with ties broken when it is optimal and time is left."""
        first = self._solve(self._terms, constant=self._constant)
        if first.status != "optimal" or first.where is None or not breaks_ties:
            return first
        where, fixed = first.where, self._terms
        value = first.value
        objective = self.problem.request.objective or Objective("score")
        for name in TIE_BREAKERS:
            if name == objective.name or self._left() <= 0:
                continue
            terms = metric_terms(self.problem, name)
            if not self._can_differ(name):
                continue
            self._fix(fixed, value)
            self._set_objective(*self._programme.costs(terms))
            again = self._solve(terms, start=where)
            if again.status != "optimal" or again.where is None:
                break
            where, fixed, value = again.where, terms, again.value
        if self.problem.request.start and self._left() > 0:
            where = self._nearest_to_start(where, fixed, value)
        return replace(first, where=where)

    def _can_differ(self, name: str) -> bool:
        problem = self.problem
        if name != "availability":
            return True
        return bool(problem.link_log) or any(state.availability < 1 for state in problem.request.hosts.values())

    def _nearest_to_start(self, where: list[int], fixed: Terms, value: float) -> list[int]:
        """Return, among equal placements, the one that moves least from the present placement."""
        assert self.problem.request.start is not None
        present = self.problem.where_of(self.problem.request.start)
        cost = self._np.zeros(self.layout.columns)
        for i, u in enumerate(present):
            if u in self.layout.place[i]:
                cost[self.layout.x[i] + self.layout.place[i][u]] = -1.0
        self._fix(fixed, value)
        self._set_objective(cost, 0.0)
        again = self._solve(None, start=where)
        return again.where if again.status == "optimal" and again.where is not None else where

    def _fix(self, terms: Terms, value: float) -> None:
        cost, constant = self._programme.costs(terms)
        cost = self._np.where(cost == inf, 0.0, cost)
        columns = self._np.nonzero(cost)[0]
        if len(columns):
            most = value - constant + RELATIVE_TOLERANCE * max(1e-3, abs(value))
            self._solver.addRow(-self._highs.kHighsInf, most, len(columns), columns.astype("int32"), cost[columns])

    def _set_objective(self, cost: Numbers, constant: float) -> None:
        cost = self._np.where(cost == inf, 0.0, cost)
        self._solver.changeColsCost(len(cost), self._np.arange(len(cost), dtype="int32"), cost)
        self._solver.changeObjectiveOffset(constant)

    def _solve(self, terms: Terms | None, start: Sequence[int] | None = None, constant: float = 0.0) -> _Solution:
        solver, highspy = self._solver, self._highs
        left = self._left()
        if left < inf:
            solver.setOptionValue(
                "time_limit", solver.getRunTime() + max(0.01, left)
            )  # its clock runs through all solves
        if start is not None:
            solution = highspy.HighsSolution()
            point = self._programme.point(start, lambda timed: path_ends(self.problem, start, with_execution=timed))
            if point is not None:
                solution.col_value = point.tolist()
                solver.setSolution(solution)
        before = solver.getRunTime()
        solver.run()
        self.seconds += max(0.0, solver.getRunTime() - before)
        info, status = solver.getInfo(), solver.getModelStatus()
        if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
            return _Solution("infeasible", None, inf, None, inf)
        word = "optimal" if status == highspy.HighsModelStatus.kOptimal else "time_limit"
        bound = info.mip_dual_bound + constant
        if info.primal_solution_status != 2:
            return _Solution(word, None, bound, None, inf)
        values = self._np.asarray(solver.getSolution().col_value)
        where = []
        for first, nodes in zip(self.layout.x, self.layout.candidates, strict=True):
            where.append(nodes[int(self._np.argmax(values[first : first + len(nodes)]))])
        value = MovableAssignment(self.problem, terms, where).value() if terms is not None else 0.0
        varying = abs(value - constant)
        gap = max(0.0, value - bound) / varying if varying > 1e-9 else max(0.0, value - bound)
        return _Solution(word, where, bound, gap, value)


def _quiet_solver() -> Any:
    """Return a solver that prints nothing; its constructor would print a banner before an option can say so."""
    import highspy

    made: Any = type("QuietHighs", (highspy.Highs,), {"enableCallbacks": _silence})
    return made()


def _silence(solver: Any) -> None:
    """Turn output off in place of the callbacks, of which this package uses none."""
    solver.setOptionValue("output_flag", False)
