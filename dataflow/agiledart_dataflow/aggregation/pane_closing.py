"""Generator of the function that makes a pane's value from the values that were kept for one key.

A window with as many keys as rows closes a pane for nearly every row, so a pane's cost matters as much as a row's. The
function detects the usual cases, one row and only floats, by a look at types.
"""

from collections.abc import Callable
from math import fsum
from types import MethodType
from typing import Any

from agiledart_dataflow.aggregation.aggregators import CompositeAggregator
from agiledart_dataflow.aggregation.pane_values import AggregatePart, KeptValues, extreme, total

_FLOATS = {float}


def closing(values_kept: KeptValues) -> Callable[[list[Any]], Any]:
    """Return a function: flat list of one key's values → the pane's value."""
    width = len(values_kept.values)
    names = [f"v{number}" for number in range(width)]
    all_floats = " and ".join(f"type({name}) is float" for name in names)
    one_row = ", ".join(_of_one(part) for part in values_kept.parts)
    many_rows = ", ".join(_of_many(part) for part in values_kept.parts)
    sums = sorted({part.value for part in values_kept.parts if part.kind in ("sum", "mean")})
    lines = [
        "def make(built, exact, extreme, floats, fsum):",
        " def close(flat):",
        f"  if len(flat) == {width}:",
        f"   {', '.join(names)}, = flat",
        f"   if {all_floats}: return {_built(values_kept, one_row)}",
        *[f"  a{number} = flat[{number}::{width}]" if width > 1 else "  a0 = flat" for number in range(width)],
        "  n = len(a0)",
        *[_summed(number) for number in sums],
        f"  return {_built(values_kept, many_rows)}",
        " return close",
    ]
    made: dict[str, Any] = {}
    exec(compile("\n".join(lines), "<stage pane>", "exec"), made)  # our own text: it holds only our numbers and names
    value_of: Callable[[list[Any]], Any] = made["make"](values_kept.built, total, extreme, _FLOATS, fsum)
    return value_of


def _summed(number: int) -> str:
    """Return the lines of a sum that uses the fast function where possible; `exact` handles all other cases."""
    return (
        f"  try: s{number} = fsum(a{number}) + 0.0 if set(map(type, a{number})) == floats else exact(a{number})\n"
        f"  except (OverflowError, ValueError): s{number} = exact(a{number})"
    )


def _of_one(part: AggregatePart) -> str:
    return "1" if part.kind == "count" else f"v{part.value} or 0.0"


def _of_many(part: AggregatePart) -> str:
    if part.kind == "count":
        return "n"
    if part.kind == "sum":
        return f"s{part.value}"
    if part.kind == "mean":
        return f"float(s{part.value}) / n"
    return f"extreme(a{part.value}, least={part.kind == 'least'})"


def _built(values_kept: KeptValues, values: str) -> str:
    """Return the results as the window's value; a function that returns its argument unchanged is not called."""
    built: object = values_kept.built
    if isinstance(built, MethodType) and built.__func__ is CompositeAggregator.built:
        return f"({values},)"
    return f"built(({values},))"
