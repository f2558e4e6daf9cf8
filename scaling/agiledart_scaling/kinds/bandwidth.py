"""Detection of a full link: more instances behind it would wait for it, too."""

import math
from dataclasses import dataclass
from enum import Enum

FULL_LINK = 0.8
FULL_NODE = 0.8
LEAST_DELIVERED = 0.95
SHORT_TERM_INTERVALS = 3
"""Utilisation of a link, and of cores, that counts as full; share of offered rows that must arrive; intervals that count as
short-term."""


class Remedy(Enum):
    """Change that relieves a full link."""

    NEW_PATH = "another path of the shuffle"
    OUT = "instances behind another link"
    MIGRATE = "a node behind other links"


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """Load of a stage's node and links.

    Attributes:
        busiest_link: largest utilisation of its links, 0 … 1.
        name: of that link, for people; `instance`: the instance that sends over it, None: unknown.
        rows: rows/s that this instance takes in; 0: unknown.
        busy_cores: utilisation of the node's cores, 0 … 1.
        delivered: share of the rows it tried to send that receivers took.
    """

    busiest_link: float = 0.0
    busy_cores: float = 0.0
    delivered: float = 1.0
    name: str = ""
    instance: int | None = None
    rows: float = 0.0


def is_bandwidth_bound(load: LinkLoad, *, has_free_cores: bool = False) -> bool:
    """Return whether links limit the stage.

    Where the cores are full as well, free cores are used first; only then the links count as the limit.
    """
    is_limited = load.busiest_link >= FULL_LINK or load.delivered < LEAST_DELIVERED
    return is_limited and (load.busy_cores < FULL_NODE or not has_free_cores)


MOST_GROWTH = 4
"""Factor by which a full link multiplies the instances of a stage at most, in one step."""


def instances_beside(load: LinkLoad, now: int, offered: float) -> int:
    """Return the number of instances of which each gets no more of the offered rows/s than one behind the full link can send.

    It is at least one more than `now`. Rows that wait do not count: a backlog says how long the link has been full, not how full.
    """
    needed = math.ceil(offered / load.rows - 1e-9) if load.rows > 0 else now + 1
    return max(now + 1, min(needed, MOST_GROWTH * now))


def choose_remedy(intervals: int, *, has_state: bool) -> Remedy:
    """Return the remedy for a stage that has been bandwidth-bound for this many intervals.

    Source: [AgileDART] IV-C, table of the kinds of scaling: stateless operators are scaled out, stateful ones migrate
    with their state.
    """
    if intervals < SHORT_TERM_INTERVALS:
        return Remedy.NEW_PATH
    return Remedy.MIGRATE if has_state else Remedy.OUT
