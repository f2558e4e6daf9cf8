"""Experiment `placement-throughput`: throughput and latency of placements against the processors that they reserve.

Ecker et al., tables 2 and 3, figures 6 to 8, in the model of `throughput_model`: each topology at several offered loads, compared
with round robin at the same reservation.
"""

from dataclasses import replace

from agiledart_experiments.placement.throughput_model import (
    CROSSING_COSTS,
    at_reservation,
    in_turn,
    largest_rate,
    longest_delay,
    reservation,
)
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_placement.files.topology_file import joined_request
from agiledart_placement.instances.compute_continuum import (
    MANUAL,
    OPERATIONS,
    loaded_topology,
    operation_graph,
    supervisor_bed,
)
from agiledart_placement.problem.problem import Problem
from agiledart_placement.registry import offline_strategy

STRATEGIES = ("hill_climbing", "ant_system", "hybrid", "resource_aware")
PUBLISHED = {"hill_climbing": 2.09, "ant_system": 1.83, "hybrid": 2.01, "resource_aware": 2.11}
"""Mean factor of R1 to R7, table 2."""
LOADS, SMALL_LOADS = (40, 80, 160, 260), (80, 160)
DRAWS = 3
SMALL_TOPOLOGIES = ("M2", "R2", "R4", "R7")
LARGE = ("R1", "R4", "R7")
"""Topologies with at least 28 operators."""
MIDDLE = "factor_cx_0.5"


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return one row for each topology, load and strategy, and one mean for each strategy."""
    acyclic = (*MANUAL, *(name for name in OPERATIONS if name not in ("R8", "R9")))
    names = acyclic if settings.is_paper else SMALL_TOPOLOGIES
    loads = LOADS if settings.is_paper else SMALL_LOADS
    rows: list[Row] = []
    for draw in range(DRAWS if settings.is_paper else 1):
        for name in names:
            settings.progress(f"{name}, draw {draw + 1}")
            for load in loads:
                rows += _rows(name, load, 10 * settings.seed + draw)
    random = [row for row in rows if row["topology"].startswith("R")]
    means = {name: _mean(random, name, MIDDLE) for name in STRATEGIES}
    latencies = {name: _mean(random, name, "latency_ratio") for name in STRATEGIES}
    large = [row for row in rows if row["topology"] in LARGE]
    goals = (
        Goal("every heuristic above round robin in mean throughput (c_x = 0.5)", min(means.values()) > 1),
        Goal("every heuristic below round robin in mean latency", max(latencies.values()) < 1),
        Goal(
            "hybrid ≥ resource-aware with at least 28 operators",
            _mean(large, "hybrid", MIDDLE) >= _mean(large, "resource_aware", MIDDLE),
        ),
    )
    notes = tuple(
        f"{name}: mean factor {means[name]:.2f} (published {PUBLISHED[name]}), latency {latencies[name]:.2f} of round robin's"
        for name in STRATEGIES
    )
    notes += ("a model without queues; the published factors also hold what queues and processes cost",)
    parameters = {"loads": loads, "topologies": names, "crossing_costs": CROSSING_COSTS}
    return ExperimentReport(parameters, tuple(rows), goals, notes)


def _mean(rows: list[Row], strategy: str, key: str) -> float:
    values: list[float] = [row[key] for row in rows if row["strategy"] == strategy]
    return sum(values) / len(values)


def _rows(name: str, load: float, seed: int) -> list[Row]:
    topology = loaded_topology(name, operation_graph(name, seed), load)
    request = replace(joined_request(supervisor_bed(seed), [topology]), seed=seed)
    problem = Problem(request)
    rate = topology.rates[0]
    plain = [in_turn(problem, width) for width in range(1, len(problem.nodes) + 1)]
    rows = []
    for strategy in STRATEGIES:
        where = problem.where_of(offline_strategy(strategy).place(request).nodes)
        held = reservation(problem, where)
        row: Row = {
            "topology": name,
            "operators": len(problem.instances),
            "load": load,
            "strategy": strategy,
            "reservation": held,
            "latency_ms": round(longest_delay(problem, where), 3),
        }
        for crossing in CROSSING_COSTS:
            mine = largest_rate(problem, where, rate, crossing)
            known = [(reservation(problem, other), largest_rate(problem, other, rate, crossing)) for other in plain]
            row[f"throughput_cx_{crossing:g}"] = round(mine, 3)
            row[f"factor_cx_{crossing:g}"] = round(mine / at_reservation(known, held), 3)
        delays = [(reservation(problem, other), longest_delay(problem, other)) for other in plain]
        usual = at_reservation(delays, held)
        row["latency_ratio"] = round(row["latency_ms"] / usual, 3) if usual else 1.0
        rows.append(row)
    return rows
