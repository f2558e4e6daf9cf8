"""Options of a connector that say how its bytes become rows: those of CSV, the encoding, the zone of times."""

import codecs
import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final

from agiledart_connectors.codecs.rendering import DEFAULT_FORM, CsvForm
from agiledart_connectors.options import number
from agiledart_dataflow.data.utc_times import zone_named
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError

TEXT_OPTIONS: Final = ("encoding", "zone")
"""Options of every source whose payloads have a format."""

CSV_OPTIONS: Final = ("decimal", "delimiter", "null", "quote")

DECODER_OPTIONS: Final = (*CSV_OPTIONS, *TEXT_OPTIONS)

_NAMED: Final = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";", "pipe": "|"}
_UTF8: Final = "utf-8"

NULL: Final = DEFAULT_FORM.null
"""Text that stands for None, beside an empty column."""

_MAX_PLACES: Final = 17


@dataclass(frozen=True)
class CsvDialect:
    """Form in which a CSV file is written.

    Attributes:
        delimiter: character between columns.
        decimal: character before the places of a number.
        quote: character around texts that hold one of the others, or line ends; "": there is none.
        nulls: texts that stand for None, in fields that may be None, unless they are quoted.
        zone: of times that state none; None: UTC.
    """

    delimiter: str = ","
    decimal: str = "."
    quote: str = '"'
    nulls: frozenset[str] = frozenset(("", NULL))
    zone: tzinfo | None = None

    @property
    def quote_byte(self) -> bytes:
        """Return the quote as it stands in bytes; b"" where there is none."""
        return self.quote.encode()

    def may_be_quoted(self, record: str, cell: str) -> bool:
        """Return whether a cell of a record may be written in quotes: `""` is an empty text, and not None."""
        return bool(self.quote) and f"{self.quote}{cell}{self.quote}" in record

    def are_quoted(self, record: str, count: int) -> list[bool]:
        """Return for each of so many cells of a record whether it is written in quotes."""
        quote, delimiter = re.escape(self.quote), re.escape(self.delimiter)
        cell = re.compile(rf"(?:({quote})(?:[^{quote}]|{quote}{quote})*{quote}|[^{delimiter}]*)(?:{delimiter}|$)")
        quoted: list[bool] = []
        at = 0
        while len(quoted) < count and (match := cell.match(record, at)) is not None:
            quoted.append(match[1] is not None)
            at = match.end()
        return quoted + [False] * (count - len(quoted))

    def reader(self, lines: Iterable[str]) -> Any:
        """Return Python's reader of these lines, which refuses what RFC 4180 does not allow."""
        if not self.quote:
            return csv.reader(lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE, strict=True)
        return csv.reader(lines, delimiter=self.delimiter, quotechar=self.quote, strict=True)


RFC4180: Final = CsvDialect()
"""Form of a CSV file unless options say otherwise."""


@dataclass(frozen=True)
class DecoderOptions:
    """Settings of a decoder beside the type of the rows.

    Attributes:
        dialect: of CSV; its zone is that of all formats.
        encoding: of texts, by Python's name.
    """

    dialect: CsvDialect = RFC4180
    encoding: str = _UTF8

    @property
    def zone(self) -> tzinfo | None:
        """Return the zone of times that state none."""
        return self.dialect.zone

    @property
    def is_utf8(self) -> bool:
        """Return whether bytes need no conversion."""
        return self.encoding == _UTF8


PLAIN_OPTIONS: Final = DecoderOptions()
"""Those of a connector that names none."""


def decoder_options(connector: Connector) -> DecoderOptions:
    """Return the options of a connector. Raises `ConfigurationError`: one has no such value."""
    delimiter = _character(connector, "delimiter", ",")
    decimal = _character(connector, "decimal", ".")
    quote = "" if connector.option("quote") == "none" else _character(connector, "quote", '"')
    if len({delimiter, decimal, quote}) < 3 and not (delimiter == "," and decimal == ","):
        raise ConfigurationError(f"{connector.url()}: delimiter, decimal and quote are different characters")
    if delimiter == decimal:
        raise ConfigurationError(
            f"{connector.url()}: with decimal=, the columns are separated by another character: add delimiter=;"
        )
    nulls = frozenset(("", *connector.option("null", NULL).split(",")))
    return DecoderOptions(CsvDialect(delimiter, decimal, quote, nulls, zone_of(connector)), _encoding(connector))


def csv_form(connector: Connector) -> CsvForm:
    """Return the form in which a sink writes CSV. Raises `ConfigurationError`: an option has no such value."""
    delimiter = _character(connector, "delimiter", ",")
    decimal = _character(connector, "decimal", ".")
    if delimiter == decimal:
        raise ConfigurationError(f"{connector.url()}: delimiter and decimal are different characters")
    places = number(connector, "places", 0, most=_MAX_PLACES) if connector.option("places") else None
    return CsvForm(connector.option("null", NULL), places, delimiter, decimal)


def zone_of(connector: Connector) -> tzinfo | None:
    """Return the zone of a connector's times that state none; None: UTC. Raises `ConfigurationError`."""
    name = connector.option("zone")
    try:
        return zone_named(name) if name else None
    except ValueError as error:
        raise ConfigurationError(f"{connector.url()}: {error}") from None


def _character(connector: Connector, name: str, default: str) -> str:
    text = connector.option(name, default)
    character = _NAMED.get(text, text)
    if len(character) != 1 or not character.isascii() or character.isalnum() or character in "\r\n\0+-_":
        raise ConfigurationError(f"{connector.url()}: {name} is one character, such as {default}, not {text!r}")
    return character


def _encoding(connector: Connector) -> str:
    name = connector.option("encoding", _UTF8)
    try:
        known = codecs.lookup(name)
        "".encode(name)  # a codec that is no encoding of texts, such as base64, refuses them
    except (LookupError, ValueError, TypeError):
        raise ConfigurationError(
            f"{connector.url()}: there is no encoding {name!r}; write one such as utf-8, cp1252, latin-1 or utf-16"
        ) from None
    return _UTF8 if known.name in ("utf-8", "ascii") else known.name
