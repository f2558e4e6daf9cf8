"""What nodes hold while a placement is being made."""

from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.node_id import NodeId
from agiledart_placement.request import Placement, PlacementRequest, StageDemand

STRICT, SHARED, UNBALANCED = range(3)
"""Levels of relaxation: all rules; several instances of one application on a node; more than the balance rule
allows."""

RULES_GIVEN_UP = ("", "same application", "balance")


class NoRoom(OperationFailed):
    """No node has room for an instance now.

    Attributes:
        could_fit: whether the instances asked for would fit if nothing else ran on the nodes.
    """

    def __init__(self, text: str, *, could_fit: bool) -> None:
        super().__init__(text)
        self.could_fit = could_fit


class Ledger:
    """Counts instances per node, those of this placement included, and judges who is full."""

    __slots__ = ("_held", "_request", "_taken", "nodes", "relaxed")

    def __init__(self, request: PlacementRequest) -> None:
        self._request = request
        self._held = {node: state.operators for node, state in request.hosts.items()}
        self._taken = {node: state.has_application for node, state in request.hosts.items()}
        self.nodes: dict[tuple[int, int], NodeId] = {}
        self.relaxed = STRICT

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

    def has_room(self, node: NodeId, stage: StageDemand, level: int) -> bool:
        """Whether the node may take one more instance at this level of relaxation."""
        state = self._request.hosts.get(node)
        if state is None or state.is_draining or self._held[node] >= state.capacity:
            return False
        if any(tag not in state.offers for tag in stage.needs):
            return False
        if level < UNBALANCED and self._held[node] >= self._request.max_ops_balanced:
            return False
        return level >= SHARED or not self._taken[node]

    def relax(self, level: int) -> None:
        """Note that a rule was given up."""
        self.relaxed = max(self.relaxed, level)

    def placement(self) -> Placement:
        """All that was put."""
        return Placement(dict(sorted(self.nodes.items())), RULES_GIVEN_UP[1 : self.relaxed + 1])


def no_room(stage: StageDemand, index: int, request: PlacementRequest) -> NoRoom:
    """What a user reads when an instance finds no place."""
    capacity = sum(state.capacity for state in request.hosts.values() if not state.is_draining)
    held = sum(state.operators for state in request.hosts.values() if not state.is_draining)
    needs = f" with {', '.join(stage.needs)}" if stage.needs else ""
    wanted = sum(each.parallelism for each in request.stages)
    return NoRoom(
        f"no node{needs} has room for instance {index} of {stage.name}: {len(request.hosts)} nodes asked, "
        f"{held} of {capacity} places taken. Start more agents, stop something, or lower the parallelism.",
        could_fit=wanted <= capacity,
    )
