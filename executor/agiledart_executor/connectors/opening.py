"""Connector → reader or writer. Each kind is imported when it is first opened; kinds of other packages come by entry point.

A package adds a source by an entry point in the group `agiledart.sources`: a callable that takes the connector's options as
keyword arguments and returns an iterator of CSV lines.
"""

import inspect
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from agiledart_dataflow.data.lazy import at_once
from agiledart_dataflow.plan.connectors import Connector, SinkWriter, SourceReader
from agiledart_dataflow.plan.overload import OPTIONS as OVERLOAD
from agiledart_kernel.errors import ConfigurationError, OperationFailed

if TYPE_CHECKING:
    from agiledart_executor.connectors.codecs.csv_columns import CsvColumnsReader
    from agiledart_executor.connectors.csv_source import CsvReader
    from agiledart_executor.connectors.files.lines import FileLines
    from agiledart_executor.connectors.log_sink import SinkOrigin

SOURCE_GROUP = "agiledart.sources"
PACING = ("speed", "malformed", *OVERLOAD)
"""Options that the source's instance obeys, whatever the kind."""

_SOURCES = ("csv", "parquet", "tcp", "list", "call", "batches")
_SINKS = ("csv", "jsonl", "log", "stdout", "null", "collect")

Clock = Callable[[], int]


def open_source(
    connector: Connector,
    row_type: Any,
    *,
    columns: bool = False,
    wanted: frozenset[str] | None = None,
    may_begin: Callable[[], bool] = at_once,
) -> SourceReader:
    """The reader of a source.

    Args:
        connector: what to read.
        row_type: of its rows.
        columns: give columns, where they can be made without making rows first.
        wanted: then: fields that will be looked at; None: all of them.
        may_begin: then: whether lines may become columns by now.

    Raises:
        OperationFailed: what it reads is not there; the message has the path.
        ConfigurationError: no such kind, or an option that it does not know.
    """
    if connector.kind == "csv":
        from agiledart_executor.connectors.csv_source import CsvReader
        from agiledart_executor.connectors.files.lines import FileLines

        _check_options(connector, ("header", *PACING))
        _flag(connector, "header")
        lines = FileLines(connector.path)
        if columns and find_spec("pyarrow") is not None:
            from agiledart_executor.connectors.codecs.csv_columns import CsvColumnsReader, reads_columns

            if reads_columns(row_type):
                return _with_header(connector, lines, CsvColumnsReader(lines, row_type, wanted, may_begin))
        return _with_header(connector, lines, CsvReader(lines, row_type))
    if connector.kind in ("parquet", "batches"):
        from agiledart_executor.connectors.batches import open_batches, open_parquet

        _check_options(connector, PACING)
        if connector.kind == "parquet":
            return open_parquet(connector.path, row_type, columns=columns, wanted=wanted)
        return open_batches(connector, row_type, columns=columns)
    if connector.kind == "tcp":
        from agiledart_executor.connectors.line_socket import OPTIONS, LineSocketReader

        _check_options(connector, (*OPTIONS, *PACING))
        for name in OPTIONS:
            _flag(connector, name)
        parser = None
        if columns and find_spec("pyarrow") is not None:
            from agiledart_executor.connectors.codecs.csv_columns import ColumnParser, reads_columns

            parser = ColumnParser(row_type, wanted, may_begin) if reads_columns(row_type) else None
        return LineSocketReader(connector, row_type, columns=parser)
    if connector.kind in ("list", "call"):
        from agiledart_executor.connectors.memory import MemoryReader

        _check_options(connector, PACING)
        return MemoryReader(connector)
    from agiledart_executor.connectors.csv_source import CsvReader
    from agiledart_executor.connectors.files.lines import GeneratedLines

    return CsvReader(GeneratedLines(_generated(connector), connector.url()), row_type)


def open_sink(
    connector: Connector, row_type: Any, clock: Clock = time.time_ns, origin: "SinkOrigin | None" = None
) -> SinkWriter:
    """The writer of a sink; raises like `open_source`. `origin`: who writes a log, and where logs lie."""
    if connector.kind == "log":
        from agiledart_executor.connectors.log_sink import OPTIONS, SinkOrigin, open_log_sink

        _check_options(connector, OPTIONS)
        return open_log_sink(connector, row_type, clock, origin or SinkOrigin())
    if connector.kind in ("csv", "jsonl", "stdout"):
        from agiledart_executor.connectors.text_sink import open_text_sink

        _check_options(
            connector, ("format",) if connector.kind == "stdout" else ("null",) if connector.kind == "csv" else ()
        )
        return open_text_sink(connector, row_type, clock)
    if connector.kind in ("null", "collect"):
        from agiledart_executor.connectors.memory import MemoryWriter

        _check_options(connector, ())
        return MemoryWriter(connector, row_type, clock)
    raise ConfigurationError(f"there is no sink {connector.kind!r}; there are {', '.join(_SINKS)}")


def _with_header(connector: Connector, lines: "FileLines", reader: "CsvReader | CsvColumnsReader") -> SourceReader:
    """The reader, told what to make of the first line: a header when `header=1`, none when 0, else as it looks."""
    if not connector.option("header"):
        lines.is_header = reader.takes_header
    elif _flag(connector, "header"):
        lines.is_header = partial(reader.takes_header, is_one=True)
    return reader


def source_kinds() -> list[str]:
    """Names of all sources that can be opened here."""
    return sorted({*_SOURCES, *(point.name for point in entry_points(group=SOURCE_GROUP))})


def _generated(connector: Connector) -> Iterator[str]:
    """The lines of a source that an installed package provides."""
    for point in entry_points(group=SOURCE_GROUP):
        if point.name == connector.kind:
            break
    else:
        raise ConfigurationError(f"there is no source {connector.kind!r}; there are {', '.join(source_kinds())}")
    try:
        make = point.load()
    except ImportError as error:
        raise OperationFailed(f"the source {connector.kind} ({point.value}) cannot be loaded: {error}") from None
    parameters = inspect.signature(make).parameters
    _check_options(connector, (*parameters, *PACING))
    if connector.path:
        raise ConfigurationError(f"{connector.url()}: the source {connector.kind} reads no path")
    given = {
        name: _value(connector, name, text, str(parameters[name].annotation))
        for name, text in connector.options
        if name not in PACING
    }
    lines: Iterator[str] = make(**given)
    return lines


def _value(connector: Connector, name: str, text: str, annotation: str) -> Any:
    """An option's text as the generator's parameter wants it."""
    try:
        if "datetime" in annotation:
            return datetime.fromisoformat(text)
        if "int" in annotation:
            return int(text)
        if "float" in annotation:
            return float(text)
    except ValueError:
        raise ConfigurationError(f"{connector.url()}: {name}={text} is not what {name} takes ({annotation})") from None
    return text


def _check_options(connector: Connector, known: tuple[str, ...]) -> None:
    for name, _ in connector.options:
        if name not in known:
            there_are = f"it knows {', '.join(known)}" if known else "it has no options"
            raise ConfigurationError(f"{connector.url()}: {connector.kind} has no option {name!r}; {there_are}")


def _flag(connector: Connector, name: str) -> bool:
    text = connector.option(name, "0")
    if text not in ("0", "1"):
        raise ConfigurationError(f"{connector.url()}: {name} is 0 or 1, not {text!r}")
    return text == "1"
