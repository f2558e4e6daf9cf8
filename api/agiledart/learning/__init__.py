"""Training at the edge: steps whose state is the model, as plain numbers. Nothing is pickled, and a model survives its node.

from agiledart.learning import LabelledExample, RecursiveLeastSquares
models = examples.key_by(col("room")).stateful("learn", RecursiveLeastSquares(("celsius", "humidity"), every=100))
"""

from agiledart.learning.batch_training import BatchTraining
from agiledart.learning.learning_rows import ClusteredPoint, LabelledExample, LearnedModel, Point
from agiledart.learning.recursive_least_squares import RecursiveLeastSquares
from agiledart.learning.streaming_k_means import StreamingKMeans

__all__ = [
    "BatchTraining",
    "ClusteredPoint",
    "LabelledExample",
    "LearnedModel",
    "Point",
    "RecursiveLeastSquares",
    "StreamingKMeans",
]
