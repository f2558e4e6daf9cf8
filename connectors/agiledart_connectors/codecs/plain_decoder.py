"""Formats `text`, `raw` and `csv` for payloads: a text or bytes as they come, or the columns of one line."""

import dataclasses
from collections.abc import Callable
from typing import Any

from agiledart_connectors.codecs.row_parser import RowParser
from agiledart_dataflow.data.schema import ReadTime, Retained, Topic, fields_of, is_named_tuple
from agiledart_kernel.errors import ConfigurationError

_FILLED: dict[Any, Callable[[int], Any]] = {ReadTime: lambda ns: ns, Topic: lambda _: "", Retained: lambda _: False}
"""Types of fields that are no part of a payload."""


class PlainDecoder:
    """A payload is one text (`str`) or bytes: the row itself, or its only field beside a `ReadTime`.

    Args:
        row_type: of the rows.
        kind: `str` or `bytes`.
    """

    def __init__(self, row_type: Any, kind: type) -> None:
        self._kind = kind
        self._fields = fields_of(row_type)
        self._row_type = row_type
        taken = [field for field in self._fields if field.type not in _FILLED]
        is_one = [field.type for field in taken] == [kind] if self._fields else row_type is kind
        if not is_one:
            raise ConfigurationError(
                f"a line or message as it comes fills a row of one {kind.__name__}: write"
                f" Source[{kind.__name__}], or a type with one field of {kind.__name__}; not {row_type!r}"
            )
        self._is_tuple = bool(self._fields) and is_named_tuple(row_type)
        if self._fields and not self._is_tuple and not dataclasses.is_dataclass(row_type):
            raise ConfigurationError(f"no line can become a {row_type!r}")

    def rows(self, payload: bytes, wall_ns: int) -> list[Any]:
        return [self._row(payload if self._kind is bytes else payload.decode("utf-8", "replace"), wall_ns)]

    def lines(self, data: bytes, wall_ns: int) -> list[Any] | None:
        texts: list[Any] = data.split(b"\n") if self._kind is bytes else data.decode("utf-8", "replace").split("\n")
        texts = [line for line in texts if line]
        return texts if not self._fields else [self._row(line, wall_ns) for line in texts]

    def _row(self, value: Any, wall_ns: int) -> Any:
        if not self._fields:
            return value
        values = [_FILLED[field.type](wall_ns) if field.type in _FILLED else value for field in self._fields]
        return tuple.__new__(self._row_type, values) if self._is_tuple else self._row_type(*values)


class CsvDecoder:
    """A payload is one line of CSV, or several."""

    def __init__(self, row_type: Any) -> None:
        self._parser = RowParser(row_type)

    def rows(self, payload: bytes, wall_ns: int) -> list[Any]:
        return [self._parser.row(line, wall_ns) for line in payload.decode("utf-8", "replace").splitlines()]

    def lines(self, data: bytes, wall_ns: int) -> list[Any] | None:
        return None
