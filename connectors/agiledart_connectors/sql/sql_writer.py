"""Sink `sql:NAME?table=T`: rows into a table.

    sql:plant?table=minutes                   each row is inserted; after a crash it may be there twice
    sql:plant?table=minutes&key=room,start    a row with the same key takes the place of the one that is there: the same effect
    …&create=1                                the table is made when it is missing, from the fields of the rows

A batch is one transaction; a row that the database refuses (a constraint, a type) is rejected alone. While the database is away,
rows wait, then pressure travels upstream.
"""

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects import mysql, postgresql, sqlite

from agiledart_connectors.latency_recorder import LatencyRecorder
from agiledart_connectors.options import flag
from agiledart_connectors.rejections import LEAST, MOST, RowRefusedError, RowsRefusedError
from agiledart_connectors.remote.delivery_queue import DeliveryQueueWriter
from agiledart_connectors.remote.thread_errors import RetryLaterError, fault_text
from agiledart_connectors.sql.database import AWAY, error_text, missing_columns, names_of, open_engine, reflected
from agiledart_dataflow.data.column_schema import column_field
from agiledart_dataflow.data.inference import optional_stripped
from agiledart_dataflow.data.schema import fields_of
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed

_TYPES: Final[dict[Any, Callable[[], Any]]] = {
    int: sa.BigInteger, float: sa.Double, str: sa.Text, bool: sa.Boolean, bytes: sa.LargeBinary, datetime: sa.DateTime,
    Decimal: sa.Numeric,
}  # fmt: skip
"""Type of a field → type of a column."""


class SqlWriter(DeliveryQueueWriter):
    """Writes rows into a table.

    Raises:
        OperationFailed: the database takes no rows, refuses one under `rejected=fail`, or did not take all before the end.
    """

    def __init__(self, connector: Connector, row_type: Any, times: LatencyRecorder) -> None:
        self._engine = open_engine(connector)
        self._name = f"the database of {connector.path!r}"
        try:
            if flag(connector, "create"):
                table_of(row_type, connector).create(self._engine, checkfirst=True)
            table = reflected(self._engine, connector)
        except exc.SQLAlchemyError as error:
            raise OperationFailed(f"{self._name} does not take the table: {error_text(error)}") from None
        fields = _fields(row_type, connector)
        key = names_of(connector, "key")
        missing_columns(table, [name for name, _, _ in fields] + key, connector)
        self._values = [(name, get, is_read_time) for name, get, is_read_time in fields]
        self._statement = _statement(self._engine.dialect.name, table, [name for name, _, _ in fields], key)
        super().__init__(self._name, times, self._rendered)

    def _rendered(self, row: Any, now: int) -> Any:
        values = {name: max(now - get(row), 0) / 1e6 if is_read else get(row) for name, get, is_read in self._values}
        for name, value in values.items():
            if type(value) is int and not LEAST <= value <= MOST:
                raise RowRefusedError(f"{name}: {value} does not fit 64 bits")
        return values

    def disconnect(self) -> None:
        self._engine.dispose()

    def deliver(self, batch: list[Any]) -> None:
        try:
            with self._engine.begin() as connection:
                connection.execute(self._statement, batch)
        except AWAY as error:
            raise RetryLaterError(f"{self._name} does not take rows ({error_text(error)})") from None
        except exc.SQLAlchemyError as error:
            if isinstance(error, exc.DBAPIError) and error.connection_invalidated:
                raise RetryLaterError(f"{self._name} went away ({error_text(error)})") from None
            if isinstance(error, exc.ProgrammingError | exc.NotSupportedError | exc.CompileError):
                raise OperationFailed(f"{self._name} does not take rows: {error_text(error)}") from None
            raise RowsRefusedError(f"{self._name} refuses a row: {error_text(error)}") from None
        except (TypeError, ValueError, ArithmeticError) as error:  # of the driver, which cannot send a value
            raise RowsRefusedError(f"{self._name} cannot hold a row: {fault_text(error)}") from None


def _fields(row_type: Any, connector: Connector) -> list[tuple[str, Callable[[Any], Any], bool]]:
    fields = fields_of(row_type)
    if not fields:
        raise ConfigurationError(
            f"{connector.url()}: rows need named fields for the columns of a table, not {row_type!r}"
        )
    return [(field.name, attrgetter(field.name), field.is_read_time) for field in fields]


def table_of(row_type: Any, connector: Connector) -> sa.Table:
    """A table for rows of a type, `key` its primary key. Raises `ConfigurationError`: a field has no type of column."""
    key = names_of(connector, "key")
    schema, dot, name = connector.option("table").rpartition(".")
    columns = []
    for field in fields_of(row_type):
        kind = float if field.is_read_time else optional_stripped(field.type)
        if kind not in _TYPES:
            raise ConfigurationError(
                f"{connector.url()}: create=1 makes columns of numbers, texts, truths, bytes and times; {field.name} is"
                f" {field.type!r}"
            )
        kind_of_column = sa.String(200) if kind is str and field.name in key else _TYPES[kind]()
        optional = column_field(field.name, field.type).optional
        columns.append(
            sa.Column(field.name, kind_of_column, primary_key=field.name in key, nullable=optional, autoincrement=False)
        )
    return sa.Table(name, sa.MetaData(), *columns, schema=schema if dot else None)


def _statement(dialect: str, table: sa.Table, names: list[str], key: list[str]) -> Any:
    """Insert, or insert or replace what has the same key."""
    if not key:
        return sa.insert(table)
    others = [name for name in names if name not in key]
    if dialect in ("mysql", "mariadb"):
        insert = mysql.insert(table)
        return insert.on_duplicate_key_update({name: insert.inserted[name] for name in others or key})
    if dialect not in ("sqlite", "postgresql"):
        raise ConfigurationError(f"key= is known for SQLite, PostgreSQL, MySQL and MariaDB, not for {dialect}")
    made: Any = sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
    if not others:
        return made.on_conflict_do_nothing(index_elements=key)
    return made.on_conflict_do_update(index_elements=key, set_={name: made.excluded[name] for name in others})


def open_sink(connector: Connector, row_type: Any, clock: Callable[[], int], origin: object) -> SqlWriter:
    """The writer of a `sql:` connector."""
    return SqlWriter(connector, row_type, LatencyRecorder(row_type, clock))
