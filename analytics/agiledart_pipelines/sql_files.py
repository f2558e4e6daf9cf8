"""Tables of a pipeline that SQL files define, and which tables their queries read.

Spark parses such a file at its server and does not tell the client what it has found there. A refresh has to know: it computes the
tables below a table, too. So statements are cut into words here. Only names behind FROM and JOIN count.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

STREAMING_TABLE: Final = "STREAMING TABLE"
MATERIALIZED_VIEW: Final = "MATERIALIZED VIEW"
VIEW: Final = "VIEW"
FLOW: Final = "FLOW"

_WORD: Final = re.compile(
    r"(?P<left_out>\s+|--[^\n]*|/\*.*?\*/)|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<quoted>`(?:[^`]|``)*`)"
    r"|(?P<name>[^\W\d]\w*)|(?P<mark>.)",
    re.DOTALL,
)
_CREATE: Final = re.compile(
    r"CREATE (?:OR (?:REPLACE|REFRESH) )?(?:PRIVATE )?"
    r"(?P<kind>STREAMING TABLE|MATERIALIZED VIEW|(?:TEMPORARY |TEMP )?VIEW|FLOW) (?:IF NOT EXISTS )?$"
)
_NO_FUNCTION: Final = frozenset(
    {
        *(
            "",
            "ALL",
            "AND",
            "AS",
            "BY",
            "EXCEPT",
            "EXISTS",
            "FROM",
            "HAVING",
            "IN",
            "INTERSECT",
            "JOIN",
            "LATERAL",
            "NAME",
            "NOT",
        ),
        *("ON", "OR", "SELECT", "STREAM", "UNION", "WHERE"),
    }
)
"""Words before a bracket that begins no arguments of a function."""

_ENDS_TABLES: Final = frozenset({"SELECT", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "WINDOW", "UNION", "QUALIFY"})


@dataclass(frozen=True)
class SqlRead:
    """A table that a query reads; `is_stream`: as a stream."""

    table: str
    is_stream: bool


@dataclass(frozen=True)
class SqlDefinition:
    """A statement of a SQL file.

    Attributes:
        kind: `STREAMING_TABLE`, `MATERIALIZED_VIEW`, `VIEW`, or `FLOW`.
        name: of the table, view or flow. `target`: the table that its rows go to.
        line: of its first word, from 1.
    """

    kind: str
    name: str
    target: str
    line: int
    reads: tuple[SqlRead, ...]


@dataclass(frozen=True)
class _Word:
    text: str
    line: int
    is_name: bool = False

    @property
    def key(self) -> str:
        """Return the word for comparison with Spark's own words."""
        return "" if self.text.startswith("`") else self.text.upper()

    @property
    def plain(self) -> str:
        """Return the word as a name."""
        return self.text[1:-1].replace("``", "`") if self.text.startswith("`") else self.text


def sql_definitions(text: str) -> list[SqlDefinition]:
    """Return what the statements of a file define; other statements, such as SET, define nothing."""
    definitions = [_definition(statement) for statement in _statements(text)]
    return [definition for definition in definitions if definition is not None]


def place_of_error(text: str, message: str) -> tuple[int, str]:
    """Return line and table of a syntax error in a file, 0 and "" when they are not found.

    Spark counts lines from the last semicolon on, and shows the wrong line above a row of ^.
    """
    shown = re.search(r"^(.*)\n *\^\^\^", message, re.MULTILINE)
    lines = [line.strip() for line in text.replace(";", " ").splitlines()]
    wrong = shown[1].strip() if shown else ""
    if not wrong or lines.count(wrong) != 1:
        return 0, ""
    number = lines.index(wrong) + 1
    above = [definition.name for definition in sql_definitions(text) if definition.line <= number]
    return number, above[-1] if above else ""


def tables_read(query: str) -> tuple[SqlRead, ...]:
    """Return the tables that a query reads, by the last part of their names."""
    return tuple(read for statement in _statements(query) for read in _reads(statement))


def _statements(text: str) -> Iterator[list[_Word]]:
    statement: list[_Word] = []
    line = 1
    for match in _WORD.finditer(text):
        kind, word = match.lastgroup, match[0]
        if word == ";":
            yield statement
            statement = []
        elif kind != "left_out":
            statement.append(_Word(word, line, kind in ("name", "quoted")))
        line += word.count("\n")
    yield statement


def _definition(words: Sequence[_Word]) -> SqlDefinition | None:
    begin = ""
    for place, word in enumerate(words):
        match = _CREATE.match(begin)
        if match and word.is_name and word.key != "IF":
            kind = VIEW if match["kind"].endswith(" VIEW") and "MATERIALIZED" not in match["kind"] else match["kind"]
            name, after = _name_at(words, place)
            target = _target(words, after) if kind == FLOW else name
            return SqlDefinition(kind, name, target, words[0].line, tuple(_reads(words[after:])))
        begin += f"{word.key} "
    return None


def _target(words: Sequence[_Word], begin: int) -> str:
    for place in range(begin, len(words) - 1):
        if words[place].key == "INTO":
            return _name_at(words, place + 1)[0]
    return ""


def _name_at(words: Sequence[_Word], place: int) -> tuple[str, int]:
    """Return the last part of the name that begins here, and the place after it."""
    while place + 2 < len(words) and words[place + 1].text == "." and words[place + 2].is_name:
        place += 2
    return words[place].plain, place + 1


def _reads(words: Sequence[_Word]) -> Iterator[SqlRead]:
    own = {words[at].plain for at in range(len(words) - 2) if words[at + 1].key == "AS" and words[at + 2].text == "("}
    is_call, has_tables = [False], [False]  # of each open bracket
    is_awaited = is_stream = False
    place, last = 0, ""
    while place < len(words):
        word = words[place]
        place += 1
        if word.text == "(":
            is_call.append(last not in _NO_FUNCTION)
            has_tables.append(False)
        elif word.text == ")":
            if len(is_call) > 1:
                is_call.pop()
                has_tables.pop()
            is_awaited = False
        elif word.key in ("FROM", "JOIN"):
            is_awaited, is_stream = not is_call[-1], False
            has_tables[-1] = is_awaited
        elif word.text == ",":
            is_awaited, is_stream = has_tables[-1], False
        elif word.key in _ENDS_TABLES or word.key == "WITH":
            is_awaited = has_tables[-1] = False
        elif is_awaited and word.key == "STREAM":
            is_stream = True
        elif is_awaited and word.is_name and word.key != "LATERAL":
            name, place = _name_at(words, place - 1)
            is_awaited = False
            if name not in own and not (place < len(words) and words[place].text == "("):
                yield SqlRead(name, is_stream)
        last = word.key if word.is_name else ""
        if word.is_name and not word.key:
            last = word.text
