"""The source `tcp:` in columns gives what it gives in rows, wherever reads cut its lines."""

import socket
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import tcp
from agiledart_connectors.codecs import column_block, csv_columns_reader
from agiledart_connectors.opening import open_source
from agiledart_dataflow.data.batch import as_rows
from agiledart_dataflow.data.lazy_module import import_at_once


class Wide(NamedTuple):
    """Each kind of column that columns know."""

    name: str
    count: int  # type: ignore[assignment]  # hides the method of tuples, as users' columns may
    weight: float
    note: str | None
    at: datetime
    limit: int | None
    on: bool


GOOD = st.builds(
    "{},{},{},{},2013-01-01 00:00:{:02},{},{}".format,
    st.sampled_from(["a", "a b", "", "é"]),
    st.integers(-9, 10**12),
    st.sampled_from(["1.5", "-2", "1e3", "0.1"]),
    st.sampled_from(["", "x"]),
    st.integers(0, 59),
    st.sampled_from(["", "7"]),
    st.sampled_from(["0", "true"]),
)
ODD = st.sampled_from(
    [
        *("", "\r", ",", "a,1", "a,x,1.5,,2013-01-01 00:00:00,,1", "a,1,nan,,2013-01-01 00:00:00,,1", '"a",1,1,,,,1'),
        '"a"\rb,1,1.5,,2013-01-01 00:00:00,,1',
        *("a,1,1.5,,2013-01-01,,1", " a, 1,1.5 ,,2013-01-01 00:00:00,,1", "a,1_0,.5,,2013-01-01 00:00:00,0x1,1"),
        *("\udcff,1,1.5,,2013-01-01 00:00:00,,1", "\ufeff,1,1.5,,2013-01-01 00:00:00,,1", "a,1,1.5,,2013-01-01 00:00:00,,1\r"),
    ]
)  # fmt: skip

DirtyRows = tuple[list[Any], int, dict[str, int], bool]


def read(
    pieces: list[bytes], row_type: Any, *, columns: bool, may_begin: Callable[[], bool] = import_at_once
) -> DirtyRows:
    """(rows, lines, malformed, whether columns came) of a connection that sends these pieces, each read before the next."""
    rows: list[Any] = []
    lines, malformed, came, exhausted = 0, dict[str, int](), False, False
    with socket.create_server(("127.0.0.1", 0)) as door:
        reader = open_source(tcp("127.0.0.1", door.getsockname()[1]), row_type, columns=columns, may_begin=may_begin)
        reader.read(10, 0)
        peer, _ = door.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in [*pieces, b""]:
            peer.sendall(piece) if piece else peer.close()
            while True:
                reading = reader.read(7, 99)
                assert type(reading.rows) is not list or len(reading.rows) <= 7
                came = came or type(reading.rows) is not list
                rows += as_rows(reading.rows)
                lines += reading.lines
                for reason, count in reading.malformed.items():
                    malformed[reason] = malformed.get(reason, 0) + count
                exhausted = reading.exhausted
                if not reading.lines and (exhausted or piece):
                    break
        reader.close()
    return rows, lines, malformed, came


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """At these places, as far as there are so many bytes."""
    stops = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:stop] for start, stop in pairwise(stops)]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_columns_reader, "_FEW_LINES", 2)
    monkeypatch.setattr(column_block, "MAX_COLUMN_BATCH_ROWS", 5)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(GOOD, max_size=20) | st.lists(GOOD | ODD, max_size=20),
    st.lists(st.integers(0, 2_000), max_size=5),
    st.sampled_from(["", "\n", "\r\n"]),
)
def test_columns_equal_rows(lines: list[str], places: list[int], end: str) -> None:
    pieces = cut(("\n".join(lines) + end).encode("utf-8", "surrogateescape"), places)
    by_rows, by_columns = read(pieces, Wide, columns=False), read(pieces, Wide, columns=True)
    assert by_columns[:3] == by_rows[:3]
    assert [list(map(type, row)) for row in by_columns[0]] == [list(map(type, row)) for row in by_rows[0]]


def test_many_valid_lines_arrive_as_columns() -> None:
    line = b"a,1,1.5,,2013-01-01 00:00:00,,1\n"
    rows, lines, malformed, came = read([line * 12, line * 3 + line[:9], line[9:]], Wide, columns=True)
    assert (len(rows), lines, malformed, came) == (16, 16, {}, True)


def test_rows_arrive_until_columns_may_begin() -> None:
    piece = b"a,1,1.5,,2013-01-01 00:00:00,,1\n" * 6
    answers = [False, False, True]
    assert read([piece] * 2, Wide, columns=True, may_begin=lambda: answers.pop(0))[1:] == (12, {}, False)
    assert read([piece], Wide, columns=True, may_begin=lambda: answers.pop(0))[1:] == (6, {}, True)
    assert not answers


class Texts(NamedTuple):
    """A row of which nothing has to be there."""

    name: str
    note: str | None


@pytest.mark.parametrize("pieces", [[b"a,b\n" * 9 + b"\n" + b"a,b\n" * 9], [b"a,b\n" * 9, b"\n" + b"a,b\n" * 9]])
def test_an_empty_line_is_malformed_even_when_every_field_is_optional(pieces: list[bytes]) -> None:
    for columns in (False, True):
        assert read(pieces, Texts, columns=columns)[1:3] == (19, {"columns": 1})


class Pair(NamedTuple):
    """A row whose first column is a number."""

    at: int
    word: str


def test_a_byte_order_mark_in_the_middle_is_no_number() -> None:
    pieces = [b"1,a\n2,b\n", b"\xef\xbb\xbf3,c\n4,d\n5,e\n"]
    by_columns = read(pieces, Pair, columns=True)
    assert by_columns[:3] == read(pieces, Pair, columns=False)[:3]
    assert by_columns[2] == {"number": 1}
