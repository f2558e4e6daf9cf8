"""Conditions on rows that a reader applies before Spark sees the rows: the option `where`, and Spark's filters.

A condition has the meaning that Spark gives it: a comparison with null is not true, and NaN equals itself and is greater than
every other number. So a query returns the same rows with and without it. Conditions are joined by AND.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agiledart_kernel.errors import ConfigurationError
from agiledart_sink_log.column_index import IN, IS_NOT_NULL, IS_NULL, MAX_VALUES, STARTS_WITH, ZoneCondition

if TYPE_CHECKING:
    import pyarrow

Literal = str | int | float | bool

COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=")

_EXAMPLE: Final = (
    "where=\"city = 'porto' AND seconds >= 60 AND tip IS NOT NULL AND taxi IN ('a', 'b') AND route LIKE 'x1%'\""
)
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"""
    r"""|(?P<name>`[^`]+`|[A-Za-z_][A-Za-z0-9_]*)|(?P<sign><=|>=|<>|!=|==|=|<|>|\(|\)|,))"""
)


@dataclass(frozen=True)
class Condition:
    """Condition on one field.

    Attributes:
        operator: one of `COMPARISONS`, or `IN`, `IS NULL`, `IS NOT NULL`, `LIKE` (a prefix).
        values: literals; none for null tests.
    """

    field: str
    operator: str
    values: tuple[Literal, ...] = ()


def parse_where(text: str) -> tuple[Condition, ...]:
    """Return the conditions of the option `where`. Raises `ConfigurationError` with an example."""
    return _Parser(text).conditions() if text.strip() else ()


def zone_condition(condition: Condition, column: int, kind: str, own: "pyarrow.DataType") -> ZoneCondition | None:
    """Return a condition in the units of zone maps; None for a type that has none.

    Args:
        column: number of the field.
        kind: type of the field in the log.
        own: its type in Spark.

    Raises `ConfigurationError` when a literal does not fit the type of its field.
    """
    import pyarrow

    if condition.operator in (IS_NULL, IS_NOT_NULL):
        return ZoneCondition(column, condition.operator)
    if kind in ("timedelta", "decimal", "bytes") or len(condition.values) > MAX_VALUES:
        return None
    if condition.operator == STARTS_WITH:
        return ZoneCondition(column, STARTS_WITH, condition.values)
    values = [_scalar(condition, value, own) for value in condition.values]
    units = {"datetime": pyarrow.int64(), "read_time": pyarrow.int64(), "date": pyarrow.int32()}
    plain = [value.cast(units[kind]) if kind in units else value for value in values]
    return ZoneCondition(column, condition.operator, tuple(value.as_py() for value in plain))


def rows_that_match(conditions: Sequence[Condition], columns: "dict[str, pyarrow.Array]") -> "pyarrow.Array":
    """Return which rows match all conditions, as booleans without null.

    Args:
        columns: the fields that the conditions name.

    Raises `ConfigurationError` when a literal does not fit the type of its field.
    """
    import pyarrow.compute as compute

    mask: Any = None
    for condition in conditions:
        matches = compute.fill_null(_matches(condition, columns[condition.field]), False)
        mask = matches if mask is None else compute.and_(mask, matches)
    return mask


def _matches(condition: Condition, column: "pyarrow.Array") -> "pyarrow.Array":
    import pyarrow
    import pyarrow.compute as compute

    if condition.operator == IS_NULL:
        return compute.is_null(column)
    if condition.operator == IS_NOT_NULL:
        return compute.is_valid(column)
    if condition.operator == STARTS_WITH:
        if not pyarrow.types.is_string(column.type):
            raise ConfigurationError(f"where: LIKE needs a text, and {condition.field} is {column.type}.")
        return compute.starts_with(column, str(condition.values[0]))
    values = [_scalar(condition, value, column.type) for value in condition.values]
    if condition.operator == IN:
        return compute.is_in(column, value_set=pyarrow.array([value.as_py() for value in values], column.type))
    return _compare(condition.operator, column, values[0])


def _compare(operator: str, column: "pyarrow.Array", value: Any) -> "pyarrow.Array":
    import pyarrow
    import pyarrow.compute as compute

    functions: dict[str, Any] = {
        "=": compute.equal,
        "!=": compute.not_equal,
        "<": compute.less,
        "<=": compute.less_equal,
        ">": compute.greater,
        ">=": compute.greater_equal,
    }
    matches = functions[operator](column, value)
    if operator in (">", ">=") and pyarrow.types.is_floating(column.type):
        return compute.or_(matches, compute.is_nan(column))
    return matches


def _scalar(condition: Condition, value: Literal, kind: Any) -> Any:
    """Return a literal as a value of the column's type."""
    import pyarrow

    types = pyarrow.types
    fits = (
        (types.is_integer(kind) and isinstance(value, int) and not isinstance(value, bool))
        or (types.is_boolean(kind) and isinstance(value, bool))
        or (
            (types.is_floating(kind) or types.is_decimal(kind))
            and isinstance(value, int | float)
            and not isinstance(value, bool)
        )
        or ((types.is_string(kind) or types.is_timestamp(kind) or types.is_date(kind)) and isinstance(value, str))
    )
    try:
        if fits and types.is_timestamp(kind):
            return pyarrow.scalar(str(value)).cast(pyarrow.timestamp("us")).cast(kind)
        if fits and types.is_decimal(kind):
            return pyarrow.scalar(repr(value)).cast(kind)
        if fits:
            return pyarrow.scalar(value).cast(kind)
    except pyarrow.ArrowException:
        pass
    raise ConfigurationError(f"where: {condition.field} is {kind}, and {value!r} is no value of that type.")


class _Parser:
    """Reader of conditions, left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise self._error(f"{text[at:].strip()[:20]!r} is not understood")
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()

    def conditions(self) -> tuple[Condition, ...]:
        conditions = [self._condition()]
        while self._tokens:
            self._word("AND")
            conditions.append(self._condition())
        return tuple(conditions)

    def _condition(self) -> Condition:
        field = self._take("name").strip("`")
        kind, text = self._next()
        match kind, text.upper():
            case "sign", "=" | "==":
                return Condition(field, "=", (self._literal(),))
            case "sign", "<>":
                return Condition(field, "!=", (self._literal(),))
            case "sign", sign if sign in COMPARISONS:
                return Condition(field, sign, (self._literal(),))
            case "name", "IN":
                return Condition(field, IN, self._list())
            case "name", "LIKE":
                return Condition(field, STARTS_WITH, (self._prefix(),))
            case "name", "IS":
                is_not = bool(self._tokens) and self._tokens[0][1].upper() == "NOT"
                if is_not:
                    self._word("NOT")
                self._word("NULL")
                return Condition(field, IS_NOT_NULL if is_not else IS_NULL)
        raise self._error(f"{text!r} after {field} is no comparison")

    def _list(self) -> tuple[Literal, ...]:
        values: list[Literal] = []
        self._sign("(")
        while True:
            values.append(self._literal())
            sign = self._take("sign")
            if sign == ")":
                return tuple(values)
            if sign != ",":
                raise self._error(f"{sign!r} in a list")

    def _prefix(self) -> str:
        pattern = self._literal()
        if not isinstance(pattern, str) or not pattern.endswith("%") or set("%_\\") & set(pattern[:-1]):
            raise self._error("LIKE takes a prefix such as 'x1%'")
        return pattern[:-1]

    def _literal(self) -> Literal:
        kind, text = self._next()
        if kind == "name" and text.upper() in ("TIMESTAMP", "DATE"):
            kind, text = self._next()
        if kind == "text":
            return text[1:-1].replace("''", "'")
        if kind == "number":
            return int(text) if text.lstrip("+-").isdigit() else float(text)
        if kind == "name" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise self._error(f"{text!r} is no literal")

    def _next(self) -> tuple[str, str]:
        if not self._tokens:
            raise self._error("it ends too early")
        return self._tokens.pop(0)

    def _take(self, wanted: str) -> str:
        kind, text = self._next()
        if kind != wanted:
            raise self._error(f"{text!r} is out of place")
        return text

    def _sign(self, wanted: str) -> None:
        if self._take("sign") != wanted:
            raise self._error(f"{wanted!r} is missing")

    def _word(self, wanted: str) -> None:
        kind, text = self._next()
        if kind != "name" or text.upper() != wanted:
            raise self._error(f"{text!r} stands where {wanted} should be; conditions are joined by AND only")

    def _error(self, reason: str) -> ConfigurationError:
        return ConfigurationError(f"where={self._text!r}: {reason}. Write it as in {_EXAMPLE}.")
