"""A sink log in memory behind the interface of the synchronous client: for tests without agents and without a JVM."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from agiledart_kernel.node_id import NodeId
from agiledart_sink_log.client import ReceivedBatch, ReceivedRows, SinkLogError
from agiledart_sink_log.column_index import ZoneCondition
from agiledart_sink_log.protocol import (
    ROWS,
    TRIMMED,
    EndsReply,
    Fetched,
    Located,
    LogsListed,
    PartitionEnds,
    StoredBatch,
)
from agiledart_transport.request_reasons import NO_AGENT
from pyspark_agiledart import connection
from pyspark_agiledart.reader_options import ReaderOptions
from pyspark_agiledart.types import Fields, FieldType

FIELDS = (("taxi", FieldType("string")), ("number", FieldType("int")), ("fare", FieldType("float", True)))


@dataclass
class FakeLog:
    """Partitions of stored batches; faults can be planted.

    Attributes:
        fields: (name, type) of its rows.
        failures: raised by the next requests, one each, in place of an answer; None answers.
        asked: names of the requests so far.
        uncommitted: partition → how many rows at its end are not committed.
    """

    partitions: int = 2
    fields: Fields = FIELDS
    stored: dict[int, list[StoredBatch]] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)
    failures: list[SinkLogError | None] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    patience: list[float] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    answer_batches: int = 2
    uncommitted: dict[int, int] = field(default_factory=dict)

    def append(self, partition: int, rows: Sequence[Any]) -> None:
        """Store rows as one batch."""
        batches = self.stored.setdefault(partition, [])
        batches.append(StoredBatch(self.end(partition), len(rows), msgspec.msgpack.encode(list(rows))))

    def end(self, partition: int) -> int:
        batches = self.stored.get(partition)
        return batches[-1].offset + batches[-1].rows if batches else 0

    def committed(self, partition: int) -> int:
        return self.end(partition) - self.uncommitted.get(partition, 0)

    def trim(self, partition: int, first: int) -> None:
        """Retention: whole batches below `first` go."""
        self.stored[partition] = [batch for batch in self.stored[partition] if batch.offset + batch.rows > first]
        self.first[partition] = self.stored[partition][0].offset

    # ---- what a client does

    def logs(self, pattern: str) -> LogsListed:
        """It is one log, whose name is that of the question."""
        self._ask("logs")
        return LogsListed(0, (pattern.rstrip("*"),))

    def locate(self, sink: str) -> Located:
        self._ask("locate")
        schema = {
            "text": "",
            "fields": [{"name": name, "type": kind.name, "nullable": kind.nullable} for name, kind in self.fields],
        }
        return Located(
            0, sink, "app", 1, NodeId(1), "a1", "127.0.0.1:1", "log", msgspec.json.encode(schema), self.partitions
        )

    def ends(
        self, sink: str, wait_ms: int = 0, after: Mapping[int, int] | None = None, *, uncommitted: bool = False
    ) -> EndsReply:
        self._ask("ends")
        self.waits.append(wait_ms)
        found = [
            PartitionEnds(partition, self.first.get(partition, 0), self.committed(partition), self.end(partition))
            for partition in range(self.partitions)
        ]
        return EndsReply(0, "log", tuple(found))

    def fetch(
        self,
        sink: str,
        partition: int,
        offset: int,
        *,
        max_rows: int = 100_000,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
        uncommitted: bool = False,
    ) -> Fetched:
        self._ask("fetch")
        if offset < self.first.get(partition, 0):
            raise SinkLogError(f"row {offset} is trimmed", TRIMMED, self.first[partition])
        found = [batch for batch in self.stored.get(partition, []) if batch.offset + batch.rows > offset]
        if not uncommitted:
            found = [batch for batch in found if batch.offset < self.committed(partition)]
        chosen: list[StoredBatch] = []
        for batch in found[: self.answer_batches]:
            if chosen and sum(one.rows for one in chosen) >= max_rows:
                break
            chosen.append(batch)
        end = chosen[-1].offset + chosen[-1].rows if chosen else offset
        return Fetched(0, partition, tuple(chosen), end, self.end(partition))

    def fetch_parts(
        self,
        sink: str,
        partition: int,
        offset: int,
        columns: Sequence[int],
        where: Sequence[ZoneCondition] = (),
        *,
        max_rows: int = 100_000,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
        uncommitted: bool = False,
    ) -> ReceivedRows:
        """As an agent of an earlier release answers: with rows."""
        got = self.fetch(
            sink, partition, offset, max_rows=max_rows, max_bytes=max_bytes, wait_ms=wait_ms, uncommitted=uncommitted
        )
        batches = tuple(
            ReceivedBatch(one.offset, one.rows, ROWS, (memoryview(one.body),), one.at_ms, len(one.body))
            for one in got.batches
        )
        return ReceivedRows(batches, got.next_offset, got.end)

    def close(self) -> None:
        self.asked.append("close")

    def _ask(self, name: str) -> None:
        self.asked.append(name)
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure


def away() -> SinkLogError:
    """The client's error when an agent does not answer."""
    return SinkLogError("No agent answers: the log cannot be found.", NO_AGENT)


@contextlib.contextmanager
def served(log: FakeLog, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLog]:
    """All readers of this process read this log."""

    def open_client(options: ReaderOptions, patience: float) -> FakeLog:
        log.patience.append(patience)
        return log

    opened: Callable[[ReaderOptions, float], connection.LogClient] = open_client
    with monkeypatch.context() as patch:
        patch.setattr(connection, "open_client", opened)
        yield log
