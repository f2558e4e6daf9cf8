"""Source `sql:NAME?table=T&cursor=C`: the rows of a table in the order of growing columns.

    sql:plant?table=readings&cursor=id            to the end of the table: a bounded source, also for `reference` and `lookup`
    sql:plant?table=readings&cursor=id&poll=5s    then what is added, looked for every five seconds
    sql:plant?table=readings&cursor=at,id         in the order of two columns

A row added with a cursor below one already read is not seen. Rows added with the last cursor are (`table_cursor.py`). Rows whose
cursor is NULL are not read. Columns fill the fields of their names, aliases too. A row that does not fit its type is malformed
and counted, and so is one that the driver cannot read. A thread reads ahead; the executor never waits.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import exc

from agiledart_connectors.codecs.malformed_examples import TYPE, MalformedError, bounded_repr
from agiledart_connectors.options import SPANS_MS, ReadOptions, quantity
from agiledart_connectors.remote.payload_queue import Payload, PayloadQueue, QueuedReader
from agiledart_connectors.remote.thread_errors import RetryLaterError, fault_text
from agiledart_connectors.sql.database import AWAY, error_text, missing_columns, names_of, open_engine, reflected
from agiledart_connectors.sql.row_maker import row_maker
from agiledart_connectors.sql.table_cursor import TableCursor, comparable
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import AgileDartError, ConfigurationError, OperationFailed

_AHEAD: Final = 4
"""Pieces read ahead."""

_PIECE: Final = 1_000
_MAX_ROW_CHARACTERS: Final = 65_536


class _UnreadableRow(NamedTuple):
    """A row that the driver cannot read: its cursor (None: not even that), what is wrong, and the row as a text."""

    key: tuple[Any, ...] | None
    fault: str
    record: str


class SqlReader(QueuedReader):
    """Reads rows of a table."""

    def __init__(self, connector: Connector, row_type: Any) -> None:
        self._engine = open_engine(connector)
        self._name = f"{connector.path}.{connector.option('table')}"
        try:
            table = reflected(self._engine, connector)
            self._cursor = cursor_of(table, connector, self._engine)
            self._make, columns = row_maker(table, row_type, connector)
        except BaseException:
            self._engine.dispose()
            raise
        self._key_names = names_of(connector, "cursor") or [column.name for column in table.primary_key.columns]
        dialect = self._engine.dialect.name
        selected = [*self._cursor.fields, *(comparable(column, dialect) for column in columns)]
        self._names = [*(column.name for column in columns)]
        self._columns = [column.label(f"c{place}") for place, column in enumerate(selected)]
        self._texts = [sa.cast(column, sa.Text) for column in columns]
        self._query = sa.select(*self._columns)
        self._poll_seconds = quantity(connector, "poll", SPANS_MS, "5s") / 1_000
        self._notes = [] if self._cursor.is_unique else [not_unique_text(self._name, self._key_names)]
        self._nullable = [table.c[name] for name in self._key_names if table.c[name].nullable]
        super().__init__(self._name, self._run, max_waiting=_AHEAD)

    def rows_of(self, taken: list[Payload], wall_ns: int, malformed: dict[str, int]) -> list[Any]:
        rows: list[Any] = []
        before = len(self._cursor.fields)
        for values in (values for piece in taken for values in piece.data):
            if isinstance(values, _UnreadableRow):
                malformed[TYPE] = malformed.get(TYPE, 0) + 1
                self.examples.add(TYPE, self._place(values.key), values.fault, values.record)
                continue
            try:
                rows.append(self._make(values[before:], wall_ns))
            except Exception as error:  # noqa: BLE001  whatever a value is, it costs its row alone
                reason, text = TYPE, fault_text(error)
                if isinstance(error, MalformedError):
                    reason, text = error.reason, error.text
                malformed[reason] = malformed.get(reason, 0) + 1
                self.examples.add(reason, self._place(values), text, repr(values[before:])[:_MAX_ROW_CHARACTERS])
        return rows

    def _place(self, key: tuple[Any, ...] | None) -> str:
        if key is None:
            return f"{self._name}:"
        pairs = zip(self._key_names, key[: self._cursor.width], strict=True)
        return f"{self._name} {', '.join(f'{name}={bounded_repr(value)}' for name, value in pairs)}:"

    def close(self) -> None:
        super().close()
        self._engine.dispose()

    # ---- the thread

    def _run(self, incoming: PayloadQueue) -> None:
        """Read until the reader is closed. Raises `RetryLaterError` (it is away), `OperationFailed` (it cannot be read)."""
        try:
            self._look_for_nulls()
            for note in self._notes:
                incoming.note(note)
            self._notes = []
            while not incoming.is_closed:
                self._read_rest(incoming)
                incoming.report_success()
                if not self._poll_seconds or not incoming.pause(self._poll_seconds):
                    return
        except AWAY as error:
            raise RetryLaterError(f"{self._name} does not answer ({error_text(error)})") from None
        except exc.SQLAlchemyError as error:
            raise OperationFailed(f"{self._name} cannot be read: {error_text(error)}") from None

    def _look_for_nulls(self) -> None:
        """Note that some rows have no cursor."""
        for column in self._nullable:
            with self._engine.connect() as connection:
                first = connection.execute(sa.select(sa.literal(1)).where(column.is_(None)).limit(1)).first()
            if first is not None:
                self._notes.append(f"{self._name}: rows whose {column.name} is NULL are not read: it is their cursor")
        self._nullable = []

    def _read_rest(self, incoming: PayloadQueue) -> None:
        """Read all rows that are there and were not read; those that raise are read one by one."""
        more = True
        while more and not incoming.is_closed:
            try:
                with self._engine.connect() as connection:
                    rest = self._cursor.rest(self._query)
                    result = connection.execution_options(yield_per=_PIECE).execute(rest)
                    for part in result.partitions(_PIECE):
                        if not self._hand_over(incoming, map(tuple, part)):
                            return
                more = False
            except Exception as error:  # a driver's and SQLAlchemy's errors have no class in common
                if not _is_of_a_row(error):
                    raise
                more = self._read_carefully(incoming)

    def _read_carefully(self, incoming: PayloadQueue) -> bool:
        """Read row by row where one raises, until behind it. Returns False when nothing follows."""
        before, offset = self._cursor.last, 0
        rest = self._cursor.rest(self._query)
        while not incoming.is_closed:
            rows = self._piece_of(rest, offset, _PIECE)
            if not self._hand_over(incoming, rows):
                return False
            if len(rows) < _PIECE:
                return False
            if self._cursor.last != before:
                return True
            offset += len(rows)
        return False

    def _piece_of(self, rest: "sa.Select[Any]", offset: int, count: int) -> list[Any]:
        """Return rows of a query, halved again and again down to those that raise."""
        try:
            with self._engine.connect() as connection:
                return [tuple(row) for row in connection.execute(rest.limit(count).offset(offset))]
        except Exception as error:
            if not _is_of_a_row(error):
                raise
            if count == 1:
                return [self._unreadable(rest.offset(offset).limit(1), error)]
        first = self._piece_of(rest, offset, count // 2)
        if len(first) < count // 2:
            return first
        return first + self._piece_of(rest, offset + count // 2, count - count // 2)

    def _unreadable(self, row: "sa.Select[Any]", error: Exception) -> _UnreadableRow:
        """Describe a row that raises."""
        key = self._values_of(row, self._columns[: self._cursor.width])
        fault, texts = fault_text(error), []
        for name, column, text in zip(self._names, self._columns[len(self._cursor.fields) :], self._texts, strict=True):
            (value,) = self._values_of(row, [text]) or ("?",)
            texts.append(value)
            try:
                with self._engine.connect() as connection:
                    connection.execute(row.with_only_columns(column, maintain_column_froms=True)).first()
            except Exception as of_column:  # noqa: BLE001  any: it is what is described
                fault = f"{name}: {bounded_repr(value)} cannot be read ({fault_text(of_column)})"
        return _UnreadableRow(key, fault, repr(tuple(texts))[:_MAX_ROW_CHARACTERS])

    def _values_of(self, row: "sa.Select[Any]", columns: list[Any]) -> tuple[Any, ...] | None:
        try:
            with self._engine.connect() as connection:
                first = connection.execute(row.with_only_columns(*columns, maintain_column_froms=True)).first()
        except Exception as error:
            if isinstance(error, AWAY):
                raise
            return None
        return None if first is None else tuple(first)

    def _hand_over(self, incoming: PayloadQueue, rows: Iterable[Any]) -> bool:
        """Queue the rows that were not read before. False: the reader was closed."""
        cursor, width = self._cursor, self._cursor.width
        new = []
        for row in rows:
            key = row.key if isinstance(row, _UnreadableRow) else row[:width]
            if cursor.is_new(key, row):
                new.append(row)
        return not new or incoming.put(new, self._name)


def _is_of_a_row(error: Exception) -> bool:
    """Return whether an error may come of one row's values: of its conversion here, or of a computed column there."""
    if isinstance(error, (*AWAY, AgileDartError, OSError)):
        return False
    return not isinstance(error, exc.SQLAlchemyError) or isinstance(error, exc.DataError)


def cursor_of(table: sa.Table, connector: Connector, engine: sa.Engine) -> TableCursor:
    """Return the cursor that a connector names, or that of the primary key. Raises `ConfigurationError`: there is none."""
    names = names_of(connector, "cursor") or [column.name for column in table.primary_key.columns]
    if not names:
        raise ConfigurationError(
            f"{connector.url()}: say by which growing column the rows are read, for example {connector.url()}&cursor=id"
        )
    missing_columns(table, names, connector)
    if len(set(names)) < len(names):
        raise ConfigurationError(f"{connector.url()}: cursor= names a column twice")
    name = f"{connector.path}.{connector.option('table')}"
    return TableCursor(name, table, names, engine.dialect.name)


def not_unique_text(name: str, columns: list[str]) -> str:
    """Return what users should know of a cursor that is not unique."""
    return (
        f"{name}: the cursor {','.join(columns)} is not unique: no key or unique index lies within it. Rows of the last value are"
        " read again at each look, and those already read are left out; a key in it, such as cursor=at,id, avoids that"
    )


def open_source(connector: Connector, row_type: Any, read_options: ReadOptions) -> SqlReader:
    """The reader of a `sql:` connector."""
    return SqlReader(connector, row_type)
