"""Numbering of keys: equal keys get equal numbers, in the order of first appearance; for grouping and routing of columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agiledart_dataflow.data.column import Column, arrow_numbers
from agiledart_dataflow.data.lazy_module import lazy_import

if TYPE_CHECKING:
    import numpy as np

    from agiledart_dataflow.data.column import Array, Selection
else:
    np = lazy_import("numpy")
    Array = Any

_DENSE = 4
"""Factor: ints whose range is at most this times their number are counted in an array as long as the range."""


def grouped(keys: Sequence[Column], length: int) -> tuple["Array", "Array"]:
    """Return (number of each row's key, rows in which the keys come first): numbers count up in the order of those rows."""
    numbers, firsts = _numbered(keys[0])
    for key in keys[1:]:
        more, more_firsts = _numbered(key)
        numbers, firsts = _numbered_ints(numbers * len(more_firsts) + more)
    return numbers, firsts


def _numbered(key: Column) -> tuple["Array", "Array"]:
    if key.kind in ("int", "time", "span") and key.valid is None:
        return _numbered_ints(key.values)
    if key.kind == "bool" and key.valid is None:
        return _numbered_ints(key.values.astype(np.int64))
    if key.kind in ("text", "bytes"):
        try:
            array = key.arrow()
        except UnicodeEncodeError:
            return _numbered_values(key.to_list())
        if not array.null_count:
            return _encoded(array)
    return _numbered_values(key.to_list())


def _numbered_ints(values: "Array") -> tuple["Array", "Array"]:
    length = len(values)
    if not length:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    least = int(values.min())
    span = int(values.max()) - least + 1
    if span > max(_DENSE * length, 1_024):
        return _encoded(arrow_numbers(values))
    places = values - least
    rows = np.arange(length)
    first = np.empty(span, np.int64)
    first[places[::-1]] = rows[::-1]  # written in reverse, so the first row of each key overwrites the others
    firsts = np.flatnonzero(first[places] == rows)
    first[places[firsts]] = rows[: len(firsts)]
    return first[places], firsts


def _encoded(array: Any) -> tuple["Array", "Array"]:
    """Number values by pyarrow's hash table, whose dictionary is in the order of first appearance."""
    indices = array.dictionary_encode().indices
    numbers = np.frombuffer(indices.buffers()[1], np.int32)[: len(indices)].astype(np.int64)
    return numbers, _firsts(numbers)


def _firsts(numbers: "Array") -> "Array":
    """Return the places where numbers that count up in the order of first appearance come first: where a new greatest one comes."""
    if not len(numbers):
        return np.empty(0, np.int64)
    greatest = np.maximum.accumulate(numbers)
    return np.flatnonzero(np.concatenate(([True], greatest[1:] != greatest[:-1])))


def _numbered_values(values: list[Any]) -> tuple["Array", "Array"]:
    """Number values by a dictionary: Python decides which are equal."""
    known: dict[Any, int] = {}
    numbers = np.array([known.setdefault(value, len(known)) for value in values], dtype=np.int64)
    return numbers, _firsts(numbers)


def key_values(keys: Sequence[Column], firsts: "Selection") -> list[Any]:
    """Return the keys of these rows as Python values; tuples when a key has several parts."""
    lists = [key.take(firsts).to_list() for key in keys]
    return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))
