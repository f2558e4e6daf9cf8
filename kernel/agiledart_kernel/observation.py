"""Reports of core code. Logs, metrics and checkers subscribe; core code never logs.

An observation is a past-tense struct, for example `PeerDeclaredFailed(peer=…)`. The default observer does nothing.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import msgspec


@runtime_checkable
class HasReason(Protocol):
    """Observation of an event that has a reason, one of a bounded set."""

    reason: object


class Observation(msgspec.Struct, frozen=True, gc=False):
    """Event that a log, a metric or a checker may want to see."""


Observer = Callable[[Observation], None]


def ignore(observation: Observation) -> None:
    """Ignore an observation. This is the default observer."""
