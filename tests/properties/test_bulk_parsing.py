"""Many lines decoded at once are the rows, and have the reasons, that they have one by one."""

from datetime import datetime
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agiledart_connectors.codecs.line_block import LineBlock
from agiledart_connectors.codecs.lines import PLAIN
from agiledart_connectors.codecs.row_parser import RowParser


class Measured(NamedTuple):
    """Each kind of column that is read in bulk; the last has a default, which no line may use."""

    name: str
    number: int
    weight: float
    at: datetime
    share: float = 0.5


PARSER = RowParser(Measured)
GOOD = ("a b", "7", "2.5", "2013-01-01 00:00:00", "0.00")
NUMBERS = (
    "1", "-2.5", "+3", " 4", "5 ", "", "nan", "-inf", "Infinity", "1e3", "1E2", "1.0", "1e999", "-1e999", "-0", "-0.0", "0",
    "007", ".5", "5.", "-0e5", "true", "null", "0x1", "9007199254740993", "18446744073709551617", "1.7976931348623157e308",
    "7" * 400, "7" * 4_001, "7" * 4_305, "--1", "\\u0031", "1]", "[", "1_0", "٣", "²", "1\x00", "1\x7f", "\t1", "\ufeff1",
)  # fmt: skip
TEXTS = (
    "", "a", " ", "-0", "null", "\\", "\\n", "]", "],[", "1.0", "{}", "_", "ä€😀", "\ufeff", "\u2028", "\x85",
    "\x00", "\t", "\x1b", "\x7f", "\udcff", "\udced\udca0\udc80", "\udce2",
)  # fmt: skip  # the last stand for bytes that are no UTF-8
TIMES = ("", "2013-01-01 00:00:00", "2013-02-30 00:00:00", "2013-01-01T00:00:00", "0", "\\", "2013-01-0٣ 00:00:00")
OF = (TEXTS, NUMBERS, NUMBERS, TIMES, NUMBERS)


def columns() -> st.SearchStrategy[list[str]]:
    """Those of one line: good, with up to one thing odd, and sometimes one too few or too many."""
    odd = st.integers(0, 4).flatmap(lambda i: st.tuples(st.just(i), st.sampled_from(OF[i])))

    def made(change: tuple[int, str] | None, count: int) -> list[str]:
        texts = list(GOOD)
        if change is not None:
            texts[change[0]] = change[1]
        return [*texts, "8.5"][:count]

    return st.builds(made, st.none() | odd, st.sampled_from((5, 5, 5, 5, 4, 6)))


def one_by_one(lines: list[str]) -> tuple[str, dict[str, int]]:
    """Rows in text, which distinguishes -0.0 from 0.0 and 1.0 from 1, and reasons: the careful way."""
    rows: list[Any] = []
    malformed: dict[str, int] = {}
    for line in lines:
        PARSER._parse_carefully(line, 0, rows.append, malformed)
    return repr(rows), malformed


def at_once(lines: list[str]) -> tuple[str, dict[str, int]]:
    """The same as a source reads them."""
    malformed: dict[str, int] = {}
    assert PARSER.bulk is not None
    PARSER.bulk.try_again()
    plain = not "\n".join(lines).encode(errors="surrogateescape").translate(None, PLAIN)
    return repr(PARSER.parse(lines, 0, malformed, plain=plain)), malformed


def as_bytes(lines: list[str], max_rows: int) -> tuple[str, dict[str, int]]:
    """The same as they come from a connection, so many at a time."""
    malformed: dict[str, int] = {}
    assert PARSER.bulk is not None
    PARSER.bulk.try_again()
    block = LineBlock(PARSER)
    block.fill("\n".join(lines).encode(errors="surrogateescape"))
    rows: list[Any] = []
    taken = 0
    while not block.is_empty:
        some, count = block.take(max_rows, 0, malformed)
        assert 0 < count <= max_rows
        rows += some
        taken += count
    assert taken == len(lines)
    return repr(rows), malformed


@settings(deadline=None)
@given(st.lists(columns(), min_size=1, max_size=9), st.integers(0, 70), st.integers(1, 90))
@example([[*GOOD[:4], "-0"]], 4, 9)
@example([["x", "7" * 400, *GOOD[2:]], ["x", "1.0", *GOOD[2:]]], 4, 9)
@example([["x", "1", "2", GOOD[3], "3", "y", "1", "2", GOOD[3], "3"]], 4, 9)
@example([list(GOOD)], 600, 100)
@example([[""]], 0, 1)
@example([["ä_", *GOOD[1:]]], 9, 5)
@example([["\udcff", *GOOD[1:]]], 9, 5)
def test_lines_parsed_together_equal_lines_parsed_singly(
    given_lines: list[list[str]], good: int, max_rows: int
) -> None:
    lines = [",".join(texts) for texts in given_lines]
    lines = [",".join(GOOD)] * good + lines
    assert at_once(lines) == as_bytes(lines, max_rows) == one_by_one(lines)


@given(st.sampled_from(NUMBERS), st.sampled_from((1, 2, 4)))
def test_every_notation_of_a_number_is_parsed(text: str, place: int) -> None:
    texts = list(GOOD)
    texts[place] = text
    lines = [",".join(texts)] * 5
    assert at_once(lines) == one_by_one(lines)


def test_a_line_feed_within_a_line_does_not_split_it() -> None:
    good = ",".join(GOOD)
    lines = [good, good, f"{good}\n{good}", good, good]
    assert at_once(lines) == one_by_one(lines) == (repr(PARSER.parse([good] * 4, 0, {}, plain=True)), {"columns": 1})
