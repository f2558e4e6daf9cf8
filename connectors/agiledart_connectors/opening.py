"""Connector → reader or writer, by the catalogue. Each kind is imported when it is first opened; others come by entry point."""

import time
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from agiledart_connectors.catalogue import SINKS, SOURCES
from agiledart_connectors.options import ReadOptions, check_options
from agiledart_connectors.rejections import OPTIONS as REJECTED
from agiledart_connectors.rejections import RejectsRows, check_policy
from agiledart_connectors.sink_guarantees import OPTION
from agiledart_connectors.source_origin import SourceOrigin
from agiledart_dataflow.data.lazy_module import import_at_once
from agiledart_dataflow.plan.connector_kinds import ConnectorKind
from agiledart_dataflow.plan.connectors import Connector, SinkWriter, SourceReader
from agiledart_dataflow.plan.overload import OPTIONS as OVERLOAD

if TYPE_CHECKING:
    from agiledart_connectors.sink_origin import SinkOrigin

PACING = ("speed", "malformed", *OVERLOAD)
"""Options that the source's instance obeys, whatever the kind."""

_PACKAGE = "agiledart_connectors"

Clock = Callable[[], int]


def open_source(
    connector: Connector,
    row_type: Any,
    *,
    columns: bool = False,
    wanted: frozenset[str] | None = None,
    may_begin: Callable[[], bool] = import_at_once,
    origin: SourceOrigin | None = None,
) -> SourceReader:
    """Return the reader of a source.

    Args:
        connector: source to read.
        row_type: of its rows.
        columns, wanted, may_begin, origin: as in `ReadOptions`.

    Raises:
        OperationFailed: the source is missing; the message has the path.
        ConfigurationError: the kind or an option is unknown.
    """
    kind = SOURCES.get(connector.kind)
    if kind is None:
        from agiledart_connectors.plugins import open_plugin_source

        return open_plugin_source(connector, row_type, PACING)
    if kind.needs:
        from agiledart_connectors.plugins import check_installed

        check_installed(kind, "source")
    check_options(connector, (*kind.options, *PACING))
    reader: SourceReader = named_function(kind.opens)(
        connector, row_type, ReadOptions(columns, wanted, may_begin, origin)
    )
    return reader


def open_sink(
    connector: Connector, row_type: Any, clock: Clock = time.time_ns, origin: "SinkOrigin | None" = None
) -> SinkWriter:
    """Return the writer of a sink; raises like `open_source`. `origin`: the run that writes a log, and where logs lie."""
    kind = SINKS.get(connector.kind)
    if kind is None:
        from agiledart_connectors.plugins import open_plugin_sink

        return open_plugin_sink(connector, row_type, clock)
    if kind.needs:
        from agiledart_connectors.plugins import check_installed

        check_installed(kind, "sink")
    check_options(connector, sink_options(kind))
    check_policy(connector)
    writer: SinkWriter = named_function(kind.opens)(connector, row_type, clock, origin)
    if isinstance(writer, RejectsRows):
        writer.rejections.configure(connector)
    return writer


def sink_options(kind: ConnectorKind) -> tuple[str, ...]:
    """The options that a sink of a kind knows."""
    if kind.name in ("collect", "null"):  # they take every row
        return kind.options
    return (*kind.options, *REJECTED, OPTION) if kind.guarantee.delivers else (*kind.options, *REJECTED)


def named_function(name: str) -> Callable[..., Any]:
    """Return the function `module:name` of this package."""
    module, _, function = name.partition(":")
    named: Callable[..., Any] = vars(import_module(f"{_PACKAGE}.{module}"))[function]
    return named
