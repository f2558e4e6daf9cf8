"""Whether CSV lines hold a byte that pyarrow reads in another way than the loop over lines: a quote, a space beside a number.

A megabyte is looked at in pieces that stay in the processor's cache, with as few passes as can be: each pass over all bytes
from memory costs as much as pyarrow takes for one column.
"""

from typing import TYPE_CHECKING, Any

from agiledart_dataflow.late import late

if TYPE_CHECKING:
    import numpy as np
else:
    np = late("numpy")

_PIECE = 256 << 10
_SPACE, _COMMA, _LINE_FEED = b" ,\n"
_SUSPECT_SUMS = (_SPACE + _COMMA, _SPACE + _LINE_FEED)
"""What a space and an end beside it add up to, whichever comes first; few other pairs do, and they only cost the careful look."""


class Ambiguity:
    """Looks for bytes that may be read in two ways.

    Args:
        bytes_alone: these are ambiguous wherever they stand; spaces are at the beginning or end of a column.
    """

    __slots__ = ("_alone", "_found", "_sums")

    def __init__(self, bytes_alone: bytes) -> None:
        self._alone = bytes_alone
        self._found = bytearray()  # the sums of neighbours, as bytes: their `find` is the fastest pass there is
        self._sums: Any = None

    def is_in(self, data: bytes | bytearray) -> bool:
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
                characters[start : stop + 1]
            ):
                return True
        return data.startswith(b" ")

    def _may_have_space_at_an_end(self, characters: Any) -> bool:
        pairs = len(characters) - 1
        np.add(characters[:-1], characters[1:], out=self._sums[:pairs])
        return any(self._found.find(suspect, 0, pairs) >= 0 for suspect in _SUSPECT_SUMS)


def _has_space_at_an_end(characters: Any) -> bool:
    """Whether a space and a comma or a line feed stand side by side."""
    spaces = characters == _SPACE
    ends = (characters == _COMMA) | (characters == _LINE_FEED)
    return bool((spaces[1:] & ends[:-1]).any() or (spaces[:-1] & ends[1:]).any())
