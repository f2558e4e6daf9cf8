"""`BatchTraining`: a regression or a tree of scikit-learn for every so many examples (extra `[ml]` on the nodes that train).

The model that leaves the step is plain data, not an object of scikit-learn: no node needs scikit-learn to score by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from agiledart.learning.learning_rows import LabelledExample, LearnedModel
from agiledart.learning.recursive_least_squares import checked_numbers
from agiledart.scoring import ModelDocument, TreeNode
from agiledart_dataflow.operators.keyed import Context, KeyedOperator

Kind = Literal["linear", "tree"]


@dataclass
class CollectedExamples:
    """State of one key: examples that wait, and the number of models so far."""

    features: list[list[float]] = field(default_factory=list)
    targets: list[float] = field(default_factory=list)
    models: int = 0


class BatchTraining(KeyedOperator[str, LabelledExample, CollectedExamples, LearnedModel]):
    """A model of each batch of examples, trained when the batch is full.

    Args:
        kind: `linear`: least squares; `tree`: regression tree.
        features: names of the features.
        size: examples in a batch.
        max_depth: of a tree.
    """

    keeps_state_after_error: ClassVar[bool] = False

    def __init__(self, kind: Kind, features: Sequence[str], *, size: int = 300, max_depth: int = 8) -> None:
        if kind not in ("linear", "tree") or not features or size < 1 or max_depth < 1:
            raise ValueError("kind is linear or tree, features are named, size and max_depth are at least 1")
        self._kind, self._features, self._size, self._max_depth = kind, tuple(features), size, max_depth

    def initial(self, key: str) -> CollectedExamples:
        return CollectedExamples()

    def on_record(
        self, key: str, record: LabelledExample, state: CollectedExamples, context: Context[LearnedModel]
    ) -> None:
        values, (target,) = checked_numbers(record.features, len(self._features)), checked_numbers([record.target], 1)
        if len(state.targets) + 1 < self._size:
            state.features.append(values)
            state.targets.append(target)
            return
        version = str(state.models + 1)
        model = trained_model(
            self._kind,
            (key or "model", version),
            self._features,
            [*state.features, values],
            [*state.targets, target],
            self._max_depth,
        )
        state.features, state.targets, state.models = [], [], state.models + 1
        context.emit(LearnedModel(key, self._size * state.models, model.text()))


def trained_model(
    kind: Kind,
    named: tuple[str, str],
    features: Sequence[str],
    rows: Sequence[Sequence[float]],
    targets: Sequence[float],
    max_depth: int,
) -> ModelDocument:
    """Train a model by scikit-learn, and return it as plain data.

    Args:
        kind: of the model.
        named: name and version.
        features: names of the columns of `rows`.
        rows, targets: the examples.
        max_depth: of a tree.

    Raises:
        ModuleNotFoundError: scikit-learn is not installed.
    """
    try:
        from sklearn.linear_model import LinearRegression
        from sklearn.tree import DecisionTreeRegressor
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "training needs scikit-learn on the nodes that train:  pip install 'agiledart[ml]'"
        ) from None
    name, version = named
    if kind == "linear":
        fitted = LinearRegression().fit(rows, targets)
        coefficients = tuple(map(float, fitted.coef_))
        return ModelDocument(1, name, version, "linear", tuple(features), float(fitted.intercept_), coefficients)
    tree = DecisionTreeRegressor(max_depth=max_depth, random_state=0).fit(rows, targets).tree_
    return ModelDocument(1, name, version, "tree", tuple(features), nodes=_nodes(tree))


def _nodes(tree: Any) -> tuple[TreeNode, ...]:
    """Return the nodes of a tree of scikit-learn, whose children come after their parent, too."""
    columns = (tree.children_left, tree.children_right, tree.feature, tree.threshold, tree.value[:, 0, 0])
    return tuple(
        TreeNode(value=float(value))
        if left < 0
        else TreeNode(feature=int(feature), at_most=float(threshold), left=int(left), right=int(right))
        for left, right, feature, threshold, value in zip(*columns, strict=True)
    )
