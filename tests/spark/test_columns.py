"""Types of a log's fields, and its rows as Arrow batches."""

import contextlib
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart_dataflow.schema import ReadTime, fields_of, type_text
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from pyspark_agiledart.columns import RowReader, spark_schema
from pyspark_agiledart.types import FieldType, parse_type


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


def described(row_type: Any) -> list[tuple[str, str]]:
    return [(field.name, type_text(field.type)) for field in fields_of(row_type)]


def test_every_type_that_a_row_may_have_becomes_a_column() -> None:
    fields = described(Everything)
    batch = RowReader(fields, spark_schema(fields)).read(msgspec.msgpack.encode([ROW]))
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


def test_dataclasses_travel_as_maps() -> None:
    @dataclass
    class Reading:
        room: str
        celsius: float | None

    fields = described(Reading)
    reader = RowReader(fields, spark_schema(fields))
    body = msgspec.msgpack.encode([Reading("hall", 20.5), Reading("attic", None)])
    assert reader.read(body, 1).to_pylist() == [{"room": "attic", "celsius": None}]


def test_columns_of_a_given_schema_are_chosen_by_name_and_cast() -> None:
    from pyspark.sql.types import IntegerType, StructField, StructType

    fields = [("text", "str"), ("number", "int")]
    wanted = StructType([StructField("number", IntegerType())])
    reader = RowReader(fields, wanted)
    assert reader.read(msgspec.msgpack.encode([("a", 7)])).to_pylist() == [{"number": 7}]
    with pytest.raises(OperationFailed, match="does not fit"):
        reader.read(msgspec.msgpack.encode([("a", 1 << 40)]))
    with pytest.raises(ConfigurationError, match="no field other"):
        RowReader(fields, StructType([StructField("other", IntegerType())]))


def test_no_rows_are_an_empty_batch() -> None:
    fields = [("text", "str")]
    assert RowReader(fields, spark_schema(fields)).read(msgspec.msgpack.encode([])).num_rows == 0


def test_rows_that_do_not_fit_are_an_error_in_words() -> None:
    fields = [("text", "str"), ("number", "int")]
    reader = RowReader(fields, spark_schema(fields))
    for body in (msgspec.msgpack.encode([(1, 2)]), msgspec.msgpack.encode([("a", 1 << 63)]), b"\xc1"):
        with pytest.raises(OperationFailed):
            reader.read(body)


def test_types_are_parsed_not_evaluated() -> None:
    assert parse_type("None | str") == FieldType("str", nullable=True)
    assert parse_type("Mood(good='g', bad='b')") == FieldType("str")
    assert parse_type("Level(low=1, high=2)") == FieldType("int")
    assert parse_type("float | int") == FieldType("float")
    for text in (
        "",
        "str |",
        "list[",
        "list[str",
        "int | str",
        "complex",
        "f(",
        "Cell()",
        "str]",
        "Literal['a', 1]",
        "a()",
    ):
        with pytest.raises(ConfigurationError):
            parse_type(text)
    with pytest.raises(ConfigurationError, match="deeply"):
        parse_type("list[" * 100 + "str" + "]" * 100)
    with pytest.raises(ConfigurationError, match="field x"):
        spark_schema([("x", "int | str")])


@given(st.text(alphabet="strint[](),|. '=:abNoneLl_", max_size=40))
def test_no_text_breaks_the_parser(text: str) -> None:
    with contextlib.suppress(ConfigurationError):
        parse_type(text)
