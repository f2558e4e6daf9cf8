"""The type of a log's field, as the text that its writer left, becomes a tree: `list[tuple[str, int]] | None`.

The grammar is what `agiledart_dataflow.schema.type_text` writes; the text is parsed, never evaluated.
"""

from dataclasses import dataclass, replace
from typing import Final

from agiledart_kernel.errors import ConfigurationError

SCALARS: Final = (
    *("str", "int", "float", "bool", "bytes", "datetime", "date", "time", "timedelta", "Decimal", "ReadTime"),
)
MAX_DEPTH: Final = 32


@dataclass(frozen=True)
class FieldType:
    """A parsed type.

    Attributes:
        name: one of `SCALARS`, or `list`, `dict`, `struct`.
        nullable: None may stand here.
        parts: (name, type) of a struct's fields; of a list's element or a dictionary's key and value the names are "".
    """

    name: str
    nullable: bool = False
    parts: tuple[tuple[str, "FieldType"], ...] = ()


def parse_type(text: str) -> FieldType:
    """The tree of a type's text. Raises `ConfigurationError` for one that no column can hold."""
    parser = _Parser(text)
    found = parser.union(0)
    parser.expect("")
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def union(self, depth: int) -> FieldType:
        """`A | B`: one type besides None, or numbers of both kinds."""
        if depth > MAX_DEPTH:
            raise self._wrong("is nested too deeply")
        terms = [self._term(depth)]
        while self._take("|"):
            terms.append(self._term(depth))
        there = list(dict.fromkeys(term for term in terms if term.name != "None"))
        nullable = len(there) < len(terms) and any(term.name == "None" for term in terms)
        if {term.name for term in there} == {"int", "float"}:
            there = [FieldType("float")]
        if len(there) != 1:
            raise self._wrong("has no type in Spark: a column holds one kind of value")
        return replace(there[0], nullable=nullable or there[0].nullable)

    def expect(self, mark: str) -> None:
        """The next sign, or the end."""
        if not (self._take(mark) if mark else self._at == len(self._text)):
            raise self._wrong(f"is not understood at position {self._at}")

    def _term(self, depth: int) -> FieldType:
        name = self._name()
        if name in ("Literal", "None") or name in SCALARS:
            return self._choice("[", "]") if name == "Literal" else FieldType(name)
        if name in ("list", "set", "frozenset", "tuple", "dict") and self._take("["):
            return self._container(name, depth)
        if self._text.startswith("(", self._at):
            return self._named(depth)
        raise self._wrong(f"names {name or 'nothing'}, which Spark has no column for")

    def _container(self, name: str, depth: int) -> FieldType:
        parts: list[FieldType] = []
        endless = False
        while not self._take("]"):
            if parts:
                self.expect(",")
            if self._text.startswith("...", self._skip()):
                self._at, endless = self._at + 3, True
                continue
            parts.append(self.union(depth + 1))
        if name == "dict" and len(parts) == 2:
            return FieldType("dict", parts=(("", parts[0]), ("", parts[1])))
        if name == "tuple" and not endless:
            return FieldType("struct", parts=tuple((f"_{index}", part) for index, part in enumerate(parts, 1)))
        if name != "dict" and len(parts) == 1:
            return FieldType("list", parts=(("", parts[0]),))
        raise self._wrong(f"has a {name} of {len(parts)}")

    def _named(self, depth: int) -> FieldType:
        """`Name(field: type, …)`, or the values of an Enum."""
        beginning = self._at
        self.expect("(")
        parts: list[tuple[str, FieldType]] = []
        while not self._take(")"):
            if parts:
                self.expect(",")
            field = self._name()
            if self._text.startswith("=", self._at):
                self._at = beginning
                return self._choice("(", ")")
            self.expect(":")
            parts.append((field, self.union(depth + 1)))
        if not parts:
            raise self._wrong("has a row without fields")
        return FieldType("struct", parts=tuple(parts))

    def _choice(self, opening: str, closing: str) -> FieldType:
        """Values written out, all texts or all whole numbers: columns of these."""
        self.expect(opening)
        kinds: list[str] = []
        while not self._take(closing):
            if kinds:
                self.expect(",")
            name = self._at
            self._name()
            if not self._take("="):
                self._at = name
            kinds.append(self._value())
        if len(dict.fromkeys(kinds)) != 1:
            raise self._wrong("mixes texts and numbers")
        return FieldType(kinds[0])

    def _value(self) -> str:
        start = self._skip()
        quote = self._text[start : start + 1]
        if quote in ("'", '"') and quote:
            end = start + 1
            while end < len(self._text) and self._text[end] != quote:
                end += 2 if self._text[end] == "\\" else 1
            self._at = end + 1
            return "str"
        end = start
        while end < len(self._text) and (self._text[end].isdigit() or self._text[end] == "-"):
            end += 1
        if end == start:
            raise self._wrong("has values that are neither texts nor whole numbers")
        self._at = end
        return "int"

    def _name(self) -> str:
        start = end = self._skip()
        while end < len(self._text) and (self._text[end].isalnum() or self._text[end] == "_"):
            end += 1
        self._at = end
        return self._text[start:end]

    def _skip(self) -> int:
        while self._at < len(self._text) and self._text[self._at] == " ":
            self._at += 1
        return self._at

    def _take(self, mark: str) -> bool:
        if self._text.startswith(mark, self._skip()) and self._at < len(self._text):
            self._at += len(mark)
            return True
        return False

    def _wrong(self, what: str) -> ConfigurationError:
        return ConfigurationError(f"the type {self._text[:200]!r} {what}")
