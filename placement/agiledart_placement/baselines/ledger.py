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
        missing: requested instances beyond the capacity of all nodes.
    """

    def __init__(self, text: str, *, could_fit: bool, missing: int = 0) -> None:
        super().__init__(text)
        self.could_fit, self.missing = could_fit, missing


class Ledger:
    """Count of instances per node, including those of this placement; it decides which nodes are full."""

    __slots__ = (
        "_apart",
        "_applications",
        "_held",
        "_request",
        "_stages",
        "_taken",
        "_together",
        "_use",
        "away",
        "nodes",
        "relaxed",
    )

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
        self._stages = {stage.stage: stage for stage in request.stages}
        self._together: dict[int, list[int]] = {}
        self._apart: dict[int, list[tuple[str, int]]] = {}
        for stage in request.stages:
            for other in stage.together_with:
                self._together.setdefault(stage.stage, []).append(other)
                self._together.setdefault(other, []).append(stage.stage)
            for kind, other in stage.apart_from:
                self._apart.setdefault(stage.stage, []).append((kind, other))
                self._apart.setdefault(other, []).append((kind, stage.stage))

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

    def load_with_one_more(self, node: NodeId) -> float:
        """Return the instances that the node would hold with one more, for each node of the ring for which it counts."""
        return (self.operators(node) + 1) / self._request.hosts[node].places

    def _balanced_share(self, node: NodeId) -> int:
        return self._request.max_ops_balanced * self._request.hosts[node].places

    def has_capacity(self, node: NodeId, stage: StageDemand, level: int) -> bool:
        """Return whether the node may take one more instance at this level of relaxation."""
        return self.obstacle(node, stage, level) is None

    def obstacle(self, node: NodeId, stage: StageDemand, level: int) -> Obstacle | None:
        """Return why the node may not take one more instance at this level of relaxation; None: it may."""
        if hard := self._hard_obstacle(node, stage):
            return hard
        if level < UNBALANCED and self._held[node] >= self._balanced_share(node):
            return Obstacle.BALANCE
        return Obstacle.SHARED if level < SHARED and self._taken[node] else None

    def obstacle_at_home(self, node: NodeId, stage: StageDemand) -> Obstacle | None:
        """Return why a node with both the source and the sink of a stage does not take it.

        Only instances of other applications count for balance here.
        """
        if hard := self._hard_obstacle(node, stage):
            return hard
        is_busy = self._request.hosts[node].operators >= self._balanced_share(node)
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
        if any(tag not in state.offers for tag in stage.needs):
            return Obstacle.TAG
        return Obstacle.RULE if self._breaks_rule(node, stage) else None

    def _breaks_rule(self, node: NodeId, stage: StageDemand) -> bool:
        """Return whether the next instance of a stage would break a rule about another stage on a node."""
        if stage.stage not in self._together and stage.stage not in self._apart:
            return False
        index = sum(of == stage.stage for of, _ in self.nodes)
        for other in self._together.get(stage.stage, ()):
            partner = self.nodes.get((other, index % self._stages[other].parallelism))
            if partner is not None and partner != node:
                return True
        apart = self._apart.get(stage.stage, ())
        return any(
            self._share(kind, node, placed)
            for kind, other in apart
            for (of, _), placed in self.nodes.items()
            if of == other
        )

    def _share(self, kind: str, a: NodeId, b: NodeId) -> bool:
        """Return whether two nodes are the same node, on one host, or in one zone."""
        here, there = self._request.hosts.get(a), self._request.hosts.get(b)
        if a == b or here is None or there is None or kind == "node":
            return a == b
        return here.host == there.host != "" if kind == "host" else here.zone == there.zone != ""

    def has_rules(self, stage: StageDemand) -> bool:
        """Return whether rules of the application bind a stage to chosen nodes."""
        return bool(
            stage.needs
            or stage.zone
            or stage.candidates is not None
            or stage.stage in self._together
            or stage.stage in self._apart
        )

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
        missing=max(0, requested - capacity),
    )
