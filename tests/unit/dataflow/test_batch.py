"""Batches: cutting them, and the body of a data frame."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import msgpack
import pytest

from agiledart import Change, Ranking
from agiledart_dataflow.data.batch import Batch, concatenated
from agiledart_dataflow.data.batch_codec import BatchCodec
from agiledart_dataflow.data.position import covering, final_watermark
from agiledart_dataflow.data.rows import Entry
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.limits import MAX_DATA_FRAME_BYTES

EARLY, LATER = datetime.fromisoformat("0001-01-01"), datetime.fromisoformat("2013-01-01 00:02:00")


class Place(NamedTuple):
    """A row."""

    east: int
    south: int


@dataclass(frozen=True)
class Visit:
    """A dataclass row."""

    at: datetime
    place: Place | None


def numbered(count: int) -> Batch:
    """Rows 0 … count-1."""
    return Batch(list(range(count)), [(i, 1, 0, i) for i in range(count)], final_watermark(count))


def test_pieces_cover_the_batch_and_the_last_has_the_watermark() -> None:
    pieces = list(numbered(7).pieces(3))
    assert [piece.rows for piece in pieces] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [piece.watermark for piece in pieces] == [covering((2, 1, 0, 2)), covering((5, 1, 0, 5)), final_watermark(7)]


def test_an_empty_batch_is_one_piece() -> None:
    assert [len(piece) for piece in numbered(0).pieces(3)] == [0]


def test_pieces_join_to_the_same_batch() -> None:
    whole = numbered(10)
    again = concatenated(list(whole.pieces(4)))
    assert (again.rows, again.order, again.watermark) == (whole.rows, whole.order, whole.watermark)


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (Place, [Place(1, 2), Place(-3, 4)]),
        (Visit, [Visit(LATER, Place(1, 2)), Visit(EARLY, None)]),
        (str, ["", "ä", "\U0001f695"]),
        (tuple[int, str], [(1, "a")]),
        (
            Change[Place, int, Visit],
            [Change(Place(1, 2), None, None), Change(Place(1, 2), 3, Visit(EARLY, None))],
        ),
        (Ranking[str, Place, float], [Ranking("x", [Entry(Place(1, 2), 0.1)])]),
    ],
)
def test_rows_come_back_as_their_type(kind: object, rows: list[object]) -> None:
    codec = BatchCodec(kind)
    batch = Batch(rows, [(i, 1, 0, i, -1) for i in range(len(rows))], final_watermark(None))
    back = codec.decode(codec.encode(batch))
    assert (back.rows, back.order, back.watermark) == (batch.rows, batch.order, batch.watermark)
    assert [type(row) for row in back.rows] == [type(row) for row in rows]


def test_the_body_is_an_array_of_rows_positions_and_watermark() -> None:
    body = BatchCodec(Place).encode(Batch([Place(1, 2)], [(5, 1, 0, 0)], (5, 1, 0, 0, 9)))
    assert msgpack.unpackb(body) == [[[1, 2]], [[5, 1, 0, 0]], [5, 1, 0, 0, 9]]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        msgpack.packb([[], []]),
        msgpack.packb([[[1, 2]], [], [1]]),
        msgpack.packb([[], [], []]),
        msgpack.packb([[["x", 2]], [[1]], [1]]),
        msgpack.packb([[[1, 2]], [["x"]], [1]]),
        b"\x91" * 5_000,
        bytes(MAX_DATA_FRAME_BYTES + 1),
    ],
)
def test_bytes_that_are_no_batch_are_refused_with_a_reason(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as refusal:
        BatchCodec(Place).decode(body)
    assert refusal.value.reason in ("form", "oversize")


def test_bodies_are_cut_to_a_size_as_far_as_rows_allow() -> None:
    batch = Batch(["x" * 100] * 9, [(i, 1, 0, i) for i in range(9)], final_watermark(9))
    codec = BatchCodec(str)
    parts = list(codec.encode_within(batch, 400))
    assert all(len(body) <= 400 for _, body in parts)
    assert concatenated([codec.decode(body) for _, body in parts]).order == batch.order
    (only,) = codec.encode_within(Batch(["x" * 1_000], [(1, 1, 0, 0)], final_watermark(1)), 400)
    assert len(only[1]) > 400
