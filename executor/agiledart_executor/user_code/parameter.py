"""Parameters of a user's builder function, as users write them on a command line.

`--set name=value` is parsed by the parameter's annotation, or by the type of its default. Sources and sinks are written as URLs
(`csv:trips.csv.gz?speed=60@pi2`).
"""

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.spans import parse_span

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True)
class Parameter:
    """Parameter of a builder function.

    Attributes:
        name: of the parameter.
        annotation: its type; `Any` when neither annotation nor default shows it.
        default: `inspect.Parameter.empty` when a value is required.
    """

    name: str
    annotation: Any
    default: Any

    @property
    def is_required(self) -> bool:
        """True when the builder cannot be called without a value."""
        return self.default is inspect.Parameter.empty


def parameters_of(builder: Callable[..., object]) -> dict[str, Parameter]:
    """Return the parameters of a builder by name, in order; `*args` and `**kwargs` are left out."""
    try:
        hints = get_type_hints(builder)
    except Exception:  # noqa: BLE001  user code: an annotation may name an import for type checkers only
        hints = {}
    parameters = {}
    for name, parameter in inspect.signature(builder).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        annotation = hints.get(name, Any)
        if annotation is Any and parameter.default not in (parameter.empty, None):
            annotation = type(parameter.default)
        parameters[name] = Parameter(name, annotation, parameter.default)
    return parameters


def parse_settings(texts: list[str] | tuple[str, ...]) -> dict[str, str]:
    """Parse `["trips=csv:a.csv", …]` into a mapping; the last value of a name counts. Raises `ConfigurationError`."""
    settings: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise ConfigurationError(f"--set {text}: write --set NAME=VALUE, for example --set trips=csv:trips.csv.gz")
        settings[name.strip()] = value
    return settings


def check_names(where: str, known: Mapping[str, Parameter], settings: Mapping[str, str]) -> None:
    """Raise `ConfigurationError` for a setting that no parameter takes and for a parameter that nothing sets."""
    for name in settings:
        if name not in known:
            close = get_close_matches(name, known, 1)
            meant = f" Did you mean {close[0]}?" if close else ""
            takes = f"Parameters: {', '.join(known)}" if known else "It takes no parameters"
            raise ConfigurationError(f"--set {name}=…: {where} has no such parameter.{meant} {takes}.")
    missing = [name for name, parameter in known.items() if parameter.is_required and name not in settings]
    if missing:
        examples = " ".join(f"--set {name}=…" for name in missing)
        raise ConfigurationError(f"{where} needs {_and(missing)}, which nothing sets:  {examples}")


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def parse_value(name: str, annotation: Any, text: str) -> Any:
    """Return the value of `--set name=text`. Raises `ConfigurationError`, which names the allowed values."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return _of_union(name, annotation, text)
    if origin is Literal:
        return _of_choices(name, {str(value): value for value in get_args(annotation)}, text)
    if origin in (list, tuple):
        inner = (get_args(annotation) or (str,))[0]
        return origin(parse_value(name, inner, part.strip()) for part in text.split(",")) if text.strip() else origin()
    if isinstance(annotation, type):
        if issubclass(annotation, Enum):
            choices = {member.name.lower(): member for member in annotation}
            choices.update((str(member.value).lower(), member) for member in annotation)
            return _of_choices(name, choices, text.lower())
        for kind, (parse, example) in _SCALARS.items():
            if annotation is kind:
                try:
                    return parse(text)
                except (ValueError, OverflowError):
                    raise ConfigurationError(f"--set {name}={text}: {name} is {example}.") from None
    return text


def _of_union(name: str, annotation: Any, text: str) -> Any:
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    if len(kinds) < len(get_args(annotation)) and text.lower() in ("none", ""):
        return None
    for kind in kinds:
        try:
            return parse_value(name, kind, text)
        except ConfigurationError:
            if kind is kinds[-1]:
                raise
    return text


def _of_choices(name: str, choices: Mapping[str, Any], text: str) -> Any:
    if text not in choices:
        raise ConfigurationError(f"--set {name}={text}: {name} is one of {', '.join(choices)}.")
    return choices[text]


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError(text)


_SCALARS: dict[type, tuple[Callable[[str], Any], str]] = {
    bool: (_boolean, "true or false"),
    int: (int, "a whole number"),
    float: (float, "a number"),
    timedelta: (parse_span, "a time span such as 30m, 1h30m, 10s or 250ms, with its unit"),
    datetime: (datetime.fromisoformat, "a time such as 2013-01-07T08:00:00"),
    Path: (Path, "a path"),
}
