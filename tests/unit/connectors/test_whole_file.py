"""Source `file:`: one record, or parts; and where it goes on after a restart."""

from pathlib import Path
from typing import Any

import pytest

from agiledart_connectors.opening import open_source
from agiledart_dataflow.operators.model_parts import IncomingModel
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_kernel.errors import OperationFailed


def reader(file: Path, options: str = "") -> Any:
    """A reader of a file."""
    return open_source(parse_connector(f"file:{file}{options}"), bytes)


def rows_of(source: Any) -> list[bytes]:
    """All rows that are left."""
    rows: list[bytes] = []
    while True:
        reading = source.read(100, 0)
        rows += reading.rows
        if reading.exhausted:
            return rows


def test_a_file_is_one_record(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"x" * 100)
    assert rows_of(reader(tmp_path / "m")) == rows_of(reader(tmp_path / "m", "?parts=1")) == [b"x" * 100]
    (tmp_path / "m").write_bytes(b"")
    assert rows_of(reader(tmp_path / "m")) == [b""]


def test_a_large_file_is_refused_or_comes_in_parts(tmp_path: Path) -> None:
    data = bytes(range(256)) * (20 << 10)
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(OperationFailed, match=r"larger than the 4,128,768 bytes .* with \?parts=1"):
        reader(tmp_path / "m")
    incoming = IncomingModel()
    assert [incoming.taken(part) for part in rows_of(reader(tmp_path / "m", "?parts=1"))][-1] == data
    with (tmp_path / "m").open("r+b") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(OperationFailed, match="larger than the 67,108,864 bytes that a model may have"):
        reader(tmp_path / "m", "?parts=1")


def test_a_reader_goes_on_behind_its_position(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"x" * (3 << 20))
    first = reader(tmp_path / "m", "?parts=1")
    parts = first.read(1, 0).rows
    again = reader(tmp_path / "m", "?parts=1")
    again.seek(first.position())
    assert len([*parts, *rows_of(again)]) == 3
    end = again.position()
    (tmp_path / "m").write_bytes(b"y" * (3 << 20))
    changed = reader(tmp_path / "m", "?parts=1")
    with pytest.raises(OperationFailed, match="has changed since 1 of its 3 parts were read"):
        changed.seek(first.position())
    changed.seek(end)
    assert rows_of(changed) == []
