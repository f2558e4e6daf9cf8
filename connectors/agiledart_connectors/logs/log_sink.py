"""Sink `log:`: rows into a log of this node."""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import msgspec
from crc32c import crc32c

from agiledart_connectors.latency_recorder import LatencyRecorder
from agiledart_connectors.rejections import LEAST, MOST, RejectsRows, RowRefusedError, fitting_rows
from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.data.inference import optional_stripped
from agiledart_dataflow.data.schema import fields_of
from agiledart_kernel.limits import MAX_BATCH_ROWS
from agiledart_sink_log.log_writer import LogWriter
from agiledart_sink_log.partition_writer import PartitionWriter
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
        self._take_rows(rows)

    def _take_rows(self, rows: list[Any]) -> None:
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
        for start in range(0, len(rows), MAX_BATCH_ROWS):
            partition = self._next() if self._key is None else self._log.partitions[number]
            part = rows[start : start + MAX_BATCH_ROWS]
            try:
                pieces = self._encoded(part)
            except (TypeError, ValueError, ArithmeticError):
                pieces = self._encoded(fitting_rows(part, self._encoded, self.rejections))
            for body, count in pieces:
                partition.append(body, count)

    def _next(self) -> PartitionWriter:
        """Return the partition of the next stored batch."""
        number, self._next_partition = self._next_partition, (self._next_partition + 1) % len(self._log.partitions)
        return self._log.partitions[number]

    def _encoded(self, rows: list[Any]) -> list[tuple[bytes, int]]:
        """Return the bytes of rows. Raises ValueError or TypeError for what a log cannot hold."""
        for name, value_of in self._ints:
            values = [value for value in map(value_of, rows) if value is not None]
            if values and not LEAST <= min(values) <= max(values) <= MOST:
                value = next(value for value in values if not LEAST <= value <= MOST)
                raise RowRefusedError(f"{name}: {value} does not fit 64 bits")
        return list(encoded(rows)) if rows else []

    def _hand_over_rows(self) -> None:
        for number, waiting in enumerate(self._rows):
            if waiting:
                self._hand_over(number)

    def flush(self) -> None:
        self._hand_over_rows()
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
