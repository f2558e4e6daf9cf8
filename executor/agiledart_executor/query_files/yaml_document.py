"""YAML documents whose values have places, read by PyYAML's composer: no value becomes an object of Python by its tag."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from agiledart_executor.query_files.text_place import TextPlace
from agiledart_kernel.errors import ConfigurationError

MAX_DEPTH = 20
MAX_VALUES = 20_000
"""Values of a document; more come from aliases within aliases."""


@dataclass(frozen=True)
class YamlValue:
    """Value of a document: a text (numbers and truth values are texts, too), a list, or a mapping.

    Attributes:
        place: where it begins; of a quoted text, that of its first character.
        is_null: the document leaves the value empty.
    """

    value: "str | list[YamlValue] | Mapping[str, YamlValue]"
    place: TextPlace
    is_null: bool = False

    def text(self, what: str) -> str:
        """Return a text; refuse another value."""
        if not isinstance(self.value, str) or self.is_null:
            self.place.refuse(f"{what} is a text")
        return self.value

    def items(self, what: str) -> "list[YamlValue]":
        """Return a list; refuse another value."""
        if not isinstance(self.value, list):
            self.place.refuse(f"{what} is a list: a line for each, beginning with -")
        return self.value

    def mapping(self, what: str, known: tuple[str, ...] = ()) -> "Mapping[str, YamlValue]":
        """Return a mapping; refuse another value, and keys that are not known (when there are known ones)."""
        if not isinstance(self.value, Mapping):
            self.place.refuse(f"{what} is a mapping: lines `key: value`")
        for key, value in self.value.items():
            if known and key not in known:
                close = get_close_matches(key, known, 1)
                meant = f" Did you mean {close[0]}?" if close else ""
                value.place.refuse(f"{what} has no {key}.{meant} It has {', '.join(known)}")
        return self.value

    def __iter__(self) -> "Iterator[YamlValue]":
        return iter(self.value) if isinstance(self.value, list) else iter(())


def read_yaml(text: str, start: TextPlace) -> YamlValue:
    """Return the document of a text. Raises `QueryFileError`."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise ConfigurationError(
            "YAML applications need PyYAML and sqlglot where they are submitted:  pip install 'agiledart[query]'"
        ) from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = start if mark is None else start.moved(mark.line + 1, mark.column + 1)
        place.refuse(f"is not YAML: {error.problem or error.context}")
    except (yaml.YAMLError, RecursionError) as error:
        start.refuse(f"is not YAML: {str(error).splitlines()[0]}")
    if node is None:
        start.refuse("the file is empty")
    return _Reader(start).value(node, 0)


class _Reader:
    def __init__(self, start: TextPlace) -> None:
        self._start, self._values = start, 0

    def value(self, node: Any, depth: int) -> YamlValue:
        place = self._start.moved(node.start_mark.line + 1, node.start_mark.column + 1)
        self._values += 1
        if depth > MAX_DEPTH or self._values > MAX_VALUES:
            place.refuse("the document is nested too deeply, or too large")
        if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.startswith("tag:yaml.org,2002:python"):
            place.refuse(f"tags such as {node.tag} are not read")
        if node.id == "scalar":
            if node.style in ('"', "'"):
                place = TextPlace(place.file, place.line, place.column + 1)
            return YamlValue(node.value, place, node.tag.endswith(":null") and node.style is None)
        if node.id == "sequence":
            return YamlValue([self.value(item, depth + 1) for item in node.value], place)
        values: dict[str, YamlValue] = {}
        for key_node, value_node in node.value:
            key = self.value(key_node, depth + 1)
            name = key.text("a key")
            if name in values:
                key.place.refuse(f"the key {name} stands twice")
            values[name] = self.value(value_node, depth + 1)
        return YamlValue(values, place)
