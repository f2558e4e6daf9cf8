"""The first record of a CSV file: are these the names of the rows' fields, and which column is which?"""

import csv
import re
from typing import Any, Final

from agiledart_connectors.codecs.decoder_options import RFC4180, CsvDialect
from agiledart_connectors.codecs.malformed_examples import MalformedExamples
from agiledart_dataflow.data.schema import aliases_of, fields_of

_NUMBER: Final = re.compile(r"[+-]?\d[\d.,:/ TZ+-]*", re.ASCII)
"""A number or a time, which is no name of a column."""


def cells_of(record: str, dialect: CsvDialect) -> list[str]:
    """Return the cells of a first record; none where its quotes are broken."""
    try:
        return next(dialect.reader([record.removeprefix("\ufeff").rstrip("\r\n")]), [])
    except csv.Error:
        return []


def columns_by_name(record: str, row_type: Any, dialect: CsvDialect = RFC4180) -> list[str] | None:
    """The file's columns by name of field, "" for one that the rows do not have; None when the record is no header.

    It is one when every field is named in it, once. Case, spaces, `-` and `_` do not count: `Air Quality` is `air_quality`.
    """
    fields = [field.name for field in fields_of(row_type) if not field.is_read_time]
    if not fields:
        return None
    known = {_folded(word): name for name in fields for word in (*aliases_of(row_type).get(name, ()), name)}
    columns = [known.get(_folded(cell), "") for cell in cells_of(record, dialect)]
    return columns if sorted(filter(None, columns)) == sorted(fields) else None


def are_names(cells: list[str]) -> bool:
    """Return whether cells can be the names of columns: each once, and none of them a number or a time."""
    names = [cell for cell in cells if cell]
    return bool(names) and len(set(names)) == len(names) and not any(_NUMBER.fullmatch(name) for name in names)


def header_note(name: str, columns: list[str]) -> str:
    """Return the notice for users about the columns that a header names."""
    passed = columns.count("")
    more = f"; {passed} other column{'s are' if passed > 1 else ' is'} passed over" if passed else ""
    return f"{name}: its first line names the columns, which are taken by name{more}"


def missing_header_note(name: str, record: str, row_type: Any, dialect: CsvDialect, *, had_one: bool) -> str:
    """Return the notice for users about a first record that is no header; empty when there is nothing to say.

    Args:
        name: of the file.
        record: its first one.
        row_type: of the rows.
        dialect: how the file is written.
        had_one: the file before had a header.
    """
    text = record.strip("\ufeff \t\r\n")
    if text[:1] + text[-1:] == "{}":
        return f"{name}: its first line looks like JSON, which jsonl: reads"
    width = len([field for field in fields_of(row_type) if not field.is_read_time])
    if width > 1 and len(cells_of(record, dialect)) != width:
        for other, word in ((";", ";"), ("\t", "tab"), ("|", "|"), (",", ",")):
            if other != dialect.delimiter and text.count(other) >= width - 1:
                decimal = " and decimal=," if other == ";" and re.search(r"\d,\d", text) else ""
                return f"{name}: are its columns separated by {word}? Then say delimiter={word}{decimal}"
    if had_one:
        return f"{name}: its first line names no columns, unlike the file before; they are taken in the order of the fields"
    return ""


class HeaderColumns:
    """Columns of one source's files, as the header of each names them, or in the order of the fields where there is none.

    Args:
        row_type: of the rows.
        dialect: how the files are written.
        examples: takes notices for users.
    """

    def __init__(self, row_type: Any, dialect: CsvDialect, examples: MalformedExamples) -> None:
        self._row_type, self._dialect, self._examples = row_type, dialect, examples
        self._noted: tuple[str, ...] | None = None

    def take(self, name: str, record: str, *, is_one: bool) -> tuple[tuple[str, ...] | None, bool]:
        """Return the columns of a file (None: in the order of the fields), and whether its first record is a header.

        Args:
            name: of the file.
            record: its first one.
            is_one: it is a header in any case.
        """
        columns = columns_by_name(record, self._row_type, self._dialect)
        if columns is None:
            had_one, self._noted = self._noted is not None and not is_one, None
            note = missing_header_note(name, record, self._row_type, self._dialect, had_one=had_one)
            if note:
                self._examples.note(note)
            return None, is_one
        if self._noted != tuple(columns):
            self._noted = tuple(columns)
            self._examples.note(header_note(name, columns))
        return self._noted, True


def _folded(word: str) -> str:
    return "".join(c for c in word.lower() if c not in " _-\t\ufeff")
