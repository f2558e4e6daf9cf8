"""Experiment `odp-qos`: response time against availability of optimal placements of Tag-and-Count.

Cardellini et al., figure 4: eight workers, half of them with availability 0.99, twelve executors. The published S-ODP_R is one of
many placements with the least response time; ties broken by availability give better ones.
"""

from dataclasses import replace
from math import log
from time import process_time

from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_placement.evaluation.evaluator import Evaluation, evaluate
from agiledart_placement.files.topology_file import joined_request
from agiledart_placement.instances.tag_and_count import LOW_AVAILABILITY, eight_workers, tag_and_count
from agiledart_placement.integer_programme.odp import Odp
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.request import PlacementRequest

DRAWS, SMALL_DRAWS = 20, 6
PUBLISHED = {"availability_a": 1.0, "availability_r": 0.9227, "executors_on_99": 8, "response_ratio": 1.8}


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return one row for each draw of the delays."""
    rows = []
    count = DRAWS if settings.is_paper else SMALL_DRAWS
    for number in range(count):
        settings.progress(f"draw {number + 1} of {count}")
        rows.append(_row(number, settings.seed))
    mean = {key: sum(row[key] for row in rows) / len(rows) for key in rows[0] if key != "draw"}
    rows.append({"draw": "mean", **{key: round(value, 4) for key, value in mean.items()}})
    draws = rows[:-1]
    goals = (
        Goal("availability_a = 1 in every draw", all(row["availability_a"] == 1 for row in draws)),
        Goal("response_ratio ≥ 1 in every draw", all(row["response_ratio"] >= 1 - 1e-6 for row in draws)),
        Goal("each placement is solved within 1 s", all(row["solve_seconds"] < 1 for row in draws)),
    )
    notes = (
        "published: S-ODP_R leaves 8 of 12 executors on workers with 0.99, the worst of the fastest placements",
        "solve_seconds: CPU seconds of the slower objective with heuristic start and model, without breaking ties",
        "response_ratio_untied: no heuristic start and no tie-breaking, so the placement of S-ODP_A is any optimum",
    )
    published = {f"{key}_published": value for key, value in PUBLISHED.items()}
    return ExperimentReport({"draws": count, **published}, tuple(rows), goals, notes)


def _row(number: int, seed: int) -> Row:
    request = joined_request(eight_workers(1_000 * seed + number), [tag_and_count()])
    seconds = max(_cpu_seconds(request, "response"), _cpu_seconds(request, "availability"))
    response = _solved(request, "response", breaks_ties=True)
    available = _solved(request, "availability", breaks_ties=True)
    untied = _solved(request, "availability", breaks_ties=False)
    low = log(LOW_AVAILABILITY)
    return {
        "draw": number + 1,
        "availability_a": round(available.metrics.availability, 6),
        "availability_r": round(response.metrics.availability, 6),
        "executors_on_99": round(response.metrics.log_availability / low),
        "response_ratio": round(available.metrics.response_ms / response.metrics.response_ms, 4),
        "response_ratio_untied": round(untied.metrics.response_ms / response.metrics.response_ms, 4),
        "solve_seconds": round(seconds, 3),
    }


def _solved(request: PlacementRequest, objective: str, *, breaks_ties: bool) -> Evaluation:
    request = replace(request, objective=Objective(objective))
    placement = Odp(breaks_ties=breaks_ties, starts=breaks_ties).place(request)
    return evaluate(request, placement.nodes)


def _cpu_seconds(request: PlacementRequest, objective: str) -> float:
    started = process_time()
    Odp(breaks_ties=False).place(replace(request, objective=Objective(objective)))
    return process_time() - started
