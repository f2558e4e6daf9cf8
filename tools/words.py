"""Count the words that keep a stranger out: house words in names, inverted sentences, shared class names, probes.

`python -m tools.words` prints one table; `python -m tools.words --where house` lists the places behind a row.
`tools/words.toml` holds the house words, the identifiers that may keep one, and the highest count of each package in each row.
A highest count may only fall; `tests/tidy/test_words.py` compares.
"""

import ast
import functools
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tools import tidy

_SUBWORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_SENTENCE_END = re.compile(r"(?<=[.:;!?])\s+|\n\s*\n")
_INVERTED = re.compile(
    r"^(?:Who|What)\b|\bwho\b(?!-may\.md)|\b(?:nobody|somebody|told|whence|shall)\b|\blet go\b|\blets go of\b",
    re.IGNORECASE,
)
_OBJECTLESS = re.compile(
    r"^(?:Who|What|Of|Whose|Whom|That|Where|When|How|Whether|For|By|With|As|In|At|On|From|To|Until|After|Before)\b"
)
_PROSE = re.compile(r"\w+\s+\w+")


class Place(NamedTuple):
    """One finding: where it stands, and the text that was counted."""

    package: str
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {self.text}"


def settings(root: Path) -> dict[str, Any]:
    """The document in `tools/words.toml`."""
    return tomllib.loads((root / "tools" / "words.toml").read_text())


def package_of(path: str) -> str:
    """The component root that a file belongs to."""
    return path.split("/")[0]


class _Syntax(NamedTuple):
    """Docstrings, classes and functions of one file, each with its line; of a class its length, too."""

    docstrings: list[tuple[int, str]]
    classes: list[tuple[int, str, int]]
    functions: list[tuple[int, str]]


@functools.cache
def _syntax(text: str) -> _Syntax:
    """Parse a file once for all counts; strings after fields and constants are docstrings, too."""
    syntax = _Syntax([], [], [])
    for node in tidy.statements(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            syntax.docstrings.append((node.lineno, node.value.value))
        elif isinstance(node, ast.ClassDef):
            syntax.classes.append((node.lineno, node.name, tidy.lines_of(node)))
        elif isinstance(node, ast.FunctionDef):
            syntax.functions.append((node.lineno, node.name))
    return syntax


class _Tokens(NamedTuple):
    """Faulty identifiers and sentences of one file, each with its line."""

    names: list[tuple[int, str]]
    inverted: list[tuple[int, str]]


@functools.cache
def _tokens(text: str, words: frozenset[str], names: frozenset[str]) -> _Tokens:
    """Read the tokens of a file once for all counts."""
    tokens = _Tokens([], [])
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            if token.string in names or _parts(token.string) & words:
                tokens.names.append((token.start[0], token.string))
        elif token.type in (tokenize.COMMENT, tokenize.STRING):
            prose = token.string.strip("#\"' fFrRbB")
            tokens.inverted.extend((token.start[0], sentence) for sentence in _inverted(prose))
    return tokens


def _tokens_of_files(root: Path) -> Iterator[tuple[str, _Tokens]]:
    document = settings(root)
    words, names = frozenset(document["parts"]), frozenset(document["names"])
    for path, text in tidy.python_texts(root):
        yield path, _tokens(text, words, names)


def _identifiers(root: Path) -> Iterator[Place]:
    """Identifiers with a house word, or that say nothing; without those of tests, which are of no interest to users."""
    for path, tokens in _tokens_of_files(root):
        if not path.startswith("tests/"):
            yield from (Place(package_of(path), path, line, name) for line, name in tokens.names)


@functools.cache
def _parts(name: str) -> frozenset[str]:
    return frozenset(part.lower() for part in _SUBWORD.findall(name))


def house_words(root: Path) -> list[Place]:
    """Identifiers that contain a house word and are not on the list of exceptions."""
    document = settings(root)
    words, allowed = set(document["parts"]), {name for names in document["allowed"].values() for name in names}
    return [place for place in _identifiers(root) if place.text not in allowed and _parts(place.text) & words]


def empty_names(root: Path) -> list[Place]:
    """Identifiers that say nothing: `one`, `found`, `each` …"""
    names = set(settings(root)["names"])
    return [place for place in _identifiers(root) if place.text in names]


def test_names(root: Path) -> list[Place]:
    """Names of tests that contain a house word or an inverted pattern."""
    words = set(settings(root)["parts"]) | {"what", "whatever", "whoever"}
    return [
        Place(package_of(path), path, line, name)
        for path, text in tidy.python_texts(root, ("tests",))
        for line, name in _syntax(text).functions
        if name.startswith("test_") and _parts(name) & words
    ]


def first_lines(root: Path) -> list[Place]:
    """First lines of docstrings, product code only."""
    return [
        Place(package_of(path), path, line, text.strip().split("\n")[0])
        for path, source in _product_texts(root)
        for line, text in _syntax(source).docstrings
    ]


def inverted_docstrings(root: Path) -> list[Place]:
    """Docstrings that begin with Who, What or Of."""
    return [place for place in first_lines(root) if re.match(r"(?:Who|What|Of)\b", place.text)]


def subjectless(root: Path) -> list[Place]:
    """First lines of docstrings that begin with a clause or a preposition, so that the subject comes late or never."""
    return [place for place in first_lines(root) if _OBJECTLESS.match(place.text)]


def _sentences(text: str) -> Iterator[str]:
    for sentence in _SENTENCE_END.split(text):
        if _PROSE.search(sentence):
            yield " ".join(sentence.split())


def _inverted(text: str) -> list[str]:
    """Sentences of a text that have an inverted pattern."""
    return [sentence[:100] for sentence in _sentences(text) if _INVERTED.search(sentence)]


def inverted_sentences(root: Path) -> list[Place]:
    """Sentences of docstrings, comments, messages and pages that have an inverted pattern."""
    places = [
        Place(package_of(path), path, line, sentence)
        for path, tokens in _tokens_of_files(root)
        for line, sentence in tokens.inverted
    ]
    for page in tidy.tracked_files(root, ".md"):
        path = str(page.relative_to(root))
        for number, line in enumerate(page.read_text().splitlines(), 1):
            places += [Place(package_of(path), path, number, sentence) for sentence in _inverted(line)]
    return places


def _product_texts(root: Path) -> Iterator[tuple[str, str]]:
    return tidy.python_texts(root, tuple(tidy.component_roots(root)))


def _classes(root: Path) -> Iterator[tuple[str, int, str, int]]:
    """Path, line, name and length of every class of the product."""
    for path, text in _product_texts(root):
        yield from ((path, *place) for place in _syntax(text).classes)


def shared_class_names(root: Path) -> list[Place]:
    """Class names that several classes bear, one place for each name."""
    allowed = settings(root)["classes"]
    bearers: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path, line, name, _ in _classes(root):
        bearers[name].append((path, line))
    return [
        Place(package_of(places[0][0]), *places[0], f"{name} ({len(places)}: {', '.join(path for path, _ in places)})")
        for name, places in sorted(bearers.items())
        if len(places) > 1 and name not in allowed
    ]


def large_classes(root: Path) -> list[Place]:
    """Classes with more lines than one idea needs, their docstrings left out."""
    return [
        Place(package_of(path), path, line, f"{name} ({length} lines)")
        for path, line, name, length in _classes(root)
        if length > tidy.MAX_CLASS_LINES
    ]


def probes(root: Path) -> list[Place]:
    """Calls of `getattr` and `hasattr`: what an object can do is guessed there, not declared."""
    return [
        Place(package_of(path), path, node.lineno, ast.unparse(node)[:100])
        for path, text in _product_texts(root)
        if "getattr(" in text or "hasattr(" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr")
    ]


COUNTS: dict[str, Callable[[Path], list[Place]]] = {
    "house": house_words,
    "names": empty_names,
    "tests": test_names,
    "docstrings": inverted_docstrings,
    "subjectless": subjectless,
    "sentences": inverted_sentences,
    "classes": shared_class_names,
    "large": large_classes,
    "probes": probes,
}
"""Name of a row → the places that it counts."""


def by_package(places: list[Place]) -> Counter[str]:
    """How many places each package has."""
    return Counter(place.package for place in places)


def main(arguments: list[str]) -> int:
    """Print the table, or with `--where ROW` the places behind one row."""
    root = Path(__file__).resolve().parent.parent
    if arguments[:1] == ["--where"] and len(arguments) == 2 and arguments[1] in COUNTS:
        for place in COUNTS[arguments[1]](root):
            print(place)
        return 0
    if arguments:
        print(f"usage: python -m tools.words [--where {'|'.join(COUNTS)}]", file=sys.stderr)
        return 2
    for name, count in COUNTS.items():
        places = count(root)
        largest = ", ".join(f"{package} {number}" for package, number in by_package(places).most_common(6))
        print(f"{name:12} {len(places):6}  {(count.__doc__ or '').splitlines()[0]}  [{largest}]")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
