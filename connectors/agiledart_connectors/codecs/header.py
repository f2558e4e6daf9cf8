"""The first line of a CSV file: are these the names of the rows' fields, and which column is which?"""

import csv
from typing import Any

from agiledart_dataflow.data.schema import aliases_of, fields_of


def columns_by_name(line: str, row_type: Any) -> list[str] | None:
    """The file's columns by name of field, "" for one that the rows do not have; None when the line is no header.

    It is one when every field is named in it, once. Case, spaces, `-` and `_` do not count: `Air Quality` is `air_quality`.
    """
    fields = [field.name for field in fields_of(row_type) if not field.is_read_time]
    if not fields:
        return None
    known = {_folded(word): name for name in fields for word in (*aliases_of(row_type).get(name, ()), name)}
    try:
        cells = next(csv.reader([line.rstrip("\r\n")]), [])
    except csv.Error:
        return None
    columns = [known.get(_folded(cell), "") for cell in cells]
    return columns if sorted(filter(None, columns)) == sorted(fields) else None


def header_note(name: str, columns: list[str]) -> str:
    """Return the notice for users about the columns that a header names."""
    passed = columns.count("")
    more = f"; {passed} other column{'s are' if passed > 1 else ' is'} passed over" if passed else ""
    return f"{name}: its first line names the columns, which are taken by name{more}"


def missing_header_note(name: str, line: str) -> str:
    """Return the notice for users about a first line that is no header; empty when there is nothing to say."""
    text = line.strip("\ufeff \t\r\n")
    return f"{name}: its first line looks like JSON, which jsonl: reads" if text[:1] + text[-1:] == "{}" else ""


def _folded(word: str) -> str:
    return "".join(c for c in word.lower() if c not in " _-\t\ufeff")
