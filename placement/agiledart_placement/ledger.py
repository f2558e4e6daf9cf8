"""What nodes hold while a placement is being made."""

from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.node_id import NodeId
from agiledart_placement.request import Obstacle, Placement, PlacementRequest, StageDemand

STRICT, SHARED, UNBALANCED = range(3)
"""Levels of relaxation: all rules; several instances of one application on a node; more than the balance rule
allows."""

RELAXED_RULES = ("", "same application", "balance")


class NoCapacity(OperationFailed):
    """No node has room for an instance now.

    Attributes:
        could_fit: whether the instances asked for would fit if nothing else ran on the nodes.
    """

    def __init__(self, text: str, *, could_fit: bool) -> None:
        super().__init__(text)
        self.could_fit = could_fit


class Ledger:
    """Counts instances per node, those of this placement included, and judges who is full."""

    __slots__ = ("_held", "_request", "_taken", "away", "nodes", "relaxed")

    def __init__(self, request: PlacementRequest) -> None:
        self._request = request
        self._held = {node: state.operators for node, state in request.hosts.items()}
        self._taken = {node: state.has_application for node, state in request.hosts.items()}
        self.nodes: dict[tuple[int, int], NodeId] = {}
        self.relaxed = STRICT
        self.away: dict[tuple[int, int], tuple[NodeId, Obstacle]] = {}

    def put_pinned(self) -> None:
        """Give all pinned stages their nodes. A source or sink counts for balance, not for the same-application
        rule."""
        for stage in self._request.stages:
            if stage.pinned is not None:
                for index in range(stage.parallelism):
                    self.nodes[stage.stage, index] = stage.pinned
                    self._held[stage.pinned] = self.operators(stage.pinned) + 1

    def put(self, stage: StageDemand, index: int, node: NodeId) -> None:
        """Give one instance its node."""
        self.nodes[stage.stage, index] = node
        self._held[node] = self.operators(node) + 1
        self._taken[node] = True

    def operators(self, node: NodeId) -> int:
        """Instances that the node holds now."""
        return self._held.get(node, 0)

    def has_capacity(self, node: NodeId, stage: StageDemand, level: int) -> bool:
        """Whether the node may take one more instance at this level of relaxation."""
        return self.obstacle(node, stage, level) is None

    def obstacle(self, node: NodeId, stage: StageDemand, level: int) -> Obstacle | None:
        """Why the node may not take one more instance at this level of relaxation; None: it may."""
        if hard := self._hard_obstacle(node, stage):
            return hard
        if level < UNBALANCED and self._held[node] >= self._request.max_ops_balanced:
            return Obstacle.BALANCE
        return Obstacle.SHARED if level < SHARED and self._taken[node] else None

    def obstacle_at_home(self, node: NodeId, stage: StageDemand) -> Obstacle | None:
        """Why a node that has the source and the sink of a stage does not take it, too: only others count for balance."""
        if hard := self._hard_obstacle(node, stage):
            return hard
        is_busy = self._request.hosts[node].operators >= self._request.max_ops_balanced
        return Obstacle.BALANCE if is_busy else None

    def _hard_obstacle(self, node: NodeId, stage: StageDemand) -> Obstacle | None:
        """One that no relaxation helps against."""
        state = self._request.hosts.get(node)
        if state is None:
            return Obstacle.UNKNOWN
        if state.is_draining:
            return Obstacle.LEAVING
        if state.unfit is not None:
            return state.unfit
        if self._held[node] >= state.capacity:
            return Obstacle.FULL
        return Obstacle.TAG if any(tag not in state.offers for tag in stage.needs) else None

    def relax(self, level: int) -> None:
        """Note that a rule was given up."""
        self.relaxed = max(self.relaxed, level)

    def placement(self) -> Placement:
        """All that was put."""
        return Placement(
            dict(sorted(self.nodes.items())), RELAXED_RULES[1 : self.relaxed + 1], dict(sorted(self.away.items()))
        )


def no_capacity(stage: StageDemand, index: int, request: PlacementRequest) -> NoCapacity:
    """What a user reads when an instance finds no place."""
    able = [state for state in request.hosts.values() if not state.is_draining and state.unfit is None]
    capacity, held = sum(state.capacity for state in able), sum(state.operators for state in able)
    needs = f" with {', '.join(stage.needs)}" if stage.needs else ""
    wanted = sum(each.parallelism for each in request.stages)
    return NoCapacity(
        f"no node{needs} has room for instance {index} of {stage.name}: {len(request.hosts)} nodes asked, "
        f"{held} of {capacity} places taken. Start more agents, give one more room "
        "(agiledart agent --capacity), stop something, or lower the parallelism.",
        could_fit=wanted <= capacity,
    )
