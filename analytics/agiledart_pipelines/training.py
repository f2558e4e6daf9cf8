"""Training of a project's models by MLlib, with their error on a held-out day, and exported as plain data.

A model is described in `models/NAME.toml`: kind, table, label, and features as SQL expressions.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from agiledart.scoring import ModelDocument, TreeNode
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_pipelines.backfill import DAY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LINEAR: Final = "linear"
TREE: Final = "tree"
DEPTH: Final = 5
LABEL: Final = "_label"
_IF: Final = re.compile(r"If \(feature (\d+) <= (\S+)\)\Z")
_PREDICT: Final = re.compile(r"Predict: (\S+)\Z")


@dataclass(frozen=True)
class ModelSpecification:
    """Description of a model.

    Attributes:
        kind: `linear` or `tree`.
        table: of the project, with the column `_day`. `label`: SQL expression of what the model predicts.
        features: name → SQL expression.
    """

    name: str
    kind: str
    table: str
    label: str
    features: Mapping[str, str]


@dataclass(frozen=True)
class TrainedModel:
    """A model, and its error on the held-out day.

    Attributes:
        rows: used for training. `held_out_rows`: of the held-out day.
        error, error_of_mean: root of the mean squared error on that day, of the model and of the training rows' mean.
    """

    model: ModelDocument
    held_out: str
    rows: int
    held_out_rows: int
    error: float
    error_of_mean: float


def read_specification(project: Path, name: str) -> ModelSpecification:
    """Return the description of a project's model. Raises `ConfigurationError`."""
    file = project / "models" / f"{name}.toml"
    try:
        document = tomllib.loads(file.read_text())
    except FileNotFoundError:
        names = ", ".join(sorted(path.stem for path in file.parent.glob("*.toml"))) or "none"
        raise ConfigurationError(f"There is no model {name} ({file}); the project has {names}.") from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}") from None
    kind, table, label, features = (document.get(key) for key in ("kind", "table", "label", "features"))
    is_complete = isinstance(table, str) and isinstance(label, str) and bool(features)
    if kind not in (LINEAR, TREE) or not is_complete or not isinstance(features, dict):
        raise ConfigurationError(
            f"{file} needs kind (linear or tree), table, label, and a table [features] of name = expression."
        )
    return ModelSpecification(
        name, str(kind), str(table), str(label), {str(key): str(text) for key, text in features.items()}
    )


def train(frame: "DataFrame", specification: ModelSpecification, held_out: date | None = None) -> TrainedModel:
    """Train a model on all days but one, and judge it on that day.

    Args:
        frame: rows with the column `_day`.
        held_out: the day; the last one by default.

    Raises `OperationFailed` with fewer than two days, or a label that is always null.
    """
    from pyspark.ml.feature import VectorAssembler
    from pyspark.sql import functions as f

    columns = [f.expr(text).cast("double").alias(name) for name, text in specification.features.items()]
    rows = frame.select(DAY, f.expr(specification.label).cast("double").alias(LABEL), *columns).dropna()
    days = [row[0] for row in rows.select(DAY).distinct().orderBy(DAY).collect()]
    test_day = held_out or (days[-1] if days else None)
    if test_day not in days or len(days) < 2:
        raise OperationFailed(
            f"{specification.name} needs rows of the held-out day and of another one; {specification.table} has rows of "
            f"{', '.join(str(day) for day in days) or 'no day'}."
        )
    assembler = VectorAssembler(inputCols=list(specification.features), outputCol="_features")
    training = assembler.transform(rows.where(f.col(DAY) != f.lit(test_day)))
    fitted = _estimator(specification).fit(training)
    [(mean, count)] = training.agg(f.avg(LABEL), f.count(f.lit(1))).collect()
    test = fitted.transform(assembler.transform(rows.where(f.col(DAY) == f.lit(test_day))))
    squared = f.avg((f.col("_prediction") - f.col(LABEL)) ** 2), f.avg((f.lit(mean) - f.col(LABEL)) ** 2)
    [(error, error_of_mean, test_count)] = test.agg(*squared, f.count(f.lit(1))).collect()
    return TrainedModel(
        _exported(specification, fitted), str(test_day), int(count), int(test_count), sqrt(error), sqrt(error_of_mean)
    )


def _estimator(specification: ModelSpecification) -> Any:
    from pyspark.ml.regression import DecisionTreeRegressor, LinearRegression

    common: dict[str, Any] = {"featuresCol": "_features", "labelCol": LABEL, "predictionCol": "_prediction"}
    if specification.kind == LINEAR:
        return LinearRegression(**common)
    return DecisionTreeRegressor(maxDepth=DEPTH, **common)


def _exported(specification: ModelSpecification, fitted: Any) -> ModelDocument:
    """Return a fitted model as plain data; its version is a checksum of its numbers."""
    names = tuple(specification.features)
    if specification.kind == LINEAR:
        weights = tuple(float(weight) for weight in fitted.coefficients)
        version = f"{crc32(repr((weights, fitted.intercept)).encode()):08x}"
        return ModelDocument(1, specification.name, version, "linear", names, float(fitted.intercept), weights)
    nodes = tree_nodes(str(fitted.toDebugString))
    return ModelDocument(1, specification.name, f"{crc32(repr(nodes).encode()):08x}", "tree", names, nodes=nodes)


def tree_nodes(text: str) -> tuple[TreeNode, ...]:
    """Return the nodes of a tree from Spark's text of it, which has all digits; parents come before children.

    Raises `OperationFailed` for a text of another form.
    """
    lines = [line.strip() for line in text.splitlines()[1:] if line.strip()]
    nodes: list[TreeNode] = []

    def take() -> int:
        line = lines.pop(0) if lines else ""
        index = len(nodes)
        if (leaf := _PREDICT.match(line)) is not None:
            nodes.append(TreeNode(float(leaf[1])))
            return index
        split = _IF.match(line)
        if split is None:
            raise OperationFailed(f"Spark describes its tree in another form than expected: {line[:80]!r}.")
        nodes.append(TreeNode())
        left = take()
        if not lines or not lines.pop(0).startswith(f"Else (feature {split[1]} >"):
            raise OperationFailed("Spark describes its tree in another form than expected: a branch is missing.")
        nodes[index] = TreeNode(0.0, int(split[1]), float(split[2]), left, take())
        return index

    take()
    return tuple(nodes)
