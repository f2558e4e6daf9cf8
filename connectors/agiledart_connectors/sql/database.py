"""`sql:NAME?table=T`: a table of a database. NAME is a credential of the node that holds SQLAlchemy's URL, password and all."""

from typing import Final

import sqlalchemy as sa
from sqlalchemy import exc

from agiledart_connectors.credentials import secret
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed

AWAY: Final = (exc.OperationalError, exc.InterfaceError, exc.TimeoutError)
"""Errors of a database that is away, locked or full; a wrong statement raises others."""

EXAMPLE: Final = "sql:plant?table=minutes"
URL_EXAMPLE: Final = "postgresql+psycopg://user:password@host/db"


def open_engine(connector: Connector) -> sa.Engine:
    """The engine of a credential's URL; nothing is connected yet. Raises `ConfigurationError`, `OperationFailed`."""
    if not connector.path or not connector.option("table"):
        raise ConfigurationError(
            f"{connector.url()}: write sql:NAME?table=TABLE, for example {EXAMPLE}; NAME is a credential of the node that holds"
            " SQLAlchemy's URL"
        )
    text = secret(connector.path, f"the database's URL, such as {URL_EXAMPLE},")
    try:
        return sa.create_engine(text, pool_pre_ping=True, pool_size=1, max_overflow=1, hide_parameters=True)
    except (ImportError, exc.NoSuchModuleError) as error:
        raise OperationFailed(
            f"the database of {connector.path!r} needs a driver that is not installed here: {error}"
        ) from None
    except exc.ArgumentError:
        raise OperationFailed(
            f"the credential {connector.path!r} holds no URL of SQLAlchemy, such as {URL_EXAMPLE}"
        ) from None


def reflected(engine: sa.Engine, connector: Connector) -> sa.Table:
    """The table as the database has it. Raises `OperationFailed`: there is none, or the database does not answer."""
    name = connector.option("table")
    schema, dot, table = name.rpartition(".")
    try:
        return sa.Table(table, sa.MetaData(), schema=schema if dot else None, autoload_with=engine)
    except exc.NoSuchTableError:
        raise OperationFailed(f"the database of {connector.path!r} has no table {name}") from None
    except exc.SQLAlchemyError as error:
        raise OperationFailed(f"the database of {connector.path!r} does not answer: {error_text(error)}") from None


def error_text(error: BaseException) -> str:
    """Return a driver's error in one line, without statements and their values."""
    return str((isinstance(error, exc.DBAPIError) and error.orig) or error).strip().partition("\n")[0][:300]


def names_of(connector: Connector, option: str) -> list[str]:
    """An option of names with commas between."""
    return [name.strip() for name in connector.option(option).split(",") if name.strip()]


def missing_columns(table: sa.Table, names: list[str], connector: Connector) -> None:
    """Raise `ConfigurationError` for names that are no columns of a table."""
    known = [column.name for column in table.columns]
    if wrong := [name for name in names if name not in known]:
        raise ConfigurationError(
            f"{connector.url()}: the table has no column {', '.join(wrong)}; there are {', '.join(known)}"
        )
