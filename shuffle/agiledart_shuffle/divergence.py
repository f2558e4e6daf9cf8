"""Upper bound of a link's true success rate, given the observed one: Bernoulli divergence and its upper inverse.

The inverse is computed in y = -ln(1-u), where the divergence is convex and nearly linear: Newton's steps then come from one
side, and rates close to 1 keep all their digits.
"""

import math

COST_MAX = 1e9
"""Cost in slots of a link that has never let anything through: finite, so that sums stay comparable."""

_PRECISION = 1e-11
_ITERATIONS = 60

_TINY = 1e-13
"""Nats below which the divergence is lost in rounding, and its parabola is as exact."""


def divergence(rate: float, other: float) -> float:
    """Return KL(rate, other) of two Bernoulli rates in nats; infinite where `other` excludes outcomes that `rate` allows.

    Source: [AgileDART] §V, Algorithm 1; [Garivier-Cappé 2011].
    """
    total = 0.0
    if rate > 0.0:
        if other <= 0.0:
            return math.inf
        total += rate * math.log(rate / other)
    if rate < 1.0:
        if other >= 1.0:
            return math.inf
        total += (1.0 - rate) * (math.log1p(-rate) - math.log1p(-other))
    return max(0.0, total)


def upper_rate(rate: float, nats: float) -> float:
    """Return the largest rate u ≥ `rate` with KL(rate, u) ≤ `nats`.

    Source: [Garivier-Cappé 2011], the KL upper confidence bound.

    Departs: [AgileDART] appendix B speaks of the least u; the largest u gives the smallest, most optimistic, cost 1/u.
    """
    if rate >= 1.0 or nats == math.inf:
        return 1.0
    if nats <= 0.0:
        return rate
    if rate <= 0.0:
        return -math.expm1(-nats)
    return -math.expm1(-upper_exponent(rate, nats))


def upper_exponent(rate: float, nats: float, start: float = 0.0) -> float:
    """Return -ln(1-u) for the u of `upper_rate`, by Newton's steps; a step outside the bracket is replaced by halving it.

    Stop when Newton's error bound, ½·rate·(1-u)/u²·step²/slope, is below `_PRECISION`·y.

    Args:
        rate: strictly between 0 and 1.
        nats: more than 0, finite.
        start: a guess, as the value found for slightly other arguments; one step from a near guess is enough.
    """
    rest = 1.0 - rate
    bottom = low = -math.log1p(-rate)
    if nats < _TINY:
        return low + math.sqrt(2.0 * nats * rate / rest)
    log_rate = math.log(rate)
    high = ((nats - rate * log_rate) / rest + low) * (1.0 + _PRECISION)  # rounding must not exclude the root
    y = start if low < start < high else min(high, low + math.sqrt(2.0 * nats * rate / rest) + nats / rest)
    for _ in range(_ITERATIONS):
        u = -math.expm1(-y)
        excess = rate * (log_rate - math.log(u)) + rest * (y - bottom) - nats
        if excess > 0.0:
            high = y
        else:
            low = y
        tail = rate * (1.0 - u) / u
        slope = rest - tail
        z = y - excess / slope if slope > 0.0 else math.inf
        # Newton's step error_bound the bracket: halve the bracket instead.
        if not low <= z <= high:
            z = 0.5 * (low + high)
            if high - low <= _PRECISION * z:
                return z
        else:
            step = abs(z - y)
            error_bound = tail * step * step if step <= 0.01 * min(1.0, y - bottom) else math.inf
            if error_bound <= _PRECISION * z * slope * u or step <= _PRECISION * z:
                return z
        y = z
    return y
