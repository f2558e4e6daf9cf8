"""Choice of nodes for new instances: hosting nodes first, then others; instances end in the opposite order."""

from collections.abc import Sequence
from dataclasses import dataclass

FULL_NODE = 0.8
"""Utilisation of cores at which a node takes no more instances."""


@dataclass(frozen=True, slots=True)
class CandidateNode:
    """Node that may host instances.

    Attributes:
        node: its name.
        cores: number of its cores.
        busy_cores: share of its cores that is busy, 0 … 1.
        free_instances: instances that it takes by memory and by its limits.
        hosts: instances of the stage that it runs now.
        cost: of reaching it; orders the nodes that do not host the stage.
    """

    node: str
    cores: int
    busy_cores: float
    free_instances: int
    hosts: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class InstanceStart:
    """Number of instances to start on a node; `is_out`: the node did not host the stage before."""

    node: str
    instances: int
    is_out: bool


def places_for(more: int, nodes: Sequence[CandidateNode]) -> tuple[InstanceStart, ...]:
    """Return the nodes on which up to `more` instances can start; a smaller sum means that capacity is short.

    A node takes one instance for each free core, and not more than `free_instances`. Scaling up goes before scaling out: hosting
    nodes with the most free cores first, then the others by cost.

    Source: [AgileDART] IV-C: scaling up adds instances inside a node, scaling out starts them on another one.
    """
    ranked = sorted(
        nodes,
        key=lambda candidate: (
            candidate.hosts == 0,
            candidate.cost if not candidate.hosts else 0.0,
            candidate.busy_cores,
            candidate.node,
        ),
    )
    starts: list[InstanceStart] = []
    for candidate in ranked:
        free_cores = (
            int(candidate.cores * (1.0 - candidate.busy_cores) + 1e-9) if candidate.busy_cores < FULL_NODE else 0
        )
        taken = min(more, max(free_cores, int(candidate.busy_cores < FULL_NODE)), candidate.free_instances)
        if taken > 0:
            starts.append(InstanceStart(candidate.node, taken, candidate.hosts == 0))
            more -= taken
    return tuple(starts)


def leaving(fewer: int, places: Sequence[str], home: str) -> tuple[int, ...]:
    """Return the indices of the instances that end, highest first.

    Instances on nodes other than `home` end first, the last started of them first; then those at home.

    Args:
        fewer: number of instances to end; at least one instance stays.
        places: node of each instance, by index.
        home: node that keeps its instances longest.
    """
    order = sorted(range(len(places)), key=lambda index: (places[index] == home, -index))
    return tuple(sorted(order[: min(fewer, len(places) - 1)], reverse=True))
