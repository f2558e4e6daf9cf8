"""`.aggregate("stats", trips=count(), fares=col("fare").sum())`: named results of a window, as one flat row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agiledart_dataflow.aggregation.aggregators import Aggregator, CompositeAggregator, Count, Extreme, Mean, Sum
from agiledart_dataflow.expressions.aggregates import WINDOW_LIMITS, Aggregate
from agiledart_dataflow.expressions.expression import Expression
from agiledart_dataflow.expressions.row_expression import KeyExpression, RowExpression, made_row_type
from agiledart_dataflow.user_code.callsite import CallSite

_NUMBERS = ("int", "float")
_ORDERED = ("int", "float", "time", "span")


class NamedResults(CompositeAggregator[Any]):
    """Several aggregates whose results become fields."""


@dataclass(frozen=True)
class NamedWindow:
    """Parts of a window with named results.

    Attributes:
        aggregator: of the values.
        row_type: key fields, start_ms, end_ms, then the results.
        flat: (key, start, end, results) → row.
        key: the key as expressions; None when it is a function of a row, which columns cannot evaluate.
        texts: (start, end) → those of them that the user asked for as text, which follow `end_ms`.
    """

    aggregator: NamedResults
    row_type: Any
    flat: Callable[[tuple[Any, int, int, Any]], Any]
    key: KeyExpression | None
    texts: Callable[[int, int], tuple[str, ...]]


def named_window(
    name: str,
    key_of: Any,
    key_type: Any,
    row_type: Any,
    named: Mapping[str, Any],
    where: CallSite,
    time_text: Callable[[int], str],
) -> NamedWindow:
    """Check named aggregates against the rows of a window. Raises `TopologyError`.

    Args:
        name: name of the step.
        key_of, key_type: the key of the rows.
        row_type: type of the rows.
        named: the user's results.
        where: the user's line.
        time_text: event time → its text.
    """
    limits = {
        field: aggregate.name
        for field, aggregate in named.items()
        if isinstance(aggregate, Aggregate) and aggregate.name in WINDOW_LIMITS
    }
    values: dict[str, RowExpression] = {}
    parts: list[Aggregator[Any, Any, Any]] = []
    results: dict[str, Any] = {}
    for field, aggregate in named.items():
        if field in limits:
            continue
        part, kind = aggregate_part(field, aggregate, row_type, values, where)
        parts.append(part)
        results[field] = kind
    key = key_of if isinstance(key_of, KeyExpression) else None
    if key is not None and len(key.parts) > 1:
        keys = {key_name: part.type.annotation for key_name, part in zip(_distinct(key.names), key.parts, strict=True)}
    else:
        keys = {"key" if key is None else key.names[0]: key_type}
    fields = {**keys, "start_ms": int, "end_ms": int}
    for field in named:
        if field in fields:
            raise where.error(
                f"{name}: there is a field {field!r} already ({', '.join(fields)}); give the result another name"
            )
    made = made_row_type(name, fields | dict.fromkeys(limits, str) | results, where)
    texts = _limit_texts(tuple(limits.values()), time_text)
    flat = _flattener(made, texts if limits else None, several=len(keys) > 1)
    return NamedWindow(NamedResults(tuple(parts)), made, flat, key, texts)


def _limit_texts(limits: tuple[str, ...], time_text: Callable[[int], str]) -> Callable[[int, int], tuple[str, ...]]:
    starts = [name == "window_start" for name in limits]
    return lambda start, end: tuple([time_text(start if is_start else end) for is_start in starts])


def _distinct(names: tuple[str, ...]) -> list[str]:
    return [name if name not in names[:i] else f"{name}_{i + 1}" for i, name in enumerate(names)]


def _flattener(
    row_type: Any, texts: Callable[[int, int], tuple[str, ...]] | None, *, several: bool
) -> Callable[[tuple[Any, int, int, Any]], Any]:
    new = tuple.__new__
    if texts is not None and several:
        return lambda pane: new(row_type, (*pane[0], pane[1], pane[2], *texts(pane[1], pane[2]), *pane[3]))
    if texts is not None:
        return lambda pane: new(row_type, (*pane[:3], *texts(pane[1], pane[2]), *pane[3]))
    if several:
        return lambda pane: new(row_type, (*pane[0], pane[1], pane[2], *pane[3]))
    return lambda pane: new(row_type, (*pane[:3], *pane[3]))


def aggregate_part(
    field: str, aggregate: Any, row_type: Any, values: dict[str, RowExpression], where: CallSite
) -> tuple[Aggregator[Any, Any, Any], Any]:
    """Check one named aggregate and return (aggregator, type of its result). Raises `TopologyError`.

    Args:
        field: the name of the result.
        aggregate: the user's aggregate.
        row_type: type of the rows that enter.
        values: expressions by their text, so that equal ones are shared; those of this aggregate are added.
        where: the user's line.
    """
    if not isinstance(aggregate, Aggregate):
        hint = f": write {field}=….sum(), .mean(), .min() or .max()" if isinstance(aggregate, Expression) else ""
        raise where.error(f"{field} is no aggregate but {type(aggregate).__name__}{hint}")
    if aggregate.name in WINDOW_LIMITS:
        raise where.error(f"{field}: {aggregate.name}() is of a window, and running values have none")
    if aggregate.node is None:
        return Count(), int
    text = repr(aggregate.node)  # not by ==, which treats 1, True and 1.0 as equal
    if text not in values:
        values[text] = RowExpression(aggregate.node, row_type, where)
    value = values[text]
    if value.type.optional:
        raise where.error(
            f"{field}: {aggregate.name} of a value that may be None; say what it counts as: .fill_null(0)"
        )
    allowed = _NUMBERS if aggregate.name in ("sum", "mean") else _ORDERED
    if value.type.kind not in allowed:
        raise where.error(f"{field}: {aggregate.name} does not work on {value.type}")
    if aggregate.name == "mean":
        return Mean(value), float
    if aggregate.name == "sum":
        return Sum(value), value.type.type
    return Extreme(value, 0 if aggregate.name == "min" else -1), value.type.type
