"""Input and result of a placement: the stages that need nodes, the state of the nodes, the assignment."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from agiledart_kernel.node_id import NodeId
from agiledart_placement.problem.network_view import NetworkView
from agiledart_placement.problem.objective import Objective


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
    RULE = "rule"
    """A rule of the application about its steps forbids the node."""
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
        application: number of the topology that it belongs to, when a request has several.
        demand: resource → amount that each instance needs.
        execution_ms: time for one row on a node of speed 1.
        selectivity: rows out for each row in.
        state_bytes: size of its state.
        candidates: nodes that may run it; None: all.
        zone: only nodes of this zone may run it; empty: any.
        together_with: stages on whose nodes it must run, pairwise by instance number.
        apart_from: (`node`, `host` or `zone`, stage): no instance of both may share one.
    """

    stage: int
    name: str
    parallelism: int = 1
    pinned: NodeId | None = None
    needs: tuple[str, ...] = ()
    application: int = 0
    demand: Mapping[str, float] = field(default_factory=dict)
    execution_ms: float = 0.0
    selectivity: float = 1.0
    state_bytes: int = 0
    candidates: tuple[NodeId, ...] | None = None
    zone: str = ""
    together_with: tuple[int, ...] = ()
    apart_from: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class StreamLoad:
    """Load of the stream of an edge.

    Args:
        rate: rows per second.
        bytes: bytes of a row.
    """

    rate: float = 1.0
    bytes: float = 1.0


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
        name: for messages and ties; empty: nodes are ordered by id.
        zone, host: failure zone, and machine when several nodes run on one.
        places: nodes of the ring for which it counts: its balanced share is so many times as large.
        resources, used: resource → capacity, and the part of it that others hold. A resource that is missing is 0.
        speed: relative to a reference processor.
        availability: share of the time that the node works, 0 to 1.
        price_per_hour, watts_idle, watts_busy: None: unknown.
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
    name: str = ""
    zone: str = ""
    host: str = ""
    places: int = 1
    resources: Mapping[str, float] = field(default_factory=dict)
    used: Mapping[str, float] = field(default_factory=dict)
    speed: float = 1.0
    availability: float = 1.0
    price_per_hour: float | None = None
    watts_idle: float | None = None
    watts_busy: float | None = None


def _never() -> bool:
    """Return that time is not up: the search runs until its own end, and repeats."""
    return False


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """All facts that a strategy may use.

    Args:
        stages: in topological order, numbered as in the plan.
        edges: (upstream stage, downstream stage).
        paths: recorded routes, source node first and sink node last; a path of length 1: source and sink are one node.
        hosts: state of the nodes on the paths and of their candidates; a node that is missing is not used.
        max_ops_balanced: operator instances of all applications above which a node of one place counts as full.
        loads: load of each edge, in their order; empty: one row of one byte per second on each.
        network: links of the nodes; None: nothing is known of them.
        headroom: share of every capacity that must stay free.
        objective: the aim; None: the strategy's own.
        start: present placement, (stage, index) → node.
        seed: of all random choices.
        time_is_up: says that the search must end with what it has.
        is_exclusive: no node may run instances of two applications.
    """

    stages: tuple[StageDemand, ...]
    edges: tuple[tuple[int, int], ...]
    paths: tuple[tuple[NodeId, ...], ...]
    hosts: Mapping[NodeId, HostState]
    max_ops_balanced: int = 2
    loads: tuple[StreamLoad, ...] = ()
    network: NetworkView | None = None
    headroom: float = 0.0
    objective: Objective | None = None
    start: Mapping[tuple[int, int], NodeId] | None = None
    seed: int = 0
    time_is_up: Callable[[], bool] = _never
    is_exclusive: bool = False


@dataclass(frozen=True, slots=True)
class SearchReport:
    """Course of the search for a placement.

    Args:
        status: `optimal`, `sampled` (optimal among chosen candidates), `time_limit`, `heuristic`, `infeasible`.
        bound: value that no placement can beat; None: unknown.
        gap: distance of value and bound, as a share of the value without its constant part.
        evaluations: placements or moves that were judged.
        messages: that a distributed form would have sent.
        migrations: changes of an operator's node on the way.
        candidates: `all`, or how they were chosen.
        virtual: (stage, index) → position in the latency space before mapping.
        seconds: of the solver; None: the strategy has no solver.
        notes: remarks for the user.
        figures: further figures of the search, such as the size of a model.
    """

    status: str = "heuristic"
    bound: float | None = None
    gap: float | None = None
    evaluations: int = 0
    messages: int = 0
    migrations: int = 0
    candidates: str = "all"
    virtual: Mapping[tuple[int, int], tuple[float, float, float]] = field(default_factory=dict)
    seconds: float | None = None
    notes: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Placement:
    """MovableAssignment of all instances to nodes.

    Args:
        nodes: (stage, index) → node, every instance of every stage.
        relaxed: rules that were relaxed, in the words of the spec: `same application`, `balance`.
        away: (stage, index) → the node where the instance would have run, and the obstacle there; only instances that were moved.
        search: how the strategy came to it.
        reasons: stage → what a planner's strategy says about it, or why its plan is not this one; empty: no planner was asked.
        is_planned: a planner's strategy made it.
    """

    nodes: Mapping[tuple[int, int], NodeId]
    relaxed: tuple[str, ...] = field(default=())
    away: Mapping[tuple[int, int], tuple[NodeId, Obstacle]] = field(default_factory=dict)
    search: SearchReport = field(default_factory=SearchReport)
    reasons: Mapping[int, str] = field(default_factory=dict)
    is_planned: bool = False

    def hosts_of(self, stage: int) -> tuple[NodeId, ...]:
        """Return the nodes of a stage in the order of its instances."""
        return tuple(node for (of, _), node in sorted(self.nodes.items()) if of == stage)
