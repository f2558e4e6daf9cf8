"""`RecursiveLeastSquares`: a linear regression that each example improves, in constant memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from agiledart.learning.learning_rows import LabelledExample, LearnedModel
from agiledart.scoring import ModelDocument
from agiledart_dataflow.operators.keyed import Context, KeyedOperator


@dataclass
class LeastSquaresState:
    """State of one key.

    Attributes:
        examples: number of examples so far.
        weights: of the features, and the intercept at the end.
        inverse: inverse of the regularised sum of outer products of the inputs, by rows.
    """

    examples: int = 0
    weights: list[float] = field(default_factory=list)
    inverse: list[list[float]] = field(default_factory=list)


class RecursiveLeastSquares(KeyedOperator[str, LabelledExample, LeastSquaresState, LearnedModel]):
    """Regression of the target on the features, with an intercept.

    After n examples the weights are those that minimise the sum of memory^(n - i) times the squared error of example i, plus
    memory^n · ridge times the squared weights. Each example costs the square of the number of features.

    Args:
        features: names of the features.
        every: number of examples from one `LearnedModel` to the next.
        memory: weight of an example beside its successor, above 0 and at most 1 (nothing is forgotten).
        ridge: penalty of large weights, which makes the first models unique.

    Source: recursive least squares with exponential forgetting [Ljung 1999].
    """

    keeps_state_after_error: ClassVar[bool] = False

    def __init__(self, features: Sequence[str], *, every: int = 100, memory: float = 1.0, ridge: float = 1e-6) -> None:
        if not features or every < 1 or not 0 < memory <= 1 or not 0 < ridge < float("inf"):
            raise ValueError(
                "features are named, every is at least 1, memory is above 0 and at most 1, ridge is above 0"
            )
        self._features, self._every, self._memory, self._ridge = tuple(features), every, memory, ridge

    def initial(self, key: str) -> LeastSquaresState:
        size = len(self._features) + 1
        inverse = [[1 / self._ridge if i == j else 0.0 for j in range(size)] for i in range(size)]
        return LeastSquaresState(0, [0.0] * size, inverse)

    def on_record(
        self, key: str, record: LabelledExample, state: LeastSquaresState, context: Context[LearnedModel]
    ) -> None:
        inputs = checked_numbers(record.features, len(self._features))
        (target,) = checked_numbers([record.target], 1)
        inputs.append(1.0)
        moved = [dot(row, inputs) for row in state.inverse]
        scale = self._memory + dot(inputs, moved)
        error = target - dot(state.weights, inputs)
        gain = [value / scale for value in moved]
        state.weights = [weight + error * share for weight, share in zip(state.weights, gain, strict=True)]
        state.inverse = [
            [(value - share * other) / self._memory for value, other in zip(row, moved, strict=True)]
            for row, share in zip(state.inverse, gain, strict=True)
        ]
        state.examples += 1
        if state.examples % self._every == 0:
            context.emit(LearnedModel(key, state.examples, self._model(key, state).text()))

    def _model(self, key: str, state: LeastSquaresState) -> ModelDocument:
        *coefficients, intercept = state.weights
        return ModelDocument(
            1, key or "model", str(state.examples), "linear", self._features, intercept, tuple(coefficients)
        )


def dot(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the scalar product."""
    return sum(a * b for a, b in zip(left, right, strict=True))


def checked_numbers(values: Sequence[float], count: int) -> list[float]:
    """Return values as floats. Raises `ValueError` for another number of values, and for one that is not finite."""
    numbers = [float(value) for value in values]
    if len(numbers) != count:
        raise ValueError(f"an example has {len(numbers)} values, not {count}")
    if not all(abs(number) < float("inf") for number in numbers):
        raise ValueError(f"an example has a value that is not finite: {numbers}")
    return numbers
