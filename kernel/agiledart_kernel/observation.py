"""What core code reports. Logs, metrics and checkers subscribe; core code never logs.

An observation is a past-tense struct, for example `PeerDeclaredFailed(peer=…)`. The default observer does nothing.
"""

from collections.abc import Callable

import msgspec


class Observation(msgspec.Struct, frozen=True, gc=False):
    """Something that happened and that somebody may want to count, log or check."""


Observer = Callable[[Observation], None]


def ignore(observation: Observation) -> None:
    """The observer that nobody set."""
