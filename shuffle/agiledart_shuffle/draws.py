"""Draws from a Beta distribution made of uniform numbers alone, so that a seed gives the same on every Python version."""

import math

from agiledart_kernel.randomness import RandomStream

_LOG_4 = math.log(4.0)
_TINY = 5e-324


def beta(stream: RandomStream, first: float, second: float) -> float:
    """Return a number in [0, 1] from Beta(first, second); both parameters are positive.

    Source: [Cheng 1978], algorithms BB (both above 1) and BC.
    """
    if first == second == 1.0:
        return stream.uniform()
    if first > 1.0 and second > 1.0:
        return _both_above_one(stream, first, second)
    return _one_at_most_one(stream, first, second)


def _both_above_one(stream: RandomStream, first: float, second: float) -> float:
    draw, log = stream.uniform, math.log
    a, b = (first, second) if first < second else (second, first)
    total = a + b
    spread = math.sqrt((total - 2.0) / (2.0 * a * b - total))
    slope = a + 1.0 / spread
    while True:
        x = draw() or _TINY
        v = spread * log(x / (1.0 - x))
        w = a * math.exp(v)
        z = x * x * (draw() or _TINY)
        r = slope * v - _LOG_4
        s = a + r - w
        if s + 2.609438 >= 5.0 * z:  # 1 + ln 5
            break
        t = log(z)
        if s >= t or r + total * log(total / (b + w)) >= t:
            break
    return w / (b + w) if a == first else b / (b + w)


def _one_at_most_one(stream: RandomStream, first: float, second: float) -> float:
    draw, log = stream.uniform, math.log
    a, b = (first, second) if first > second else (second, first)
    total = a + b
    spread = 1.0 / b
    difference = 1.0 + a - b
    near = difference * (0.0138889 + 0.0416667 * b) / (a * spread - 0.777778)
    far = 0.25 + (0.5 + 0.25 / difference) * b
    while True:
        x, y = draw() or _TINY, draw() or _TINY
        z = x * x * y
        if x < 0.5:
            if 0.25 * y + z - x * y >= near:
                continue
        elif z <= 0.25:
            w = a * math.exp(min(700.0, spread * log(x / (1.0 - x))))
            break
        elif z >= far:
            continue
        v = min(700.0, spread * log(x / (1.0 - x)))
        w = a * math.exp(v)
        if total * (log(total / (b + w)) + v) - _LOG_4 >= log(z or _TINY):
            break
    return w / (b + w) if a == first else b / (b + w)
