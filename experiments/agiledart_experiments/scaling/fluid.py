"""Queue of the specification without noise, for which the decisions of each policy are known to the digit."""

from dataclasses import dataclass

from agiledart_experiments.report import Row
from agiledart_experiments.scaling.queue_model import HIGH, INTERVAL_S
from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import StageMeasures
from agiledart_scaling.policies.paper import Paper, PaperSettings
from agiledart_scaling.policies.secant import Secant, SecantSettings
from agiledart_scaling.scaling_policy import ScalingPolicy

ARRIVING, RATE, START = 300.0, 30.0, 2
"""Arrival rate R and rate r of an instance in rows/s, and instances at the start; the queue is empty."""

Trace = tuple[tuple[int, float], ...]
"""For each interval its number of instances, and the rows that wait at its end."""


def fluid_run(policy: ScalingPolicy, intervals: int) -> Trace:
    """Run a stage under a policy whose decisions take effect at once; return its trace."""
    instances, queue, memory = START, 0.0, None
    trace = []
    for _ in range(intervals):
        queue = max(0.0, queue + (ARRIVING - instances * RATE) * INTERVAL_S)
        trace.append((instances, queue))
        even = (1.0 / instances,) * instances
        measures = StageMeasures((RATE,) * instances, even, (ARRIVING,), (queue,))
        decision = policy.decide(measures, Limits(1, HIGH), memory)
        instances, memory = decision.wanted, decision.memory
    return tuple(trace)


def _paper(floor: str, backlog_each: float) -> Paper:
    return Paper(
        PaperSettings(
            floor=floor, backlog_each=backlog_each, smoothing=1.0, down_intervals=1, cooldown=0, new_phase=0.0
        )
    )


def _secant(busy_share: float) -> Secant:
    at_once = SecantSettings(
        busy_share=busy_share, max_factor=HIGH, up_intervals=1, down_intervals=1, down_margin=1.0, burst_s=0.0
    )
    return Secant(at_once)


@dataclass(frozen=True, slots=True)
class FluidRow:
    """Run of the specification: its policy, and its published trace."""

    policy: ScalingPolicy
    published: Trace


FLUID_ROWS: dict[str, FluidRow] = {
    "paper, no floor": FluidRow(
        _paper("none", 150.0),
        ((2, 1200.0), (5, 1950.0), (11, 1800.0), (11, 1650.0), (11, 1500.0), (10, 1500.0), (10, 1500.0)),
    ),
    "paper, floor rate": FluidRow(_paper("rate", 150.0), ((2, 1200.0), (10, 1200.0), (10, 1200.0))),
    "paper, floor drain": FluidRow(_paper("drain", 150.0), ((2, 1200.0), (18, 0.0), (10, 0.0), (10, 0.0))),
    "secant, all of the time": FluidRow(_secant(1.0), ((2, 1200.0), (18, 0.0), (10, 0.0), (10, 0.0))),
    "secant, 0.8 of the time": FluidRow(_secant(0.8), ((2, 1200.0), (23, 0.0), (13, 0.0), (13, 0.0))),
}
"""Published runs by name, without noise or waiting times, every step taken. Source: scaling specification §6 and §7.4."""


def exact_rows() -> tuple[Row, ...]:
    """Return a row for each run, which says whether its trace equals the published one."""
    rows = []
    for name, row in FLUID_ROWS.items():
        ours = fluid_run(row.policy, len(row.published))
        rows.append(
            {"policy": name, "scenario": f"fluid queue, {name}", "is_exact": ours == row.published, "trace": str(ours)}
        )
    return tuple(rows)
