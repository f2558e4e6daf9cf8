"""Reader of JSON documents: every error names the file, the place in it and the value."""

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from math import inf, isfinite
from typing import Any, NoReturn

from agiledart_kernel.errors import ConfigurationError


def parse_json(text: str | bytes, file: str) -> Any:
    """Return the value of a JSON text. Raises ConfigurationError, with line and column."""
    try:
        return json.loads(text)
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file}: it is no text in UTF-8.") from None
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{file}:{error.lineno}:{error.colno}: it is no JSON: {error.msg}.") from None
    except RecursionError:
        raise ConfigurationError(f"{file}: it is nested too deeply.") from None


class DocumentReader:
    """One object of a document. Keys that no method has asked for are an error of `end`.

    Args:
        value: the object.
        file: for messages.
        place: of the object in the file, such as `nodes[2]`; empty: the whole.
    """

    def __init__(self, value: object, file: str, place: str = "") -> None:
        self.file, self.place = file, place
        if not isinstance(value, Mapping):
            self.fail("", value, "expected an object {…}")
        self._value: Mapping[str, Any] = value
        self._asked: dict[str, bool] = {}

    def fail(self, key: str, value: object, why: str) -> NoReturn:
        """Raise ConfigurationError about a key of this object."""
        place = ".".join(part for part in (self.place, key) if part) or "document"
        shown = json.dumps(value, default=str)
        raise ConfigurationError(f"{self.file}: {place} = {shown[:60]}: {why}.")

    def has(self, key: str) -> bool:
        """Return whether a key is there and not null."""
        self._asked[key] = True
        return self._value.get(key) is not None

    def value(self, key: str) -> Any:
        """Return a value as it stands; None when the key is missing."""
        self._asked[key] = True
        return self._value.get(key)

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text; without default the key must be there and not empty."""
        value = self.value(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or (not value and default is None):
            self.fail(key, value, "expected a text")
        return value

    def number(self, key: str, default: float | None = None, least: float = 0.0, most: float = inf) -> float:
        """Return a finite number between two bounds; without default the key must be there."""
        value = self.value(key)
        if value is None and default is not None:
            return default
        return self._checked(key, value, least, most)

    def optional(self, key: str) -> float | None:
        """Return a number that is not negative; None when the key is missing or null."""
        return self.number(key) if self.has(key) else None

    def _checked(self, key: str, value: object, least: float, most: float) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            self.fail(key, value, "expected a number")
        if not least <= value <= most:
            wanted = f"at least {least:g}" if most == inf else f"{least:g} to {most:g}"
            self.fail(key, value, f"expected a number, {wanted}")
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self.value(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fail(key, value, "expected true or false")
        return value

    def amounts(self, key: str) -> dict[str, float]:
        """Return an object of numbers that are not negative; empty when the key is missing."""
        value = self.value(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.fail(key, value, "expected an object of numbers")
        return {str(name): self._checked(f"{key}.{name}", amount, 0.0, inf) for name, amount in value.items()}

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; empty when the key is missing."""
        value = self.value(key)
        if value is None:
            return ()
        if not isinstance(value, Sequence) or isinstance(value, str) or any(not isinstance(t, str) for t in value):
            self.fail(key, value, "expected a list of texts")
        return tuple(value)

    def point(self, key: str) -> tuple[float, float, float] | None:
        """Return three numbers; None when the key is missing."""
        value = self.value(key)
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 3:
            self.fail(key, value, "expected three numbers")
        x, y, z = (self._checked(f"{key}[{n}]", number, -inf, inf) for n, number in enumerate(value))
        return x, y, z

    def objects(self, key: str, *, is_needed: bool = False) -> Iterator["DocumentReader"]:
        """Yield a reader of each object of a list; none when the key is missing."""
        value = self.value(key)
        if value is None and not is_needed:
            return
        if not isinstance(value, list):
            self.fail(key, value, "expected a list")
        place = f"{self.place}.{key}" if self.place else key
        for number, item in enumerate(value):
            yield DocumentReader(item, self.file, f"{place}[{number}]")

    def object(self, key: str) -> "DocumentReader | None":
        """Return a reader of an object; None when the key is missing or null."""
        value = self.value(key)
        place = f"{self.place}.{key}" if self.place else key
        return None if value is None else DocumentReader(value, self.file, place)

    def named(self, key: str, names: Mapping[str, Any], value: str, kind: str) -> str:
        """Return `value`, which must be one of these names; suggest the closest otherwise."""
        if value not in names:
            close = get_close_matches(value, names, 1)
            meant = f"; did you mean {close[0]}" if close else ""
            self.fail(key, value, f"there is no {kind} of this name{meant}")
        return value

    def end(self) -> None:
        """Refuse keys that were not asked for."""
        for key, value in self._value.items():
            if key not in self._asked:
                close = get_close_matches(key, self._asked, 1)
                meant = f"did you mean {close[0]}" if close else f"known keys are {', '.join(self._asked)}"
                self.fail(key, value, f"unknown key; {meant}")
