"""Experiment `deployment-latency`: waiting time of applications submitted at once, compared with a single master.

AgileDART, figures 8a and 8b: the waiting time of one master grows linearly with the number of applications; that of elected
schedulers stays nearly flat. Let σ be the service time of a plan, first come first served. A master makes A applications wait
(A-1)σ/2 on average. A scheduler that serves at most 50 applications makes them wait at most 49σ/2 (dataflow specification §6).
Both have the same service time here.
"""

from agiledart_experiments import real_deployments
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_kernel.instants import SECOND
from agiledart_simulation.runs.scheduling_run import RunFigures, RunOptions, run_submissions

PAPER = (10_000, 20, (10, 50, 250, 500, 1_000))
SMALL = (200, 4, (10, 40, 80))
"""Number of nodes, number of zones, and the numbers of applications."""

SERVICE_S = 1

MANY = 250
"""Least number of applications at which the goals compare with a single master: enough to fill several schedulers."""


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return one row for each number of applications."""
    if settings.real:
        return real_deployments.run(settings)
    nodes, zones, usual = PAPER if settings.is_paper else SMALL
    counts = settings.sizes_or(usual)
    rows = []
    for count in counts:
        settings.progress(f"{count:,} applications at once")
        options = RunOptions(settings.seed, nodes, zones, count, service_ns=SERVICE_S * SECOND)
        ours = run_submissions(options)
        master = run_submissions(
            RunOptions(settings.seed, nodes, zones, count, service_ns=SERVICE_S * SECOND, single_master=True)
        )
        rows.append(_row(count, ours, master))
    slope, of_master = _slope(rows, "queue_wait_mean_s"), _slope(rows, "queue_wait_mean_s_single_master")
    parameters = {
        "nodes": nodes,
        "zones": zones,
        "applications": counts,
        "service_s": SERVICE_S,
        "slope_s_per_application": round(slope, 4),
        "slope_s_per_application_single_master": round(of_master, 4),
    }
    notes = (
        "time is virtual; deployment includes forming, waiting does not",
        "service_mean_s: planning and forming of one application, as measured",
        "slopes are from the first to the last number of applications",
    )
    return ExperimentReport(parameters, tuple(rows), goals_for(rows), notes)


def goals_for(rows: list[Row]) -> tuple[Goal, ...]:
    """Return the goals and whether the rows meet them."""
    slope, of_master = _slope(rows, "queue_wait_mean_s"), _slope(rows, "queue_wait_mean_s_single_master")
    is_long = rows[0]["applications"] < rows[-1]["applications"] and rows[-1]["applications"] >= MANY
    return (
        Goal(
            "no application waits longer on average than 49/2 service times, as measured",
            all(row["queue_wait_mean_s"] <= 24.5 * row["service_mean_s"] for row in rows),
        ),
        Goal("the waiting of the single master is that of the model", all(_is_near(row) for row in rows)),
        *(
            Goal(
                f"{row['applications']} applications wait a fifth as long as with a single master, or less",
                5 * row["queue_wait_mean_s"] <= row["queue_wait_mean_s_single_master"],
            )
            for row in rows
            if row["applications"] >= MANY
        ),
        *(
            (Goal("slope of the waiting below 10 % of the single master's", slope < 0.1 * of_master),)
            if is_long
            else ()
        ),
        Goal("every application runs", all(row["refused"] == 0 for row in rows)),
    )


def _row(count: int, ours: RunFigures, master: RunFigures) -> Row:
    return {
        "applications": count,
        "schedulers": ours.schedulers,
        "queue_wait_mean_s": _mean(ours.queued_s),
        "queue_wait_mean_s_single_master": _mean(master.queued_s),
        "queue_wait_mean_s_model": round((count - 1) * SERVICE_S / 2, 3),
        "service_mean_s": round(_mean(ours.running_s) - _mean(ours.queued_s), 3),
        "deployment_mean_s": _mean(ours.running_s),
        "deployment_max_s": round(max(ours.running_s, default=0.0), 3),
        "deployment_mean_s_single_master": _mean(master.running_s),
        "refused": len(ours.refused) + len(master.refused),
    }


def _mean(values: tuple[float, ...]) -> float:
    return round(sum(values) / len(values), 3) if values else 0.0


def _is_near(row: Row) -> bool:
    model: float = row["queue_wait_mean_s_model"]
    measured: float = row["queue_wait_mean_s_single_master"]
    return abs(measured - model) <= 0.1 * model + SERVICE_S


def _slope(rows: list[Row], name: str) -> float:
    first, last = rows[0], rows[-1]
    return float((last[name] - first[name]) / max(1, last["applications"] - first["applications"]))
