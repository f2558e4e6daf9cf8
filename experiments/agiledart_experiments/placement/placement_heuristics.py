"""Experiment `placement-heuristics`: springs, MOPA and T-Storm over time, against the optimum of their own objective.

Cardellini et al., figures 5 to 7: Tag-and-Count on eight workers that are always available. Every 100 virtual seconds the delays
are measured again, with noise, and the heuristic runs again; T-Storm runs every 300 seconds, at first round robin.
"""

from collections.abc import Mapping
from dataclasses import replace

from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_placement.baselines.round_robin import RoundRobin
from agiledart_placement.baselines.traffic_aware import TrafficAware
from agiledart_placement.evaluation.evaluator import Evaluation, evaluate
from agiledart_placement.files.topology_file import joined_request
from agiledart_placement.instances.tag_and_count import (
    EXECUTORS_OF_A_SLOT,
    SLOTS,
    WORKERS,
    eight_workers,
    measured_delays,
    tag_and_count,
)
from agiledart_placement.integer_programme.odp import Odp
from agiledart_placement.latency_space.mopa import Mopa
from agiledart_placement.latency_space.mopa_probe import MopaProbe
from agiledart_placement.latency_space.springs import Springs
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.request import PlacementRequest

INTERVAL_S, END_S, SMALL_END_S, T_STORM_EVERY_S = 100, 2_000, 1_000, 300
SMOOTHING = 0.3
"""Weight of the newest measurement of a delay."""
OWN = {"springs": "energy", "mopa": "usage", "mopa_probe": "usage", "traffic_aware": "traffic"}
"""Heuristic → the objective that it approximates."""
STEADY_S = 800
"""The published ratios of springs begin here."""

CONSOLIDATION = SLOTS * EXECUTORS_OF_A_SLOT * WORKERS / 12
"""γ that lets T-Storm fill a worker; with 1.5 it may not use more than three of the eight places."""

Nodes = Mapping[tuple[int, int], NodeId]


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return one row for each heuristic and time."""
    draws, end = (20, END_S) if settings.is_paper else (6, SMALL_END_S)
    rows: list[Row] = []
    for draw in range(draws):
        settings.progress(f"draw {draw + 1} of {draws}")
        seed = 100 * settings.seed + draw
        true = joined_request(eight_workers(seed, has_failures=False), [tag_and_count()])
        optima = {objective: _optimum(true, objective) for objective in dict.fromkeys(OWN.values())}
        for name in OWN:
            rows += _over_time(name, seed, true, optima[OWN[name]], end)
    excesses = sorted(row["usage_gap"] for row in rows if row["heuristic"] == "mopa" and row["second"] >= STEADY_S)
    rows = _means(rows)
    steady = {name: [row for row in rows if row["heuristic"] == name and row["second"] >= STEADY_S] for name in OWN}
    goals = (
        Goal(
            "no heuristic is better than the optimum of its own objective",
            all(row["value_ratio"] >= 1 - 1e-6 for row in rows),
        ),
        Goal(
            "springs: traffic_ratio and latency_ratio ≥ 1 from 800 s",
            all(row["traffic_ratio"] >= 1 - 1e-6 and row["latency_ratio"] >= 1 - 1e-6 for row in steady["springs"]),
        ),
        Goal(
            "MOPA: usage within 5 % of the optimum in the median of draws and times",
            excesses[len(excesses) // 2] <= 0.05,
        ),
        Goal("T-Storm: traffic of the optimum after its runs", steady["traffic_aware"][-1]["value_ratio"] <= 1 + 1e-6),
    )
    parameters = {
        "draws": draws,
        "interval_s": INTERVAL_S,
        "consolidation": CONSOLIDATION,
        "springs_traffic_ratio_published": 1.84,
        "springs_latency_ratio_published": 1.15,
        "springs_reassignments_published": 16,
        "mopa_reassignments_published": 5,
    }
    notes = ("value_ratio: the heuristic's own objective ÷ its optimum; all figures by the mean delays",)
    return ExperimentReport(parameters, tuple(rows), goals, notes)


def _over_time(name: str, seed: int, true: PlacementRequest, optimum: Evaluation, end: int) -> list[Row]:
    jitter = RandomStream(seed, "jitter", name)
    nodes: Nodes = {}
    moved, rows = 0, []
    smoothed = measured_delays(seed, jitter)
    for second in range(INTERVAL_S, end + 1, INTERVAL_S):
        for pair, delay in measured_delays(seed, jitter).items():
            smoothed[pair] += SMOOTHING * (delay - smoothed[pair])
        measured = joined_request(eight_workers(seed, has_failures=False, delays_ms=smoothed), [tag_and_count()])
        after = _placed(name, replace(measured, seed=seed), second, nodes)
        moved += sum(nodes.get(key, node) != node for key, node in after.items())
        nodes = after
        rows.append(_row(name, second, evaluate(true, nodes), optimum, moved))
    return rows


def _placed(name: str, request: PlacementRequest, second: int, nodes: Nodes) -> Nodes:
    if name == "springs":
        return Springs().place(request).nodes
    if name == "mopa":
        return Mopa().place(request).nodes
    if name == "mopa_probe":
        return MopaProbe().place(request).nodes
    if not nodes:
        return RoundRobin().place(request).nodes
    return TrafficAware(CONSOLIDATION).place(request).nodes if second % T_STORM_EVERY_S == 0 else nodes


def _optimum(request: PlacementRequest, objective: str) -> Evaluation:
    request = replace(request, objective=Objective(objective))
    return evaluate(request, Odp().place(request).nodes)


def _row(name: str, second: int, evaluation: Evaluation, optimum: Evaluation, moved: int) -> Row:
    mine, best = evaluation.metrics, optimum.metrics
    return {
        "heuristic": name,
        "second": second,
        "value_ratio": mine.value_of(OWN[name]) / best.value_of(OWN[name]),
        "traffic_ratio": mine.traffic / best.traffic,
        "latency_ratio": mine.response_ms / best.response_ms,
        "usage_gap": mine.usage / best.usage - 1,
        "reassignments": moved,
    }


def _means(rows: list[Row]) -> list[Row]:
    """Return the mean over draws of each heuristic and time."""
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["heuristic"], row["second"]), []).append(row)
    keys = ("value_ratio", "traffic_ratio", "latency_ratio", "usage_gap", "reassignments")
    return [
        {"heuristic": name, "second": second, **{k: round(sum(r[k] for r in group) / len(group), 4) for k in keys}}
        for (name, second), group in groups.items()
    ]
