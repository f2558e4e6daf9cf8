"""What the counting of uses reports to its observer."""

from agiledart_kernel.observation import Observation


class TokenOverused(Observation, frozen=True, gc=False):
    """More keys came by a token than it allows: two rings have counted apart. They stay members.

    Args:
        token: the hash of its link, hex.
    """

    token: str
    allowed: int
    used: int
