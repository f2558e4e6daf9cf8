"""Experiment `provisioning-cost`: service levels and cost of the BTU-based policy and the baseline on four arrival patterns."""

from collections.abc import Sequence
from statistics import fmean, stdev

from agiledart_experiments.provisioning.replays import (
    BTU,
    BTU_MINUTES,
    PUBLISHED,
    THRESHOLD,
    replayed,
    resource_cost,
)  # fmt: skip
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_kernel.level_factors import LEVELS
from agiledart_provisioning.provisioning_settings import ProvisioningSettings
from agiledart_provisioning.replay.replay_run import ReplayResult
from agiledart_provisioning.replay.replay_workload import PATTERNS

FLUID, ITEMS = "fluid", "items"

PATTERNS_AND_RUNS = {"small": (("stepwise", "random_walk_2"), 1), "paper": (tuple(PATTERNS), 3)}
ITEM_PATTERNS = {"small": (), "paper": ("stepwise", "random_walk_2")}

WITHIN = {"stepwise": 0.1, "two_level": 0.1, "random_walk_1": 0.17, "random_walk_2": 0.17}
"""Distance of near and relaxed compliance from the published tables that a model of the setting may have."""

EXPLAINED = 0.2
"""Relative distance from a published cost above which a note explains the difference."""

ERRATA = (
    "table 4 prints 155.43 for the near real-time total of BTU 30; its own row gives 115.43, which stands here",
    "table 6 prints s = 75 % for the relaxed level of the baseline; the value is the share, σ is misprinted",
    "the conclusion: only BTU 10 in real time costs more than the baseline; stepwise BTU 30 does, too, walk 1 BTU 10 does not",
    "the text gives 19 % for table 3 where its figures give 18.3 %, and 25 % as the largest gain where 27 points stand in table 5",
    "the motivation says two to eight machines; the published penalties imply a mean of four, so levels here are 2, 4, 6 and 2, 6",
)


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each pattern, approach and unit."""
    patterns, runs = PATTERNS_AND_RUNS[settings.scale]
    rows = [row for pattern in patterns for row in _rows_of_pattern(settings, pattern, FLUID, runs)]
    for pattern in ITEM_PATTERNS[settings.scale]:
        rows += _rows_of_pattern(settings, pattern, ITEMS, 1)
    parameters = {"patterns": patterns, "runs": runs, "btu_minutes": BTU_MINUTES, "minutes": 120, "concurrency": 3}
    return ExperimentReport(parameters, tuple(rows), tuple(_goals(rows)), (*ERRATA, *_differences(rows)))


def _rows_of_pattern(settings: Settings, pattern: str, model: str, runs: int) -> list[Row]:
    rows = []
    for approach in (BTU, THRESHOLD):
        results: Sequence[ReplayResult] = ()
        for minutes in BTU_MINUTES:
            settings.progress(f"{pattern}, {approach}, units of {minutes} min, {model} model, {runs} runs")
            if approach == BTU or not results:
                results = [
                    replayed(
                        pattern, approach, minutes, settings.seed + number, ProvisioningSettings(), items=model == ITEMS
                    )
                    for number in range(runs)
                ]
            rows.append(_row(pattern, approach, minutes, model, results))
    return rows


def _row(pattern: str, approach: str, minutes: int, model: str, results: Sequence[ReplayResult]) -> Row:
    constants = ProvisioningSettings()
    figures: dict[str, list[float]] = {}
    for result in results:
        price = resource_cost(result, approach, minutes)
        values: dict[str, float] = {level: result.levels.share(level) for level in LEVELS}
        values |= {
            "resource_cost": price,
            "items": result.levels.items,
            **{f"total_{level}": result.total_cost(level, price, constants) for level in LEVELS},
            "upscalings": result.upscalings,
            "downscalings": result.downscalings,
            "migrations": result.migrations,
            "time_to_adapt_s": result.time_to_adapt_s,
        }
        for name, value in values.items():
            figures.setdefault(name, []).append(float(value))
    row: Row = {"pattern": pattern, "approach": approach, "btu_minutes": minutes, "model": model, "runs": len(results)}
    for name, each_run in figures.items():
        row[name] = round(fmean(each_run), 4)
        if len(each_run) > 1:
            row[f"{name}_deviation"] = round(stdev(each_run), 4)
    published = PUBLISHED[pattern, approach, minutes]
    return row | {f"{name}_published": value for name, value in published._asdict().items()}


def _goals(rows: Sequence[Row]) -> list[Goal]:
    """Return the relations of the published tables, each as a goal of its own."""
    goals = []
    for pattern, model in dict.fromkeys((row["pattern"], row["model"]) for row in rows):
        name = pattern if model == FLUID else f"{pattern}, items"
        at = {
            (row["approach"], row["btu_minutes"]): row
            for row in rows
            if (row["pattern"], row["model"]) == (pattern, model)
        }
        units = [at[BTU, minutes] for minutes in BTU_MINUTES]
        baseline = at[THRESHOLD, 60]
        goals += [
            Goal(
                f"{name}: {level} above the baseline for every unit", all(row[level] > baseline[level] for row in units)
            )
            for level in LEVELS
        ]
        goals.append(
            Goal(
                f"{name}: BTU 60 costs less than the baseline at 60 min",
                units[2]["resource_cost"] < baseline["resource_cost"],
            )
        )
        for level in ("near_real_time", "relaxed"):
            goals += [
                Goal(
                    f"{name}: total {level} of BTU {minutes} below the baseline's",
                    at[BTU, minutes][f"total_{level}"] < at[THRESHOLD, minutes][f"total_{level}"],
                )
                for minutes in (30, 60)
            ]
            goals.append(
                Goal(
                    f"{name}: {level} within {WITHIN[pattern]:g} of the published share",
                    all(abs(row[level] - row[f"{level}_published"]) <= WITHIN[pattern] for row in units),
                )
            )
    return goals


def _differences(rows: Sequence[Row]) -> list[str]:
    """Return a note for each approach whose resource cost is far from the published one."""
    notes = []
    for row in rows:
        if row["model"] != FLUID:
            continue
        published = row["resource_cost_published"]
        distance = (row["resource_cost"] - published) / published
        if abs(distance) > EXPLAINED:
            notes.append(
                f"{row['pattern']}, {row['approach']} {row['btu_minutes']} min: resource cost {distance:+.0%} from the published:"
                " the model serves three items an instance at once, and its items are about 85 % of those that the penalties imply"
            )
    return notes
