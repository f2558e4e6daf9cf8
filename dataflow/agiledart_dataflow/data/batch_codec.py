"""Codec of a data frame's body: rows as MessagePack, columns as Arrow IPC. Both are bounded and validated on arrival.

    rows      MessagePack [rows, order, mark]
    columns   0xC1 · u32 length of the head · head: MessagePack [rows, order, mark] · Arrow IPC

0xC1 is the one byte that no MessagePack value begins with. `mark` is the watermark. `order` is nil, a list of positions, a list of
times, or (beside columns) the times as little-endian int64 or the positions as `position_arrays` packs them.
"""

import struct
from collections.abc import Callable
from typing import Annotated, Any, Final, get_args

import msgspec

from agiledart_dataflow.data.arrow_ipc import decoded, encoded
from agiledart_dataflow.data.batch import Batch, part_of
from agiledart_dataflow.data.carries import Carries
from agiledart_dataflow.data.lazy_module import import_at_once
from agiledart_dataflow.data.plain_values import check_plain
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.data.position_arrays import Packed, packed, unpacked
from agiledart_dataflow.data.schema import generic, is_dict
from agiledart_kernel.errors import ConfigurationError, RemoteProtocolError
from agiledart_kernel.limits import MAX_BATCH_BYTES, MAX_COLUMN_BATCH_BYTES, MAX_DATA_FRAME_BYTES

_COLUMNS: Final = 0xC1
_HEAD = struct.Struct(">BI")

_ORDER_TYPES: Final[dict[Carries, Any]] = {"rows": None, "times": list[int], "positions": list[tuple[int, ...]]}
_COLUMN_ORDER_TYPES: Final[dict[Carries, Any]] = {"rows": None, "times": bytes, "positions": Packed}


class _Barrier(msgspec.Struct, array_like=True):
    """Body of a barrier's frame; the name of a plan is short."""

    rows: list[msgspec.Raw]
    order: list[msgspec.Raw] | None
    watermark: tuple[int, ...]
    change: Annotated[bytes, msgspec.Meta(max_length=32)] = b""

    @property
    def parts(self) -> tuple[list[msgspec.Raw], Any, Position, bytes]:
        return self.rows, self.order, self.watermark, self.change


_BARRIER: Final = msgspec.msgpack.Decoder(_Barrier)


class ColumnsNotReady(Exception):
    """Signal: columns came before the modules that they need were imported."""


class BatchCodec:
    """Codec of the batches of one edge.

    Args:
        row_type: of the edge's rows.
        carries: data beside the rows.
    """

    __slots__ = ("_decoder", "_encoder", "_head_decoder", "_is_loose", "_row_type", "carries")

    def __init__(self, row_type: Any, carries: Carries = "positions") -> None:
        self._row_type, self.carries = row_type, carries
        self._is_loose = is_dict(row_type) and Any in get_args(row_type)
        self._encoder = msgspec.msgpack.Encoder()
        kind = generic(tuple, generic(list, row_type), _ORDER_TYPES[carries], tuple[int, ...])
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kind)
        head = generic(tuple, int, _COLUMN_ORDER_TYPES[carries], tuple[int, ...])
        self._head_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(head)

    def encode(self, batch: Batch) -> bytes:
        """Return the bytes of a batch. Raises TypeError, ValueError or OverflowError for rows that cannot travel."""
        held = batch.held
        if batch.change:
            return self._encoder.encode(([], self._nothing(), batch.watermark, batch.change))
        if type(held) is list or not len(held):
            if self._is_loose:
                check_plain(held)
            return self._encoder.encode((held or [], batch.order if len(held) else self._nothing(), batch.watermark))
        order = batch.order
        if self.carries == "times":
            order = struct.pack(f"<{len(order)}q", *order) if type(order) is list else order.astype("<i8").tobytes()
        elif self.carries == "positions":
            order = packed(order)
        head = self._encoder.encode((len(held), order, batch.watermark))
        return b"".join((_HEAD.pack(_COLUMNS, len(head)), head, encoded(held)))

    def _nothing(self) -> list[Any] | None:
        return None if self.carries == "rows" else []

    def encode_within(
        self, batch: Batch, limit: int = 2 * MAX_BATCH_BYTES, body: bytes | None = None
    ) -> list[tuple[Batch, bytes]]:
        """Return the batch in pieces of at most `limit` bytes (columns: at most their own limit), as far as whole rows allow.

        Raises the errors of `encode`.

        Args:
            batch: the rows.
            limit: bytes of one piece.
            body: the bytes of the whole batch, where they are known.
        """
        if type(batch.held) is not list:
            limit = max(limit, MAX_COLUMN_BATCH_BYTES)
        pieces: list[tuple[Batch, bytes]] = []
        waiting = [(batch, self.encode(batch) if body is None else body)]
        while waiting:
            piece, body = waiting.pop()
            if len(body) <= limit or len(piece) < 2:
                pieces.append((piece, body))
            else:
                halves = list(piece.pieces((len(piece) + 1) // 2))
                waiting += [(half, self.encode(half)) for half in reversed(halves)]
        return pieces

    def decode(self, body: bytes | bytearray | memoryview, may_import: Callable[[], bool] = import_at_once) -> Batch:
        """Return the batch of these bytes.

        Args:
            body: bytes from the network.
            may_import: called when columns come; returns whether NumPy and pyarrow can be used now.

        Raises:
            RemoteProtocolError: the bytes are not a batch (`oversize`, `form`).
            ColumnsNotReady: columns came too early.
        """
        if len(body) > MAX_DATA_FRAME_BYTES:
            raise RemoteProtocolError("oversize", f"a batch of {len(body)} bytes, at most {MAX_DATA_FRAME_BYTES}")
        try:
            if len(body) and body[0] == _COLUMNS:
                if not may_import():
                    raise ColumnsNotReady
                return self._decode_columns(memoryview(body))
            rows, order, watermark = self._decoder.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, struct.error) as error:
            raise RemoteProtocolError("form", str(error)[:200]) from None
        if not watermark or (order is not None and len(rows) != len(order)):
            raise RemoteProtocolError(
                "form", f"{len(rows)} rows, order of {order and len(order)}, watermark {watermark}"
            )
        return Batch(rows, order, watermark)

    @staticmethod
    def decode_barrier(body: bytes | memoryview) -> Batch:
        """Return the watermark of a barrier and the change that it carries. Raises RemoteProtocolError (`form`)."""
        try:
            rows, _, watermark, change = _BARRIER.decode(body).parts
        except (msgspec.MsgspecError, ValueError) as error:
            raise RemoteProtocolError("form", str(error)[:200]) from None
        if rows or not watermark:
            raise RemoteProtocolError("form", f"a barrier with {len(rows)} rows, watermark {watermark}")
        return Batch([], None, watermark, 0, None, change)

    def _decode_columns(self, body: memoryview) -> Batch:
        _, length = _HEAD.unpack_from(body)
        start = _HEAD.size
        if length > len(body) - start:
            raise RemoteProtocolError("form", f"a head of {length} bytes in a body of {len(body)}")
        count, order, watermark = self._head_decoder.decode(body[start : start + length])
        try:
            held = decoded(body[start + length :], self._row_type)
        except ConfigurationError as error:
            raise RemoteProtocolError("form", f"columns came, but {error}") from None
        if self.carries == "times":
            order = _times(order)
        elif self.carries == "positions":
            order = unpacked(order, len(held))
        if not watermark or not count or len(held) != count or (order is not None and len(order) != count):
            raise RemoteProtocolError(
                "form", f"{len(held)} rows in columns, {count} in the head, watermark {watermark}"
            )
        return Batch(held, order, watermark)


def _times(packed: bytes) -> Any:
    """Return packed times as an int64 array; raises ValueError for an incomplete number."""
    import numpy as np  # columns have come, so NumPy is loaded

    return np.frombuffer(packed, "<i8")


def first_rows(batch: Batch, count: int) -> Batch:
    """Return a batch of at most `count` rows, to test whether they can travel."""
    order: list[Position] | None = None if batch.order is None else batch.order[:count]
    return batch if len(batch) <= count else Batch(part_of(batch.held, 0, count), order, batch.watermark)
