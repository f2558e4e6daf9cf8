"""Greedy walk to the nodes nearest to a point: a machine without I/O, at a host that knows few nodes.

The host asks the nearest known node for its acquaintances near the point. It goes on with the nearest that was not asked, until
the best ones have answered.

Source: spec of placement §3, "Finding the nearest nodes".
"""

from collections.abc import Hashable, Mapping
from typing import Final, Generic, TypeVar

from agiledart_placement.latency_space.points import Point, distance
from agiledart_placement.problem.network_view import SpacePosition

Node = TypeVar("Node", bound=Hashable)

MAX_QUESTIONS: Final = 12
BEST: Final = 3
"""The walk ends when the nearest ones, this many, have answered."""

ACQUAINTANCES: Final = 16
"""Nodes in an answer, and in the result."""


class NearestWalk(Generic[Node]):
    """One walk.

    Args:
        point: of the latency space.
        known: positions of nodes that the host knows.

    Attributes:
        questions: number of nodes that were asked.
    """

    def __init__(self, point: Point, known: Mapping[Node, SpacePosition]) -> None:
        self._point = point
        self._apart = {node: self._distance(place) for node, place in known.items()}
        self._order = {node: number for number, node in enumerate(known)}
        self._asked: dict[Node, bool] = {}
        """Node → whether it has answered."""
        self._failed: dict[Node, bool] = {}
        self.questions = 0

    def question(self) -> Node | None:
        """Return the next node to ask; None: the walk has ended."""
        best = self.best(BEST)
        if self.questions >= MAX_QUESTIONS or all(self._asked.get(node) for node in best):
            return None
        node = next((node for node in self.best(len(self._apart)) if node not in self._asked), None)
        if node is not None:
            self._asked[node] = False
            self.questions += 1
        return node

    def answered(self, node: Node, acquaintances: Mapping[Node, SpacePosition]) -> None:
        """Take the acquaintances of a node."""
        if node in self._asked:
            self._asked[node] = True
        for other, place in list(acquaintances.items())[:ACQUAINTANCES]:
            if other not in self._failed:
                self._apart.setdefault(other, self._distance(place))
                self._order.setdefault(other, len(self._order))

    def failed(self, node: Node) -> None:
        """Drop a node that did not answer."""
        self._apart.pop(node, None)
        self._failed[node] = True

    def best(self, count: int = ACQUAINTANCES) -> tuple[Node, ...]:
        """Return the nearest nodes that are known, nearest first."""
        return tuple(sorted(self._apart, key=lambda node: (self._apart[node], self._order[node]))[:count])

    def _distance(self, place: SpacePosition) -> float:
        return distance(place.point, self._point) + place.height_ms


def near_acquaintances(point: Point, known: Mapping[Node, SpacePosition]) -> dict[Node, SpacePosition]:
    """Return the answer of a node: those of its acquaintances that are nearest to a point."""
    order = sorted(known, key=lambda node: distance(known[node].point, point) + known[node].height_ms)
    return {node: known[node] for node in order[:ACQUAINTANCES]}
