"""`Columns`: rows as arrays, one for each field.

Arrays are made on demand: a field that no code reads is never converted, filtered or copied. Rows that came as rows are kept, so
that no batch is converted twice in one direction. NumPy and pyarrow are imported at their first use.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from agiledart_dataflow.data.column import Column, Selection, column_of, concatenated_columns
from agiledart_dataflow.data.column_schema import ColumnSchema, schema_of
from agiledart_dataflow.data.lazy_module import lazy_import

if TYPE_CHECKING:
    import numpy as np

    from agiledart_dataflow.data.column import Array
else:
    np = lazy_import("numpy")
    Array = Any

_ALL = slice(None)

Maker: TypeAlias = Callable[[], Column]


class _Pending:
    """Column that no code has read yet: some rows of another column, or of a list of rows."""

    __slots__ = ("selection", "source")

    def __init__(self, source: Column | Maker, selection: Selection) -> None:
        self.source = source
        self.selection = selection

    def column(self) -> Column:
        source = self.source if isinstance(self.source, Column) else self.source()
        return source if self.selection is _ALL else source.take(self.selection)


class Columns:
    """Rows of one type, column by column.

    Args:
        schema: of the row type.
        parts: one for each field: the column, or a function that makes it on demand.
        length: number of rows.
        rows, picked: source of the columns when there are no parts: some of these rows.
    """

    __slots__ = ("_length", "_parts", "_picked", "_rows", "schema")

    def __init__(
        self,
        schema: ColumnSchema,
        parts: Sequence[Column | Maker],
        length: int,
        rows: list[Any] | None = None,
        picked: Selection = _ALL,
    ) -> None:
        self.schema = schema
        self._length = length
        self._parts: list[Column | _Pending] = [
            part if isinstance(part, Column) else _Pending(part, _ALL) for part in parts
        ]
        self._rows = rows
        self._picked = picked

    @classmethod
    def from_rows(cls, rows: list[Any], row_type: Any) -> "Columns":
        """Return the columns of these rows; each is made on demand."""
        return cls(schema_of(row_type), (), len(rows), rows)

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"Columns({self._length} rows of {', '.join(field.name for field in self.schema.fields)})"

    @property
    def has_rows(self) -> bool:
        """True when `rows` need not be made."""
        return self._rows is not None

    @property
    def row_type(self) -> Any:
        """The type of the rows."""
        return self.schema.row_type

    def column(self, number: int) -> Column:
        """Return one column, by number. Raises TypeError when a row that it is made of is not of its declared type."""
        if not self._parts:
            self._parts = [_Pending(self._maker(i), _ALL) for i in range(len(self.schema.fields))]
        part = self._parts[number]
        if isinstance(part, _Pending):
            part = self._parts[number] = part.column()
        return part

    def named(self, name: str) -> Column:
        """Return one column, by the field's name. Raises KeyError."""
        return self.column(self.schema.index[name])

    def _maker(self, number: int) -> Maker:
        return lambda: column_of(
            self.schema.fields[number], list(map(self.schema.getters[number], self._picked_rows()))
        )

    def _picked_rows(self) -> list[Any]:
        assert self._rows is not None
        if self._picked is not _ALL:
            self._rows, self._picked = _picked(self._rows, self._picked), _ALL
        return self._rows

    def rows(self) -> list[Any]:
        """Return the rows; the same list each time, not to be changed."""
        if self._rows is None:
            lists = [self.column(number).to_list() for number in range(len(self.schema.fields))]
            if self.schema.is_scalar:
                self._rows = lists[0]
            else:
                self._rows = list(map(self.schema.make, zip(*lists, strict=True)))
            return self._rows
        return self._picked_rows()

    def slice(self, start: int, stop: int) -> "Columns":
        """Return rows start … stop-1, as views."""
        start, stop, _ = slice(start, stop).indices(self._length)
        if start == 0 and stop == self._length:
            return self
        return self._select(slice(start, stop), max(0, stop - start))

    def filter(self, mask: "Array") -> "Columns":
        """Return the rows for which an array of bools is True."""
        numbers = np.flatnonzero(mask)
        return self if len(numbers) == self._length else self._select(numbers, len(numbers))

    def take(self, numbers: "Array") -> "Columns":
        """Return the rows with these numbers, in this order."""
        return self._select(numbers, len(numbers))

    def _select(self, selection: Selection, length: int) -> "Columns":
        # Columns that share a selection share the composed one, too: it is computed once.
        composed: dict[int, Selection] = {id(_ALL): selection}

        def onto(before: Selection) -> Selection:
            if id(before) not in composed:
                composed[id(before)] = _composed(before, selection)
            return composed[id(before)]

        if self._rows is not None and not self._parts:
            return Columns(self.schema, (), length, self._rows, onto(self._picked))
        chosen = Columns(self.schema, (), length)
        chosen._parts = [
            _Pending(part.source, onto(part.selection)) if isinstance(part, _Pending) else _Pending(part, selection)
            for part in self._parts
        ]
        if self._rows is not None:
            chosen._rows, chosen._picked = self._rows, onto(self._picked)
        return chosen

    def replaced(self, row_type: Any, columns: Mapping[str, Column | str]) -> "Columns":
        """Return as many rows of another type; each field is a new column, or the present one with the given name."""
        schema = schema_of(row_type)
        made = Columns(schema, (), self._length)
        if not self._parts:
            self._parts = [_Pending(self._maker(i), _ALL) for i in range(len(self.schema.fields))]
        for field in schema.fields:
            source = columns[field.name]
            if isinstance(source, str):
                number = self.schema.index[source]
                part = self._parts[number]
                made._parts.append(part if isinstance(part, Column) else _Pending(_Asked(self, number), _ALL))
            else:
                made._parts.append(source)
        return made

    @staticmethod
    def concatenate(pieces: Sequence["Columns"]) -> "Columns":
        """Return pieces of one type, one after the other; at least one."""
        if len(pieces) == 1:
            return pieces[0]
        schema = pieces[0].schema
        length = sum(map(len, pieces))
        if all(piece.has_rows for piece in pieces):
            return Columns(schema, (), length, [row for piece in pieces for row in piece.rows()])

        def maker(number: int) -> Maker:
            return lambda: concatenated_columns([piece.column(number) for piece in pieces])

        return Columns(schema, [maker(number) for number in range(len(schema.fields))], length)


class _Asked:
    """Maker of a column that takes it from other columns, so that both share it."""

    __slots__ = ("_columns", "_number")

    def __init__(self, columns: Columns, number: int) -> None:
        self._columns, self._number = columns, number

    def __call__(self) -> Column:
        return self._columns.column(self._number)


def _composed(before: Selection, then: Selection) -> Selection:
    """Return the selection that is equal to the two in order."""
    if isinstance(before, slice):
        if isinstance(then, slice):
            return slice(before.start + then.start, before.start + then.stop)
        moved: Array = then + before.start
        return moved
    numbers: Array = before[then]
    return numbers


def _picked(rows: list[Any], selection: Selection) -> list[Any]:
    if isinstance(selection, slice):
        return rows[selection]
    numbers: Iterable[int] = selection.tolist()
    return list(map(rows.__getitem__, numbers))
