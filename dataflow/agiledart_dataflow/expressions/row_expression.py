"""Expressions of one row type in all the forms in which steps use them: a function of a row, text, a column."""

import keyword
from collections.abc import Callable, Mapping
from math import nan
from typing import TYPE_CHECKING, Any, NamedTuple

from agiledart_dataflow.data.column import Column
from agiledart_dataflow.data.column_schema import SCALAR_FIELD, schema_of
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.partitioning import not_nan
from agiledart_dataflow.data.schema import is_named_tuple
from agiledart_dataflow.expressions.binding import bound, fields_used
from agiledart_dataflow.expressions.nodes import FieldNode, Node, TypedField, ValueType
from agiledart_dataflow.expressions.python_text import NameBinder, PythonText, Scope
from agiledart_dataflow.user_code.callsite import CallSite

if TYPE_CHECKING:
    from agiledart_dataflow.data.column import Array
    from agiledart_dataflow.expressions.straight import Straight


def _function(python: Callable[[str, NameBinder], str]) -> Callable[[Any], Any]:
    """Return a function of a row that runs a Python text."""
    names = Scope()
    return names.function(f"lambda row: {python('row', names)}")


class RowExpression:
    """One value of each row; may be called with a row.

    Args:
        node: the expression.
        row_type: of the rows.
        where: the user's line, for errors.

    Attributes:
        type: of the value.
        fields: names of the fields that it reads.

    Raises:
        TopologyError: it does not match the rows.
    """

    __slots__ = ("__name__", "_function", "_is_scalar", "_straight", "fields", "node", "type", "typed")

    def __init__(self, node: Node, row_type: Any, where: CallSite) -> None:
        self.node = node
        self.typed = bound(node, row_type, where)
        self.type: ValueType = self.typed.type
        self.fields = fields_used(node)
        self._is_scalar = schema_of(row_type).is_scalar
        self._function = _function(self.python)
        self._straight: Straight | None = None
        self.__name__ = node.name if isinstance(node, FieldNode) else "expression"

    def __call__(self, row: Any) -> Any:
        return self._function(row)

    def python(self, row: str, names: NameBinder) -> str:
        """Return the value as text over the variable `row`."""
        return PythonText(lambda name: row if self._is_scalar and name == SCALAR_FIELD else f"{row}.{name}", names).of(
            self.typed
        )

    @property
    def function(self) -> Callable[[Any], Any]:
        """Row → value, as a plain function."""
        return self._function

    @property
    def field(self) -> str | None:
        """Name of the field whose value it is unchanged; None if there is none."""
        return self.typed.name if isinstance(self.typed, TypedField) else None

    def column(self, columns: Columns) -> Column:
        """Return the values for these rows. Raises the errors of Python for one of them."""
        if isinstance(self.typed, TypedField):
            return columns.named(self.typed.name)
        values = self._row_by_row().column(columns)
        if values is None:
            from agiledart_dataflow.expressions.vectors import (
                column_of_expression,
            )  # NumPy is loaded only where it is used

            values = column_of_expression(self.typed, columns)
        return values

    def _row_by_row(self) -> "Straight":
        if self._straight is None:
            from agiledart_dataflow.expressions.straight import straight  # as above

            self._straight = straight(self.typed)
        return self._straight

    def mask(self, columns: Columns) -> "Array":
        """Return an array that is True where the condition is True."""
        values = self._row_by_row().column(columns)
        if values is None:
            from agiledart_dataflow.expressions.vectors import mask_of_expression  # as above

            return mask_of_expression(self.typed, columns)
        mask: Array = values.values
        return mask


class RowBuilder:
    """Maker of a new row from each row; may be called with a row.

    Args:
        row_type: of the new rows, a NamedTuple.
        old_type: of the rows that it is made of.
        values: field of the new row → expression over the old one.
    """

    __slots__ = ("__name__", "_function", "_whole", "row_type", "values")

    def __init__(self, row_type: Any, old_type: Any, values: Mapping[str, RowExpression]) -> None:
        self.row_type = row_type
        self.values = dict(values)
        self.__name__ = row_type.__name__
        unchanged_fields = [value.field for value in values.values()]
        old_fields = [field.name for field in schema_of(old_type).fields]
        takes_all = (
            is_named_tuple(old_type)
            and unchanged_fields[: len(old_fields)] == old_fields == list(values)[: len(old_fields)]
        )
        self._whole = len(old_fields) if takes_all else 0
        self._function = _function(self.python)

    def __call__(self, row: Any) -> Any:
        return self._function(row)

    def python(self, row: str, names: NameBinder) -> str:
        """Return the new row as text over the variable `row`."""
        parts = [value.python(row, names) for value in list(self.values.values())[self._whole :]]
        if self._whole:
            parts.insert(0, f"*{row}")
        return f"{names.bind(tuple.__new__)}({names.bind(self.row_type)}, ({', '.join(parts)},))"

    def columns(self, columns: Columns) -> Columns:
        """Return the new rows in columns; fields that stay as they are cost nothing."""
        return columns.replaced(
            self.row_type, {name: value.field or value.column(columns) for name, value in self.values.items()}
        )


class KeyExpression:
    """The key of each row: the value of one expression, or a tuple of several; may be called with a row.

    NaN cannot be a key, nor a part of one: TypeError, whichever form the rows have.
    """

    __slots__ = ("__name__", "_floats", "_function", "names", "parts")

    def __init__(self, parts: tuple[RowExpression, ...]) -> None:
        self.parts = parts
        self._floats = [part.type.kind == "float" for part in parts]
        self.names = tuple(part.field or "key" for part in parts)
        self._function = _function(self.python)
        self.__name__ = "key_by"

    def __call__(self, row: Any) -> Any:
        return self._function(row)

    def python(self, row: str, names: NameBinder) -> str:
        """Return the key as text over the variable `row`."""
        texts = [
            f"{names.bind(not_nan)}({part.python(row, names)})" if is_float else part.python(row, names)
            for part, is_float in zip(self.parts, self._floats, strict=True)
        ]
        return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"

    @property
    def type(self) -> Any:
        """The key's type."""
        types = [part.type.annotation for part in self.parts]
        return types[0] if len(types) == 1 else tuple[tuple(types)]  # type: ignore[misc]  # built at run time

    def columns(self, columns: Columns) -> list[Column]:
        """Return the parts of the key for these rows."""
        made = [part.column(columns) for part in self.parts]
        for column, is_float in zip(made, self._floats, strict=True):
            if is_float and column.has_nan():
                not_nan(nan)
        return made


def made_row_type(step: str, fields: Mapping[str, Any], where: CallSite) -> Any:
    """Return a NamedTuple with these fields (name → type). Raises `TopologyError` for a name that a field cannot have."""
    for name in fields:
        if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
            raise where.error(f"{name!r} cannot name a field: letters, digits and '_', beginning with a letter")
    words = [word for word in "".join(c if c.isalnum() else " " for c in step).split() if word]
    class_name = "".join(word[:1].upper() + word[1:] for word in words)
    kind: Any = NamedTuple(class_name if class_name[:1].isalpha() else f"Row{class_name}", list(fields.items()))  # type: ignore[misc]
    kind.__doc__ = f"A row that leaves the step {step}."
    return kind
