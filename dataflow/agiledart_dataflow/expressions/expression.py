"""`col`, `lit`, `when` and the methods of expressions. Building an expression checks little; a step checks it against its rows."""

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from agiledart_dataflow.expressions.aggregates import Aggregate
from agiledart_dataflow.expressions.nodes import CallNode, FieldNode, Literal, Node, When
from agiledart_dataflow.user_code.callsite import call_site
from agiledart_kernel.errors import TopologyError

_VALUES = (str, int, float, bool, bytes, datetime, date, timedelta, type(None))


class NoSuchMethod(TopologyError, AttributeError):
    """Error: expressions have no such method. Also an AttributeError, so that `hasattr` works."""


_BESIDE = {
    "count": "count() counts rows and stands alone: .aggregate(…, n=count())",
    "filter": ".where(expression) of a stream keeps the rows for which it is true",
}
"""Words that are no methods of an expression → what is meant."""


class Expression:
    """A value of each row. Made by `col`, `lit` and `when`, joined by Python's operators (`&`, `|`, `~` for and, or, not)."""

    __slots__ = ("node",)
    __hash__ = None  # type: ignore[assignment]  # == makes an expression

    def __init__(self, node: Node) -> None:
        self.node = node

    def __repr__(self) -> str:
        return f"Expression({self.node})"

    def __bool__(self) -> bool:
        raise call_site().error(
            "an expression has no truth value before it meets rows: join conditions with & | ~, each in parentheses,"
            " instead of and, or, not"
        )

    def __iter__(self) -> Any:
        raise call_site().error("an expression stands for one value of a row and cannot be iterated")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise an error with the user's line for an unknown method; names that begin with `_` are Python's own."""
            if name.startswith("_"):
                raise AttributeError(f"'Expression' object has no attribute {name!r}", name=name, obj=self)
            if name in _BESIDE:
                raise NoSuchMethod(f"{call_site()}  an expression has no method {name!r}: {_BESIDE[name]}")
            known = [method for method in dir(Expression) if not method.startswith("_") and method != "node"]
            close = get_close_matches(name, known, 1)
            meant = f"did you mean .{close[0]}(…)?" if close else f"it has {', '.join(known)}"
            raise NoSuchMethod(f"{call_site()}  an expression has no method {name!r}: {meant}")

    # numbers, times and texts

    def __add__(self, other: object) -> "Expression":
        return _call("+", self, other)

    def __radd__(self, other: object) -> "Expression":
        return _call("+", other, self)

    def __sub__(self, other: object) -> "Expression":
        return _call("-", self, other)

    def __rsub__(self, other: object) -> "Expression":
        return _call("-", other, self)

    def __mul__(self, other: object) -> "Expression":
        return _call("*", self, other)

    def __rmul__(self, other: object) -> "Expression":
        return _call("*", other, self)

    def __truediv__(self, other: object) -> "Expression":
        return _call("/", self, other)

    def __rtruediv__(self, other: object) -> "Expression":
        return _call("/", other, self)

    def __floordiv__(self, other: object) -> "Expression":
        return _call("//", self, other)

    def __rfloordiv__(self, other: object) -> "Expression":
        return _call("//", other, self)

    def __mod__(self, other: object) -> "Expression":
        return _call("%", self, other)

    def __rmod__(self, other: object) -> "Expression":
        return _call("%", other, self)

    def __neg__(self) -> "Expression":
        return _call("neg", self)

    def __abs__(self) -> "Expression":
        return _call("abs", self)

    def abs(self) -> "Expression":
        """Return the number without its sign."""
        return _call("abs", self)

    def round(self, digits: int | None = None) -> "Expression":
        """Return Python's `round`: to an int, or to so many digits after the point; a half goes to the even neighbour."""
        return _call("round", self, options=(digits,))

    def floor(self) -> "Expression":
        """Return the greatest int that is not above."""
        return _call("floor", self)

    def ceil(self) -> "Expression":
        """Return the least int that is not below."""
        return _call("ceil", self)

    def sqrt(self) -> "Expression":
        """Return the square root; a number below zero is an error of the row."""
        return _call("sqrt", self)

    def cast(self, kind: type) -> "Expression":
        """Return the value converted by Python's `int`, `float`, `str` or `bool`; `ReadTime`: an int is the wall time (ns) of
        reading."""
        return _call("cast", self, options=(kind,))

    # comparison and logic
    def __eq__(self, other: object) -> "Expression":  # type: ignore[override]  # an expression, not a truth value
        return _call("==", self, other)

    def __ne__(self, other: object) -> "Expression":  # type: ignore[override]  # as above
        return _call("!=", self, other)

    def __lt__(self, other: object) -> "Expression":
        return _call("<", self, other)

    def __le__(self, other: object) -> "Expression":
        return _call("<=", self, other)

    def __gt__(self, other: object) -> "Expression":
        return _call(">", self, other)

    def __ge__(self, other: object) -> "Expression":
        return _call(">=", self, other)

    def __and__(self, other: object) -> "Expression":
        return _call("and", self, other)

    def __rand__(self, other: object) -> "Expression":
        return _call("and", other, self)

    def __or__(self, other: object) -> "Expression":
        return _call("or", self, other)

    def __ror__(self, other: object) -> "Expression":
        return _call("or", other, self)

    def __invert__(self) -> "Expression":
        return _call("not", self)

    def is_in(self, values: Iterable[Any]) -> "Expression":
        """Return whether the value is one of these."""
        return _call("is_in", self, options=(tuple(values),))

    # missing values

    def is_null(self) -> "Expression":
        """Return whether the value is None."""
        return _call("is_null", self)

    def is_not_null(self) -> "Expression":
        """Return whether there is a value."""
        return _call("not", _call("is_null", self))

    def fill_null(self, other: object) -> "Expression":
        """Return the value, or `other` where it is None."""
        return _call("fill_null", self, other)

    # texts

    def lower(self) -> "Expression":
        """Return the text in lower case."""
        return _call("lower", self)

    def upper(self) -> "Expression":
        """Return the text in upper case."""
        return _call("upper", self)

    def strip(self) -> "Expression":
        """Return the text without white space at its ends."""
        return _call("strip", self)

    def contains(self, part: object) -> "Expression":
        """Return whether the text contains another."""
        return _call("contains", self, part)

    def starts_with(self, part: object) -> "Expression":
        """Return whether it begins with a text."""
        return _call("starts_with", self, part)

    def ends_with(self, part: object) -> "Expression":
        """Return whether it ends with a text."""
        return _call("ends_with", self, part)

    def length(self) -> "Expression":
        """Return the number of characters."""
        return _call("length", self)

    def replace(self, old: object, new: object) -> "Expression":
        """Return the text with each `old` replaced by `new`."""
        return _call("replace", self, old, new)

    def slice(self, start: int, stop: int | None = None) -> "Expression":
        """Return the characters [start:stop], numbers below zero counted from the end."""
        return _call("slice", self, options=(start, stop))

    def concat(self, *others: object) -> "Expression":
        """Return the texts one after the other."""
        joined = self
        for other in others:
            joined = _call("+", joined, other)
        return joined

    # times

    def year(self) -> "Expression":
        """Return the year of a datetime."""
        return _call("year", self)

    def month(self) -> "Expression":
        """Return the month, 1 to 12."""
        return _call("month", self)

    def day(self) -> "Expression":
        """Return the day of the month."""
        return _call("day", self)

    def weekday(self) -> "Expression":
        """Return the day of the week, Monday is 0."""
        return _call("weekday", self)

    def hour(self) -> "Expression":
        """Return the hour, 0 to 23."""
        return _call("hour", self)

    def minute(self) -> "Expression":
        """Return the minute, 0 to 59."""
        return _call("minute", self)

    def second(self) -> "Expression":
        """Return the second, 0 to 59."""
        return _call("second", self)

    def millisecond(self) -> "Expression":
        """Return the milliseconds of the second, 0 to 999."""
        return _call("millisecond", self)

    def truncate(self, to: timedelta) -> "Expression":
        """Return the last instant not after it that lies a multiple of `to` from 1970-01-01 00:00."""
        return _call("truncate", self, options=(to,))

    def total_seconds(self) -> "Expression":
        """Return a timedelta (the difference of two datetimes) in seconds."""
        return _call("total_seconds", self)

    # aggregates of windows

    def sum(self) -> Aggregate:
        """Return the sum over the rows of a window, for `.window(…).aggregate("name", total=col("fare").sum())`."""
        return Aggregate("sum", self.node)

    def mean(self) -> Aggregate:
        """Return the sum divided by the number of rows."""
        return Aggregate("mean", self.node)

    def min(self) -> Aggregate:
        """Return the least value."""
        return Aggregate("min", self.node)

    def max(self) -> Aggregate:
        """Return the greatest value."""
        return Aggregate("max", self.node)


class WhenChain:
    """`when(…).then(…)`, to which more branches can be added."""

    __slots__ = ("_branches",)

    def __init__(self, branches: tuple[tuple[Node, Node], ...]) -> None:
        self._branches = branches

    def when(self, condition: object) -> "Branch":
        """Add a condition, tried when no earlier one is True."""
        return Branch(self._branches, node_of(condition))

    def otherwise(self, value: object) -> Expression:
        """Set the value when no condition is True."""
        return Expression(When(self._branches, node_of(value)))


class Branch:
    """`when(…)`, which needs its `then`."""

    __slots__ = ("_branches", "_condition")

    def __init__(self, branches: tuple[tuple[Node, Node], ...], condition: Node) -> None:
        self._branches, self._condition = branches, condition

    def then(self, value: object) -> WhenChain:
        """Set the value when the condition is True."""
        return WhenChain((*self._branches, (self._condition, node_of(value))))


def col(name: str) -> Expression:
    """Return the value of a field: `col("fare")`."""
    if not isinstance(name, str):
        raise call_site().error(f'col() takes the name of a field, col("fare"), not {name!r}')
    return Expression(FieldNode(name))


def lit(value: Any) -> Expression:
    """Return a value that is the same for each row."""
    return Expression(node_of(value))


def when(condition: object) -> Branch:
    """Begin a conditional value: `when(col("fare") > 0).then(col("tip") / col("fare")).otherwise(0.0)`."""
    return Branch((), node_of(condition))


def minimum(first: object, *others: object) -> Expression:
    """Return the least of several values of a row, as Python's `min`."""
    return _call("minimum", first, *others)


def maximum(first: object, *others: object) -> Expression:
    """Return the greatest of several values of a row, as Python's `max`."""
    return _call("maximum", first, *others)


def node_of(value: object) -> Node:
    """Return the node of an expression or of a plain value. Raises `TopologyError` for anything else."""
    if isinstance(value, Expression):
        return value.node
    if isinstance(value, _VALUES):
        return Literal(value)
    hint = ""
    if isinstance(value, WhenChain):
        hint = ": end when(…).then(…) with .otherwise(…)"
    elif isinstance(value, Branch):
        hint = ": after when(…) comes .then(…)"
    elif isinstance(value, Aggregate):
        hint = ": an aggregate belongs to a window, .window(…).aggregate(…)"
    elif callable(value):
        hint = ": a function works on rows; use .map or .filter"
    raise call_site().error(f"{type(value).__name__} cannot be a value of an expression{hint}")


def _call(name: str, *arguments: object, options: tuple[Any, ...] = ()) -> Expression:
    return Expression(CallNode(name, tuple(node_of(argument) for argument in arguments), options))
