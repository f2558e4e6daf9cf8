"""Types of a log's fields, and its rows as Arrow batches."""

import contextlib
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart_dataflow.data.schema import ReadTime
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_sink_log.row_form import encoded, row_form
from pyspark_agiledart.arrow_columns import RowReader, spark_schema
from pyspark_agiledart.types import Fields, FieldType, parse_schema


class Cell(NamedTuple):
    east: int
    south: int


class Everything(NamedTuple):
    text: str
    number: int
    money: Decimal | None
    at: datetime
    day: date
    span: timedelta
    read_at: ReadTime
    cell: Cell
    cells: list[Cell]
    pair: tuple[str, int]
    many: tuple[float, ...]
    named: dict[str, timedelta]
    mood: Literal["good", "bad, or (odd)"]
    raw: bytes
    is_true: bool


ROW = Everything(
    "é", -1, Decimal("1.50"), datetime.fromisoformat("2013-01-01 00:05:00.000001"), date(2013, 1, 2), timedelta(milliseconds=1500),
    ReadTime(1_700_000_000_123_456_789), Cell(1, 2), [Cell(3, 4)], ("a", 1), (1.0, 2.0), {"x": timedelta(seconds=2)},
    "good", b"\0", True,
)  # fmt: skip


def described(row_type: Any) -> Fields:
    return parse_schema(msgspec.json.encode({"fields": row_form(row_type).fields}))


def stored(row_type: Any, rows: list[Any]) -> bytes:
    plain = row_form(row_type).plain
    [(body, _)] = encoded(rows if plain is None else [plain(row) for row in rows])
    return body


def test_every_type_that_a_row_may_have_becomes_a_column() -> None:
    fields = described(Everything)
    batch = RowReader(fields, spark_schema(fields)).read(stored(Everything, [ROW]))
    [row] = batch.to_pylist()
    assert row["text"] == "é"
    assert row["money"] == Decimal("1.5")
    assert row["at"] == datetime(2013, 1, 1, 0, 5, 0, 1, UTC)
    assert row["span"] == 1.5
    assert row["read_at"] == datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)
    assert row["cell"] == {"east": 1, "south": 2}
    assert row["cells"] == [{"east": 3, "south": 4}]
    assert row["pair"] == {"_1": "a", "_2": 1}
    assert row["many"] == [1.0, 2.0]
    assert dict(row["named"]) == {"x": 2.0}
    assert (row["mood"], row["raw"], row["is_true"], row["day"]) == ("good", b"\0", True, date(2013, 1, 2))


def test_dataclasses_and_plain_values_are_rows_too() -> None:
    @dataclass
    class Reading:
        room: str
        celsius: float | None

    fields = described(Reading)
    reader = RowReader(fields, spark_schema(fields))
    body = stored(Reading, [Reading("hall", 20.5), Reading("attic", None)])
    assert reader.read(body, 1).to_pylist() == [{"room": "attic", "celsius": None}]
    fields = described(int)
    assert RowReader(fields, spark_schema(fields)).read(stored(int, [7])).to_pylist() == [{"value": 7}]


def test_columns_of_a_given_schema_are_chosen_by_name_and_cast() -> None:
    from pyspark.sql.types import IntegerType, StructField, StructType

    fields = (("text", FieldType("string")), ("number", FieldType("int")))
    wanted = StructType([StructField("number", IntegerType())])
    reader = RowReader(fields, wanted)
    assert reader.read(msgspec.msgpack.encode([("a", 7)])).to_pylist() == [{"number": 7}]
    with pytest.raises(OperationFailed, match="does not fit"):
        reader.read(msgspec.msgpack.encode([("a", 1 << 40)]))
    with pytest.raises(ConfigurationError, match="no field other"):
        RowReader(fields, StructType([StructField("other", IntegerType())]))


def test_no_rows_are_an_empty_batch() -> None:
    fields = (("text", FieldType("string")),)
    assert RowReader(fields, spark_schema(fields)).read(msgspec.msgpack.encode([])).num_rows == 0


def test_times_with_and_without_a_zone_may_stand_in_one_log() -> None:
    fields = (("at", FieldType("datetime", True)), ("read_at", FieldType("read_time", True)))
    wanted = [
        ("2013-01-01T00:05:00.000001", datetime(2013, 1, 1, 0, 5, 0, 1, UTC)),
        ("2013-01-01T00:05:00+02:00", datetime(2012, 12, 31, 22, 5, tzinfo=UTC)),
        ("0001-01-01T00:00:00", datetime(1, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59.999999", datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
        (datetime(2013, 1, 1, 0, 5, tzinfo=timezone(timedelta(hours=-5))), datetime(2013, 1, 1, 5, 5, tzinfo=UTC)),
        (None, None),
    ]
    bodies = [msgspec.msgpack.encode([(value, 1_999), (None, None)]) for value, _ in wanted]
    for order in (wanted, wanted[::-1]):
        reader = RowReader(fields, spark_schema(fields))
        rows = [row for value, _ in order for row in reader.rows(bodies[[one for one, _ in wanted].index(value)])]
        found = reader.batch(rows).to_pylist()
        assert [row["at"] for row in found[::2]] == [at for _, at in order]
        assert all(row == {"at": None, "read_at": None} for row in found[1::2])
        assert {row["read_at"] for row in found[::2]} == {datetime(1970, 1, 1, 0, 0, 0, 1, UTC)}


def test_a_read_time_before_1970_is_rounded_down_like_others() -> None:
    fields = (("read_at", FieldType("read_time")),)
    batch = RowReader(fields, spark_schema(fields)).read(msgspec.msgpack.encode([(-1,), (1,)]))
    assert [row["read_at"].microsecond for row in batch.to_pylist()] == [999_999, 0]


def test_rows_that_do_not_fit_are_a_clear_error() -> None:
    fields = (("text", FieldType("string")), ("number", FieldType("int")))
    reader = RowReader(fields, spark_schema(fields))
    for body in (msgspec.msgpack.encode([(1, 2)]), msgspec.msgpack.encode([("a", 1 << 63)]), b"\xc1"):
        with pytest.raises(OperationFailed):
            reader.read(body)


@pytest.mark.parametrize(
    "schema",
    [
        *("", "[]", "{}", '{"fields": 1}', '{"fields": [1]}', '{"fields": [{"name": "a"}]}'),
        *('{"fields": [{"name": "a", "type": "complex"}]}', '{"fields": [{"name": "a", "type": {"map": []}}]}'),
        '{"fields": [{"name": "a", "type": {"struct": []}}]}',
        '{"fields": [' + '{"type": {"list": ' * 100 + '{"type": "int"}' + "}}" * 100 + "]}",
    ],
)
def test_an_unknown_schema_is_a_clear_error(schema: str) -> None:
    with pytest.raises(OperationFailed, match="not understood"):
        parse_schema(schema.encode())


DOCUMENTS = st.recursive(
    st.none() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(DOCUMENTS)
def test_no_document_breaks_the_parser(document: Any) -> None:
    with contextlib.suppress(OperationFailed):
        parse_schema(msgspec.json.encode({"fields": [{"name": "a", "type": document}]}))
