"""`StreamingKMeans`: centres of clusters that follow a stream of points."""

from dataclasses import dataclass, field
from math import dist
from typing import ClassVar

from agiledart.learning.learning_rows import ClusteredPoint, Point
from agiledart.learning.recursive_least_squares import checked_numbers
from agiledart_dataflow.operators.keyed import Context, KeyedOperator


@dataclass
class Centres:
    """State of one key.

    Attributes:
        centres: coordinates of each centre.
        weights: of the points that each centre is the mean of.
    """

    centres: list[list[float]] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)


class StreamingKMeans(KeyedOperator[str, Point, Centres, ClusteredPoint]):
    """Clustering of points, each by its nearest centre, which moves to the weighted mean of its points.

    The first different points are the first centres. Of equally near centres the first one is taken.

    Args:
        clusters: number of centres.
        memory: weight of a point beside the next point of its cluster, above 0 and at most 1 (nothing is forgotten).

    Source: sequential k-means [MacQueen 1967]; with `memory` below 1 centres drift with the stream.
    """

    keeps_state_after_error: ClassVar[bool] = False

    def __init__(self, clusters: int, *, memory: float = 1.0) -> None:
        if clusters < 1 or not 0 < memory <= 1:
            raise ValueError("there is at least one cluster, and memory is above 0 and at most 1")
        self._clusters, self._memory = clusters, memory

    def initial(self, key: str) -> Centres:
        return Centres()

    def on_record(self, key: str, record: Point, state: Centres, context: Context[ClusteredPoint]) -> None:
        size = len(state.centres[0]) if state.centres else len(record.values)
        point = checked_numbers(record.values, size)
        if len(state.centres) < self._clusters and point not in state.centres:
            state.centres.append(point)
            state.weights.append(1.0)
            context.emit(ClusteredPoint(key, point, len(state.centres) - 1, 0.0, point))
            return
        distances = [dist(centre, point) for centre in state.centres]
        nearest = distances.index(min(distances))
        weight = state.weights[nearest] * self._memory + 1
        centre = [old + (new - old) / weight for old, new in zip(state.centres[nearest], point, strict=True)]
        state.centres[nearest], state.weights[nearest] = centre, weight
        context.emit(ClusteredPoint(key, point, nearest, distances[nearest], centre))
