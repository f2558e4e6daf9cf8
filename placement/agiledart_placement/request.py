"""What needs a place, and what is known about the nodes that could give one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from agiledart_kernel.node_id import NodeId


class Obstacle(Enum):
    """Why a node does not take an instance."""

    UNKNOWN = "unknown"
    """Nothing is known of it, or it did not answer."""
    LEAVING = "leaving"
    FULL = "full"
    """It holds as many as it has room for."""
    TAG = "tag"
    """It lacks something that the stage needs."""
    BALANCE = "balance"
    """It holds as many as one node should, while others have room."""
    SHARED = "shared"
    """It runs another step of the application."""
    CLOCK = "clock"
    """Its clock is so wrong that others would not believe what it signs."""
    VERSION = "version"
    """It runs another version of AgileDart, which does not know this specification."""
    COPIES = "copies"
    """It is for the first instance; the others go to nodes of their own."""


@dataclass(frozen=True, slots=True)
class StageDemand:
    """One stage that needs places.

    Args:
        stage: its number in the plan.
        name: for messages.
        parallelism: number of instances, at least 1.
        pinned: node on which all its instances must run; None: free.
        needs: resource tags that a node must have to take it (spec of the dataflow graph, section 4 rule 7).
    """

    stage: int
    name: str
    parallelism: int = 1
    pinned: NodeId | None = None
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostState:
    """What a node said of itself.

    Args:
        node: which one.
        operators: instances that it runs, of all applications.
        capacity: instances that it takes at the most.
        has_application: it already runs an instance of the application to be placed.
        is_draining: it is about to leave and takes nothing.
        unfit: why it can take nothing of this application, if so.
        offers: resource tags that it has.
        candidates: where its overflow goes: its leaf set, cheapest first (the order is the cost).
        neighbours: where it goes when they are all full: its neighbourhood set, cheapest first.
    """

    node: NodeId
    operators: int = 0
    capacity: int = 64
    has_application: bool = False
    is_draining: bool = False
    unfit: Obstacle | None = None
    offers: tuple[str, ...] = ()
    candidates: tuple[NodeId, ...] = ()
    neighbours: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """Everything that a strategy may look at.

    Args:
        stages: in topological order, numbered as in the plan.
        edges: (upstream stage, downstream stage).
        paths: recorded routes, source node first and sink node last; a path of length 1: source and sink are one node.
        hosts: what is known of nodes on the paths and of their candidates; a node that is missing is not used.
        max_ops_balanced: operator instances of all applications above which a node counts as full.
    """

    stages: tuple[StageDemand, ...]
    edges: tuple[tuple[int, int], ...]
    paths: tuple[tuple[NodeId, ...], ...]
    hosts: Mapping[NodeId, HostState]
    max_ops_balanced: int = 2


@dataclass(frozen=True, slots=True)
class Placement:
    """Where everything runs.

    Args:
        nodes: (stage, index) → node, every instance of every stage.
        relaxed: rules that had to be given up, in the words of the spec: `same application`, `balance`.
        away: (stage, index) → the node where it would have run, and why it does not; only where there is such a node.
    """

    nodes: Mapping[tuple[int, int], NodeId]
    relaxed: tuple[str, ...] = field(default=())
    away: Mapping[tuple[int, int], tuple[NodeId, Obstacle]] = field(default_factory=dict)

    def hosts_of(self, stage: int) -> tuple[NodeId, ...]:
        """Nodes of a stage in the order of its instances."""
        return tuple(node for (of, _), node in sorted(self.nodes.items()) if of == stage)
