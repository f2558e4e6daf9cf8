"""Tables for people and a JSON object for machines."""

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.engines import setup
from benchmarks.engines.catalogue import HEADINGS
from benchmarks.engines.goals import GOALS, scored_latencies
from benchmarks.engines.latency import LatencyFigures
from benchmarks.engines.pairing import Quartiles, ratios, spread, won
from benchmarks.engines.throughput import JobFigures


def table(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """Return a table with columns as wide as needed, the first aligned left."""
    rows = [list(head), *[list(line) for line in lines]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _ratio_text(quartiles: Quartiles | None, digits: int = 2) -> str:
    return "–" if quartiles is None else quartiles.shown(digits)


def throughput_table(figures: JobFigures) -> str:
    """Return a table of one job: CPU time, ratio to the plain loop, rate, start-up, memory."""
    lines = []
    plain = figures.cpu.get("plain", {})
    for name, cpu in sorted(figures.cpu.items(), key=lambda item: spread(item[1].values()).median):  # type: ignore[union-attr]
        quartiles = spread(cpu.values())
        rate, startup = spread(figures.rate[name].values()), spread(figures.startup[name].values())
        memory = spread(figures.memory[name].values())
        assert rate is not None
        assert memory is not None
        lines.append(
            [
                name,
                _ratio_text(quartiles, 3),
                _ratio_text(spread(ratios(cpu, plain)), 3),
                f"{rate.median / 1000:,.0f}",
                _ratio_text(startup),
                f"{memory.median:,.0f}",
            ]
        )
    head = ["", "CPU s / M tuples", "÷ plain", "k tuples/s", "start-up CPU s", "RSS MB"]
    wrong = [f"{name}: left out: {why}" for name, why in sorted(figures.wrong.items())]
    return "\n".join([HEADINGS[figures.job], table(head, lines), *wrong])


def goal_lines(measured: Mapping[str, JobFigures], latencies: Sequence[LatencyFigures]) -> list[dict[str, Any]]:
    """Return every goal for which both sides were measured."""
    lines = []
    for goal in GOALS:
        if goal.job in measured and (evaluated := goal.evaluated(measured[goal.job].cpu)) is not None:
            words = {"job": goal.job, "what": goal.what, "goal": f"{goal.sense} {goal.bound:g}"}
            lines.append({**words, "met": goal.met(evaluated), "found": evaluated})
    for figures in latencies:
        lines += scored_latencies(figures)
    return lines


def goal_table(measured: Mapping[str, JobFigures], latencies: Sequence[LatencyFigures]) -> str:
    """Return a table of the goals that are met or missed."""
    return table(
        ["goals", "median (quartiles)", "wanted", ""],
        [
            [
                f"{goal['job']:8} {goal['what']}",
                goal["found"].shown(),
                goal["goal"],
                "met" if goal["met"] else "NOT MET",
            ]
            for goal in goal_lines(measured, latencies)
        ],
    )


def latency_table(figures: LatencyFigures, reference: str = "ours") -> str:
    """Return a table of J3 at one rate: percentiles, source lag, CPU; ratios of ours to each other engine."""
    lines = []
    engines = figures.engines
    for name, by in engines.items():
        pairs = {q: ratios(engines.get(reference, {}).get(q, {}), by.get(q, {})) for q in ("p50", "p95", "p99")}
        against = "–"
        if name != reference and pairs["p50"]:
            against = "  ".join(
                f"{_ratio_text(spread(values))} {won(values)}/{len(values)}" for values in pairs.values()
            )
        lines.append(
            [
                name,
                *[_ratio_text(spread(by.get(q, {}).values()), 3) for q in ("p50", "p95", "p99")],
                _ratio_text(spread(by.get("cpu_percent", {}).values()), 1),
                _ratio_text(spread(by.get("lag_p50", {}).values()), 3),
                _ratio_text(spread(by.get("rate", {}).values()), 0),
                against,
            ]
        )
    head = [
        "",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "CPU % of a core",
        "source lag p50",
        "tuples/s",
        "ours ÷ it: p50, p95, p99 (lower in)",
    ]
    wrong = [f"{name}: left out: {why}" for name, why in sorted(figures.wrong.items())]
    return "\n".join([figures.title, table(head, lines), *wrong])


def machine() -> dict[str, Any]:
    """Return a description of the machine."""
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cores": os.cpu_count(),
        "processor": model,
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": [round(value, 2) for value in os.getloadavg()],
        "versions": setup.ENVIRONMENTS,
    }


def as_json(about: Mapping[str, Any], measured: Mapping[str, JobFigures], latencies: Sequence[LatencyFigures]) -> str:
    """Return all results for JSON, runs included."""
    jobs = {}
    for job, figures in measured.items():
        jobs[job] = {
            "engines": {
                name: {
                    what: quartiles.plain()
                    for what, values in (
                        ("cpu_s_per_million", cpu),
                        ("tuples_per_s", figures.rate[name]),
                        ("startup_cpu_s", figures.startup[name]),
                        ("memory_mb", figures.memory[name]),
                    )
                    if (quartiles := spread(values.values())) is not None
                }
                for name, cpu in figures.cpu.items()
            },
            "wrong": figures.wrong,
            "runs": figures.runs,
        }
    goals = [{**goal, "found": goal["found"].plain()} for goal in goal_lines(measured, latencies)]
    latency_runs = [
        {
            "rate": figures.rate,
            "wrong": figures.wrong,
            "engines": {
                name: {
                    measure: quartiles.plain()
                    for measure, values in by.items()
                    if (quartiles := spread(values.values()))
                }
                for name, by in figures.engines.items()
            },
            "runs": figures.runs,
        }
        for figures in latencies
    ]
    return json.dumps(
        {"about": {**machine(), **about}, "goals": goals, "jobs": jobs, "latencies": latency_runs},
        indent=1,
        ensure_ascii=False,
    )
