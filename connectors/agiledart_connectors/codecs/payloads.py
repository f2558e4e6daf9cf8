"""Rows → payloads of messages: the formats that sinks to brokers write."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from agiledart_connectors.codecs.rendering import columns_of, json_of
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError

PAYLOAD_FORMATS: Final = ("json", "csv", "text", "raw")


def payload_renderer(connector: Connector, row_type: Any) -> Callable[[Any, int], bytes]:
    """(row, wall time) → payload, as `format=` says. Raises `ConfigurationError`: there is no such format, or not for such rows."""
    form = connector.option("format", "json")
    if form not in PAYLOAD_FORMATS:
        raise ConfigurationError(f"{connector.url()}: format is one of {', '.join(PAYLOAD_FORMATS)}, not {form!r}")
    if form == "json":
        value_for, encode = json_of(row_type), msgspec.json.Encoder().encode
        return lambda row, now: encode(value_for(row, now))
    if form == "csv":
        columns_for = columns_of(row_type)

        def render(row: Any, now: int) -> bytes:
            columns: list[str] = []
            columns_for(row, now, columns)
            return ",".join(columns).encode("utf-8", "replace")

        return render
    kind = str if form == "text" else bytes
    if row_type is not kind:
        raise ConfigurationError(
            f"{connector.url()}: format={form} is for rows that are {kind.__name__}, not {row_type!r}"
        )
    return lambda row, now: row.encode("utf-8", "replace") if kind is str else row
