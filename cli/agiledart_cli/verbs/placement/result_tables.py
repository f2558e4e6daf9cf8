"""Tables of `agiledart place`: one result, and the comparison of strategies."""

import csv
import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from agiledart.placement.comparing import Comparison, summary
from agiledart.placement.running import PlacementResult
from agiledart_cli.output import BAD, WATCH, duration, print_message, print_table

SHOWN = (
    ("response ms", "response_ms", 1),
    ("availability", "availability", -1),
    ("traffic", "traffic", 1),
    ("usage", "usage", 1),
    ("score", "score", 1),
    ("nodes", "nodes_used", 1),
)
"""Column, metric, and 1 when less is better."""


def describe(violation: Mapping[str, Any]) -> str:
    """Return a violation in words, with its amounts."""
    kind = violation["kind"]
    if kind == "capacity":
        needed, limit = f"{violation['used']:g}", f"{violation['limit']:g}"
        resource = violation["resource"]
        if violation["node"] is not None:
            return f"{resource} on {violation['node']}: {needed} needed, {limit} there"
        if "operators" in violation:
            names = ", ".join(violation["operators"])
            return f"{resource}: {needed} needed at the same place ({names}), the largest node has {limit}"
        return f"{resource}: {needed} needed in all, all nodes together have {limit}"
    if kind == "bandwidth":
        return f"bandwidth {violation['from']} → {violation['to']}: {violation['used']:g} needed, {violation['limit']:g} there"
    if kind == "candidate":
        if violation.get("node") is None:
            return f"{violation['operator']}: no node is left by the rule {violation['rule']}"
        return f"{violation['operator']} may not run on {violation['node']}"
    if kind == "together":
        return f"{violation['operator']} is not on the node of {violation['other']}"
    if kind == "apart":
        return (
            f"{violation['operator']} and {violation['other']} share the {violation['shared']} of {violation['node']}"
        )
    if kind == "exclusive":
        return f"{violation['node']} runs {violation['topologies']} topologies"
    return str(violation.get("reason", kind))


def print_result(result: PlacementResult) -> None:
    """Print a placement, its metrics and what it violates."""
    document = result.document()
    if result.skipped:
        print_message(f"{result.strategy} could not run: {result.skipped}", colour=BAD)
        return
    for violation in document["violations"]:
        print_message(describe(violation), colour=BAD)
    if document["placement"] is None or result.evaluation is None:
        print_message(f"{result.strategy} found no placement.", colour=BAD)
        return
    print_table(["OPERATOR", "NODES"], [[name, " ".join(nodes)] for name, nodes in document["placement"].items()])
    click.echo()
    metrics = document["metrics"]
    print_table(["METRIC", "VALUE"], [[k, f"{v:.6g}"] for k, v in metrics.items() if v is not None], right=["VALUE"])
    solver = document["solver"]
    value = f"{result.objective.name} {document['objective']['value']:.6g}"
    gap = "" if solver["gap"] is None else f", gap {100 * solver['gap']:.1f} %"
    state = "feasible" if result.is_feasible else "not feasible"
    text = f"{result.strategy}: {value}, {state}, {solver['status']}{gap}; {solver['evaluations']:,} evaluations"
    print_message(f"{text}, {duration(result.seconds)}", colour=None if result.is_feasible else BAD)
    for note in solver["notes"]:
        print_message(f"note: {note}", colour=WATCH)


def print_comparison(comparison: Comparison) -> None:
    """Print one table of all strategies; the best figures of feasible placements have a star."""
    seeds = comparison.parameters["seeds"]
    if len(seeds) > 1:
        _print_summary(comparison)
        return
    feasible = [result.evaluation for result in comparison.results if result.is_feasible and result.evaluation]
    best = {metric: min((sign * metric_of(e, metric) for e in feasible), default=None) for _, metric, sign in SHOWN}
    rows = []
    for result in comparison.results:
        if result.evaluation is None or result.placement is None:
            reason = result.skipped or "; ".join(describe(violation) for violation in result.shortfall)
            rows.append([result.strategy, *[""] * len(SHOWN), "", "", f"{result.seconds:.2f}", reason])
            continue
        cells = []
        for _, metric, sign in SHOWN:
            value = metric_of(result.evaluation, metric)
            least = best[metric]
            is_best = result.is_feasible and least is not None and sign * value <= least + 1e-9 * abs(value)
            cells.append(f"{value:.5g}{'*' if is_best else ' '}")
        search = result.placement.search
        count = len(result.evaluation.violations)
        rows.append(
            [
                result.strategy,
                *cells,
                f"{count}" if count else "",
                f"{search.evaluations:,}",
                f"{result.seconds:.2f}",
                search.status,
            ]
        )
    heads = ["STRATEGY", *(name.upper() for name, _, _ in SHOWN), "VIOLATIONS", "EVALUATIONS", "SECONDS", "STATUS"]
    print_table(heads, rows, right=heads[1:-1])
    print_message(
        f"objective {comparison.parameters['objective']['name']}, seed {seeds[0]}; * best of the feasible ones"
    )


def metric_of(evaluation: Any, metric: str) -> float:
    """Return a metric of an evaluation by its name."""
    from dataclasses import asdict

    return float(asdict(evaluation.metrics)[metric])


def _print_summary(comparison: Comparison) -> None:
    rows = []
    for row in summary(comparison):
        interval = "" if row["interval_95"] is None else f"± {row['interval_95']:.3g}"
        rows.append(
            [
                row["strategy"],
                f"{row['feasible']}/{row['runs']}",
                "" if row["mean"] is None else f"{row['mean']:.6g}",
                interval,
                "" if row["of_best"] is None else f"{row['of_best']:.3f}",
                row["wins"],
                f"{row['seconds_mean']:.2f}",
                row["skipped"] or "",
            ]
        )
    heads = ["STRATEGY", "FEASIBLE", "MEAN", "95 %", "OF BEST", "WINS", "SECONDS", "SKIPPED"]
    print_table(heads, rows, right=heads[1:-1])
    parameters = comparison.parameters
    print_message(
        f"objective {parameters['objective']['name']}, seeds {parameters['seeds']}, version {parameters['version']}"
    )


def print_comparison_csv(comparison: Comparison) -> None:
    """Print a comment with the parameters, and one line for each strategy and seed."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    click.echo(f"# {json.dumps(comparison.parameters, ensure_ascii=False)}")
    writer.writerow(
        ["strategy", "seed", "feasible", "value", *(m for _, m, _ in SHOWN), "evaluations", "seconds", "skipped"]
    )
    for result in comparison.results:
        evaluation, placement = result.evaluation, result.placement
        metrics = [metric_of(evaluation, metric) if evaluation else "" for _, metric, _ in SHOWN]
        writer.writerow(
            [
                result.strategy,
                result.problem.request.seed,
                int(result.is_feasible),
                evaluation.value if evaluation else "",
                *metrics,
                placement.search.evaluations if placement else "",
                f"{result.seconds:.4f}",
                result.skipped or "",
            ]
        )
