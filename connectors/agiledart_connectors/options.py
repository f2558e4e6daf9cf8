"""Options of connectors as their implementations want them, and what an application wants of a source."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from agiledart_connectors.source_origin import SourceOrigin
from agiledart_dataflow.data.lazy_module import import_at_once
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError

SIZES: Final = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
SPANS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class ReadOptions:
    """Form in which a caller wants rows.

    Attributes:
        columns: give columns, where they can be made without making rows first.
        wanted: for columns: fields that steps will use; None: all of them.
        may_begin: for columns: says whether lines may become columns by now.
        origin: the run and instance that read; None: a run of one process.
    """

    columns: bool = False
    wanted: frozenset[str] | None = None
    may_begin: Callable[[], bool] = import_at_once
    origin: SourceOrigin | None = None


def flag(connector: Connector, name: str) -> bool:
    """An option that is 0 or 1."""
    text = connector.option(name, "0")
    if text not in ("0", "1"):
        raise ConfigurationError(f"{connector.url()}: {name} is 0 or 1, not {text!r}")
    return text == "1"


def number(connector: Connector, name: str, default: int, least: int = 0, most: int = 1 << 40) -> int:
    """An option that is a whole number."""
    text = connector.option(name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise ConfigurationError(f"{connector.url()}: {name} is a number from {least:,} to {most:,}, not {text!r}")
    return int(text)


def check_options(connector: Connector, known: tuple[str, ...]) -> None:
    """Raise `ConfigurationError` for an option that is not known. A known one that ends in a dot stands for all that begin so."""
    families = tuple(name for name in known if name.endswith("."))
    for name, _ in connector.options:
        if name not in known and not (families and name.startswith(families)):
            there_are = f"it knows {', '.join(known)}" if known else "it has no options"
            raise ConfigurationError(f"{connector.url()}: {connector.kind} has no option {name!r}; {there_are}")


def quantity(connector: Connector, name: str, units: Mapping[str, int], example: str) -> int:
    """An option like 64MiB or 7d as a whole number; 0 when it is not given."""
    text = connector.option(name)
    if not text:
        return 0
    digits = text.rstrip("".join({letter for unit in units for letter in unit}))
    unit = text[len(digits) :]
    if not digits.isdecimal() or not int(digits) or unit not in units:
        known = ", ".join(unit for unit in units if unit)
        raise ConfigurationError(
            f"{connector.url()}: {name} is a whole number with one of {known}, for example {example}; not {text!r}"
        )
    return int(digits) * units[unit]
