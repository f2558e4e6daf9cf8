"""What the scheduling of a node reports to its observer."""

from agiledart_kernel.observation import Observation
from agiledart_kernel.peer import Peer


class SchedulerLookedUp(Observation, frozen=True, gc=False):
    """A look-up found a scheduler that took the application.

    Args:
        how: `cache`, `walk`, `claim` (the office's record knew it) or `election`.
        hops: nodes asked on the way, the scheduler included.
        elections: elections that this look-up started; one that another look-up decided first counts too.
    """

    application: str
    how: str
    hops: int
    elections: int


class ElectionBegun(Observation, frozen=True, gc=False):
    """A look-up found nobody with room and an office that is free."""

    domain: str
    index: int


class SchedulerElected(Observation, frozen=True, gc=False):
    """This node took an office."""

    domain: str
    index: int
    term: int


class SchedulerResigned(Observation, frozen=True, gc=False):
    """This node gave its office up; `reason`: idle, superseded or leaving."""

    domain: str
    index: int
    reason: str


class ApplicationWaits(Observation, frozen=True, gc=False):
    """No node has room for an application that this node is to deploy; `waiting` are those in its line, this one included."""

    application: str
    reason: str
    waiting: int


class SchedulerLost(Observation, frozen=True, gc=False):
    """The scheduler of an application that this node coordinates is gone; it looks for another one."""

    application: str
    scheduler: Peer
