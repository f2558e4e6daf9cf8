"""Rows that training steps take and give."""

from typing import NamedTuple


class LabelledExample(NamedTuple):
    """Row to learn from.

    Attributes:
        key: of the model that learns from it, for example a room.
        features: values of the inputs, in the order of their names.
        target: value to predict.
    """

    key: str
    features: list[float]
    target: float


class LearnedModel(NamedTuple):
    """Model after some examples.

    Attributes:
        key: of the model.
        examples: number of examples that it has learned from.
        model: JSON that `agiledart.scoring.read_model` reads.
    """

    key: str
    examples: int
    model: str


class Point(NamedTuple):
    """Row to cluster.

    Attributes:
        key: of the clustering, which has centres of its own.
        values: coordinates.
    """

    key: str
    values: list[float]


class ClusteredPoint(NamedTuple):
    """Point with its cluster.

    Attributes:
        key, values: of the point.
        cluster: number of the centre that is nearest to it, from 0.
        distance: Euclidean, to that centre as it was before this point.
        centre: the centre with this point.
    """

    key: str
    values: list[float]
    cluster: int
    distance: float
    centre: list[float]
