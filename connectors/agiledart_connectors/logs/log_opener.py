"""`log:NAME?partitions=4&max_bytes=64MiB&max_age=7d&segment_bytes=4MiB&columns=auto&key=FIELD`: rows into a log of this node."""

import sys
from collections.abc import Callable
from typing import Any

from agiledart_connectors.logs.column_log_sink import ColumnLogSinkWriter, takes_columns
from agiledart_connectors.logs.log_sink import LogSinkWriter
from agiledart_connectors.options import SIZES, SPANS_MS, quantity
from agiledart_connectors.sink_origin import SinkOrigin
from agiledart_dataflow.data.schema import SchemaError, fields_of
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError
from agiledart_sink_log.layout import AUTO, NEVER
from agiledart_sink_log.log_writer import LogOptions, LogWriter
from agiledart_sink_log.protocol import MAX_PARTITIONS, user_sink_name_fault
from agiledart_sink_log.row_form import row_form


def open_sink(
    connector: Connector, row_type: Any, clock: Callable[[], int], origin: SinkOrigin | None
) -> LogSinkWriter:
    """Return the writer of a `log:` connector.

    Raises:
        ConfigurationError: a name or an option is invalid.
        LogBusyError: another process is writing the log.
        OperationFailed: the log holds other rows, or its disk refuses.
    """
    origin = origin or SinkOrigin()
    if fault := user_sink_name_fault(connector.path):
        raise ConfigurationError(f"{connector.url()}: {fault}")
    options = LogOptions(
        partitions=_count(connector),
        max_bytes=quantity(connector, "max_bytes", SIZES, "64MiB"),
        max_age_ms=quantity(connector, "max_age", SPANS_MS, "7d"),
        segment_bytes=quantity(connector, "segment_bytes", SIZES, "4MiB"),
        columns=_columns(connector),
    )
    try:
        form = row_form(row_type)
    except SchemaError as error:
        raise ConfigurationError(f"{connector.url()}: {error}") from None
    key = _key(connector, row_type)
    log = LogWriter(
        origin.root, connector.path, options, form.text, form.fields, origin.application, origin.version, clock,
        origin.lock_timeout_s,
        None if origin.keep is None else origin.keep.ends, "" if origin.keep is None else origin.keep.identity, origin.owner,
        waits=origin.by_epoch,
        cuts=not origin.emits_at_once,
    )  # fmt: skip
    for note in log.notes():
        print(note, file=sys.stderr)  # noqa: T201  what an executor prints is shown by `agiledart logs`
    writes = LogSinkWriter
    if key is None and takes_columns(log.description):
        writes = ColumnLogSinkWriter
    return writes(log, row_type, key, clock, waits=origin.waits_for_epochs)


def _key(connector: Connector, row_type: Any) -> int | str | None:
    name = connector.option("key")
    if not name:
        return None
    names = [field.name for field in fields_of(row_type)]
    if name not in names:
        there_are = f"its fields are {', '.join(names)}" if names else "they have no fields"
        raise ConfigurationError(f"{connector.url()}: rows have no field {name!r}; {there_are}")
    return name


def _columns(connector: Connector) -> str:
    text = connector.option("columns") or ""
    if text not in ("", AUTO, NEVER):
        raise ConfigurationError(f"{connector.url()}: columns is {AUTO} or {NEVER}, not {text!r}")
    return text


def _count(connector: Connector) -> int:
    text = connector.option("partitions")
    if text and not (text.isdecimal() and 1 <= int(text) <= MAX_PARTITIONS):
        raise ConfigurationError(f"{connector.url()}: partitions is a number from 1 to {MAX_PARTITIONS}, not {text!r}")
    return int(text or 0)
