"""JSON over several lines: indented arrays and objects are read value by value, however the bytes come."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart_connectors.codecs.json_documents import DocumentLines, member_of
from agiledart_connectors.opening import open_source
from agiledart_dataflow.plan.connectors import parse_connector


class Value(NamedTuple):
    """A row."""

    v: float
    note: str = ""


def cut(data: bytes, size: int) -> list[Any]:
    """The values of a document whose bytes come in pieces."""
    lines = DocumentLines()
    pieces = [lines.convert(data[at : at + size]) for at in range(0, len(data), size)]
    pieces.append(lines.convert(b"", is_end=True))
    return [json.loads(line) for line in b"".join(pieces).split(b"\n") if line.strip()]


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.text(max_size=6)
    | st.sampled_from(['"', "\\", "[", "}", ",\n"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
_OBJECTS = st.lists(st.dictionaries(st.text(max_size=3), _JSON, max_size=3), min_size=1, max_size=5)


@given(_OBJECTS, st.integers(1, 60), st.integers(1, 4))
def test_an_indented_array_is_its_items(objects: list[Any], size: int, indent: int) -> None:
    assert cut(json.dumps(objects, indent=indent).encode() + b"\n", size) == objects


@given(_OBJECTS, st.integers(1, 60))
def test_indented_objects_one_after_the_other_are_rows(objects: list[Any], size: int) -> None:
    filled = [{"id": number} | thing for number, thing in enumerate(objects)]
    assert cut("\n".join(json.dumps(thing, indent=2) for thing in filled).encode(), size) == filled


@given(_OBJECTS, st.integers(1, 60))
def test_an_array_may_have_an_item_a_line(objects: list[Any], size: int) -> None:
    text = "[" + ",\n".join(map(json.dumps, objects)) + "\n]"
    assert cut(text.encode() + b"\n", size) == objects


@pytest.mark.parametrize(
    "data", [b'{"v":1}\n{"v":2}\n', b'[{"v":1}]\n[{"v":2}]\n', b'{"v":\n', b"\n\nx\n", b"[1,2]x\n"]
)
def test_lines_stay_as_they_are(data: bytes) -> None:
    assert DocumentLines().convert(data, is_end=True) == data


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("a", b'{"b":[1],"c.d":2}'),
        ("a.b", b"[1]"),
        ("a.c.d", b"2"),
        ("x.y", b"3"),
        ("a.z", None),
        ("a.b.c", None),
        ("q", None),
    ],
)
def test_a_member_may_be_within_another(path: str, part: bytes | None) -> None:
    assert member_of(b'{"a":{"b":[1],"c.d":2},"x.y":3}', path) == part


def test_an_indented_array_with_a_bad_item_is_read(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    values = [{"v": 1}, {"v": "x"}, {"v": 3, "note": "a, [b] {c}"}]
    path.write_text("\ufeff" + json.dumps(values, indent=2, ensure_ascii=False))
    reading = open_source(parse_connector(f"jsonl:{path}"), Value).read(10, 0)
    assert reading.rows == [Value(1.0), Value(3.0, "a, [b] {c}")]
    assert (reading.lines, reading.malformed) == (3, {"type": 1})
    assert any("values.json:2 v: 'x' is no number" in note for note in reading.notes)
