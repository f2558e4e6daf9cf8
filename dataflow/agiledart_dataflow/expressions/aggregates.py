"""Named aggregates of a window: `trips=count(), fares=col("fare").sum()`."""

from dataclasses import dataclass
from typing import Literal

from agiledart_dataflow.expressions.nodes import Node

AggregateName = Literal["count", "sum", "mean", "min", "max"]


@dataclass(frozen=True)
class Aggregate:
    """Aggregate of one value over a window's rows. Made by `count()` and by methods of expressions."""

    name: AggregateName
    node: Node | None = None


def count() -> Aggregate:
    """Return the aggregate that counts the rows of a window."""
    return Aggregate("count")
