"""Results of `agiledart place`: an evaluated placement as a document `agiledart-placement/1`.

Source: spec of placement §9.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from agiledart_kernel.node_id import NodeId
from agiledart_placement.evaluation.evaluator import Evaluation, Violation
from agiledart_placement.files.document_reader import DocumentReader
from agiledart_placement.files.network_file import NetworkDescription
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement

PLACEMENT_FORMAT = "agiledart-placement/1"
COMPARISON_FORMAT = "agiledart-comparison/1"


def result_document(
    strategy: str,
    problem: Problem,
    objective: Objective,
    *,
    placement: Placement | None = None,
    evaluation: Evaluation | None = None,
    shortfall: tuple[Violation, ...] = (),
    ranges: Mapping[str, tuple[float, float]] | None = None,
    seconds: float | None = None,
    skipped: str | None = None,
) -> dict[str, Any]:
    """Return the document of one strategy's result.

    Args:
        strategy, problem, objective: the question.
        placement, evaluation: the result; None: there is none.
        shortfall: constraints that no placement meets, when there is no placement.
        ranges: metric → (best, worst) as users see them, of `weighted`.
        seconds: that the strategy took.
        skipped: why the strategy could not run.
    """
    search = placement.search if placement is not None else None
    where: dict[str, list[str]] = {}
    virtual: dict[str, list[float]] = {}
    if placement is not None:
        names = dict(zip(problem.nodes, problem.names, strict=True))
        for key, node in sorted(placement.nodes.items()):
            where.setdefault(problem.stages[key[0]].name, []).append(names[node])
        for key, point in (search.virtual if search else {}).items():
            virtual[problem.labels[problem.instance_index[key]]] = [round(x, 6) for x in point]
    weights = dict(objective.weights) or {objective.name: 1}
    return {
        "format": PLACEMENT_FORMAT,
        "strategy": strategy,
        "seed": problem.request.seed,
        "feasible": None if skipped else evaluation is not None and evaluation.is_feasible,
        "objective": {
            "name": objective.name,
            "weights": weights,
            "ranges": {name: list(span) for name, span in (ranges or {}).items()},
            "bounds": None if objective.name != "weighted" else "given" if objective.ranges else "payoff",
            "value": evaluation.value if evaluation else None,
        },
        "placement": where or None,
        "metrics": asdict(evaluation.metrics) if evaluation else None,
        "violations": None if skipped else [dict(v) for v in (evaluation.violations if evaluation else shortfall)],
        "solver": None
        if search is None
        else {
            "status": search.status,
            "bound": search.bound,
            "gap": search.gap,
            "seconds": search.seconds if search.seconds is not None else seconds,
            "evaluations": search.evaluations,
            "messages": search.messages,
            "migrations": search.migrations,
            "candidates": search.candidates,
            "notes": list(search.notes),
        },
        "virtual": virtual,
        "skipped": skipped,
    }


def read_start(
    document: object, file: str, network: NetworkDescription, problem: Problem
) -> dict[tuple[int, int], NodeId]:
    """Return the placement of a result document. Raises ConfigurationError when it does not fit the problem."""
    reader = DocumentReader(document, file)
    kind = reader.text("format")
    if kind != PLACEMENT_FORMAT:
        reader.fail("format", kind, f"expected {PLACEMENT_FORMAT!r}")
    inner = reader.object("placement")
    if inner is None:
        reader.fail("placement", None, "the result has no placement")
    start: dict[tuple[int, int], NodeId] = {}
    for stage in problem.stages.values():
        names = inner.texts(stage.name)
        if len(names) != stage.parallelism:
            inner.fail(stage.name, list(names), f"expected {stage.parallelism} nodes, one for each instance")
        for index, name in enumerate(names):
            start[stage.stage, index] = network.ids[inner.named(stage.name, network.ids, name, "node")]
    inner.end()
    return start
