"""Sources and sinks among a builder's parameters: connectors from the texts of `--set`."""

import re
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_origin

from agiledart_dataflow.plan.connectors import Connector, Sink, Source, parse_connector
from agiledart_kernel.errors import ConfigurationError

FILE_KINDS = frozenset({"csv", "file", "jsonl", "lines", "parquet"})
"""Kinds whose path is a file on the node where the connector runs."""


_PASSWORD: Final = re.compile(r"(://[^/:@\s]*:)[^@/\s]+@")


def without_passwords(text: str) -> str:
    """Return a text in which the passwords of URLs are hidden."""
    return _PASSWORD.sub(r"\1***@", text)


def is_connector(annotation: Any, default: Any) -> bool:
    """Return True when a parameter takes a source or a sink, by its annotation or its default."""
    return (get_origin(annotation) or annotation) in (Source, Sink, Connector) or isinstance(default, Connector)


def as_connector(name: str, annotation: Any, default: Any, text: str) -> Connector:
    """Return the source or sink of `--set name=text`, with the row type of the builder's annotation.

    Raises:
        ConfigurationError: the text is no connector; the message names the parameter.
    """
    connector = _parsed(name, text)
    row_type = (get_args(annotation) or (None,))[0]
    if isinstance(row_type, TypeVar) or row_type is Any:
        row_type = None
    if row_type is None and isinstance(default, Connector):
        row_type = default.row_type
    return connector if row_type is None else connector.with_row_type(row_type)


def _parsed(name: str, text: str) -> Connector:
    try:
        return parse_connector(text)
    except ConfigurationError as error:
        raise ConfigurationError(without_passwords(f"--set {name}={text}: {error}")) from None


def make_absolute(name: str, text: str | None, default: Any, folder: Path) -> str | None:
    """Return the text of a connector with an absolute path, as a node must read it.

    Args:
        name: of the parameter.
        text: value of `--set`; None without one, then `default` counts.
        default: of the parameter.
        folder: at which relative paths start.

    Returns:
        None when the parameter may keep its default: there is none, it has no path, or it is an object of this process.
    """
    if text is not None:
        connector = _parsed(name, text)
    elif isinstance(default, Connector) and not default.is_local:
        connector = default
    else:
        return None
    if connector.kind not in FILE_KINDS or connector.path in ("", "-"):
        return text
    path = (folder / Path(connector.path).expanduser()).absolute()
    return connector.with_path(str(path)).url()
