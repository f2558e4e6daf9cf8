"""`Batch`: some rows of one stream with their positions, and the mark up to which the stream is complete."""

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from agiledart_dataflow.position import Position, covering
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.limits import MAX_BATCH_ROWS, MAX_DATA_FRAME_BYTES


class Batch:
    """Rows in order of position. An empty batch is a pure punctuation.

    Attributes:
        rows: the records.
        positions: parallel to `rows`, strictly ascending, above every earlier mark of the channel, at or below `mark`.
        mark: nothing at or below it will follow.
    """

    __slots__ = ("mark", "positions", "rows")

    def __init__(self, rows: list[Any], positions: list[Position], mark: Position) -> None:
        self.rows = rows
        self.positions = positions
        self.mark = mark

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Batch({len(self.rows)} rows, mark {self.mark})"

    def pieces(self, limit: int = MAX_BATCH_ROWS) -> Iterator["Batch"]:
        """The same records in batches of at most `limit` rows; the mark of each but the last covers its last row."""
        total = len(self.rows)
        if total <= limit:
            yield self
            return
        for start in range(0, total, limit):
            stop = start + limit
            mark = self.mark if stop >= total else covering(self.positions[stop - 1])
            yield Batch(self.rows[start:stop], self.positions[start:stop], mark)


class BatchCodec:
    """The body of a data frame: MessagePack `[rows, positions, mark]`, rows restored as the edge's row type."""

    __slots__ = ("_decoder", "_encoder")

    def __init__(self, row_type: Any) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        kind = tuple[list[row_type], list[tuple[int, ...]], tuple[int, ...]]
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kind)

    def encode(self, batch: Batch) -> bytes:
        """The bytes of a batch. Raises TypeError, ValueError or OverflowError for rows that cannot travel."""
        return self._encoder.encode((batch.rows, batch.positions, batch.mark))

    def encode_within(self, batch: Batch, limit: int) -> Iterator[tuple[Batch, bytes]]:
        """The batch in pieces whose bytes stay within `limit`, as far as whole rows allow."""
        waiting = [batch]
        while waiting:
            piece = waiting.pop()
            body = self.encode(piece)
            if len(body) <= limit or len(piece) < 2:
                yield piece, body
            else:
                waiting += reversed(list(piece.pieces((len(piece) + 1) // 2)))

    def decode(self, body: bytes | bytearray | memoryview) -> Batch:
        """The batch that these bytes stand for; raises `RemoteProtocolError` (`oversize`, `form`) and nothing else."""
        if len(body) > MAX_DATA_FRAME_BYTES:
            raise RemoteProtocolError("oversize", f"a batch of {len(body)} bytes, at most {MAX_DATA_FRAME_BYTES}")
        try:
            rows, positions, mark = self._decoder.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, struct.error) as error:
            raise RemoteProtocolError("form", str(error)[:200]) from None
        if len(rows) != len(positions) or not mark:
            raise RemoteProtocolError("form", f"{len(rows)} rows, {len(positions)} positions, mark {mark}")
        return Batch(rows, positions, mark)


def concatenated(batches: Sequence[Batch]) -> Batch:
    """Consecutive batches of one channel as one."""
    if len(batches) == 1:
        return batches[0]
    rows: list[Any] = []
    positions: list[Position] = []
    for batch in batches:
        rows += batch.rows
        positions += batch.positions
    return Batch(rows, positions, batches[-1].mark)
