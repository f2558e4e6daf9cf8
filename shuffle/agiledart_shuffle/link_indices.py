"""Link indices by name, for agents: an agent loads the code of the one that it uses, and no policy of whole paths."""

from difflib import get_close_matches

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.policy import LinkIndex

KL_EXPLORATION = 0.05
"""C of `kl`: the best value on networks other than those that are reported."""

PAPER_EXPLORATION = 0.2
"""C of `paper`: the best value of figure 17d on the network whose delays are nearest to those of the other figures; 0.4 was the
best on the second network. Source: [AgileDART] §V, Algorithm 1; figure 17d."""

LINK_INDICES: tuple[str, ...] = ("kl", "paper", "planned", "ts", "ts4")
"""Names of the policies that differ in their link index only, which agents can use for circuits."""


def index_named(name: str, exploration: float, random: RandomStream) -> LinkIndex:
    """Return the link index of a policy.

    Args:
        name: one of `LINK_INDICES`.
        exploration: C of `kl`.
        random: stream of what an index draws.

    Raises:
        ConfigurationError: for an unknown name.
    """
    match name:
        case "kl" | "paper":
            from agiledart_shuffle.policies.kl import KlIndex

            return KlIndex(exploration if name == "kl" else PAPER_EXPLORATION)
        case "planned":
            from agiledart_shuffle.policies.shared_prior import SharedPriorIndex

            return SharedPriorIndex(random)
        case "ts" | "ts4":
            from agiledart_shuffle.policies.thompson import ThompsonIndex

            return ThompsonIndex(random) if name == "ts" else ThompsonIndex(random, 4.0)
        case _:
            close = get_close_matches(name, LINK_INDICES, 1, 0.4)
            meant = f" Did you mean {close[0]}?" if close else ""
            raise ConfigurationError(f"paths.policy is {name!r}; allowed are {', '.join(LINK_INDICES)}.{meant}")
