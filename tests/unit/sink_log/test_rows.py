"""A log's description of its rows, and that rows match it."""

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple

import msgspec
import pytest

from agiledart import ReadTime
from agiledart_dataflow.data.schema import SchemaError
from agiledart_sink_log.row_form import encoded, row_form


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Cell(NamedTuple):
    east: int
    south: int


@dataclass(frozen=True)
class Area:
    cell: Cell
    money: Decimal | None


class Everything(NamedTuple):
    at: datetime
    day: date
    name: str | None
    cells: list[Cell]
    pair: tuple[int, str]
    area: Area
    areas: list[Area]
    shares: dict[str, float]
    colour: Colour
    side: Literal["left", "right"]
    raw: bytes
    read: ReadTime
    odd: int | str


ROW = Everything(
    datetime.fromisoformat("2013-01-01 00:00:30"), date(2013, 1, 1), None, [Cell(1, 2)], (3, "x"),
    Area(Cell(4, 5), Decimal("12.50")), [Area(Cell(6, 7), None)], {"a": 0.5}, Colour.BLUE, "left", b"\0", ReadTime(17), "or text",
)  # fmt: skip

CELL = {
    "struct": [{"name": "east", "type": "int", "nullable": False}, {"name": "south", "type": "int", "nullable": False}]
}
AREA = {
    "struct": [
        {"name": "cell", "type": CELL, "nullable": False},
        {"name": "money", "type": "decimal", "nullable": True},
    ]
}


def stored(row_type: Any, row: Any) -> Any:
    form = row_form(row_type)
    ((body, count),) = encoded([row if form.plain is None else form.plain(row)])
    assert count == 1
    return msgspec.msgpack.decode(body)[0]


def test_each_kind_of_field_is_encoded() -> None:
    fields = {str(field["name"]): (field["type"], field["nullable"]) for field in row_form(Everything).fields}
    assert fields == {
        "at": ("datetime", False),
        "day": ("date", False),
        "name": ("string", True),
        "cells": ({"list": {"type": CELL, "nullable": False}}, False),
        "pair": (
            {
                "struct": [
                    {"name": "_1", "type": "int", "nullable": False},
                    {"name": "_2", "type": "string", "nullable": False},
                ]
            },
            False,
        ),
        "area": (AREA, False),
        "areas": ({"list": {"type": AREA, "nullable": False}}, False),
        "shares": ({"map": [{"type": "string", "nullable": False}, {"type": "float", "nullable": False}]}, False),
        "colour": ("string", False),
        "side": ("string", False),
        "raw": ("bytes", False),
        "read": ("read_time", False),
        "odd": ("json", False),
    }
    assert stored(Everything, ROW) == [
        "2013-01-01T00:00:30", "2013-01-01", None, [[1, 2]], [3, "x"], [[4, 5], "12.50"], [[[6, 7], None]], {"a": 0.5}, "blue",
        "left", b"\0", 17, '"or text"',
    ]  # fmt: skip


def test_rows_that_are_arrays_already_are_not_changed() -> None:
    assert row_form(Cell).plain is None
    assert row_form(list[Cell]).plain is not None


@pytest.mark.parametrize(("row_type", "row", "kind"), [(int, 7, "int"), (str, "x", "string"), (list[int], [1], None)])
def test_a_row_that_is_no_record_has_one_field(row_type: Any, row: Any, kind: str | None) -> None:
    (field,) = row_form(row_type).fields
    assert field["name"] == "value"
    assert kind is None or field["type"] == kind
    assert stored(row_type, row) == [row]


def test_a_type_without_meaning_is_refused() -> None:
    with pytest.raises(SchemaError):
        row_form(Any)


def test_large_batches_are_halved_and_an_oversized_row_is_refused() -> None:
    rows = [[n, "x" * 100] for n in range(100)]
    pieces = list(encoded(rows, 1_000))
    assert [row for body, _ in pieces for row in msgspec.msgpack.decode(body)] == rows
    assert all(len(body) <= 1_000 for body, _ in pieces)
    with pytest.raises(ValueError, match="a row of"):
        list(encoded([["x" * 2_000]], 1_000))
