"""Observations of token counting."""

from agiledart_kernel.observation import Observation


class TokenOverused(Observation, frozen=True, gc=False):
    """More keys joined with a token than it permits: two rings counted separately. The keys stay members.

    Args:
        token: the hash of its link, hex.
    """

    token: str
    allowed: int
    used: int
