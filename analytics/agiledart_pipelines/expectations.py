"""Expectations: conditions that each row of a table should meet. Spark's open-source pipelines have none."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from agiledart_kernel.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FAILED: Final = "_failed"
"""Column of quarantined rows: the names of all expectations that the row does not meet, in their order."""


@dataclass(frozen=True)
class Expected:
    """A frame's rows in two parts; each row is in exactly one of them.

    Attributes:
        passed: rows that meet all expectations.
        failed: the others, with the column `_failed`.
    """

    passed: "DataFrame"
    failed: "DataFrame"


def expect(frame: "DataFrame", conditions: Mapping[str, str]) -> Expected:
    """Return the rows that meet all conditions, and the others with the names of those that they fail.

    A condition that is null counts as failed, so no row is lost: `where(cond)` beside `where(not cond)` would lose it.

    Args:
        conditions: name → SQL condition, such as `{"plausible": "seconds > 0"}`.

    Raises `ConfigurationError` without conditions.
    """
    from pyspark.sql import functions as f

    if not conditions:
        raise ConfigurationError('expect() needs a condition: expect(frame, {"plausible": "seconds > 0"})')
    met = {name: f.coalesce(f.expr(f"({condition})"), f.lit(False)) for name, condition in conditions.items()}
    all_met: Column = reduce(lambda first, second: first & second, met.values())
    names = f.array(*(f.when(~is_met, f.lit(name)) for name, is_met in met.items()))
    # Only where and select: withColumn would hide the table from Spark's pipelines (`edges.py`).
    return Expected(frame.where(all_met), frame.where(~all_met).select("*", f.array_compact(names).alias(FAILED)))
