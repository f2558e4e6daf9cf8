"""Experiment `placement-runtime`: time and evaluations of one placement, by topology and strategy.

Ecker et al., table 4: eleven supervisors; three manual topologies, seven random ones, two with a cycle.
"""

from collections.abc import Callable
from dataclasses import replace
from time import process_time

from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_placement.evaluation.evaluator import evaluate
from agiledart_placement.files.topology_file import joined_request
from agiledart_placement.instances.compute_continuum import (
    MANUAL,
    OPERATIONS,
    loaded_topology,
    operation_graph,
    supervisor_bed,
)
from agiledart_placement.registry import offline_strategy

STRATEGIES = ("hill_climbing", "ant_system", "hybrid", "resource_aware")
PUBLISHED_MS = {
    "M1": (9, 75, 78, 16),
    "M2": (45, 99, 130, 21),
    "M3": (4, 35, 38, 16),
    "R1": (558, 450, 841, 25),
    "R2": (65, 131, 197, 20),
    "R3": (231, 285, 534, 23),
    "R4": (179, 447, 717, 24),
    "R5": (138, 306, 428, 22),
    "R6": (198, 274, 472, 21),
    "R7": (1029, 661, 1020, 26),
    "R8": (185, 377, 355, 19),
    "R9": (263, 408, 480, 21),
}
"""Milliseconds of the strategies above, in their order."""

LOAD, MANUAL_LOAD, LIMIT_S = 230.0, 80.0, 1.0
"""Processor points in all: an operation of the small manual topologies would not fit any node with those of the random ones."""


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return one row for each topology and strategy."""
    draws = 5 if settings.is_paper else 1
    rows = []
    for name in (*MANUAL, *OPERATIONS):
        settings.progress(name)
        rows += [_row(name, number, settings.seed, draws) for number in range(len(STRATEGIES))]
    largest = [row["ms"] for row in rows if row["topology"] == "R7"]
    goals = (
        Goal("at most 1 s of CPU for 42 operators on 11 nodes", max(largest) <= 1_000),
        Goal("every placement keeps all capacities", all(row["violations"] == 0 for row in rows)),
    )
    notes = ("ms: CPU time in pure Python; the published figures are wall time in Java on another machine",)
    return ExperimentReport({"load": LOAD, "load_manual": MANUAL_LOAD, "draws": draws}, tuple(rows), goals, notes)


def _limit(end: float) -> Callable[[], bool]:
    """Return a function that says whether the CPU time of this process has reached `end`."""
    return lambda: process_time() >= end


def _row(name: str, number: int, seed: int, draws: int) -> Row:
    strategy = STRATEGIES[number]
    spent, evaluations, violations, operators = 0.0, 0, 0, 0
    for draw in range(draws):
        load = MANUAL_LOAD if name in MANUAL else LOAD
        topology = loaded_topology(name, operation_graph(name, 10 * seed + draw), load)
        request = replace(joined_request(supervisor_bed(10 * seed + draw), [topology]), seed=seed)
        started = process_time()
        limited = replace(request, time_is_up=_limit(started + LIMIT_S))
        placement = offline_strategy(strategy).place(limited)
        spent += process_time() - started
        evaluations += placement.search.evaluations
        violations += len(evaluate(request, placement.nodes).violations)
        operators = len(placement.nodes)
    return {
        "topology": name,
        "operators": operators,
        "strategy": strategy,
        "ms": round(1_000 * spent / draws, 1),
        "ms_published": PUBLISHED_MS[name][number],
        "evaluations": round(evaluations / draws),
        "violations": violations,
    }
