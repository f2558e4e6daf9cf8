"""Where instances come and go: on nodes that host the stage first, then on others; back in the opposite order."""

from collections.abc import Sequence
from dataclasses import dataclass

FULL_NODE = 0.8
"""A node whose cores are this busy takes no instance more."""


@dataclass(frozen=True, slots=True)
class CandidateNode:
    """A node that may host instances.

    Attributes:
        node: its name.
        cores: it has.
        busy_cores: share of them that is busy, 0 … 1.
        room: instances that it takes by memory and by its limits.
        hosts: instances of the stage that it runs now.
        cost: of reaching it, for the order among those that do not host the stage.
    """

    node: str
    cores: int
    busy_cores: float
    free_instances: int
    hosts: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class InstanceStart:
    """Instances that shall start on a node; `is_out`: it did not host the stage before."""

    node: str
    instances: int
    is_out: bool


def places_for(more: int, nodes: Sequence[CandidateNode]) -> tuple[InstanceStart, ...]:
    """Where so many instances can start, at most; fewer in sum: there is no room for the others.

    A node takes one for each free core, and not more than its room. Up before out: hosting nodes with the most free cores
    first, then the others by cost.

    Source: [AgileDART] IV-C: scaling up adds instances inside a node, scaling out starts them on another one.
    """
    order = sorted(
        nodes, key=lambda one: (one.hosts == 0, one.cost if not one.hosts else 0.0, one.busy_cores, one.node)
    )
    arrivals: list[InstanceStart] = []
    for one in order:
        free = int(one.cores * (1.0 - one.busy_cores) + 1e-9) if one.busy_cores < FULL_NODE else 0
        taken = min(more, max(free, int(one.busy_cores < FULL_NODE)), one.free_instances)
        if taken > 0:
            arrivals.append(InstanceStart(one.node, taken, one.hosts == 0))
            more -= taken
    return tuple(arrivals)


def leaving(fewer: int, places: Sequence[str], home: str) -> tuple[int, ...]:
    """Indices of the instances that end, highest first: those of nodes far from home, the last started first; the others after.

    Args:
        fewer: how many; at least one instance stays.
        places: node of each instance, by index.
        home: node that keeps its instances longest.
    """
    order = sorted(range(len(places)), key=lambda index: (places[index] == home, -index))
    return tuple(sorted(order[: min(fewer, len(places) - 1)], reverse=True))
