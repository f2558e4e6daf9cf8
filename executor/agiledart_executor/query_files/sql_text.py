"""SQL text: its tokens with their places, and statements parsed by sqlglot, whose own errors get a place, too."""

import logging
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from agiledart_executor.query_files.text_place import TextPlace
from agiledart_kernel.errors import ConfigurationError

_CLASS = re.compile(r"<class '(?:\w+\.)*(\w+)'>")
_TOKEN = re.compile(r" but got <Token .*")

MAX_TEXT = 200_000
"""Characters of a file of SQL or YAML."""


def _sqlglot() -> Any:
    try:
        import sqlglot
    except ModuleNotFoundError:
        raise ConfigurationError(
            "SQL and YAML applications need sqlglot and PyYAML where they are submitted:  pip install 'agiledart[query]'"
        ) from None
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of statements that are refused here, at their place
    return sqlglot


class SqlText:
    """Text of SQL that begins at a place of a file.

    Raises:
        QueryFileError: the text is not SQL, at its place.
    """

    def __init__(self, text: str, start: TextPlace) -> None:
        self.start = start
        if len(text) > MAX_TEXT:
            start.refuse(f"the text has {len(text):,} characters; at most {MAX_TEXT:,} are read")
        sqlglot = _sqlglot()
        self._text = text
        self._offsets = [0]
        for line in text.splitlines(keepends=True):
            self._offsets.append(self._offsets[-1] + len(line))
        try:
            self.tokens: list[Any] = sqlglot.tokenize(text)
        except sqlglot.errors.TokenError as error:
            start.refuse(f"is not SQL: {_first_line(error)}")
        for token, behind in pairwise(self.tokens):
            if token.text.upper() == "SESSION" and behind.token_type.name == "L_PAREN":
                token.token_type = sqlglot.TokenType.VAR  # a window here, not a setting of a session

    def place_of_offset(self, offset: int) -> TextPlace:
        """Return the place of a character."""
        line = max(number for number, begin in enumerate(self._offsets) if begin <= offset)
        return self.start.moved(line + 1, offset - self._offsets[line] + 1)

    def place_of_token(self, token: Any) -> TextPlace:
        """Return the place where a token begins."""
        return self.place_of_offset(token.start)

    def place_of_node(self, node: Any, otherwise: TextPlace) -> TextPlace:
        """Return the place of the first identifier below a node of a parsed statement, or of its nearest ancestor that has one."""
        ancestor = node
        while ancestor is not None:
            starts = [part.meta["start"] for part in ancestor.walk() if "start" in part.meta]
            if starts:
                return self.place_of_offset(min(starts))
            ancestor = ancestor.parent
        return otherwise

    def statements(self) -> list[list[Any]]:
        """Return the tokens of each statement, without semicolons."""
        statements: list[list[Any]] = [[]]
        for token in self.tokens:
            if token.token_type.name == "SEMICOLON":
                statements.append([])
            else:
                statements[-1].append(token)
        return [tokens for tokens in statements if tokens]

    def parse(self, tokens: Sequence[Any]) -> Any:
        """Return the syntax tree of a statement."""
        sqlglot = _sqlglot()
        try:
            trees = sqlglot.Parser(error_level=sqlglot.ErrorLevel.RAISE).parse(list(tokens), self._text)
        except sqlglot.errors.ParseError as error:
            detail = error.errors[0] if error.errors else {}
            place = self.place_of_token(tokens[0])
            if detail.get("highlight"):
                place = self.place_of_offset(self._highlighted(detail))
            place.refuse(f"is not SQL that is understood: {_readable(detail.get('description') or _first_line(error))}")
        except RecursionError:
            self.place_of_token(tokens[0]).refuse("is nested too deeply")
        return trees[0]

    def _highlighted(self, detail: dict[str, Any]) -> int:
        """Return the offset of the part that sqlglot highlights."""
        line, end = int(detail.get("line") or 1), int(detail.get("col") or 1)
        return max(0, self._offsets[min(line, len(self._offsets)) - 1] + end - len(detail["highlight"]))

    def expression(self) -> Any:
        """Return the syntax tree of a single expression.

        Raises:
            QueryFileError: it is none, or more than an expression.
        """
        if not self.tokens:
            self.start.refuse("an expression is missing")
        for token in self.tokens:
            if token.token_type.name == "SEMICOLON":
                self.place_of_token(token).refuse("is not one expression: a semicolon")
        sqlglot = _sqlglot()
        select = sqlglot.tokenize("SELECT")[0]
        tree = self.parse([select, *self.tokens])
        outside = [name for name, part in tree.args.items() if part and name not in ("expressions", "kind")]
        if tree.key != "select" or len(tree.expressions) != 1 or outside or tree.expressions[0].key == "alias":
            self.start.refuse(f"is not one expression: {self._text.strip()[:80]}")
        return tree.expressions[0]


def _readable(description: str) -> str:
    """Return a message of the parser without the objects of Python that it shows."""
    return _TOKEN.sub("", _CLASS.sub(r"\1", description))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["unreadable"])[0][:200]
