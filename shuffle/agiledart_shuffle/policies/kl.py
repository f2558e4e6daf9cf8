"""Link index of the paper: the least delay that is still plausible for a link, given its attempts and successes."""

import math
from collections.abc import Iterable

from agiledart_shuffle.divergence import COST_MAX, upper_exponent
from agiledart_shuffle.estimates import Estimates


class KlIndex:
    """ω of every link, with exploration factor C; C = 1 is the paper's rule, C = 0 trusts the mean alone.

    The last solution of each link starts the search for its next one; between two packets it moves so little that one step of
    Newton's method is enough.

    Source: [AgileDART] §V, Algorithm 1; [Talebi et al. 2018], KL-HHR with another confidence level.
    """

    def __init__(self, exploration: float) -> None:
        self.exploration = exploration
        self._exponents: list[float] = []

    def survey(self, estimates: Estimates) -> None:
        """Do nothing: the index needs no view of all links."""

    def refresh(self, costs: list[float], links: Iterable[int], estimates: Estimates, slot: int) -> None:
        """Compute the costs of some links; see `LinkIndex.refresh`."""
        if len(self._exponents) < len(costs):
            self._exponents = [0.0] * len(costs)
        budget = self.exploration * math.log(min(slot, estimates.memory.horizon)) / estimates.scale
        successes, attempts, exponents = estimates.successes, estimates.attempts, self._exponents
        expm1 = math.expm1
        for link in links:
            tried, passed = attempts[link], successes[link]
            if passed >= tried:  # untried, or never failed
                costs[link] = 1.0
            elif budget <= 0.0:
                costs[link] = tried / passed if passed * COST_MAX > tried else COST_MAX
            elif passed <= 0.0:
                costs[link] = min(COST_MAX, -1.0 / expm1(-budget / tried))
            else:
                exponents[link] = y = upper_exponent(passed / tried, budget / tried, exponents[link])
                costs[link] = -1.0 / expm1(-y)
