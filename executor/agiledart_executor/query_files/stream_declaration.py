"""`CREATE STREAM name (column TYPE, …) WITH (source='…')`: parsed from tokens, because sqlglot does not know it."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agiledart_dataflow.plan.connectors import Connector, parse_connector
from agiledart_executor.query_files.application_code import is_identifier
from agiledart_executor.query_files.column_types import ColumnType, TypeName
from agiledart_executor.query_files.source_options import SOURCE_OPTIONS, option_code
from agiledart_executor.query_files.sql_text import SqlText
from agiledart_executor.query_files.text_place import TextPlace
from agiledart_kernel.errors import ConfigurationError

TYPES: Final[dict[str, TypeName]] = {
    **dict.fromkeys(("INT", "INTEGER", "BIGINT", "SMALLINT", "TINYINT"), "int"),
    **dict.fromkeys(("DOUBLE", "FLOAT", "REAL"), "float"),
    **dict.fromkeys(("TEXT", "VARCHAR", "STRING", "CHAR"), "text"),
    **dict.fromkeys(("BOOLEAN", "BOOL"), "bool"),
    **dict.fromkeys(("TIMESTAMP", "DATETIME"), "time"),
}

OPTIONS: Final = ("source", "sink", *SOURCE_OPTIONS)


@dataclass(frozen=True)
class StreamDeclaration:
    """Declared source or sink.

    Attributes:
        place: of its name.
        columns: name → type; empty for a sink.
        options: of WITH, and the place of each value.
    """

    name: str
    place: TextPlace
    columns: Mapping[str, ColumnType]
    options: Mapping[str, tuple[str, TextPlace]] = field(default_factory=dict)

    @property
    def is_sink(self) -> bool:
        """True for `WITH (sink='…')`."""
        return "sink" in self.options

    @property
    def time(self) -> str:
        """Return the column of the event time; empty when rows have none."""
        return self.options.get("event_time", ("", self.place))[0]

    def connector(self) -> Connector:
        """Return the source or sink that the URL describes."""
        text, place = self.options["sink" if self.is_sink else "source"]
        try:
            return parse_connector(text)
        except ConfigurationError as error:
            place.refuse(str(error))

    def source_options(self) -> dict[str, ast.expr]:
        """Return the arguments of `topology.source` as code."""
        return {
            name: option_code(name, text, place)
            for name, (text, place) in self.options.items()
            if name in SOURCE_OPTIONS and name != "event_time"
        }


class DeclarationParser:
    """Parser of one `CREATE STREAM`."""

    def __init__(self, text: SqlText, tokens: list[Any]) -> None:
        self._text, self._tokens, self._next = text, tokens, 2

    def parse(self) -> StreamDeclaration:
        """Return the declaration. Raises `QueryFileError`."""
        name, place = self._identifier("the name of the stream")
        columns: dict[str, ColumnType] = {}
        if self._is("("):
            self._next += 1
            while True:
                self._add_column(columns)
                if not self._is(","):
                    break
                self._next += 1
            self._expect(")")
        options = self._options()
        if self._next < len(self._tokens):
            self._refuse("the statement is complete before this")
        return _checked(StreamDeclaration(name, place, columns, options))

    def _add_column(self, columns: dict[str, ColumnType]) -> None:
        name, place = self._identifier("the name of a column")
        if name in columns:
            place.refuse(f"there are two columns {name}")
        kind = self._token("a type").text.upper()
        if kind not in TYPES:
            self._next -= 1
            self._refuse(f"there is no type {kind}; there are {', '.join(TYPES)}")
        while self._is("("):  # the length of a VARCHAR says nothing here
            while not self._is(")"):
                self._token(")")
            self._next += 1
        nullable = True
        if self._is("NOT"):
            self._next += 1
            self._expect("NULL")
            nullable = False
        columns[name] = ColumnType(TYPES[kind], nullable)

    def _options(self) -> dict[str, tuple[str, TextPlace]]:
        options: dict[str, tuple[str, TextPlace]] = {}
        self._expect("WITH")
        self._expect("(")
        while True:
            place = self._place()
            name = self._token("an option").text.lower()
            if name not in OPTIONS:
                place.refuse(f"there is no option {name}; there are {', '.join(OPTIONS)}")
            if name in options:
                place.refuse(f"the option {name} stands twice")
            self._expect("=")
            value_place, token = self._place(), self._token("a text in quotes")
            if token.token_type.name != "STRING":
                value_place.refuse("a text in single quotes is needed")
            options[name] = (token.text, value_place)
            if not self._is(","):
                break
            self._next += 1
        self._expect(")")
        return options

    def _identifier(self, what: str) -> tuple[str, TextPlace]:
        place = self._place()
        name = self._token(what).text
        if not is_identifier(name):
            place.refuse(f"{name!r} cannot be {what}: letters, digits and _, beginning with a letter, no reserved word")
        return name, place

    def _token(self, what: str) -> Any:
        if self._next >= len(self._tokens):
            self._refuse(f"{what} is missing")
        self._next += 1
        return self._tokens[self._next - 1]

    def _is(self, text: str) -> bool:
        return self._next < len(self._tokens) and self._tokens[self._next].text.upper() == text

    def _expect(self, text: str) -> None:
        if not self._is(text):
            self._refuse(f"{text} is expected here")
        self._next += 1

    def _place(self) -> TextPlace:
        token = self._tokens[min(self._next, len(self._tokens) - 1)]
        return self._text.place_of_token(token)

    def _refuse(self, text: str) -> None:
        self._place().refuse(text)


def _checked(declaration: StreamDeclaration) -> StreamDeclaration:
    """Return a declaration whose parts fit each other."""
    options, place = declaration.options, declaration.place
    if ("source" in options) == ("sink" in options):
        place.refuse(f"{declaration.name} needs source='…' or sink='…' in WITH, one of them")
    if declaration.is_sink:
        if declaration.columns:
            place.refuse(f"{declaration.name} is a sink: it takes the columns of what is inserted, and declares none")
        if wrong := [name for name in options if name != "sink"]:
            options[wrong[0]][1].refuse(f"{wrong[0]} is an option of sources")
        return declaration
    if not declaration.columns:
        place.refuse(f"{declaration.name} needs columns: CREATE STREAM {declaration.name} (at TIMESTAMP, …) WITH (…)")
    if not declaration.time:
        return declaration
    time_place = options["event_time"][1]
    kind = declaration.columns.get(declaration.time)
    if kind is None or kind.name not in ("time", "int"):
        time_place.refuse(
            f"event_time names a column of type TIMESTAMP, or BIGINT for milliseconds, not {declaration.time}"
        )
    columns = {**declaration.columns, declaration.time: ColumnType(kind.name, nullable=False)}
    return StreamDeclaration(declaration.name, place, columns, options)
