"""The text of the generated function that makes a pane's value of the values that were kept for one key.

A window with as many keys as rows closes a pane for nearly every row, so what a pane costs counts like what a row costs. The usual
cases, one row and nothing but floats, are told apart by a look at types.
"""

from collections.abc import Callable
from math import fsum
from typing import Any

from agiledart_dataflow.aggregation.aggregators import CompositeAggregator
from agiledart_dataflow.aggregation.pane_values import AggregatePart, KeptValues, extreme, total

_FLOATS = {float}


def closing(kept: KeptValues) -> Callable[[list[Any]], Any]:
    """flat list of one key's values → the pane's value."""
    width = len(kept.values)
    names = [f"v{number}" for number in range(width)]
    all_floats = " and ".join(f"type({name}) is float" for name in names)
    one = ", ".join(_of_one(part) for part in kept.parts)
    many = ", ".join(_of_many(part) for part in kept.parts)
    sums = sorted({part.value for part in kept.parts if part.kind in ("sum", "mean")})
    lines = [
        "def make(built, exact, extreme, floats, fsum):",
        " def close(flat):",
        f"  if len(flat) == {width}:",
        f"   {', '.join(names)}, = flat",
        f"   if {all_floats}: return {_built(kept, one)}",
        *[f"  a{number} = flat[{number}::{width}]" if width > 1 else "  a0 = flat" for number in range(width)],
        "  n = len(a0)",
        *[_summed(number) for number in sums],
        f"  return {_built(kept, many)}",
        " return close",
    ]
    made: dict[str, Any] = {}
    exec(compile("\n".join(lines), "<stage pane>", "exec"), made)  # our own text: it holds numbers and names of ours
    value_of: Callable[[list[Any]], Any] = made["make"](kept.built, total, extreme, _FLOATS, fsum)
    return value_of


def _summed(number: int) -> str:
    """A sum, by way of the fast function where it can be: `exact` knows all other cases."""
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


def _built(kept: KeptValues, values: str) -> str:
    """The results as the window's value; what only hands its argument on is not called."""
    if getattr(kept.built, "__func__", None) is CompositeAggregator.built:
        return f"({values},)"
    return f"built(({values},))"
