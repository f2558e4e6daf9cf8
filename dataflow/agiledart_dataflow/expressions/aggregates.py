"""Named aggregates of a window: `trips=count(), fares=col("fare").sum()`."""

from dataclasses import dataclass
from typing import Literal

from agiledart_dataflow.expressions.nodes import Node

AggregateName = Literal["count", "sum", "mean", "min", "max"]


@dataclass(frozen=True)
class Aggregate:
    """What a window makes of a value of its rows. Made by `count()` and by methods of expressions."""

    name: AggregateName
    node: Node | None = None


def count() -> Aggregate:
    """How many rows a window held."""
    return Aggregate("count")
