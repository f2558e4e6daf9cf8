"""Models that Spark has trained, as plain data that any node scores: no Spark, no Java, no pickle.

from agiledart.scoring import read_model
model = read_model(open("durations.json").read())
seconds = model.score({"miles": 2.5, "hour": 8})
"""

from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any, Final, Literal

import msgspec

from agiledart_kernel.errors import ConfigurationError

MAX_FEATURES: Final = 1_000
MAX_NODES: Final = 100_000
"""Greatest number of nodes of a tree."""

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class ModelDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A trained model.

    Attributes:
        format: version of this form.
        name, version: of the model; a later training has another version.
        kind: `linear`: intercept and coefficients; `tree`: nodes.
        features: names of the inputs, in the order of coefficients and of `TreeNode.feature`.
        nodes: the first is the root.
    """

    format: Literal[1]
    name: _Name
    version: _Name
    kind: Literal["linear", "tree"]
    features: Annotated[tuple[_Name, ...], msgspec.Meta(min_length=1, max_length=MAX_FEATURES)]
    intercept: float = 0.0
    coefficients: tuple[float, ...] = ()
    nodes: Annotated[tuple["TreeNode", ...], msgspec.Meta(max_length=MAX_NODES)] = ()

    def score(self, values: Mapping[str, float]) -> float:
        """Return the prediction for one row. Raises `KeyError` for a missing feature."""
        inputs = [float(values[name]) for name in self.features]
        if self.kind == "linear":
            return (
                sum((weight * value for weight, value in zip(self.coefficients, inputs, strict=True)), 0.0)
                + self.intercept
            )
        node = self.nodes[0]
        while node.feature >= 0:
            node = self.nodes[node.left if inputs[node.feature] <= node.at_most else node.right]
        return node.value

    def text(self) -> str:
        """Return the model as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode()


class TreeNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Node of a decision tree: a leaf with a value, or a comparison.

    Attributes:
        feature: index of the compared input; -1 for a leaf.
        at_most: rows whose input is not greater go to `left`, others to `right`.
        left, right: indexes of nodes after this one, so that a score ends.
    """

    value: float = 0.0
    feature: int = -1
    at_most: float = 0.0
    left: int = 0
    right: int = 0


def read_model(text: str | bytes) -> ModelDocument:
    """Return a model from its JSON. Raises `ConfigurationError` for one that is damaged or would not end."""
    try:
        model = msgspec.json.decode(text, type=ModelDocument)
    except msgspec.MsgspecError as error:
        raise ConfigurationError(
            f"The model cannot be read: {error}. Export it again:  agiledart pipeline train NAME"
        ) from None
    if reason := _fault(model):
        raise ConfigurationError(f"The model {model.name} {model.version} is damaged: {reason}. Export it again.")
    return model


def _fault(model: ModelDocument) -> str:
    numbers: list[Any] = [model.intercept, *model.coefficients]
    numbers += [number for node in model.nodes for number in (node.value, node.at_most)]
    if not all(isfinite(number) for number in numbers):
        return "a number is not finite"
    if model.kind == "linear":
        return "" if len(model.coefficients) == len(model.features) else "each feature needs a coefficient"
    if not model.nodes:
        return "it has no nodes"
    for index, node in enumerate(model.nodes):
        children = (node.left, node.right)
        if node.feature >= len(model.features):
            return f"node {index} compares a feature that is not there"
        if node.feature >= 0 and not all(index < child < len(model.nodes) for child in children):
            return f"node {index} has a child that does not come after it"
    return ""
