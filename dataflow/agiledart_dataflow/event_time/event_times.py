"""Option `event_time=` of a source: a function of a row, the name of a field, or an expression; and the same over columns.

Times of many rows are read at once, in C for common types.
"""

from collections.abc import Callable
from datetime import datetime, tzinfo
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.inference import is_lambda
from agiledart_dataflow.data.lambda_types import attribute_read
from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_dataflow.data.position import BEFORE_ALL_MS
from agiledart_dataflow.data.schema import SchemaError, fields_of, is_dict
from agiledart_dataflow.data.utc_times import utc_time
from agiledart_dataflow.expressions.expression import Expression
from agiledart_dataflow.expressions.nodes import FieldNode, Node
from agiledart_dataflow.expressions.row_expression import RowExpression
from agiledart_dataflow.user_code.callsite import CallSite
from agiledart_dataflow.user_code.user_errors import bounded_repr
from agiledart_kernel.instants import event_time

if TYPE_CHECKING:
    import numpy as np

    from agiledart_dataflow.data.column import Array
else:
    np = lazy_import("numpy")
    Array = Any

EventTimeOf = Callable[[Any], datetime | int]
TimesOfColumns = Callable[[Columns], "Array"]

LEAST_MS: Final = BEFORE_ALL_MS
MOST_MS: Final = -BEFORE_ALL_MS - 1
"""Range of event times: beyond it the end of a window, or a time plus a tolerance, would not fit 64 bits."""


class EventTimeError(ValueError):
    """A row has no event time where the source reads it.

    Attributes:
        reason: word to count the row by: `field` or `time`.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def checked_time(time_ms: int) -> int:
    """Return an event time that windows can hold. Raises `EventTimeError` for any other."""
    if LEAST_MS <= time_ms <= MOST_MS:
        return time_ms
    raise EventTimeError("time", f"{time_ms} is no event time in milliseconds since 1970 that a window can hold")


def no_time(row: Any) -> int:
    """Return the event time of rows that have none: all happen at once, so no row is ever late."""
    return 0


def event_times(
    given: Any, row_type: Any, where: CallSite, zone: tzinfo | None = None
) -> tuple[EventTimeOf, TimesOfColumns | None]:
    """Return (row → event time, columns → event times in ms); the second is None for a function without a columnar form.

    Args:
        given: the option.
        row_type: of the rows.
        where: call that gave it.
        zone: of times in rows without types that state none; None: UTC.

    Raises:
        TopologyError: the field does not exist, or is not a time.
    """
    if given is None:
        return no_time, _no_times
    node: Node | None = None
    if isinstance(given, str) and is_dict(row_type):
        return _time_of_member(given, zone), None
    if isinstance(given, str):
        node = FieldNode(given)
    elif isinstance(given, Expression):
        node = given.node
    elif not callable(given):
        raise where.error(
            f"event_time must be a function of a row, the name of a field or an expression, not {given!r}"
        )
    if node is not None:
        value = RowExpression(node, row_type, where)
        if value.type.kind not in ("int", "time") or value.type.optional:
            raise where.error(f"event_time must be a datetime, or an int of milliseconds since 1970, not {value.type}")
        return value.function, _times_of(value)
    name = field_read(given, row_type)
    if name is None:
        return given, None
    value = RowExpression(FieldNode(name), row_type, where)
    return given, _times_of(value) if value.type.kind in ("int", "time") and not value.type.optional else None


def _times_of(value: RowExpression) -> TimesOfColumns:
    def times(columns: Columns) -> "Array":
        column = value.column(columns)
        if column.kind == "int":
            times_ms: Array = column.values
        elif column.kind == "time":
            times_ms = column.values // 1_000
        else:
            times_ms = np.array([event_time(time) for time in column.to_list()], dtype=np.int64)
        return times_ms

    return times


def _no_times(columns: Columns) -> "Array":
    return np.full(len(columns), no_time(None))


def times_of(rows: list[Any], time_of: Callable[[Any], Any]) -> list[int]:
    """Return the event times (ms) of rows, at least one; raises the errors of `time_of`."""
    if time_of is no_time:
        return [0] * len(rows)
    times = list(map(time_of, rows))
    if len(times) < len(rows):
        raise StopIteration  # `time_of` raised it, and `map` took it for its end
    if type(times[0]) is int:
        try:
            if type(sum(times)) is int:
                return times
        except TypeError:  # some are not numbers
            pass
    return [event_time(time) for time in times]


def is_ascending(times: list[int]) -> bool:
    """Return whether times are in order. To sort a sorted list is the fastest test."""
    return times == sorted(times)


def field_read(function: Callable[[Any], Any], row_type: Any) -> str | None:
    """Return the field that a lambda returns unchanged (`lambda trip: trip.ts`); None for any other function."""
    name = attribute_read(function) if is_lambda(function) and isinstance(function, FunctionType) else None
    try:
        return name if any(field.name == name for field in fields_of(row_type)) else None
    except SchemaError:
        return None


def _time_of_member(name: str, zone: tzinfo | None) -> EventTimeOf:
    """Return a function that reads the time in a member of a dict row, as `utc_time` does. It raises `EventTimeError`."""

    def time_of(row: Any) -> datetime:
        try:
            return utc_time(row[name], zone)
        except KeyError:
            raise EventTimeError("field", f"{name} is missing") from None
        except ValueError:
            raise EventTimeError("time", f"{name}: {bounded_repr(row[name])} is no time") from None

    return time_of
