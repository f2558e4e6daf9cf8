"""The generated loop for CSV lines and the careful one agree on every line: the same rows, the same reasons."""

from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_connectors.codecs.lines import PLAIN
from agiledart_connectors.codecs.row_parser import RowParser


class Wide(NamedTuple):
    """Each kind of column, needed and optional."""

    name: str
    count: int  # type: ignore[assignment]  # hides the method of tuples, as users' columns may
    weight: float
    note: str | None
    at: datetime | None
    limit: int | None
    share: float | None
    price: Decimal
    on: bool


class Narrow(NamedTuple):
    """A time that may be missing beside a number that may have a space."""

    at: datetime | None
    weight: float


WIDE, NARROW = RowParser(Wide), RowParser(Narrow)

TEXTS = ("", "a", "a b", " ", "x  y", "2013-01-01 00:00:00")
NUMBERS = (
    "1",
    "-2.5",
    "+3",
    " 4",
    "5 ",
    "",
    "nan",
    "inf",
    "1e3",
    "1e999",
    "0x1",
    "7" * 4_001,
    "7" * 4_305,
    "--1",
    ".5",
    "5.",
)
TIMES = ("", "2013-01-01 00:00:00", "2013-01-01  00:00:00", "2013-02-30 00:00:00", "2013-01-01T00:00:00", " ")
FLAGS = ("0", "1", "true", "false", "True", "", " 1")
OF = {str: TEXTS, int: NUMBERS, float: NUMBERS, Decimal: NUMBERS, bool: FLAGS, datetime: TIMES}


GOOD = {str: "a b", int: "7", float: "2.5", Decimal: "2.50", bool: "1", datetime: TIMES[1]}


def lines_for(row_type: Any) -> st.SearchStrategy[str]:
    """Valid lines in which up to two columns may hold a user's mistakes."""
    kinds = [next(kind for kind in OF if kind.__name__ in str(hint)) for hint in row_type.__annotations__.values()]

    def changed(changes: list[tuple[int, int]]) -> str:
        columns = [GOOD[kind] for kind in kinds]
        for place, choice in changes:
            texts = OF[kinds[place]]
            columns[place] = texts[choice % len(texts)]
        return ",".join(columns)

    change = st.tuples(st.integers(0, len(kinds) - 1), st.integers(0, 30))
    return st.lists(change, max_size=2).map(changed)


def outcome(parser: RowParser, line: str, *, careful: bool) -> tuple[list[Any], dict[str, int]]:
    """Rows and reasons of one line."""
    malformed: dict[str, int] = {}
    if careful:
        rows: list[Any] = []
        parser._parse_carefully(line, 99, rows.append, malformed)
        return rows, malformed
    assert not line.encode().translate(None, PLAIN)
    return parser.parse([line], 99, malformed, plain=True), malformed


@settings(deadline=None)
@given(lines_for(Wide))
def test_both_parsers_agree_on_every_kind_of_column(line: str) -> None:
    assert outcome(WIDE, line, careful=False) == outcome(WIDE, line, careful=True)


@settings(deadline=None)
@given(lines_for(Narrow))
def test_a_missing_time_does_not_allow_a_space_elsewhere(line: str) -> None:
    assert outcome(NARROW, line, careful=False) == outcome(NARROW, line, careful=True)
