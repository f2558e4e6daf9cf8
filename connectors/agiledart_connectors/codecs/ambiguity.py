"""Detection of CSV lines that pyarrow reads unlike the loop over lines: a quote, a space beside a number, `0x1f`.

The module looks at a megabyte in pieces that stay in the processor's cache, with as few passes as possible. Each pass over all
bytes from memory costs as much as pyarrow takes for one column.
"""

from typing import TYPE_CHECKING, Any

from agiledart_dataflow.data.lazy_module import lazy_import

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy_import("numpy")

_PIECE = 256 << 10
_ALONE = b"\r\t"
"""Ambiguous wherever they stand, as a quote is; a tab where it is no delimiter."""

_SPACE, _LINE_FEED = b" \n"

_BEFORE_X = 2
"""Bytes that decide what an x is: a zero, and what is before that."""


class Ambiguity:
    """Looks for bytes that may be read in two ways.

    Args:
        ints: a column that begins with `0x` is ambiguous, too: pyarrow takes it for a hexadecimal int.
        delimiter: between columns.
        quote: around texts; "": there is none.
    """

    __slots__ = ("_alone", "_before_numbers", "_delimiter", "_found", "_ints", "_sums", "_suspects")

    def __init__(self, *, ints: bool, delimiter: str = ",", quote: str = '"') -> None:
        self._ints = ints
        self._delimiter = ord(delimiter)
        self._alone = [byte for byte in {*_ALONE, *quote.encode()} if byte != self._delimiter]
        self._before_numbers = [self._delimiter, *b"\n+-"]
        # Sums of a space and the separator beside it, in either order. A few other pairs share them, and cost the careful look.
        self._suspects = (_SPACE + self._delimiter, _SPACE + _LINE_FEED)
        self._found = bytearray()  # the sums of neighbours, as bytes: their `find` is the fastest pass there is
        self._sums: Any = None

    def has_ambiguous_bytes(self, data: bytes | bytearray) -> bool:
        """Is there one in these lines, each with its end?"""
        if self._sums is None:
            self._found = bytearray(_PIECE)
            self._sums = np.frombuffer(self._found, np.uint8)
        characters = np.frombuffer(data, np.uint8)
        for start in range(0, len(data), _PIECE):
            stop = start + _PIECE
            if any(data.find(byte, start, stop) >= 0 for byte in self._alone):
                return True
            if self._may_have_space_at_an_end(characters[start : stop + 1]) and _has_space_at_an_end(
                characters[start : stop + 1], self._delimiter
            ):
                return True
            if self._ints and (data.find(b"x", start, stop) >= 0 or data.find(b"X", start, stop) >= 0):
                before = min(start, _BEFORE_X)
                if _begins_hexadecimal(characters[start - before : stop], before, self._before_numbers):
                    return True
        return data.startswith(b" ")

    def _may_have_space_at_an_end(self, characters: Any) -> bool:
        pairs = len(characters) - 1
        np.add(characters[:-1], characters[1:], out=self._sums[:pairs])
        return any(self._found.find(suspect, 0, pairs) >= 0 for suspect in self._suspects)


def _begins_hexadecimal(characters: Any, before: int, before_numbers: list[int]) -> bool:
    """Return whether a column begins with `0x`, perhaps after a sign. The piece before covered the first `before` bytes."""
    at = np.flatnonzero((characters | 0x20) == ord("x"))
    zeros = at[(at >= max(before, 1)) & (characters[at - 1] == ord("0"))] - 1
    if len(zeros) and zeros[0] == 0:
        return True  # the beginning of all
    return bool(np.isin(characters[zeros - 1], before_numbers).any())


def _has_space_at_an_end(characters: Any, delimiter: int) -> bool:
    """Return whether a space and a delimiter or a line feed stand side by side."""
    spaces = characters == _SPACE
    ends = (characters == delimiter) | (characters == _LINE_FEED)
    return bool((spaces[1:] & ends[:-1]).any() or (spaces[:-1] & ends[1:]).any())
