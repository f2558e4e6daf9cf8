"""Columns as what functions of batches take and give."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from agiledart_dataflow.data.batch_forms import columns_of, in_form
from agiledart_dataflow.data.columns import Columns


class Wide(NamedTuple):
    """A row of every kind of array."""

    number: int
    share: float
    full: bool
    at: datetime
    lasts: timedelta
    note: str
    tip: float | None


AT = datetime.fromisoformat("2020-01-01")
ROWS = [Wide(n, n / 2, n > 1, AT, timedelta(seconds=n), "x", None if n else 1.0) for n in range(4)]


@pytest.mark.parametrize("columns", [Columns.from_rows(ROWS, Wide), Columns.from_rows(ROWS, Wide).slice(1, 3)])
def test_exported_arrays_are_read_only_and_are_imported_without_a_copy(columns: Columns) -> None:
    batch = in_form(columns, "arrays")
    for array in batch.values():
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]
    again = columns_of(batch, Wide)
    assert again.rows() == columns.rows()
    for name in ("number", "share", "full", "at", "lasts"):
        assert np.shares_memory(again.named(name).values, columns.named(name).values)


class Measured(NamedTuple):
    """A row."""

    at: datetime
    celsius: float


@pytest.mark.parametrize(
    "part", [lambda array: array, lambda array: array[:2], lambda array: np.broadcast_to(array[0], 2)]
)
def test_an_array_that_is_refilled_does_not_change_rows(part: Any) -> None:
    times, celsius = np.full(2, AT, "datetime64[us]"), np.ones(2)
    made = columns_of({"at": part(times), "celsius": part(celsius)}, Measured)
    times += 1
    celsius[:] = 2.0
    assert made.rows() == [Measured(AT, 1.0)] * 2


def held(kind: Any, values: Any) -> list[Any]:
    """Values that rows of this type accept from these."""
    return columns_of({"value": values}, kind).rows()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (datetime, np.array([1.6e9])),
        (datetime, np.array([1], "timedelta64[s]")),
        (timedelta, np.array([1.0])),
        (timedelta, np.array([1], "datetime64[ms]")),
        (float, np.array([1], "timedelta64[s]")),
        (bool, np.array([1], "timedelta64[s]")),
        (int, np.array([1], "datetime64[s]")),
        (int, np.array([1], "datetime64[ns]")),
        (int, np.array([1.0])),
        (bool, np.array([1])),
        (float, np.ones((1, 2))),
        (datetime, np.array(["NaT"], "datetime64[us]")),
        (datetime, np.array([1], "datetime64[ns]")),
        (datetime, np.array([10**14], "datetime64[s]")),
    ],
)
def test_an_array_of_another_type_than_the_fields_is_refused(kind: Any, values: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="the field value is"):
        held(kind, values)


@pytest.mark.parametrize(
    ("kind", "values", "rows"),
    [
        (datetime, np.array(["2020-01-01"], "datetime64[ns]"), [AT]),
        (datetime, np.array(["2020-01-01"], "datetime64[D]"), [AT]),
        (datetime | None, np.array(["2020-01-01", "NaT"], "datetime64[ns]"), [AT, None]),
        (timedelta, np.array([1], "timedelta64[m]"), [timedelta(minutes=1)]),
        (float, np.array([1], np.uint64), [1.0]),
        (float, np.array([0.5], np.float32), [0.5]),
        (float, [1, 2.5], [1.0, 2.5]),
        (int, np.array([2**64 - 1], np.uint64), [2**64 - 1]),
        (int, np.array([7], ">i2"), [7]),
        (bool, np.array([True]), [True]),
    ],
)
def test_an_array_of_the_fields_type_is_accepted_in_any_width_or_unit(kind: Any, values: Any, rows: list[Any]) -> None:
    assert held(kind, values) == rows


class Colour(Enum):
    """An enum of texts."""

    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    """An enum that is an int."""

    LOW = 1


class Word(StrEnum):
    """An enum that is a text."""

    YES = "yes"


class Place(NamedTuple):
    """A row in a row."""

    x: int


@dataclass(frozen=True)
class Point:
    """An object in a row."""

    x: int
    name: str


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Colour, Colour.RED),
        (Colour | None, None),
        (Level, Level.LOW),
        (Word, Word.YES),
        (Decimal, Decimal("1.50")),
        (list[Place], [Place(1)]),
        (list[Point], [Point(1, "a"), Point(2, "b")]),
        (date, date(2020, 1, 1)),
        (set[int], {1, 2}),
        (tuple[int, ...], (1, 2)),
        (dict[str, int], {"a": 1}),
        (datetime, datetime(2020, 1, 1, tzinfo=UTC)),
        (datetime, datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=2)))),
        (datetime | None, datetime(2020, 1, 1, tzinfo=UTC)),
    ],
)
def test_objects_keep_their_value_through_arrow(kind: Any, value: Any) -> None:
    columns = Columns.from_rows([value] * 3, kind)
    again = columns_of(in_form(columns, "arrow"), kind, zones=True).rows()
    assert again == columns.rows()
    assert {type(one) for one in again} == {type(value)}
    if isinstance(value, datetime):
        assert again[0].utcoffset() == value.utcoffset()


@pytest.mark.parametrize("kind", [Colour, list[int], Decimal])
def test_arrow_values_of_another_type_than_the_fields_are_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="the field value is"):
        columns_of(pa.record_batch({"value": ["green"]}), kind)


def test_a_type_without_an_arrow_array_is_reported_with_its_field() -> None:
    columns = Columns.from_rows([(1, "a")], tuple[int, str])
    with pytest.raises(TypeError, match=r"the field value is .*; use a dict"):
        in_form(columns, "arrow")


@pytest.mark.parametrize(
    ("kind", "array"),
    [
        (bool, pa.array([2])),
        (bool, pa.array([0.5])),
        (bool, pa.array(["false"])),
        (int, pa.array(["0x10"])),
        (int, pa.array([1.0])),
        (int, pa.array([True])),
        (int, pa.array([1], pa.timestamp("ms"))),
        (int, pa.array([2**63], pa.uint64())),
        (float, pa.array([Decimal("12345678901234567890.12")])),
        (float, pa.array([2**53 + 1])),
        (float, pa.array(["inf"])),
        (str, pa.array([1.0])),
        (str, pa.array([b"a"])),
        (datetime, pa.array([1_600_000_000_000])),
        (datetime, pa.array(["2020-01-01 00:00:00"])),
        (datetime, pa.array([1], pa.timestamp("ns"))),
        (timedelta, pa.array([1])),
    ],
)
def test_values_that_would_change_meaning_in_the_field_are_refused(kind: Any, array: Any) -> None:
    with pytest.raises(TypeError, match="the field value is"):
        columns_of(pa.record_batch({"value": array}), kind)


@pytest.mark.parametrize(
    ("kind", "array", "rows"),
    [
        (bool, pa.array([True]), [True]),
        (int, pa.array([7], pa.uint8()), [7]),
        (int | None, pa.array([None]), [None]),
        (float, pa.array([7], pa.int16()), [7.0]),
        (float, pa.array([0.5], pa.float32()), [0.5]),
        (str, pa.array(["a"], pa.large_string()), ["a"]),
        (str | None, pa.array(["a", None]).dictionary_encode(), ["a", None]),
        (bytes, pa.array([b"a"], pa.binary(1)), [b"a"]),
        (datetime, pa.array([AT], pa.timestamp("ns")), [AT]),
        (datetime, pa.array([AT], pa.timestamp("s", "Europe/Berlin")), [AT]),
        (datetime, pa.array([AT.date()]), [AT]),
        (timedelta, pa.array([1], pa.duration("s")), [timedelta(seconds=1)]),
    ],
)
def test_values_with_the_same_meaning_in_the_field_are_accepted(kind: Any, array: Any, rows: list[Any]) -> None:
    assert columns_of(pa.record_batch({"value": array}), kind).rows() == rows
