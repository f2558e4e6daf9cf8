"""A client that reads a log's folder itself, as the agent's server does: for tests of readers without a network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agiledart_kernel.node_id import NodeId
from agiledart_sink_log.client import ReceivedBatch, ReceivedRows
from agiledart_sink_log.column_index import ZoneCondition
from agiledart_sink_log.layout import log_directory
from agiledart_sink_log.log_reader import LogReader, ReadSelection
from agiledart_sink_log.protocol import LEFT_OUT, EndsReply, Located


@dataclass
class FolderClient:
    """Requests of a reader, answered from the disk.

    Attributes:
        is_pushed_down: columns and conditions are passed on; else all columns of all batches are read.
        left_out: batches that were left out so far, and bytes.
        sizes: bytes of each answer.
    """

    root: Path
    is_pushed_down: bool = True
    left_out: list[int] = field(default_factory=lambda: [0, 0])
    sizes: list[int] = field(default_factory=list)

    def _reader(self, sink: str) -> LogReader:
        return LogReader(log_directory(self.root, sink))

    def locate(self, sink: str) -> Located:
        about = self._reader(sink).description
        return Located(
            0, sink, "app", 1, NodeId(1), "a1", "127.0.0.1:1", about.log_id, about.schema_json(), about.partitions
        )

    def ends(
        self, sink: str, wait_ms: int = 0, after: Mapping[int, int] | None = None, *, uncommitted: bool = False
    ) -> EndsReply:
        reader = self._reader(sink)
        ends = tuple(reader.ends(number, uncommitted=uncommitted) for number in range(reader.description.partitions))
        return EndsReply(0, reader.description.log_id, ends)

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
        selection = ReadSelection(tuple(columns), tuple(where) if self.is_pushed_down else ())
        batches, following, end = self._reader(sink).fetch(
            partition, offset, max_rows, max_bytes, uncommitted=uncommitted, selection=selection
        )
        self.left_out[0] += sum(batch.stored for batch in batches if batch.form == LEFT_OUT)
        self.left_out[1] += sum(batch.left_out for batch in batches)
        self.sizes.append(sum(batch.size for batch in batches))
        received = tuple(
            ReceivedBatch(
                batch.offset, batch.rows, batch.form, tuple(map(memoryview, batch.parts)), batch.at_ms, batch.size
            )
            for batch in batches
        )
        return ReceivedRows(received, following, end)

    def close(self) -> None: ...
