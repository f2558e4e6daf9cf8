"""Both forms of a batch on the wire, with all that may go with them; nothing malformed gets through."""

import struct
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_dataflow.data.arrow_ipc import encoded
from agiledart_dataflow.data.batch import Batch, concatenated, listed
from agiledart_dataflow.data.batch_codec import BatchCodec
from agiledart_dataflow.data.carries import Carries
from agiledart_dataflow.data.columns import Columns
from agiledart_kernel.errors import RemoteProtocolError


class Place(NamedTuple):
    """A row."""

    number: int
    name: str


ROWS = [Place(n, f"place {n}") for n in range(200)]
MARK = (200, 1, 0, 9)
ORDERS: dict[Carries, Any] = {
    "rows": None,
    "times": list(range(200)),
    "positions": [(n, 1, 0, n) for n in range(200)],
}


def given_order(carries: Carries, *, columns: bool) -> Any:
    return np.array(ORDERS[carries]) if columns and carries != "rows" else ORDERS[carries]


@pytest.mark.parametrize("carries", ["rows", "times", "positions"])
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_a_batch_keeps_its_form_through_encoding(carries: Carries, columns: bool) -> None:
    codec = BatchCodec(Place, carries)
    held: Any = Columns.from_rows(ROWS, Place) if columns else ROWS
    back = codec.decode(codec.encode(Batch(held, given_order(carries, columns=columns), MARK)))
    assert isinstance(back.held, Columns) == columns
    assert (back.rows, back.watermark) == (ROWS, MARK)
    assert listed(back.order) == ORDERS[carries]
    empty = codec.decode(codec.encode(Batch([], None, MARK)))
    assert (len(empty), empty.watermark) == (0, MARK)


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_a_batch_from_the_wire_is_not_marked_as_checked(columns: bool) -> None:
    codec = BatchCodec(Place, "positions")
    held: Any = Columns.from_rows(ROWS, Place) if columns else ROWS
    sent = Batch(held, given_order("positions", columns=columns), MARK, ascends=True)
    assert not codec.decode(codec.encode(sent)).ascends
    assert not any(piece.ascends for piece in sent.pieces(20))


@pytest.mark.parametrize("carries", ["rows", "times", "positions"])
def test_fields_that_the_edge_does_not_carry_are_refused(carries: Carries) -> None:
    for other in ORDERS:
        if other != carries:
            body = BatchCodec(Place, other).encode(Batch(ROWS, ORDERS[other], MARK))
            with pytest.raises(RemoteProtocolError, match="form"):
                BatchCodec(Place, carries).decode(body)


def test_columns_are_cut_at_their_own_bound_and_joined_again() -> None:
    codec = BatchCodec(Place, "times")
    batch = Batch(Columns.from_rows([Place(n, "x" * 2_000) for n in range(4_000)], Place), np.arange(4_000), MARK)
    pieces = [codec.decode(body) for _, body in codec.encode_within(batch)]
    assert len(pieces) > 1
    whole = concatenated(pieces)
    assert whole.rows == batch.rows
    assert list(whole.order) == list(range(4_000))
    assert whole.watermark == MARK


def test_forms_are_made_from_each_other_once() -> None:
    batch = Batch(list(ROWS), None, MARK)
    columns = batch.columns(Place)
    assert batch.columns(Place) is columns
    other = Batch(columns, None, MARK)
    assert other.rows == ROWS
    assert other.rows is other.rows


RESPONSES: dict[Carries, bytes] = {
    carries: BatchCodec(Place, carries).encode(
        Batch(Columns.from_rows(ROWS, Place), given_order(carries, columns=True), MARK)
    )
    for carries in ("times", "positions")
}
BODY = RESPONSES["times"]


@given(st.sampled_from(sorted(RESPONSES)), st.integers(0, len(BODY) - 1), st.binary(min_size=1, max_size=4))
@settings(max_examples=120, deadline=None)
def test_a_changed_body_is_refused_or_decodes_to_a_batch(carries: Carries, place: int, bytes_: bytes) -> None:
    body = RESPONSES[carries]
    try:
        batch = BatchCodec(Place, carries).decode(body[:place] + bytes_ + body[place + len(bytes_) :])
    except RemoteProtocolError:
        return
    assert len(batch) == len(batch.order)


@pytest.mark.parametrize("length", [0, 1, 4, 9, 40, len(BODY) - 9])
def test_a_truncated_body_is_refused(length: int) -> None:
    with pytest.raises(RemoteProtocolError):
        BatchCodec(Place, "times").decode(BODY[:length])


def test_columns_without_rows_are_refused() -> None:
    """They are never sent: a batch without rows travels as a punctuation."""
    head = msgspec.msgpack.encode((0, [1, 1, 0, b""], MARK))
    empty = encoded(Columns.from_rows(ROWS, Place).slice(0, 0))
    with pytest.raises(RemoteProtocolError, match="0 rows"):
        BatchCodec(Place).decode(struct.pack(">BI", 0xC1, len(head)) + head + empty)
