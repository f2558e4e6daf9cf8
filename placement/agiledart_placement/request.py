"""Input and result of a placement: the stages that need nodes, the state of the nodes, the assignment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from agiledart_kernel.node_id import NodeId


class Obstacle(Enum):
    """Reason why a node does not take an instance."""

    UNKNOWN = "unknown"
    """No report about the node is known, or it did not answer."""
    LEAVING = "leaving"
    FULL = "full"
    """The node holds as many instances as its capacity allows."""
    TAG = "tag"
    """The node lacks a resource tag that the stage needs."""
    BALANCE = "balance"
    """The node holds its balanced share of instances, while other nodes have capacity."""
    SHARED = "shared"
    """The node runs another step of the application."""
    CLOCK = "clock"
    """The node's clock differs so much that other nodes would reject its signatures."""
    VERSION = "version"
    """The node runs another version of AgileDart, which does not know this specification."""
    COPIES = "copies"
    """The node takes the first instance of the stage; the other instances go to other nodes."""


@dataclass(frozen=True, slots=True)
class StageDemand:
    """Stage that needs nodes.

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
    """State that a node reported about itself.

    Args:
        node: id of the node.
        operators: instances that it runs, of all applications.
        capacity: most instances that it takes.
        has_application: it already runs an instance of the application to be placed.
        is_draining: it is about to leave and takes nothing.
        unfit: reason why it can take no instance of this application; None: it can.
        offers: resource tags that it has.
        candidates: overflow targets: its leaf set, cheapest first (the order is the cost).
        neighbours: overflow targets when all candidates are full: its neighbourhood set, cheapest first.
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
    """All facts that a strategy may use.

    Args:
        stages: in topological order, numbered as in the plan.
        edges: (upstream stage, downstream stage).
        paths: recorded routes, source node first and sink node last; a path of length 1: source and sink are one node.
        hosts: state of the nodes on the paths and of their candidates; a node that is missing is not used.
        max_ops_balanced: operator instances of all applications above which a node counts as full.
    """

    stages: tuple[StageDemand, ...]
    edges: tuple[tuple[int, int], ...]
    paths: tuple[tuple[NodeId, ...], ...]
    hosts: Mapping[NodeId, HostState]
    max_ops_balanced: int = 2


@dataclass(frozen=True, slots=True)
class Placement:
    """Assignment of all instances to nodes.

    Args:
        nodes: (stage, index) → node, every instance of every stage.
        relaxed: rules that were relaxed, in the words of the spec: `same application`, `balance`.
        away: (stage, index) → the node where the instance would have run, and the obstacle there; only instances that were moved.
    """

    nodes: Mapping[tuple[int, int], NodeId]
    relaxed: tuple[str, ...] = field(default=())
    away: Mapping[tuple[int, int], tuple[NodeId, Obstacle]] = field(default_factory=dict)

    def hosts_of(self, stage: int) -> tuple[NodeId, ...]:
        """Return the nodes of a stage in the order of its instances."""
        return tuple(node for (of, _), node in sorted(self.nodes.items()) if of == stage)
