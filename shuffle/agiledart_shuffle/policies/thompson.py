"""Thompson sampling: each packet uses one random guess for every link, drawn from the distribution that its record gives."""

from collections.abc import Iterable

from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.divergence import COST_MAX
from agiledart_shuffle.draws import beta
from agiledart_shuffle.estimates import Estimates


class ThompsonIndex:
    """Link index with success rates drawn from Beta(1 + a·s, 1 + a·(t'-s)).

    Args:
        random: stream of the draws.
        sharpness: a; above 1 guesses keep closer to the record than its evidence warrants, which explores less.

    Source: [AgileDART] §V for the setting; [Thompson 1933] for the rule, which the paper does not use.
    """

    def __init__(self, random: RandomStream, sharpness: float = 1.0) -> None:
        self._random, self._sharpness = random, sharpness

    def survey(self, estimates: Estimates) -> None:
        """Do nothing: the index needs no view of all links."""

    def refresh(self, costs: list[float], links: Iterable[int], estimates: Estimates, slot: int) -> None:
        """Draw the costs of some links; see `LinkIndex.refresh`."""
        successes, attempts, random = estimates.successes, estimates.attempts, self._random
        weight = self._sharpness * estimates.scale
        for link in links:
            passed = successes[link]
            rate = beta(random, 1.0 + weight * passed, 1.0 + weight * (attempts[link] - passed))
            costs[link] = 1.0 / rate if rate * COST_MAX > 1.0 else COST_MAX
