"""Experiment `provisioning-weights`: cost and service levels when one constant of the algorithms changes at a time.

The paper leaves the choice of its weights open ([Hochreiner 2017] §7).
"""

from dataclasses import replace

from agiledart_experiments.provisioning.replays import BTU, replayed
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_kernel.level_factors import LEVELS
from agiledart_provisioning.provisioning_settings import ProvisioningSettings

SWEPT: dict[str, tuple[float, ...]] = {
    "scaling_threshold": (10.0, 50.0, 100.0, 250.0, 1000.0),
    "w1": (0.0, 1.0, 10.0),
    "w2": (0.0, 1.0, 10.0),
    "w3": (0.0, 1.0, 10.0),
    "w4": (0.0, 1.0, 10.0),
    "ql": (0.0, 1.0, 100.0, 1000.0),
}
"""Constant → values; the published one is among them."""

SMALL = ("scaling_threshold", "w3", "ql")
BTU_MINUTES = 30
PATTERNS_OF = {"small": ("random_walk_2",), "paper": ("stepwise", "two_level", "random_walk_1", "random_walk_2")}


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each pattern, constant and value."""
    rows: list[Row] = []
    for pattern in PATTERNS_OF[settings.scale]:
        for name in SWEPT if settings.is_paper else SMALL:
            for value in SWEPT[name]:
                settings.progress(f"{pattern}, {name} = {value:g}")
                rows.append(_row(pattern, name, value, settings.seed))
    best = _recommended(rows)
    notes = (
        f"least near real-time total: {best['total_near_real_time']:g} with {best['constant']} = {best['value']:g}"
        f" on {best['pattern']};"
        " the published constants stay the defaults of the policy btu, because the tables belong to them",
    )
    usual = [row for row in rows if row["is_default"]]
    goals = (
        Goal(
            "the published threshold of 50 keeps at least the service level of 1,000",
            all(_level(rows, row["pattern"], 50.0) >= _level(rows, row["pattern"], 1000.0) for row in usual),
        ),
    )
    return ExperimentReport({"btu_minutes": BTU_MINUTES, "constants": list(SWEPT)}, tuple(rows), goals, notes)


def _row(pattern: str, name: str, value: float, seed: int) -> Row:
    usual = ProvisioningSettings()
    constants = replace(usual, **{name: value})  # type: ignore[arg-type]  # all swept constants are floats
    result = replayed(pattern, BTU, BTU_MINUTES, seed, constants)
    price = result.resource_cost
    return {
        "pattern": pattern, "constant": name, "value": value, "is_default": value == vars_of(usual)[name],
        "resource_cost": round(price, 4),
        **{level: round(result.levels.share(level), 4) for level in LEVELS},
        "total_near_real_time": round(result.total_cost("near_real_time", price, usual), 4),
        "upscalings": result.upscalings, "downscalings": result.downscalings, "migrations": result.migrations,
    }  # fmt: skip


def vars_of(constants: ProvisioningSettings) -> dict[str, float]:
    """Return the swept constants by name."""
    return {
        "scaling_threshold": constants.scaling_threshold, "w1": constants.w1, "w2": constants.w2, "w3": constants.w3,
        "w4": constants.w4, "ql": constants.ql,
    }  # fmt: skip


def _recommended(rows: list[Row]) -> Row:
    return min(rows, key=lambda row: float(row["total_near_real_time"]))


def _level(rows: list[Row], pattern: str, value: float) -> float:
    return next(
        float(row["near_real_time"])
        for row in rows
        if (row["pattern"], row["constant"], row["value"]) == (pattern, "scaling_threshold", value)
    )
