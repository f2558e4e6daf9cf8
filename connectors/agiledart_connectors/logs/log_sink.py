"""`log:NAME?partitions=4&max_bytes=64MiB&max_age=7d&segment_bytes=4MiB&columns=auto&key=FIELD`: rows into a log of this node."""

import sys
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import msgspec
from crc32c import crc32c

from agiledart_connectors.latency_recorder import LatencyRecorder
from agiledart_connectors.options import SIZES, SPANS_MS, quantity
from agiledart_connectors.rejections import LEAST, MOST, RejectsRows, RowRefusedError, fitting_rows
from agiledart_connectors.sink_origin import SinkOrigin
from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.data.inference import optional_stripped
from agiledart_dataflow.data.schema import SchemaError, fields_of
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.limits import MAX_BATCH_ROWS
from agiledart_sink_log.layout import AUTO, NEVER
from agiledart_sink_log.log_writer import LogOptions, LogWriter
from agiledart_sink_log.protocol import MAX_PARTITIONS, user_sink_name_fault
from agiledart_sink_log.row_form import encoded, row_form


class LogSinkWriter(RejectsRows):
    """Spreads rows over the partitions of a log: by key, or each stored batch to the next.

    A flush commits, unless rows wait for epochs: then they are on their way to the disk, count from `commit` on, and those of an
    epoch that is open when it is closed never do.

    Attributes:
        identity: of the log: another node may go on with it.
        emits_at_once: rows are committed when they are flushed.

    Raises:
        OperationFailed: the log can't be opened or written.
    """

    def __init__(
        self, log: LogWriter, row_type: Any, key: int | str | None, clock: Callable[[], int], *, waits: bool = False
    ) -> None:
        super().__init__()
        self._log, self._waits, self.emits_at_once = log, waits, not waits
        self.identity = log.description.log_id
        self._plain = row_form(row_type).plain
        self._times = LatencyRecorder(row_type, clock)
        self._key = key
        self._ints = [
            (field.name, itemgetter(place))
            for place, field in enumerate(fields_of(row_type))
            if optional_stripped(field.type) is int
        ]
        count = len(log.partitions)
        self._rows: list[list[Any]] = [[] for _ in range(1 if key is None else count)]
        # A new writer goes on where rows are fewest, so that many short runs fill the partitions evenly, too.
        self._next_partition = min(range(count), key=lambda number: log.partitions[number].end)

    def write(self, rows: list[Any]) -> None:
        self._times.count(rows)
        key, plain = self._key, self._plain
        if key is None:
            self._rows[0] += rows if plain is None else map(plain, rows)
        else:
            count = len(self._rows)
            for row in rows:
                value = row[key] if isinstance(key, int) else getattr(row, key)
                place = crc32c(msgspec.msgpack.encode(value, enc_hook=str)) % count
                self._rows[place].append(row if plain is None else plain(row))
        for number, waiting in enumerate(self._rows):
            if len(waiting) >= MAX_BATCH_ROWS:
                self._hand_over(number)

    def _hand_over(self, number: int) -> None:
        rows, self._rows[number] = self._rows[number], []
        partitions = self._log.partitions
        for start in range(0, len(rows), MAX_BATCH_ROWS):
            if self._key is None:
                number, self._next_partition = self._next_partition, (self._next_partition + 1) % len(partitions)
            part = rows[start : start + MAX_BATCH_ROWS]
            try:
                pieces = self._encoded(part)
            except (TypeError, ValueError, ArithmeticError):
                pieces = self._encoded(fitting_rows(part, self._encoded, self.rejections))
            for body, count in pieces:
                partitions[number].append(body, count)

    def _encoded(self, rows: list[Any]) -> list[tuple[bytes, int]]:
        """Return the bytes of rows. Raises ValueError or TypeError for what a log cannot hold."""
        for name, value_of in self._ints:
            values = [value for value in map(value_of, rows) if value is not None]
            if values and not LEAST <= min(values) <= max(values) <= MOST:
                value = next(value for value in values if not LEAST <= value <= MOST)
                raise RowRefusedError(f"{name}: {value} does not fit 64 bits")
        return list(encoded(rows)) if rows else []

    def flush(self) -> None:
        for number, waiting in enumerate(self._rows):
            if waiting:
                self._hand_over(number)
        if self._waits:
            self._log.flush()
        else:
            self._log.commit()

    def prepare(self) -> tuple[int, ...]:
        """An epoch ends here: all rows taken so far are on the disk; the end of each partition."""
        self.flush()
        return self._log.prepare()

    def commit(self, ends: tuple[int, ...], epoch: int) -> None:
        """The rows before these ends are committed with an epoch."""
        if self._waits:
            self._log.commit_up_to(ends, epoch)

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._rows = [[] for _ in self._rows]
            self._log.close(commits=not self._waits)

    @property
    def latency(self) -> LatencyHistogram:
        return self._times.histogram


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
    return LogSinkWriter(log, row_type, key, clock, waits=origin.waits_for_epochs)


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
