"""Reference semantics of an expression: a walk over its tree for one row, with nothing but Python's own operations."""

import operator
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from math import ceil, floor, sqrt
from typing import Any

from agiledart_dataflow.expressions.nodes import Typed, TypedCall, TypedField, TypedLiteral, TypedWhen

PLAIN: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "neg": operator.neg, "abs": abs, "floor": floor, "ceil": ceil, "sqrt": sqrt, "minimum": min, "maximum": max,
    "not": operator.not_, "lower": str.lower, "upper": str.upper, "strip": str.strip,
    "contains": lambda text, part: part in text, "starts_with": str.startswith, "ends_with": str.endswith, "length": len,
    "replace": str.replace, "year": lambda at: at.year, "month": lambda at: at.month, "day": lambda at: at.day,
    "weekday": lambda at: at.weekday(), "hour": lambda at: at.hour, "minute": lambda at: at.minute,
    "second": lambda at: at.second, "millisecond": lambda at: at.microsecond // 1000,
    "total_seconds": lambda span: span.total_seconds(),
}  # fmt: skip


def _truncate(at: datetime, to: timedelta) -> datetime:
    epoch = datetime.fromisoformat("1970-01-01") if at.tzinfo is None else datetime(1970, 1, 1, tzinfo=UTC)
    return epoch + (at - epoch) // to * to


WITH_OPTIONS: dict[str, Callable[..., Any]] = {
    "round": lambda value, digits: round(value) if digits is None else round(value, digits),
    "cast": lambda value, kind: kind(value),
    "is_in": lambda value, values: any(value == one for one in values),
    "slice": lambda text, start, stop: text[start:stop],
    "truncate": _truncate,
}


def value_of(node: Typed, row: Any) -> Any:
    """The expression's value for a row."""
    if isinstance(node, TypedField):
        return getattr(row, node.name)
    if isinstance(node, TypedLiteral):
        return node.value
    if isinstance(node, TypedWhen):
        for condition, value in node.branches:
            if value_of(condition, row) is True:
                return value_of(value, row)
        return value_of(node.otherwise, row)
    return _called(node, row)


def _called(node: TypedCall, row: Any) -> Any:
    if node.name in ("and", "or"):
        decided = node.name == "or"
        seen = []
        for argument in node.arguments:
            seen.append(value_of(argument, row))
            if seen[-1] is decided:
                return decided
        return None if None in seen else not decided
    if node.name == "fill_null":
        value = value_of(node.arguments[0], row)
        return value if value is not None else value_of(node.arguments[1], row)
    if node.name == "is_null":
        return value_of(node.arguments[0], row) is None
    optional = [argument for argument in node.arguments if argument.type.optional]
    if any(value_of(argument, row) is None for argument in optional):
        return None
    values = [value_of(argument, row) for argument in node.arguments]
    if node.name in WITH_OPTIONS:
        return WITH_OPTIONS[node.name](*values, *node.options)
    return PLAIN[node.name](*values)


def parts_of(node: Typed) -> Iterator[Typed]:
    """The expression and everything in it."""
    yield node
    if isinstance(node, TypedCall):
        for argument in node.arguments:
            yield from parts_of(argument)
    elif isinstance(node, TypedWhen):
        for condition, value in node.branches:
            yield from parts_of(condition)
            yield from parts_of(value)
        yield from parts_of(node.otherwise)
