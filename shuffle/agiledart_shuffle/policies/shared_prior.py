"""Thompson sampling with a prior for untried links taken from the tried ones, and no draw below a link's mean."""

from collections.abc import Iterable

from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.divergence import COST_MAX
from agiledart_shuffle.draws import beta
from agiledart_shuffle.estimates import Estimates

_TRIED = 3.0
"""Attempts from which the rate of a link counts for the prior."""

_LINKS = 5
"""Links with that many attempts before they replace the flat prior."""

_VARIANCE_LEAST, _STRENGTH_MOST, _PARAMETER_LEAST = 0.01, 8.0, 0.3


class SharedPriorIndex:
    """Rates drawn from Beta(m·z + a·s, (1-m)·z + a·(t'-s)), never below the mean of the record with that prior.

    The prior has the mean m and the spread of the rates of all links that were tried at least three times, as of the last
    survey.

    Source: [AgileDART] §V for the setting; [Thompson 1933], [Efron-Morris 1973] for a prior out of the data itself.
    """

    def __init__(self, random: RandomStream, sharpness: float = 4.0) -> None:
        self._random, self._sharpness = random, sharpness
        self._prior = (1.0, 1.0)

    def survey(self, estimates: Estimates) -> None:
        """Compute the prior; see `LinkIndex.survey`."""
        self._prior = _prior(estimates)

    def refresh(self, costs: list[float], links: Iterable[int], estimates: Estimates, slot: int) -> None:
        """Draw the costs of some links; see `LinkIndex.refresh`."""
        good, bad = self._prior
        successes, attempts, scale, random = estimates.successes, estimates.attempts, estimates.scale, self._random
        weight = self._sharpness * scale
        for link in links:
            tried = attempts[link]
            if tried <= 0.0:
                rate = beta(random, good, bad)
            else:
                passed = successes[link]
                rate = beta(random, good + weight * passed, bad + weight * (tried - passed))
                mean = (good + scale * passed) / (good + bad + scale * tried)
                if rate < mean:
                    rate = mean
            costs[link] = 1.0 / rate if rate * COST_MAX > 1.0 else COST_MAX


def _prior(estimates: Estimates) -> tuple[float, float]:
    """Return Beta parameters with the mean and spread of the rates of the tried links."""
    scale = estimates.scale
    count, total, squares = 0, 0.0, 0.0
    for passed, tried in zip(estimates.successes, estimates.attempts, strict=True):
        if tried * scale >= _TRIED:
            rate = (passed * scale + 0.5) / (tried * scale + 1.0)
            count += 1
            total += rate
            squares += rate * rate
    if count < _LINKS:
        return 1.0, 1.0
    mean = total / count
    variance = max(_VARIANCE_LEAST, squares / count - mean * mean)
    strength = min(_STRENGTH_MOST, max(1.0, mean * (1.0 - mean) / variance - 1.0))
    return max(_PARAMETER_LEAST, mean * strength), max(_PARAMETER_LEAST, (1.0 - mean) * strength)
