"""Observations of a node's scheduling."""

from agiledart_kernel.observation import Observation
from agiledart_kernel.peer import Peer


class SchedulerLookedUp(Observation, frozen=True, gc=False):
    """A look-up found a scheduler that registered the application.

    Args:
        how: `cache`, `walk`, `claim` (the slot's record named it) or `election`.
        hops: nodes asked during the look-up, including the scheduler.
        elections: elections that this look-up started, including those that another look-up decided first.
    """

    application: str
    how: str
    hops: int
    elections: int


class ElectionBegun(Observation, frozen=True, gc=False):
    """A look-up found no scheduler with capacity, and a free scheduler slot."""

    domain: str
    index: int


class SchedulerElected(Observation, frozen=True, gc=False):
    """This node took a scheduler slot."""

    domain: str
    index: int
    term: int


class SchedulerResigned(Observation, frozen=True, gc=False):
    """This node gave up its scheduler slot; `reason`: idle, superseded or leaving."""

    domain: str
    index: int
    reason: str


class ApplicationWaits(Observation, frozen=True, gc=False):
    """No node has capacity for an application that this node deploys; `waiting` counts its pending queue, including this one."""

    application: str
    reason: str
    waiting: int


class SchedulerLost(Observation, frozen=True, gc=False):
    """The scheduler of an application that this node coordinates is gone, and the node looks for another one."""

    application: str
    scheduler: Peer
