"""Many text lines → typed rows with one call of a decoder written in C: the lines become a JSON text in which every column is a
string, and msgspec reads numbers from strings.

That decoder's numbers are narrower than Python's (no `+5`, `.5`, `007`, no int beyond 63 bits) and wider in three ways, which are
looked for here: integers written as `1.0` or `1e3`, floats that are not finite, and `-0`, whose sign it drops in a float. Lines in
which there is any doubt are all left to `RowParser`'s own loop, so rows and reasons are the same with and without this.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import repeat
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from agiledart_dataflow.data.schema import generic

LINES_AT_ONCE: Final = 64
"""So many lines are decoded together: a doubtful one costs its neighbours the second try, and a call costs 3 µs."""

FEW_LINES: Final = 4
"""Below so many lines the loop is as fast."""

_LONGEST_PAUSE: Final = 63

_FITS: Final[Any] = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""An int that can travel; the few beyond it that can, too, are left to the loop."""

Parsed = list[Any]


class BulkColumn(NamedTuple):
    """Rule for reading one column. `convert` maps text → value where the decoder yields only text; None: no conversion."""

    kind: Any
    convert: Callable[[str], Any] | None


class BulkParser:
    """Makes rows of named tuples whose columns are texts, ints, floats and times.

    Args:
        row_type: of the rows.
        columns: one for each field; see `bulk_columns`.
        delimiter: between columns.

    After a try in vain it is not asked for some calls, twice as many each time: data it cannot read (numbers such as `.5` in
    every line) then cost next to nothing more.
    """

    __slots__ = ("_converted", "_decode", "_delimiter", "_floats", "_ints", "_pause", "_paused", "_row_type")

    _pause: int
    _paused: int

    def __init__(self, row_type: Any, columns: Sequence[BulkColumn], delimiter: bytes = b",") -> None:
        self._row_type, self._delimiter = row_type, delimiter
        self._ints = [i for i, column in enumerate(columns) if column.kind is int]
        self._floats = [i for i, column in enumerate(columns) if column.kind is float]
        self._converted = [(i, column.convert) for i, column in enumerate(columns) if column.convert is not None]
        # Where an int may be written as 1.0, the decoder gives a float, so the check below can see it.
        kinds = {int: _FITS | float, float: float}
        line = generic(tuple, *[kinds.get(column.kind, str) for column in columns])
        self._decode: Callable[[bytes], list[Any]] = msgspec.json.Decoder(generic(list, line), strict=False).decode
        self.try_again()

    def parse(self, lines: bytes) -> Parsed | None:
        """Return the rows of these lines, one for each line; None when a line may be malformed.

        There is at least one line; line feeds separate them; they hold no quotes. The decoder finds control characters and bytes
        that are not UTF-8; this method finds backslashes.
        """
        if self._paused:
            self._paused -= 1
            return None
        rows = self._tried(lines)
        if rows is None:
            self._paused = self._pause = min(2 * self._pause + 1, _LONGEST_PAUSE)
        else:
            self._pause = 0
        return rows

    def try_again(self) -> None:
        """Forget what was tried in vain: other data come now."""
        self._pause = self._paused = 0

    def _tried(self, lines: bytes) -> Parsed | None:
        if b"\\" in lines:
            return None
        text = b'[["%b"]]' % lines.replace(self._delimiter, b'","').replace(
            b"\n", b'"],["'
        )  # of bytes: a third less than of str
        try:
            decoded = self._decode(text)
            columns: list[Any] = list(zip(*decoded, strict=True))
            for i, convert in self._converted:
                columns[i] = list(map(convert, columns[i]))
            for i in self._ints:
                if type(sum(columns[i])) is not int:
                    return None
        except (msgspec.MsgspecError, ValueError, OverflowError):  # the last: a float beside an int beyond all floats
            return None
        total, may_be_signed = 0.0, False
        for i in self._floats:
            total += sum(columns[i])
            may_be_signed = may_be_signed or 0.0 in columns[i]
        if total - total != 0.0 or (may_be_signed and b'"-0"' in text):
            return None
        rows = zip(*columns, strict=True) if self._converted else decoded
        return list(map(tuple.__new__, repeat(self._row_type), rows))


def bulk_columns(
    columns: Sequence[tuple[Any, bool]], times: Sequence[Mapping[str, datetime]]
) -> list[BulkColumn] | None:
    """Return rules for columns given as (type, may be empty); None when bulk reading does not support a column's type.

    Args:
        times: for each column text → datetime; ValueError for a text that is not a time.
    """
    rules: list[BulkColumn] = []
    for (kind, optional), of_column in zip(columns, times, strict=True):
        if kind in (str, int, float) and not optional:
            rules.append(BulkColumn(kind, None))
        elif kind is datetime and not optional:
            rules.append(BulkColumn(kind, of_column.__getitem__))
        else:
            return None
    return rules or None
