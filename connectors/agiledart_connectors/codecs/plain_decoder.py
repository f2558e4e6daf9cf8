"""Formats `text`, `raw` and `csv` for payloads: a text or bytes as they come, or the columns of one line."""

import dataclasses
from collections.abc import Callable
from typing import Any

from agiledart_connectors.codecs.decoder_options import PLAIN_OPTIONS, DecoderOptions
from agiledart_connectors.codecs.encodings import payload_text
from agiledart_connectors.codecs.header import columns_by_name
from agiledart_connectors.codecs.malformed_examples import MalformedError, MalformedPart, PartlyMalformedError
from agiledart_connectors.codecs.quoted_records import quoted_records
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
        options: encoding of texts.
    """

    def __init__(self, row_type: Any, kind: type, options: DecoderOptions = PLAIN_OPTIONS) -> None:
        self._kind, self._encoding = kind, options.encoding
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
        return [self._row(payload if self._kind is bytes else payload_text(payload, self._encoding), wall_ns)]

    def lines(self, data: bytes, wall_ns: int) -> list[Any] | None:
        try:
            texts: list[Any] = data.split(b"\n") if self._kind is bytes else data.decode(self._encoding).split("\n")
        except UnicodeError:
            return None
        texts = [line for line in texts if line]
        return texts if not self._fields else [self._row(line, wall_ns) for line in texts]

    def _row(self, value: Any, wall_ns: int) -> Any:
        if not self._fields:
            return value
        values = [_FILLED[field.type](wall_ns) if field.type in _FILLED else value for field in self._fields]
        return tuple.__new__(self._row_type, values) if self._is_tuple else self._row_type(*values)


class CsvDecoder:
    """A payload is one record of CSV, or several; the first may name the columns.

    Args:
        row_type: of the rows.
        options: how records are written.
    """

    def __init__(self, row_type: Any, options: DecoderOptions = PLAIN_OPTIONS) -> None:
        self._row_type, self._options = row_type, options
        self._parser = RowParser(row_type, None, options.dialect)
        self._by_columns: dict[tuple[str, ...], RowParser] = {}

    def rows(self, payload: bytes, wall_ns: int) -> list[Any]:
        data = payload if self._options.is_utf8 else payload_text(payload, self._options.encoding).encode()
        records = quoted_records(
            data if data.endswith(b"\n") else data + b"\n", self._options.dialect, is_end=True
        ).records
        records = [record for record in records if record.text.strip("\r")] or records[:1]  # blank lines are no records
        parser = self._parser
        if len(records) > 1 and (headed := self._headed(records[0].text)) is not None:
            parser, records = headed, records[1:]
        if len(records) == 1:
            return [parser.row_of(records[0], wall_ns)]
        rows: list[Any] = []
        parts: list[MalformedPart] = []
        for record in records:
            try:
                rows.append(parser.row_of(record, wall_ns))
            except MalformedError as error:
                parts.append(MalformedPart(f"{record.line + 1}", record.text, error))
        if parts:
            raise PartlyMalformedError(rows, parts)
        return rows

    def _headed(self, record: str) -> RowParser | None:
        """The parser of columns that a first record names; None: it is no header."""
        columns = columns_by_name(record, self._row_type, self._options.dialect)
        if columns is None:
            return None
        known = tuple(columns)
        if known not in self._by_columns:
            self._by_columns[known] = RowParser(self._row_type, columns, self._options.dialect)
        return self._by_columns[known]

    def lines(self, data: bytes, wall_ns: int) -> list[Any] | None:
        return None
