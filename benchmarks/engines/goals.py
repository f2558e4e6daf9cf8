"""Goals of the project for the ratios; each is met or missed by the median of the rounds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.engines.latency import LatencyFigures
from benchmarks.engines.pairing import Quartiles, best, ratios, spread

Measured = Mapping[str, Mapping[int, float]]
"""By engine, by round: CPU seconds per million tuples."""


@dataclass(frozen=True)
class RatioGoal:
    """`over` / `under`, at most or at least `bound`; of several engines the best of each round counts."""

    job: str
    what: str
    over: tuple[str, ...]
    under: tuple[str, ...]
    sense: Literal["≤", "≥"]
    bound: float

    def evaluated(self, measured: Measured) -> Quartiles | None:
        """Return the ratio's spread; None where an engine was not measured."""
        over = best(measured[name] for name in self.over if name in measured)
        under = best(measured[name] for name in self.under if name in measured)
        return spread(ratios(over, under))

    def met(self, measured: Quartiles) -> bool:
        """Tell whether the median meets the bound."""
        return measured.median <= self.bound if self.sense == "≤" else measured.median >= self.bound


def _goals() -> list[RatioGoal]:
    goals: list[RatioGoal] = []
    for job in ("j1", "zone", "vehicle"):
        for rows in ("1000", "10000"):
            columnar = (f"numpy-{rows}", f"polars-{rows}")
            ours = (f"ours-columns-{rows}",)
            goals.append(RatioGoal(job, f"columns, {rows} rows ÷ best columnar loop", ours, columnar, "≤", 1.5))
        goals.append(RatioGoal(job, "columns, 10000 rows ÷ Flink SQL", ("ours-columns-10000",), ("flink",), "≤", 1.0))
    wide = ("ours-columns-10000",)
    goals.append(RatioGoal("j1", "Bytewax ÷ columns, 10000 rows", ("bytewax-window",), wide, "≥", 4))
    for job in ("zone", "vehicle"):
        goals.append(RatioGoal(job, "Bytewax window ÷ columns, 10000 rows", ("bytewax-window",), wide, "≥", 20))
        goals.append(RatioGoal(job, "Bytewax fold ÷ columns, 10000 rows", ("bytewax-fold",), wide, "≥", 4))
        goals.append(
            RatioGoal(job, "Bytewax window, told of a replay ÷ rows", ("bytewax-replay",), ("ours-lines",), "≥", 1)
        )
    for batch, name in (("10", "ours-lines-10"), ("100", "ours-lines-100"), ("1000", "ours-lines")):
        goals.append(
            RatioGoal("j1", f"rows, {batch} a batch ÷ plain loop, same functions", (name,), ("plain",), "≤", 1.15)
        )
    goals.append(RatioGoal("j1", "one more fused step", ("ours-lines+1",), ("ours-lines",), "≤", 1.10))
    goals.append(RatioGoal("zone", "Bytewax window ÷ rows", ("bytewax-window",), ("ours-lines",), "≥", 6))
    goals.append(RatioGoal("vehicle", "Bytewax window ÷ rows", ("bytewax-window",), ("ours-lines",), "≥", 80))
    return goals


GOALS = _goals()


_FORMS = {"ours": "rows", "ours-columns": "columns"}

LIMIT = "bare"
"""The same three processes without an engine, so no goal applies to them."""


def scored_latencies(figures: LatencyFigures) -> list[dict[str, Any]]:
    """Evaluate J3 for each form of ours: p50 below the others' and at most 0.5 ms; saturated, so many tuples per second."""
    return [goal for name, form in _FORMS.items() for goal in _scored_form(figures, name, form)]


def _scored_form(figures: LatencyFigures, name: str, form: str) -> list[dict[str, Any]]:
    ours = figures.engines.get(name, {})
    lines: list[dict[str, Any]] = []

    def tell(what: str, values: Iterable[float], sense: str, bound: float) -> None:
        spreads = spread(values)
        if spreads is not None:
            met = spreads.median <= bound if sense in "≤<" else spreads.median >= bound
            lines.append(
                {"job": "j3", "what": f"{form}: {what}", "goal": f"{sense} {bound:g}", "met": met, "found": spreads}
            )

    if not figures.rate:
        tell("thousand tuples/s, saturated", [value / 1000 for value in ours.get("rate", {}).values()], "≥", 400)
        return lines
    at = f"{figures.rate:,}/s"
    tell(f"p50 ms at {at}", ours.get("p50", {}).values(), "≤", 0.5)
    for other, by in figures.engines.items():
        if other not in (*_FORMS, LIMIT):
            tell(f"p50 at {at} ÷ {other}", ratios(ours.get("p50", {}), by.get("p50", {})), "<", 1.0)
    return lines
