"""Sink `influx://HOST:PORT/DATABASE` (and `influxs:` over TLS): rows as points in InfluxDB's line protocol.

    influx://db:8086/plant?measurement=rooms&tags=room&time=start                    version 2, the usual: the bucket is `plant`
    influx://db:8181/plant?measurement=rooms&tags=room&time=start&version=3          version 3
    …&version=1                                                                      version 1 (and others that speak it)

The field `time` gives the time of the point, a datetime or milliseconds; without it the server's clock does. A point with the same
measurement, tags and time takes the place of the one that is there, so one that is sent again changes nothing.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from operator import attrgetter
from typing import Any, Final
from urllib.parse import urlencode

from agiledart_connectors.http.http_address import HttpAddress, http_address
from agiledart_connectors.http.webhook import PostingWriter, bearer
from agiledart_connectors.latency_recorder import LatencyRecorder
from agiledart_connectors.options import number
from agiledart_connectors.rejections import LEAST, MOST, RowRefusedError
from agiledart_dataflow.data.schema import fields_of
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import event_time

BATCH: Final = 1_000

_IN_NAMES: Final = str.maketrans({",": "\\,", " ": "\\ ", "=": "\\=", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_IN_MEASUREMENT: Final = str.maketrans({",": "\\,", " ": "\\ ", "\n": "\\n", "\r": "\\r"})
_IN_TEXTS: Final = str.maketrans({'"': '\\"', "\\": "\\\\"})


def _name(text: str) -> str:
    """A tag's key or value, or a field's key: a backslash at the end would take the next sign with it."""
    return text.translate(_IN_NAMES).rstrip("\\")


def _value(value: Any) -> str:
    """A field's value; empty for what has none in this protocol: None, and floats that are no numbers."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if not LEAST <= value <= MOST:
            raise RowRefusedError(f"{value} does not fit 64 bits")
        return f"{value}i"
    if isinstance(value, float | Decimal):
        return repr(float(value)) if isfinite(value) else ""
    if isinstance(value, datetime):
        value = value.isoformat()
    return f'"{str(value).translate(_IN_TEXTS)}"'


class InfluxLines:
    """Rows → lines.

    Args:
        connector: with `measurement`, `tags` and `time`.
        row_type: of the rows.

    Raises:
        ConfigurationError: a field that is named is none, or none is left for values.
    """

    def __init__(self, connector: Connector, row_type: Any) -> None:
        fields = [field.name for field in fields_of(row_type)]
        if not fields:
            raise ConfigurationError(f"{connector.url()}: rows need named fields, not {row_type!r}")
        tags = [name.strip() for name in connector.option("tags").split(",") if name.strip()]
        time = connector.option("time")
        for name in (*tags, *filter(None, [time])):
            if name not in fields:
                raise ConfigurationError(
                    f"{connector.url()}: rows have no field {name!r}; their fields are {', '.join(fields)}"
                )
        values = [name for name in fields if name not in tags and name != time]
        if not values:
            raise ConfigurationError(f"{connector.url()}: a point has at least one field that is neither tag nor time")
        measurement = connector.option("measurement")
        if not measurement:
            raise ConfigurationError(f"{connector.url()}: which measurement? Add measurement=NAME")
        self._begin = measurement.translate(_IN_MEASUREMENT).rstrip("\\")
        self._tags = [(_name(name), attrgetter(name)) for name in sorted(tags)]
        read_times = {field.name for field in fields_of(row_type) if field.is_read_time}
        self._values = [(_name(name), attrgetter(name), name in read_times) for name in values]
        self._time = attrgetter(time) if time else None

    def line(self, row: Any, now: int) -> str:
        """The line of a row; empty when all of its fields are None: there is no such point."""
        parts = [self._begin]
        for name, get in self._tags:
            value = get(row)
            text = "" if value is None else _name(str(value))
            if text:  # a tag without a value is none
                parts.append(f"{name}={text}")
        fields = []
        for name, get, is_read in self._values:
            try:
                text = _value(max(now - get(row), 0) / 1e6 if is_read else get(row))
            except RowRefusedError as error:
                raise RowRefusedError(f"{name}: {error}") from None
            if text:
                fields.append(f"{name}={text}")
        if not fields:
            return ""
        line = f"{','.join(parts)} {','.join(fields)}"
        return f"{line} {_nanoseconds(self._time(row))}" if self._time is not None else line


def _nanoseconds(time: Any) -> int:
    """Since 1970: of a datetime to the microsecond, of a number as milliseconds."""
    if isinstance(time, datetime):
        aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        span = aware - datetime(1970, 1, 1, tzinfo=UTC)
        return ((span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds) * 1_000
    return event_time(time) * 1_000_000


def _path(connector: Connector, address: HttpAddress) -> str:
    database = address.path.strip("/")
    if not database or not address.host:
        raise ConfigurationError(
            f"{connector.url()}: which server and bucket? Write {connector.kind}://HOST:PORT/BUCKET"
        )
    version = number(connector, "version", 2, 1, 3)
    if version == 1:
        return f"/write?{urlencode({'db': database, 'precision': 'ns'})}"
    if version == 2:
        return f"/api/v2/write?{urlencode({'bucket': database, 'org': connector.option('org'), 'precision': 'ns'})}"
    return f"/api/v3/write_lp?{urlencode({'db': database, 'precision': 'nanosecond'})}"


def open_sink(connector: Connector, row_type: Any, clock: Callable[[], int], origin: object) -> PostingWriter:
    """The writer of an `influx:` or `influxs:` connector."""
    address = http_address(connector, default_port=8086)
    word = "Bearer" if connector.option("version") == "3" else "Token"
    return PostingWriter(
        connector,
        address,
        _path(connector, address),
        LatencyRecorder(row_type, clock),
        InfluxLines(connector, row_type).line,
        lambda lines: "\n".join(filter(None, lines)).encode("utf-8", "replace"),
        {"Content-Type": "text/plain; charset=utf-8", **bearer(connector, word)},
        number(connector, "batch", BATCH, 1, 10_000),
    )
