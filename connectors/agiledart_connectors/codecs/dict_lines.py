"""CSV as rows without types: a file's first line names the columns, and what looks like a number is one."""

import csv
import re
from typing import Any, Final

from agiledart_connectors.codecs.malformed_examples import COLUMNS, MalformedError, bounded_repr
from agiledart_kernel.errors import ConfigurationError, OperationFailed

_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
"""A number as JSON has them: `007` and `1,5` are texts."""

_MAX_DIGITS: Final = 300


def reject_dict_rows(kind: str) -> None:
    """Raise `ConfigurationError`: rows without types have no columns that could be written."""
    raise ConfigurationError(
        f"rows that are dicts have no columns to write as {kind}: write jsonl:, or make them a NamedTuple with map(…, returns=Row)"
    )


class DictLines:
    """Lines of CSV → dicts. A decoder."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def takes_header(self, line: str) -> bool:
        """The first line of each file names the columns. Raises `OperationFailed` where it cannot."""
        names = next(csv.reader([line.rstrip("\r\n").removeprefix("\ufeff")]), [])
        if not names or not all(names) or len(set(names)) < len(names):
            raise OperationFailed(f"the first line should name the columns, each once: {bounded_repr(line)}")
        self._names = names
        return True

    def rows(self, payload: bytes, wall_ns: int) -> list[Any]:
        try:
            cells = next(csv.reader([payload.decode("utf-8", "replace")], strict=True))
        except (csv.Error, StopIteration):
            raise MalformedError(COLUMNS, f"is no line of CSV: {bounded_repr(payload)}") from None
        if len(cells) != len(self._names):
            raise MalformedError(COLUMNS, f"has {len(cells)} columns, the first line names {len(self._names)}")
        return [dict(zip(self._names, map(_value, cells), strict=True))]

    def lines(self, data: bytes, wall_ns: int) -> list[Any] | None:
        return None


def _value(cell: str) -> str | int | float | None:
    """None, a number, or the text as it is."""
    if not cell:
        return None
    match = _NUMBER.fullmatch(cell)
    if match is None or len(cell) > _MAX_DIGITS:
        return cell
    return float(cell) if match[2] or match[3] else int(cell)
