"""Functions of expressions: the types that they take, the types that they return, and their text in Python.

A template is Python text with `{0}`, `{1}` … for the arguments, each used once; `helpers` are names that it uses. The text defines
the function: every other implementation must give the same result.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import ceil, floor, sqrt
from typing import Any

from agiledart_dataflow.data.column_schema import ColumnKind
from agiledart_dataflow.data.schema import ReadTime
from agiledart_dataflow.expressions.nodes import ValueType

_NUMBERS = ("int", "float")
_ORDERED = ("int", "float", "bool", "text", "bytes", "time", "span")


class MismatchError(Exception):
    """Error: these types do not go together; the text names types that do."""


Rule = Callable[[str, tuple[ValueType, ...], tuple[Any, ...]], ColumnKind]


@dataclass(frozen=True)
class Function:
    """One function.

    Attributes:
        rule: types of the arguments and options → kind of the result. Raises `MismatchError`.
        text: its template.
        helpers: names that the template uses.
    """

    rule: Rule
    text: str
    helpers: dict[str, Any] = field(default_factory=dict)


def _types_text(types: tuple[ValueType, ...]) -> str:
    return " and ".join(map(str, types))


def _arithmetic(name: str, types: tuple[ValueType, ...], options: tuple[Any, ...]) -> ColumnKind:
    left, right = (operand.kind for operand in types)
    if left in _NUMBERS and right in _NUMBERS:
        return "float" if name == "/" or "float" in (left, right) else "int"
    if name in "+-" and (left, right) == ("time", "span"):
        return "time"
    if name == "+" and (left, right) in (("span", "time"), ("text", "text"), ("span", "span")):
        return "time" if right == "time" else left
    if name == "-" and left == right and left in ("time", "span"):
        return "span"
    hint = "; write .cast(int) for a bool" if "bool" in (left, right) else ""
    hint = "; write .cast(str) to join it to a text" if name == "+" and "text" in (left, right) else hint
    raise MismatchError(f"{name} does not work on {_types_text(types)}{hint}")


def _comparison(name: str, types: tuple[ValueType, ...], options: tuple[Any, ...]) -> ColumnKind:
    left, right = types
    same = left.kind == right.kind and (left.kind != "object" or left.type == right.type)
    if not (same or (left.kind in _NUMBERS and right.kind in _NUMBERS)):
        raise MismatchError(f"{name} compares values of one type, not {_types_text(types)}")
    if name not in ("==", "!=") and left.kind not in _ORDERED:
        raise MismatchError(f"{left} has no order for {name}")
    return "bool"


def _takes(*kinds: str, gives: ColumnKind | None = None) -> Rule:
    """Return the rule of a function whose arguments are all of one of these kinds."""

    def rule(name: str, types: tuple[ValueType, ...], options: tuple[Any, ...]) -> ColumnKind:
        for argument in types:
            if argument.kind not in kinds:
                raise MismatchError(f"{name} works on {_words(kinds)}, not on {argument}")
        return gives or types[0].kind

    return rule


_WORDS = {
    "int": "int", "float": "float", "bool": "bool", "text": "str", "bytes": "bytes", "time": "datetime", "span": "timedelta",
}  # fmt: skip


def _words(kinds: tuple[str, ...]) -> str:
    return " or ".join(_WORDS[kind] for kind in kinds)


def _same(name: str, types: tuple[ValueType, ...], options: tuple[Any, ...]) -> ColumnKind:
    """Return the kind of arguments of one kind (ints beside floats were made floats before)."""
    if any(argument.kind != types[0].kind for argument in types):
        raise MismatchError(f"{name} takes values of one type, not {_types_text(types)}")
    if name in ("minimum", "maximum") and types[0].kind not in _ORDERED:
        raise MismatchError(f"{types[0]} has no order for {name}")
    return types[0].kind


def _round(name: str, types: tuple[ValueType, ...], options: tuple[Any, ...]) -> ColumnKind:
    kind = _takes(*_NUMBERS)(name, types, options)
    (digits,) = options
    if digits is not None and type(digits) is not int:
        raise MismatchError(f"round takes a number of digits, not {digits!r}")
    return "int" if digits is None else kind


_CASTS: dict[Any, tuple[ColumnKind, tuple[str, ...]]] = {
    int: ("int", ("int", "float", "bool", "text")),
    float: ("float", ("int", "float", "bool", "text")),
    bool: ("bool", ("int", "float", "bool")),
    str: ("text", ("int", "float", "bool", "text", "time", "span", "object")),
    ReadTime: ("int", ("int",)),
}


def _cast(name: str, types: tuple[ValueType, ...], options: tuple[Any, ...]) -> ColumnKind:
    (kind,) = options
    if kind not in _CASTS:
        raise MismatchError(f"cast takes int, float, bool, str or ReadTime, not {kind!r}")
    gives, takes = _CASTS[kind]
    if types[0].kind not in takes:
        raise MismatchError(f"{types[0]} cannot become {kind.__name__}")
    return gives


def _is_in(name: str, types: tuple[ValueType, ...], options: tuple[Any, ...]) -> ColumnKind:
    (values,) = options
    wanted = (int, float) if types[0].kind in _NUMBERS else types[0].type
    for value in values:
        if (
            value is None
            or not isinstance(value, wanted)
            or value != value
            or isinstance(value, bool) != (types[0].kind == "bool")
        ):
            raise MismatchError(f"{value!r} is never a {types[0].type.__name__} that is_in could find")
    return "bool"


def _slice(name: str, types: tuple[ValueType, ...], options: tuple[Any, ...]) -> ColumnKind:
    if not all(option is None or type(option) is int for option in options):
        raise MismatchError(f"slice takes integers, not {options}")
    return _takes("text", "bytes")(name, types, options)


def _truncate(name: str, types: tuple[ValueType, ...], options: tuple[Any, ...]) -> ColumnKind:
    (to,) = options
    if not isinstance(to, timedelta) or to <= timedelta(0):
        raise MismatchError(f"truncate takes a timedelta above zero, not {to!r}")
    return _takes("time")(name, types, options)


_EPOCHS = {True: datetime(1970, 1, 1), False: datetime(1970, 1, 1, tzinfo=UTC)}  # noqa: DTZ001  no zone: UTC by definition


def _truncated(at: datetime, to: timedelta) -> datetime:
    return at - (at - _EPOCHS[at.tzinfo is None]) % to


_text = _takes("text")
_time = _takes("time", gives="int")

FUNCTIONS: dict[str, Function] = {
    **{name: Function(_arithmetic, f"({{0}} {name} {{1}})") for name in ("+", "-", "*", "/", "//", "%")},
    **{name: Function(_comparison, f"({{0}} {name} {{1}})") for name in ("==", "!=", "<", "<=", ">", ">=")},
    "neg": Function(_takes("int", "float", "span"), "(-{0})"),
    "abs": Function(_takes("int", "float", "span"), "abs({0})"),
    "round": Function(_round, "round({0}, {options[0]})"),
    "floor": Function(_takes(*_NUMBERS, gives="int"), "floor({0})", {"floor": floor}),
    "ceil": Function(_takes(*_NUMBERS, gives="int"), "ceil({0})", {"ceil": ceil}),
    "sqrt": Function(_takes(*_NUMBERS, gives="float"), "sqrt({0})", {"sqrt": sqrt}),
    "cast": Function(_cast, "{options[0].__name__}({0})"),
    "minimum": Function(_same, "min({all})"),
    "maximum": Function(_same, "max({all})"),
    "and": Function(_takes("bool"), ""),
    "or": Function(_takes("bool"), ""),
    "not": Function(_takes("bool"), "(not {0})"),
    "is_in": Function(_is_in, "({0} in {bound[0]})"),
    "is_null": Function(lambda name, types, options: "bool", ""),
    "fill_null": Function(_same, ""),
    "lower": Function(_text, "{0}.lower()"),
    "upper": Function(_text, "{0}.upper()"),
    "strip": Function(_text, "{0}.strip()"),
    "contains": Function(_takes("text", gives="bool"), "({1} in {0})"),
    "starts_with": Function(_takes("text", gives="bool"), "{0}.startswith({1})"),
    "ends_with": Function(_takes("text", gives="bool"), "{0}.endswith({1})"),
    "length": Function(_takes("text", "bytes", gives="int"), "len({0})"),
    "replace": Function(_text, "{0}.replace({1}, {2})"),
    "slice": Function(_slice, "{0}[{options[0]}:{options[1]}]"),
    **{name: Function(_time, f"{{0}}.{name}") for name in ("year", "month", "day", "hour", "minute", "second")},
    "weekday": Function(_time, "{0}.weekday()"),
    "millisecond": Function(_time, "({0}.microsecond // 1000)"),
    "truncate": Function(_truncate, "truncated({0}, {bound[0]})", {"truncated": _truncated}),
    "total_seconds": Function(_takes("span", gives="float"), "{0}.total_seconds()"),
}
"""Functions by the names that `expression.py` uses; `and`, `or`, `is_null` and `fill_null` treat None in their own way."""

PYTHON_TYPES: dict[ColumnKind, Any] = {
    "int": int, "float": float, "bool": bool, "text": str, "bytes": bytes, "time": datetime, "span": timedelta,
}  # fmt: skip
