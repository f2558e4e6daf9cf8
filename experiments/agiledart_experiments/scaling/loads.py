"""Load functions: a step up and back, and an hour of bursts."""

import math

from agiledart_experiments.scaling.noise import exponential
from agiledart_experiments.scaling.queue_model import Load
from agiledart_kernel.randomness import RandomStream

BEFORE, DURING = 300.0, 1200.0
RISE_S, FALL_S, STEP_S = 60, 180, 330
"""Rows/s before and during the step; seconds at which the step starts, the step ends, and the run ends."""

HOUR_S = 3600
BURST_EVERY_S = 30.0


def step(second: float) -> float:
    """Return the rows/s at a second: four times the base rate for two minutes."""
    return DURING if RISE_S <= second < FALL_S else BEFORE


def bursts(seed: int) -> Load:
    """Return a load of 300 rows/s ± 20 % over the hour, with bursts.

    A burst is two to four times as high, lasts 0.5 s to 4 s, and comes every 30 s on average.
    """
    random = RandomStream(seed, "bursts")
    factors: dict[int, float] = {}
    start = 0.0
    while start < HOUR_S + 10:
        start += exponential(random, BURST_EVERY_S)
        end, factor = start + random.between(0.5, 4.0), random.between(2.0, 4.0)
        for tenth in range(round(start * 10), round(end * 10)):
            factors[tenth] = max(factor, factors.get(tenth, 1.0))

    def load(second: float) -> float:
        base = BEFORE * (1 + 0.2 * math.sin(2 * math.pi * second / HOUR_S))
        return base * factors.get(round(second * 10), 1.0)

    return load
