"""`TableCursor`: the order in which rows of a table are read, and where reading goes on. Sans I/O.

Rows are ordered by the cursor's columns, equal ones by the primary key. Where the cursor is not unique, rows may be added later
that have the last value which was read. So reading goes on at that value, and the rows already read are left out: they are compared
by their whole content, copies by their number.
"""

from collections import Counter
from hashlib import blake2b
from typing import Any, Final

import sqlalchemy as sa

from agiledart_kernel.errors import OperationFailed

MAX_TIES: Final = 1_000_000
"""Rows of the last value that are remembered (about 100 MB)."""


class TableCursor:
    """Cursor over a table.

    Args:
        name: of the table, for users.
        table: as the database has it.
        columns: names of the cursor's columns, the most significant first.

    Attributes:
        is_unique: the database admits no two rows with the same values.
        fields: expressions that a query selects first, in this order: the cursor's columns, then those of the primary key.
        width: number of the cursor's columns among them.
        last: values of the last row that was read; None: none was.
    """

    def __init__(self, name: str, table: sa.Table, columns: list[str], dialect: str) -> None:
        self._name = name
        self.is_unique = _is_unique(table, columns)
        keys = [column.name for column in table.primary_key.columns if column.name not in columns]
        self.fields = [comparable(table.c[column], dialect) for column in (*columns, *keys)]
        self.width = len(columns)
        self.last: tuple[Any, ...] | None = None
        self._seen: Counter[bytes] = Counter()
        self._unreadable: Counter[bytes] = Counter()  # they are behind each position
        self._to_skip: Counter[bytes] = Counter()

    def rest(self, query: "sa.Select[Any]") -> "sa.Select[Any]":
        """Return the query for all rows that were not read, in order; perhaps after some that were."""
        self._to_skip = self._seen + self._unreadable
        columns = self.fields[: self.width]
        for column in columns:
            query = query.where(column.is_not(None))
        if self.last is not None:
            query = query.where(columns[0] >= self.last[0], self._behind(columns, self.last))
        return query.order_by(*self.fields)

    def _behind(self, columns: list[Any], last: tuple[Any, ...]) -> Any:
        *others, (column, value) = zip(columns, last, strict=True)
        condition = column > value if self.is_unique else column >= value
        for column, value in reversed(others):
            condition = sa.or_(column > value, sa.and_(column == value, condition))
        return condition

    def is_new(self, key: tuple[Any, ...] | None, content: object) -> bool:
        """Return whether a row of the rest was not read before; take it as read.

        Args:
            key: values of the cursor's columns; None: they cannot be read.
            content: all that is known of the row.

        Raises:
            OperationFailed: too many rows have the last value.
        """
        if self.is_unique and key is not None:
            self.last = key
            return True
        digest = blake2b(repr(content).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if self._to_skip[digest] > 0:
            self._to_skip[digest] -= 1
            return False
        seen = self._unreadable
        if key is not None:
            if self.last is None or _folded(key) != _folded(self.last):
                self._seen = Counter()
            self.last = key
            seen = self._seen
        seen[digest] += 1
        if len(seen) > MAX_TIES:
            raise OperationFailed(
                f"{self._name}: more than {MAX_TIES:,} rows have the cursor {self.last!r}: add a column, such as"
                " cursor=at,id"
            )
        return True


def _folded(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return values that are equal where a database may take texts for equal: without case, and spaces at the end."""
    return tuple(value.casefold().rstrip() if isinstance(value, str) else value for value in key)


def _is_unique(table: sa.Table, columns: list[str]) -> bool:
    """Return whether a key or unique index of the table lies within these columns."""
    keys = [[column.name for column in table.primary_key.columns]]
    keys += [
        [column.name for column in rule.columns] for rule in table.constraints if isinstance(rule, sa.UniqueConstraint)
    ]
    keys += [
        [column.name for column in index.columns]
        for index in table.indexes
        if index.unique and not any(name.endswith("_where") for name in index.dialect_kwargs)
    ]
    return any(key and set(key) <= set(columns) for key in keys)


def comparable(column: Any, dialect: str) -> Any:
    """Return a column whose values come, and are compared, as the driver has them.

    SQLite knows no times. SQLAlchemy's own reading of its texts raises for a value that it does not know, in the middle of a query.
    """
    if dialect == "sqlite" and isinstance(column.type, sa.DateTime | sa.Date | sa.Time):
        return sa.type_coerce(column, sa.types.NullType())
    return column
