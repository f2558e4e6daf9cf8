"""Columns: rows → arrays → bytes → rows, for every type that a row may have; shared memory, refusals."""

import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import copysign, inf, isnan, nan
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import ReadTime
from agiledart_dataflow.data.arrow_ipc import decoded, encoded
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.rows import Pane
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.limits import MAX_DATA_FRAME_BYTES


class Colour(Enum):
    """An enumeration."""

    RED = "red"


class Place(NamedTuple):
    """A row within a row."""

    east: int
    south: int


class Wide(NamedTuple):
    """A field of every type."""

    whole: int
    real: float
    yes: bool
    text: str
    raw: bytes
    at: datetime
    day: date
    hour: time
    span: timedelta
    money: Decimal
    place: Place
    parts: list[int]
    colour: Colour
    read_at: ReadTime
    maybe_whole: int | None
    maybe_real: float | None
    maybe_yes: bool | None
    maybe_text: str | None
    maybe_at: datetime | None
    maybe_span: timedelta | None
    maybe_place: Place | None


@dataclass(frozen=True)
class Visit:
    """A dataclass row."""

    at: datetime
    place: Place | None


class Pair(NamedTuple):
    """Two columns."""

    number: int
    text: str


times = st.datetimes()
texts = st.text(st.characters(codec="utf-8"))
wide = st.builds(
    Wide,
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.booleans(),
    texts,
    st.binary(),
    times | st.datetimes(timezones=st.just(UTC)),
    st.dates(),
    st.times(),
    st.timedeltas(timedelta(days=-(10**8)), timedelta(days=10**8)),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.builds(Place, st.integers(-5, 5), st.integers(-5, 5)),
    st.lists(st.integers(-5, 5)),
    st.just(Colour.RED),
    st.integers(0, 2**63 - 1),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(),
    st.none() | st.booleans(),
    st.none() | texts,
    st.none() | times,
    st.none() | st.timedeltas(timedelta(days=-(10**8)), timedelta(days=10**8)),
    st.none() | st.builds(Place, st.integers(-5, 5), st.integers(-5, 5)),
)


def same(one: Any, other: Any) -> bool:
    """Equal to the last bit: NaN is NaN, -0.0 is not 0.0, and types agree."""
    if isinstance(one, tuple):
        return type(one) is type(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return (isnan(one) and isnan(other)) or (one == other and copysign(1, one) == copysign(1, other))
    return type(one) is type(other) and one == other


def made_again(columns: Columns) -> Columns:
    """The same columns, but without the rows that they may remember."""
    return columns.replaced(columns.row_type, {f.name: columns.named(f.name) for f in columns.schema.fields})


@settings(deadline=None)  # the first one imports pyarrow
@given(st.lists(wide, max_size=5))
def test_rows_of_every_type_survive_columns(rows: list[Wide]) -> None:
    columns = Columns.from_rows(rows, Wide)
    assert all(map(same, made_again(columns).rows(), rows))
    back = decoded(encoded(columns), Wide)
    assert len(back) == len(rows)
    assert all(map(same, back.rows(), rows))


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (int, [1, -2, 2**63 - 1]),
        (int, [2**63]),
        (float, [nan, inf, -inf, -0.0, 5e-324]),
        (str, ["", "ä", "\U0001f695"]),
        (tuple[int, str], [(1, "a")]),
        (
            Visit,
            [
                Visit(datetime.fromisoformat("2013-01-01"), Place(1, 2)),
                Visit(datetime.fromisoformat("0001-01-01"), None),
            ],
        ),
        (Pane[str, float], [Pane("x", 0, 60_000, 0.5)]),
        (float | None, [None, 1.5]),
    ],
)
def test_rows_of_other_forms_survive_columns(kind: Any, rows: list[Any]) -> None:
    columns = Columns.from_rows(rows, kind)
    field = columns.schema.fields[0].name
    assert len(columns.named(field)) == len(rows)
    for back in (made_again(columns), decoded(encoded(columns), kind)):
        assert [type(row) for row in back.rows()] == [type(row) for row in rows]
        assert all(map(same, back.rows(), rows))


@pytest.mark.parametrize(
    ("row", "field"),
    [((1.5, "a"), "number"), (("1", "a"), "number"), ((None, "a"), "number"), ((1, b"a"), "text"), ((1, None), "text")],
)
def test_a_value_of_another_type_is_named(row: Any, field: str) -> None:
    columns = Columns.from_rows([Pair(1, "a"), Pair(*row)], Pair)
    with pytest.raises(TypeError, match=f"the field {field} is"):
        columns.named(field)


def pairs(count: int) -> Columns:
    """Columns without rows behind them."""
    return made_again(Columns.from_rows([Pair(i, str(i)) for i in range(count)], Pair))


@settings(deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.lists(st.booleans(), min_size=9, max_size=9), st.booleans())
def test_selections_compose(start: int, stop: int, mask: list[bool], from_rows: bool) -> None:
    columns = Columns.from_rows([Pair(i, str(i)) for i in range(9)], Pair) if from_rows else pairs(9)
    rows = columns.rows()
    kept = [row for row, yes in zip(rows, mask, strict=True) if yes]
    filtered = columns.filter(np.array(mask))
    assert filtered.rows() == kept
    assert filtered.slice(start, stop).rows() == kept[start:stop]
    part = columns.slice(start, stop)
    assert made_again(part.filter(np.array(mask[start:stop], bool))).rows() == [
        row for row, yes in zip(rows[start:stop], mask[start:stop], strict=True) if yes
    ]
    assert Columns.concatenate([part, filtered, columns]).rows() == rows[start:stop] + kept + rows
    turned = columns.take(np.arange(9)[::-1])
    assert made_again(turned).rows() == rows[::-1]
    assert turned.filter(np.array(mask)).rows() == [row for row, yes in zip(rows[::-1], mask, strict=True) if yes]


def test_rows_that_arrived_as_rows_are_not_rebuilt() -> None:
    rows = [Pair(i, str(i)) for i in range(9)]
    columns = Columns.from_rows(rows, Pair)
    assert columns.rows() is rows
    assert columns.filter(np.arange(9) > 6).rows()[0] is rows[7]
    assert columns.column(0) is columns.column(0)


def test_slices_and_arrow_arrays_are_views() -> None:
    columns = pairs(9)
    assert np.shares_memory(columns.slice(2, 5).column(0).values, columns.column(0).values)
    body = encoded(columns)
    received = decoded(body, Pair).column(0).values
    assert np.shares_memory(received, np.frombuffer(body, np.uint8))


def test_columns_of_another_type_share_their_common_fields() -> None:
    class Other(NamedTuple):
        text: str
        double: int

    columns = pairs(3)
    numbers = columns.named("number")
    other = columns.filter(np.array([True, False, True])).replaced(Other, {"text": "text", "double": "number"})
    assert other.rows() == [Other("0", 0), Other("2", 2)]
    assert columns.replaced(Other, {"text": "text", "double": numbers}).named("double") is numbers


@settings(deadline=None)
@given(st.integers(0, 600), st.binary(min_size=1, max_size=4))
def test_a_changed_body_is_refused_or_holds_rows_of_the_type(place: int, bytes_: bytes) -> None:
    body = bytearray(encoded(pairs(20)))
    body[place : place + len(bytes_)] = bytes_
    try:
        columns = decoded(body, Pair)
    except RemoteProtocolError:
        return
    assert all(type(row.number) is int and type(row.text) is str for row in columns.rows())


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(noise: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decoded(noise + b"\xc1", Pair)


def test_bodies_that_would_unpack_to_more_are_refused() -> None:
    whole = encoded(pairs(20))
    (head,) = struct.unpack_from(">I", whole)
    arrays = [pa.array(range(20)), pa.array(map(str, range(20)))]
    batch = pa.record_batch(arrays, names=["0", "1"])
    compressed = batch.serialize()
    assert decoded(whole[: 4 + head] + compressed.to_pybytes(), Pair).rows() == pairs(20).rows()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    message = reader.read_next_message().serialize().to_pybytes()
    with pytest.raises(RemoteProtocolError, match="compressed"):
        decoded(whole[: 4 + head] + message, Pair)
    with pytest.raises(RemoteProtocolError) as refusal:
        decoded(bytes(MAX_DATA_FRAME_BYTES + 1), Pair)
    assert refusal.value.reason == "oversize"


def test_rows_of_another_type_are_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        decoded(encoded(Columns.from_rows([Place(1, 2)], Place)), Pair)
    with pytest.raises(RemoteProtocolError):
        decoded(encoded(Columns.from_rows([None], int | None)), int)
