"""Experiment `odp-scalability`: size and solution of the integer programme, by operators, nodes, capacity and candidates.

Cardellini et al., figures 9a to 9c, 10a to 10c, and §4.2 on the formulation of y. Each solve has a limit of its own; `gap` is the
share of the delays that may still be saved.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import monotonic

from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_placement.evaluation.evaluator import evaluate
from agiledart_placement.files.topology_file import joined_request
from agiledart_placement.instances.random_delays import CHAIN, FAT, equal_nodes, unit_operators
from agiledart_placement.integer_programme.model import ColumnLayout
from agiledart_placement.integer_programme.odp import Odp, require_solver
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import PlacementRequest

PRINTED = {(CHAIN, 50, 20): 19_600, (FAT, 50, 20): 38_400, (CHAIN, 20, 100): 190_000, (FAT, 20, 100): 360_000}
"""Kind, operators, nodes → number of y in the paper."""


@dataclass(frozen=True, slots=True)
class ScalabilityCase:
    """One programme.

    Attributes:
        kind, operators, nodes, capacity: of the instance.
        share: of the nodes that each operator may use.
        formulation: rows of the model.
        limit_s: of the solve; 0: only the size is measured.
        figure: of the paper.
    """

    figure: str
    kind: str
    operators: int
    nodes: int = 20
    capacity: int = 4
    share: float = 1.0
    formulation: str = "cuts"
    limit_s: float = 2.0


def small_cases() -> Iterator[ScalabilityCase]:
    """Yield the cases of the small scale."""
    for kind, operators, nodes in PRINTED:
        yield ScalabilityCase("table 2", kind, operators, nodes, limit_s=0)
    for kind in (CHAIN, FAT):
        for formulation in ("cuts", "plain", "standard"):
            yield ScalabilityCase("9a, 4.2", kind, 6, 10, formulation=formulation)
        for capacity in (2, 10):
            yield ScalabilityCase("9c", kind, 8, 10, capacity)
        for share in (0.2, 0.4):
            yield ScalabilityCase("10a, 10b", kind, 8, 20, share=share)


def paper_cases() -> Iterator[ScalabilityCase]:
    """Yield the cases of the published sizes."""
    for kind, operators, nodes in PRINTED:
        yield ScalabilityCase("table 2", kind, operators, nodes, limit_s=0)
    for kind in (CHAIN, FAT):
        for operators in (10, 20):
            for formulation in ("cuts", "plain", "standard"):
                yield ScalabilityCase("9a, 4.2", kind, operators, formulation=formulation, limit_s=20)
        for nodes in (10, 50):
            yield ScalabilityCase("9b", kind, 20, nodes, limit_s=20)
        for capacity in (2, 10):
            yield ScalabilityCase("9c", kind, 20, 20, capacity, limit_s=20)
        for share in (0.1, 0.2, 0.4):
            yield ScalabilityCase("10a, 10b", kind, 50, 20, share=share, limit_s=20)


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return one row for each case."""
    require_solver()
    rows = []
    for case in paper_cases() if settings.is_paper else small_cases():
        settings.progress(f"{case.kind} {case.operators} operators, {case.nodes} nodes, {case.formulation}")
        rows.append(_row(case, settings.seed))
    _add_degradation(rows)
    printed = [
        (row["variables_y"], PRINTED[key]) for row in rows if (key := _key(row)) in PRINTED and row["share"] == 1
    ]
    goals = (
        Goal("the model has the printed numbers of y", all(ours == theirs for ours, theirs in printed)),
        Goal("`cuts` never leaves a larger gap than `plain`", _never_larger(rows)),
    )
    notes = (
        "solve_seconds and gap depend on the machine and its load; everything else on the seed",
        "degradation: delays ÷ delays of the best placement known of the same instance with all candidates",
    )
    return ExperimentReport({"threads": 1, "seed_of_delays": settings.seed}, tuple(rows), goals, notes)


def _key(row: Row) -> tuple[str, int, int]:
    return row["kind"], row["operators"], row["nodes"]


def _request(case: ScalabilityCase, seed: int) -> PlacementRequest:
    network = equal_nodes(case.nodes, case.capacity, seed)
    topology = unit_operators(case.kind, case.operators, case.nodes, case.share, seed)
    return replace(joined_request(network, [topology]), objective=Objective("response"), seed=seed)


def _row(case: ScalabilityCase, seed: int) -> Row:
    request = _request(case, seed)
    problem = Problem(request)
    layout = ColumnLayout(problem, problem.candidates)
    row: Row = {
        "figure": case.figure,
        "kind": case.kind,
        "operators": case.operators,
        "nodes": case.nodes,
        "capacity": case.capacity,
        "share": case.share,
        "formulation": case.formulation if case.limit_s else "",
        "variables_x": layout.variables_x,
        "variables_y": layout.variables_y,
        "solve_seconds": None,
        "gap": None,
        "value": None,
        "degradation": None,
        "status": "size only",
    }
    if not case.limit_s:
        return row
    end = monotonic() + case.limit_s
    solver = Odp(case.formulation, seconds_left=lambda: max(0.05, end - monotonic()), breaks_ties=False)
    placement = solver.place(request)
    search = placement.search
    row |= {"solve_seconds": round(search.seconds or 0.0, 2), "status": search.status}
    if placement.nodes:
        row["gap"] = None if search.gap is None else round(search.gap, 4)
        row["value"] = round(evaluate(problem, placement.nodes).metrics.score_latency_ms, 3)
    return row


def _add_degradation(rows: list[Row]) -> None:
    best: dict[tuple[object, ...], float] = {}
    for row in rows:
        if row["value"] is not None and row["share"] == 1:
            key = (*_key(row), row["capacity"])
            best[key] = min(row["value"], best.get(key, row["value"]))
    for row in rows:
        least = best.get((*_key(row), row["capacity"]))
        if least and row["value"] is not None:
            row["degradation"] = round(row["value"] / least, 3)


def _never_larger(rows: list[Row]) -> bool:
    left: dict[tuple[object, ...], dict[str, float]] = {}
    for row in rows:
        if row["gap"] is not None:
            left.setdefault((*_key(row), row["capacity"], row["share"]), {})[row["formulation"]] = row["gap"]
    pairs = [group for group in left.values() if "cuts" in group and "plain" in group]
    return bool(pairs) and all(group["cuts"] <= group["plain"] + 1e-3 for group in pairs)
