"""Named aggregates of a window: `trips=count(), fares=col("fare").sum()`."""

from dataclasses import dataclass
from typing import Final, Literal

from agiledart_dataflow.expressions.nodes import Node

AggregateName = Literal["count", "sum", "mean", "min", "max", "window_start", "window_end"]

WINDOW_LIMITS: Final = ("window_start", "window_end")
"""Those that are not of the rows but of the window that holds them."""


@dataclass(frozen=True)
class Aggregate:
    """Aggregate of one value over a window's rows. Made by `count()` and by methods of expressions."""

    name: AggregateName
    node: Node | None = None


def count() -> Aggregate:
    """Return the aggregate that counts the rows of a window."""
    return Aggregate("count")


def window_start() -> Aggregate:
    """Return the start of the window as ISO text, by the clock of the window's zone, in UTC where it has none."""
    return Aggregate("window_start")


def window_end() -> Aggregate:
    """Return the end of the window as ISO text, as `window_start` returns the start."""
    return Aggregate("window_end")
