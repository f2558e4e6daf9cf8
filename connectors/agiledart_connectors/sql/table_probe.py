"""Does a database answer, and has it the table? For `submit --dry-run`; nothing is made."""

from typing import Any

import sqlalchemy as sa

from agiledart_connectors.options import flag
from agiledart_connectors.sql.database import AWAY, error_text, names_of, open_engine, reflected
from agiledart_connectors.sql.row_maker import row_maker
from agiledart_connectors.sql.sql_reader import cursor_of
from agiledart_connectors.sql.sql_writer import table_of
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import OperationFailed


def probe_source(connector: Connector, row_type: Any) -> str:
    """Check that the table can be reached, has the columns, and a cursor. Raises like opening."""
    engine = open_engine(connector)
    try:
        table = reflected(engine, connector)
        cursor = cursor_of(table, connector, engine)
        row_maker(table, row_type, connector)
        if cursor.is_unique:
            return "table exists"
        names = names_of(connector, "cursor")
        return f"table exists; its cursor {','.join(names)} is not unique: with a key in it, rows of one value cost less to read"
    finally:
        engine.dispose()


def probe_sink(connector: Connector, row_type: Any) -> str:
    """Check that the table can be reached, and describe it. Raises like opening."""
    engine = open_engine(connector)
    try:
        if not flag(connector, "create"):
            reflected(engine, connector)
            return "table exists"
        table = table_of(row_type, connector)
        with engine.connect() as connection:
            exists = sa.inspect(connection).has_table(table.name, table.schema)
        return "table exists" if exists else "table will be made"
    except AWAY as error:
        raise OperationFailed(f"the database of {connector.path!r} does not answer: {error_text(error)}") from None
    finally:
        engine.dispose()
