"""Source `sql:NAME?table=T&cursor=C`: the rows of a table in the order of a growing column.

    sql:plant?table=readings&cursor=id            to the end of the table: a bounded source, also for `reference` and `lookup`
    sql:plant?table=readings&cursor=id&poll=5s    then what is added, looked for every five seconds

The column must be unique and grow: a row added with a value below one already read is not seen. Columns fill the fields of their
names, aliases too; a row that does not fit its type is malformed and counted. A thread reads ahead; the executor never waits.
"""

import os
import threading
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy import exc

from agiledart_connectors.codecs.malformed_examples import TYPE, MalformedExamples, bounded_repr
from agiledart_connectors.options import SPANS_MS, ReadOptions, quantity
from agiledart_connectors.sql.database import error_text, missing_columns, names_of, open_engine, reflected
from agiledart_dataflow.data.inference import optional_stripped
from agiledart_dataflow.data.schema import aliases_of, fields_of, is_dict, is_named_tuple
from agiledart_dataflow.plan.connectors import Connector, Reading
from agiledart_kernel.errors import ConfigurationError, OperationFailed

_AHEAD: Final = 4
"""Pieces read ahead."""

_PIECE: Final = 1_000
MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.5, 30.0


class SqlReader:
    """Reads rows of a table."""

    stamps = True

    def __init__(self, connector: Connector, row_type: Any) -> None:
        self._engine = open_engine(connector)
        self._name = f"{connector.path}.{connector.option('table')}"
        table = reflected(self._engine, connector)
        (cursor,) = names_of(connector, "cursor")[:1] or (_primary_key(table, connector),)
        missing_columns(table, [cursor], connector)
        self._cursor = table.c[cursor]
        self._make, columns = _row_maker(table, row_type, connector)
        self._query = sa.select(self._cursor.label("agiledart_cursor"), *columns).order_by(self._cursor)
        self._poll_seconds = quantity(connector, "poll", SPANS_MS, "5s") / 1_000
        self._examples = MalformedExamples()
        self.on_malformed = self._examples.on_malformed
        self._changed = threading.Condition()
        self._pieces: list[list[Any]] = []
        self._failure: OperationFailed | None = None
        self._is_over = self._closed = False
        self._notices: list[str] = []
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._left: list[Any] = []
        self._thread = threading.Thread(target=self._run, name=f"rows of {self._name}", daemon=True)
        self._thread.start()

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        malformed: dict[str, int] = {}
        with self._changed:
            self._clear()
            if not self._left and self._pieces:
                self._left = self._pieces.pop(0)
                self._changed.notify_all()
            if not self._left and self._failure is not None:
                raise self._failure
            for note in self._notices:
                self._examples.note(note)
            self._notices.clear()
            exhausted = self._is_over and not self._pieces and len(self._left) <= max_rows
            if self._pieces or len(self._left) > max_rows:
                os.eventfd_write(self._wake, 1)
        taken, self._left = self._left[:max_rows], self._left[max_rows:]
        rows = []
        for values in taken:
            try:
                rows.append(self._make(values, wall_ns))
            except (msgspec.ValidationError, ValueError, TypeError, ArithmeticError) as error:
                malformed[TYPE] = malformed.get(TYPE, 0) + 1
                place = f"{self._name} {self._cursor.name}={bounded_repr(values[0])}:"
                self._examples.add(TYPE, place, str(error), repr(values[1:]))
        waits = not taken and not exhausted
        return Reading(rows, len(taken), malformed, exhausted, waits, self._examples.take())

    def fileno(self) -> int:
        """Readable when rows have come."""
        return self._wake

    def close(self) -> None:
        if not self._closed:
            with self._changed:
                self._closed = True
                self._changed.notify_all()
            self._thread.join(2.0)
            self._engine.dispose()
            os.close(self._wake)

    # ---- the thread

    def _run(self) -> None:
        last: Any = None
        pause = MIN_BACKOFF_SECONDS
        away = ""
        while not self._closed:
            try:
                for piece in self._pieces_after(last):
                    last, pause = piece[-1][0], MIN_BACKOFF_SECONDS
                    if not self._hand_over(piece):
                        return
            except (exc.OperationalError, exc.InterfaceError, exc.TimeoutError) as error:
                if away != error_text(error):
                    away = error_text(error)
                    self._notify_user(
                        f"{self._name} does not answer ({away}); trying again, ever later up to every 30 s"
                    )
                self._pause(pause)
                pause = min(2 * pause, MAX_BACKOFF_SECONDS)
                continue
            except exc.SQLAlchemyError as error:
                self._end(OperationFailed(f"{self._name} cannot be read: {error_text(error)}"))
                return
            if away:
                away = ""
                self._notify_user(f"{self._name} answers again")
            if not self._poll_seconds:
                self._end(None)
                return
            self._pause(self._poll_seconds)

    def _pieces_after(self, last: Any) -> Iterator[list[Any]]:
        query = self._query if last is None else self._query.where(self._cursor > last)
        with self._engine.connect() as connection:
            result = connection.execution_options(yield_per=_PIECE).execute(query)
            for part in result.partitions(_PIECE):
                yield [tuple(row) for row in part]

    def _hand_over(self, piece: list[Any]) -> bool:
        with self._changed:
            while len(self._pieces) >= _AHEAD and not self._closed:
                self._changed.wait()
            if self._closed:
                return False
            self._pieces.append(piece)
            os.eventfd_write(self._wake, 1)
        return True

    def _notify_user(self, text: str) -> None:
        with self._changed:
            if not self._closed:
                self._notices = [*self._notices[-20:], text]
                os.eventfd_write(self._wake, 1)

    def _end(self, failure: OperationFailed | None) -> None:
        with self._changed:
            if not self._closed:
                self._failure, self._is_over = failure, failure is None
                os.eventfd_write(self._wake, 1)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed, seconds)

    def _clear(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return


def _primary_key(table: sa.Table, connector: Connector) -> str:
    keys = [column.name for column in table.primary_key.columns]
    if len(keys) != 1:
        raise ConfigurationError(
            f"{connector.url()}: say by which growing column the rows are read, for example {connector.url()}&cursor=id"
        )
    return str(keys[0])


def _row_maker(table: sa.Table, row_type: Any, connector: Connector) -> tuple[Callable[[Any, int], Any], list[Any]]:
    """(values of cursor and columns, wall time) → row, and the columns."""
    if is_dict(row_type):
        names = [str(column.name) for column in table.columns]  # SQLAlchemy has a kind of texts of its own
        return lambda values, _: dict(zip(names, map(_as_json, values[1:]), strict=True)), list(table.columns)
    fields = fields_of(row_type)
    if not is_named_tuple(row_type):
        raise ConfigurationError(f"{connector.url()}: rows are a NamedTuple or dict[str, Any], not {row_type!r}")
    aliases = aliases_of(row_type)
    known = {column.name: column for column in table.columns}
    columns, kinds = [], []
    for field in fields:
        if field.is_read_time:
            continue
        column_name = next((name for name in (field.name, *aliases.get(field.name, ())) if name in known), "")
        if not column_name:
            raise ConfigurationError(
                f"{connector.url()}: the table has no column {field.name}; there are {', '.join(known)}"
            )
        columns.append(known[column_name])
        kinds.append(field)
    places = [field.is_read_time for field in fields]

    def make(values: Any, wall_ns: int) -> Any:
        given = iter(zip(values[1:], kinds, strict=True))
        return row_type(*(wall_ns if is_read else _converted(*next(given)) for is_read in places))

    return make, columns


def _converted(value: Any, field: Any) -> Any:
    """A value as its field wants it. Raises what says that it does not fit."""
    kind = optional_stripped(field.type)
    if value is None and kind is field.type:
        raise ValueError(f"{field.name} is NULL")
    if value is None or type(value) is kind:
        return value
    if kind is float and isinstance(value, Decimal | int):
        return float(value)
    if kind is datetime and isinstance(value, date):
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001  rows' times are UTC without saying so
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        raise ValueError(f"{field.name}: {bounded_repr(value)} is no {getattr(kind, '__name__', kind)}") from None


def _as_json(value: Any) -> Any:
    """Return a value as JSON can hold it, for rows without types."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value


def open_source(connector: Connector, row_type: Any, read_options: ReadOptions) -> SqlReader:
    """The reader of a `sql:` connector."""
    return SqlReader(connector, row_type)
