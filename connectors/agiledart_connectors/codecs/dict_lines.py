"""CSV as rows without types: a file's first record names the columns, and what is written as a number is one.

A cell stays the text that it is where its number would be written in another way (`007`, `1e2`, `1.10`) or does not fit 64 bits,
so that no two texts become one number. `dict[str, str]` leaves all cells texts; `dict[str, float]` makes all of them numbers.
"""

import csv
import re
from collections.abc import Callable
from math import isfinite
from typing import Any, Final, get_args

from agiledart_connectors.codecs.csv_values import LEAST, MOST, column_rule
from agiledart_connectors.codecs.decoder_options import RFC4180, CsvDialect
from agiledart_connectors.codecs.encodings import payload_text
from agiledart_connectors.codecs.header import are_names, cells_of
from agiledart_connectors.codecs.malformed_examples import COLUMNS, MalformedError, bounded_repr
from agiledart_dataflow.data.schema import Field
from agiledart_kernel.errors import ConfigurationError, OperationFailed

_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?", re.ASCII)
_MAX_DIGITS: Final = 40
_FIRST_OF_NUMBERS: Final = frozenset("-0123456789")


def reject_dict_rows(kind: str) -> None:
    """Raise `ConfigurationError`: rows without types have no columns that could be written."""
    raise ConfigurationError(
        f"rows that are dicts have no columns to write as {kind}: write jsonl:, or make them a NamedTuple with map(…, returns=Row)"
    )


class DictLines:
    """Records of CSV → dicts. A decoder.

    Args:
        row_type: `dict[str, Any]`, or with another type of values.
        dialect: how the records are written.
        note: takes notices for users.
    """

    def __init__(
        self,
        row_type: Any = dict[str, Any],
        dialect: CsvDialect = RFC4180,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._dialect, self._note, self._nulls = dialect, note, dialect.nulls
        self._names: list[str] = []
        arguments = get_args(row_type)
        self._value: Callable[[str, str], Any] = self._inferred
        if len(arguments) == 2 and arguments[1] is not Any:
            rule = column_rule(Field("value", arguments[1]), (), dialect)

            def typed(name: str, cell: str) -> Any:
                try:
                    return None if rule.optional and cell in dialect.nulls else rule.read(cell)
                except MalformedError as error:
                    text = f"{name}: {bounded_repr(cell)} is no {rule.word(cell)}"
                    raise MalformedError(error.reason, text) from None

            self._value = typed

    def takes_header(self, record: str, *, name: str = "", is_one: bool = False) -> bool:
        """Take the names of the columns from a file's first record.

        Returns False for a record that is no header, in a file after one that had it: then the names of before hold.

        Raises:
            OperationFailed: the record names no columns, and none are known.
        """
        cells = cells_of(record, self._dialect)
        if not is_one and self._names and len(cells) == len(self._names) and not are_names(cells):
            self._note(f"{name}: its first line names no columns: those of the file before are taken")
            return False
        names = [cell for cell in cells if cell]
        if not names or len(set(names)) < len(names):
            if self._names:
                self._note(
                    f"{name}: its first line names no columns, or one of them twice: those of the file before are taken"
                )
                return False
            raise OperationFailed(f"the first line should name the columns, each once: {bounded_repr(record)}")
        self._names = cells
        return True

    def rows(self, payload: bytes, wall_ns: int) -> list[Any]:
        text = payload_text(payload, "utf-8")
        try:
            cells = next(self._dialect.reader([text]))
        except (csv.Error, StopIteration):
            raise MalformedError(COLUMNS, f"is no line of CSV: {bounded_repr(payload)}") from None
        if len(cells) != len(self._names):
            counted = f"{len(cells)} column{'' if len(cells) == 1 else 's'}"
            raise MalformedError(COLUMNS, f"has {counted}, the first line names {len(self._names)}")
        value = self._value
        return [{name: value(name, cell) for name, cell in zip(self._names, cells, strict=True) if name}]

    def lines(self, data: bytes, wall_ns: int) -> list[Any] | None:
        dialect, names, value = self._dialect, self._names, self._value
        if b"\r" in data or not all(names) or (dialect.quote and dialect.quote_byte in data):
            return None
        width, delimiter, rows = len(names), dialect.delimiter, []
        try:
            for line in data.decode().split("\n"):
                cells = line.split(delimiter)
                if len(cells) == width and line.strip():
                    rows.append(dict(zip(names, map(value, names, cells), strict=True)))
                elif line.strip():
                    return None
        except (UnicodeDecodeError, MalformedError):
            return None
        return rows

    def _inferred(self, name: str, cell: str) -> str | int | float | None:
        """None, a number, or the text as it is."""
        if cell in self._nulls:
            return None
        if cell[0] not in _FIRST_OF_NUMBERS:
            return cell
        text = cell
        if self._dialect.decimal != ".":
            if "." in text:
                return cell
            text = text.replace(self._dialect.decimal, ".", 1)
        match = _NUMBER.fullmatch(text)
        if match is None or len(text) > _MAX_DIGITS:
            return cell
        number: int | float = float(text) if match[2] else int(text)
        is_exact = repr(number) == text and (isfinite(number) if match[2] else LEAST <= number <= MOST)
        return number if is_exact else cell
