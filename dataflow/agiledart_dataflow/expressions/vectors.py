"""Evaluation of an expression over `Columns` with NumPy: one call per function and batch.

The text in `functions.py` defines the result. A kernel computes the usual case; where it could differ (an int beyond 64 bits, a
divisor of zero, a cast of NaN, text beyond ASCII) it raises `UnsupportedBatch`, and that function runs value by value. Errors of
the text are raised here, too; the step's runner then falls back to rows, where it can name the record.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from agiledart_dataflow.data.column import NUMERIC, Column, column_of
from agiledart_dataflow.data.column_schema import ColumnField, ColumnKind
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_dataflow.expressions.kernels import kernel_of
from agiledart_dataflow.expressions.nodes import Typed, TypedCall, TypedField, TypedLiteral, TypedWhen, ValueType
from agiledart_dataflow.expressions.python_text import function_of_call
from agiledart_dataflow.expressions.text_kernels import UnsupportedBatch

if TYPE_CHECKING:
    import numpy as np

    from agiledart_dataflow.data.column import Array
else:
    np = lazy_import("numpy")
    Array = Any

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  times without a zone are UTC by definition
_MICROSECOND = timedelta(microseconds=1)


class Constant:
    """A value that is the same in every row."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


Value = Column | Constant


def column_of_expression(node: Typed, columns: Columns) -> Column:
    """Return the values of an expression for these rows. Raises the errors of Python for one of them."""
    if not len(columns):
        return column_of(_field(node.type), [])
    with np.errstate(all="ignore"):
        value = _evaluate(node, columns)
    return value if isinstance(value, Column) else constant_column(value.value, node.type, len(columns))


def mask_of_expression(node: Typed, columns: Columns) -> "Array":
    """Return an array that is True where the condition is True."""
    column = column_of_expression(node, columns)
    if column.kind != "bool":
        return np.array([value is True for value in column.to_list()], dtype=bool)
    mask: Array = column.values if column.valid is None else column.values & column.valid
    return mask


def constant_column(value: Any, kind: ValueType, length: int) -> Column:
    """Return a constant as a column."""
    return column_of(_field(kind), [value] * length)


def _field(kind: ValueType) -> ColumnField:
    return ColumnField("", kind.annotation, kind.kind, kind.optional)


def _evaluate(node: Typed, columns: Columns) -> Value:
    if isinstance(node, TypedField):
        return columns.named(node.name)
    if isinstance(node, TypedLiteral):
        return Constant(node.value)
    if isinstance(node, TypedWhen):
        return _when(node, columns)
    arguments = [_evaluate(argument, columns) for argument in node.arguments]
    special = _SPECIAL.get(node.name)
    if special is not None:
        return special(node, arguments, len(columns))
    return _strict(node, arguments, len(columns))


def _strict(node: TypedCall, arguments: Sequence[Value], length: int) -> Value:
    """Evaluate a function that gives None when an argument is None."""
    if all(isinstance(argument, Constant) for argument in arguments):
        values = [argument.value for argument in arguments if isinstance(argument, Constant)]
        return Constant(None if None in values else function_of_call(node)(*values))
    missing: Array | None = None
    for argument in arguments:
        if isinstance(argument, Constant):
            if argument.value is None:
                return constant_column(None, node.type, length)
            continue
        nulls = argument.nulls()
        if nulls is not None:
            missing = nulls if missing is None else missing | nulls
    if missing is None:
        return _applied(node, arguments, length)
    present = np.flatnonzero(~missing)
    taken = [argument.take(present) if isinstance(argument, Column) else argument for argument in arguments]
    for argument in taken:
        if isinstance(argument, Column):
            argument.valid = None
    return scattered(_applied(node, taken, len(present)), present, length, node.type)


def scattered(part: Column, numbers: "Array", length: int, kind: ValueType) -> Column:
    """Return a column of `length` values: these at these places, None at the others."""
    if part.kind in NUMERIC:
        values = np.zeros(length, part.values.dtype)
        values[numbers] = part.values
        valid = np.zeros(length, bool)
        valid[numbers] = True
        return Column(part.kind, values, valid)
    listed: list[Any] = [None] * length
    for number, value in zip(numbers.tolist(), part.to_list(), strict=True):
        listed[number] = value
    return Column(part.kind, listed)


def _applied(node: TypedCall, arguments: Sequence[Value], length: int) -> Column:
    """Evaluate a function of arguments none of which is None: by its kernel, or value by value."""
    kernel = kernel_of(node.name, node.arguments[0].type.kind)
    if kernel is not None:
        try:
            raw = [_raw(value, argument.type.kind) for value, argument in zip(arguments, node.arguments, strict=True)]
            kinds: tuple[ColumnKind, ...] = tuple(argument.type.kind for argument in node.arguments)
            return Column(node.type.kind, kernel(kinds, node.options, *raw))
        except (UnsupportedBatch, OverflowError):
            pass
    lists = [value.to_list() if isinstance(value, Column) else [value.value] * length for value in arguments]
    field = ColumnField("", node.type.annotation, node.type.kind, optional=False)
    return column_of(field, list(map(function_of_call(node), *lists)))


def _raw(value: Value, kind: ColumnKind) -> Any:
    """Return a kernel's argument: an array, a number or a text. Raises `UnsupportedBatch` for values that the kind's arrays
    cannot hold."""
    if isinstance(value, Column):
        if value.kind != kind or kind == "object":
            raise UnsupportedBatch
        if kind in ("text", "bytes"):
            try:
                return value.arrow()
            except UnicodeEncodeError:
                raise UnsupportedBatch from None
        return value.values
    constant = value.value
    if kind == "time":
        if constant.tzinfo is not None:
            raise UnsupportedBatch
        return (constant - _EPOCH) // _MICROSECOND
    return constant // _MICROSECOND if kind == "span" else constant


def _when(node: TypedWhen, columns: Columns) -> Value:
    """Evaluate each branch for the rows that take it, and for no others."""
    length = len(columns)
    left = np.arange(length)
    parts: list[tuple[Array, Typed]] = []
    for condition, value in node.branches:
        if not len(left):
            break
        rest = columns if len(left) == length else columns.take(left)
        mask = mask_of_expression(condition, rest)
        parts.append((left[mask], value))
        left = left[~mask]
    parts.append((left, node.otherwise))
    parts = [part for part in parts if len(part[0])]
    if len(parts) < 2:  # all rows take the same branch, or there are none
        return _evaluate(parts[0][1] if parts else node.otherwise, columns)
    made = [
        (numbers, column_of_expression(value, columns.take(numbers))) for numbers, value in parts
    ]  # constants become columns here, so that they have the kind of their branch
    # Texts and objects are put together as a list; only numbers have arrays to write into.
    if any(column.kind != node.type.kind for _, column in made) or node.type.kind not in NUMERIC:
        listed: list[Any] = [None] * length
        for numbers, column in made:
            for number, item in zip(numbers.tolist(), column.to_list(), strict=True):
                listed[number] = item
        return Column("object" if any(c.kind == "object" for _, c in made) else node.type.kind, listed)
    values = np.empty(length, made[0][1].values.dtype)
    valid = None if all(column.valid is None for _, column in made) else np.ones(length, bool)
    for numbers, column in made:
        values[numbers] = column.values
        if valid is not None and column.valid is not None:
            valid[numbers] = column.valid
    return Column(node.type.kind, values, valid)


def _is_null(node: TypedCall, arguments: Sequence[Value], length: int) -> Value:
    (argument,) = arguments
    if isinstance(argument, Constant):
        return Constant(argument.value is None)
    if argument.kind == "object":
        return Column("bool", np.array([value is None for value in argument.values], dtype=bool))
    nulls = argument.nulls()
    return Column("bool", np.zeros(length, bool) if nulls is None else nulls)


def _fill_null(node: TypedCall, arguments: Sequence[Value], length: int) -> Value:
    value, other = arguments
    if isinstance(value, Constant):
        return value if value.value is not None else other
    nulls = value.nulls()
    if nulls is None:
        return value
    if not isinstance(other, Column):
        other = constant_column(other.value, node.arguments[1].type, length)
    if value.kind in NUMERIC and other.kind == value.kind:
        valid = None if other.valid is None else other.valid | ~nulls
        return Column(value.kind, np.where(nulls, other.values, value.values), valid)
    listed = [b if a is None else a for a, b in zip(value.to_list(), other.to_list(), strict=True)]
    kind = "object" if "object" in (value.kind, other.kind) else value.kind
    return Column(kind, listed)


def _logic(node: TypedCall, arguments: Sequence[Value], length: int) -> Value:
    """Evaluate `and` and `or` of True, False and None."""
    is_and = node.name == "and"
    sides = []
    for operand, argument in zip(arguments, node.arguments, strict=True):
        column = operand if isinstance(operand, Column) else constant_column(operand.value, argument.type, length)
        yes = column.values if column.valid is None else column.values & column.valid
        no = ~column.values if column.valid is None else ~column.values & column.valid
        sides.append((yes, no, column.valid is None))
    (yes, no, whole), (yes2, no2, whole2) = sides
    if whole and whole2:
        return Column("bool", yes & yes2 if is_and else yes | yes2)
    decided_yes = yes & yes2 if is_and else yes | yes2
    decided_no = no | no2 if is_and else no & no2
    return Column("bool", decided_yes, decided_yes | decided_no)


_SPECIAL: dict[str, Callable[[TypedCall, Sequence[Value], int], Value]] = {
    "is_null": _is_null,
    "fill_null": _fill_null,
    "and": _logic,
    "or": _logic,
}
