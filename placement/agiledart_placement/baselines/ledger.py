"""Counts of the instances that each node holds while a placement is computed."""

from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.node_id import NodeId
from agiledart_placement.problem.problem import demand_of
from agiledart_placement.problem.request import HostState, Obstacle, Placement, PlacementRequest, StageDemand

STRICT, SHARED, UNBALANCED = range(3)
"""Levels of relaxation: all rules apply; several instances of one application may share a node; a node may exceed the balance
rule."""

_ROUNDING = 1e-9

RELAXED_RULES = ("", "same application", "balance")


class NoCapacity(OperationFailed):
    """Error: no node can take an instance now.

    Attributes:
        could_fit: whether the requested instances would fit if nothing else ran on the nodes.
    """

    def __init__(self, text: str, *, could_fit: bool) -> None:
        super().__init__(text)
        self.could_fit = could_fit


class Ledger:
    """Count of instances per node, including those of this placement; it decides which nodes are full."""

    __slots__ = ("_applications", "_held", "_request", "_taken", "_use", "away", "nodes", "relaxed")

    def __init__(self, request: PlacementRequest) -> None:
        self._request = request
        self._held = {node: state.operators for node, state in request.hosts.items()}
        self._taken = {node: state.has_application for node, state in request.hosts.items()}
        self._use = {node: dict(state.used) for node, state in request.hosts.items() if state.resources}
        """Amounts in use by node and resource; empty where nodes only count instances."""
        self._applications: dict[NodeId, int] = {}
        self.nodes: dict[tuple[int, int], NodeId] = {}
        self.relaxed = STRICT
        self.away: dict[tuple[int, int], tuple[NodeId, Obstacle]] = {}

    def put_pinned(self) -> None:
        """Assign the nodes of all pinned stages. A source or sink counts for balance, not for the same-application rule."""
        for stage in self._request.stages:
            if stage.pinned is not None:
                for index in range(stage.parallelism):
                    self.nodes[stage.stage, index] = stage.pinned
                    self._held[stage.pinned] = self.operators(stage.pinned) + 1
                    self._consume(stage, stage.pinned)

    def put(self, stage: StageDemand, index: int, node: NodeId) -> None:
        """Assign a node to one instance."""
        self.nodes[stage.stage, index] = node
        self._held[node] = self.operators(node) + 1
        self._taken[node] = True
        self._consume(stage, node)

    def _consume(self, stage: StageDemand, node: NodeId) -> None:
        use = self._use.get(node)
        if use is not None:
            for resource, amount in demand_of(stage, self._request.hosts[node]).items():
                use[resource] = use.get(resource, 0.0) + amount
        if self._request.is_exclusive:
            self._applications[node] = stage.application

    def operators(self, node: NodeId) -> int:
        """Return the number of instances that the node holds now."""
        return self._held.get(node, 0)

    def has_capacity(self, node: NodeId, stage: StageDemand, level: int) -> bool:
        """Return whether the node may take one more instance at this level of relaxation."""
        return self.obstacle(node, stage, level) is None

    def obstacle(self, node: NodeId, stage: StageDemand, level: int) -> Obstacle | None:
        """Return why the node may not take one more instance at this level of relaxation; None: it may."""
        if hard := self._hard_obstacle(node, stage):
            return hard
        if level < UNBALANCED and self._held[node] >= self._request.max_ops_balanced:
            return Obstacle.BALANCE
        return Obstacle.SHARED if level < SHARED and self._taken[node] else None

    def obstacle_at_home(self, node: NodeId, stage: StageDemand) -> Obstacle | None:
        """Return why a node with both the source and the sink of a stage does not take it.

        Only instances of other applications count for balance here.
        """
        if hard := self._hard_obstacle(node, stage):
            return hard
        is_busy = self._request.hosts[node].operators >= self._request.max_ops_balanced
        return Obstacle.BALANCE if is_busy else None

    def _hard_obstacle(self, node: NodeId, stage: StageDemand) -> Obstacle | None:
        """Return the obstacle that no relaxation removes; None: there is none."""
        state = self._request.hosts.get(node)
        if state is None:
            return Obstacle.UNKNOWN
        if state.is_draining:
            return Obstacle.LEAVING
        if state.unfit is not None:
            return state.unfit
        if self._held[node] >= state.capacity or self._lacks_resources(state, stage):
            return Obstacle.FULL
        if stage.candidates is not None and node not in stage.candidates:
            return Obstacle.TAG
        if self._applications.get(node, stage.application) != stage.application:
            return Obstacle.SHARED
        if (stage.zone and stage.zone != state.zone) or state.availability <= 0:
            return Obstacle.TAG
        return Obstacle.TAG if any(tag not in state.offers for tag in stage.needs) else None

    def _lacks_resources(self, state: HostState, stage: StageDemand) -> bool:
        use = self._use.get(state.node, {})
        share = 1.0 - self._request.headroom
        return any(
            use.get(resource, 0.0) + amount > state.resources.get(resource, 0.0) * share + _ROUNDING
            for resource, amount in demand_of(stage, state).items()
        )

    def relax(self, level: int) -> None:
        """Record that a rule was relaxed."""
        self.relaxed = max(self.relaxed, level)

    def placement(self) -> Placement:
        """Return the placement of all instances assigned so far."""
        return Placement(
            dict(sorted(self.nodes.items())), RELAXED_RULES[1 : self.relaxed + 1], dict(sorted(self.away.items()))
        )


def no_capacity(stage: StageDemand, index: int, request: PlacementRequest) -> NoCapacity:
    """Return the error that a user reads when no node can take an instance."""
    able = [state for state in request.hosts.values() if not state.is_draining and state.unfit is None]
    capacity, held = sum(state.capacity for state in able), sum(state.operators for state in able)
    needs = f" with {', '.join(stage.needs)}" if stage.needs else ""
    requested = sum(demand.parallelism for demand in request.stages)
    return NoCapacity(
        f"no node{needs} has capacity for instance {index} of {stage.name}: {len(request.hosts)} nodes asked, "
        f"{held} of {capacity} instance places taken. Start more agents, raise the capacity of one "
        "(agiledart agent --capacity), stop an application, or lower the parallelism.",
        could_fit=requested <= capacity,
    )
