"""Buffers that a file is read into block by block; a buffer is used again when no block refers to it any more.

Fresh memory for each block of a megabyte costs a page fault for every 4 KB, because the allocator returns it in between. That
costs as much as pyarrow takes for two columns of numbers.
"""

from io import BufferedReader
from sys import getrefcount
from typing import Final

_LIST = [bytearray()]
_UNHELD: Final = getrefcount(_LIST[0])
"""References to a buffer that only a list has, as this Python counts."""

_MAX_BUFFERS: Final = 3
"""Buffers that are kept: for a block that is read, one that is worked on, and one that a batch of before still shows."""


class BlockBuffers:
    """A few buffers. Whoever keeps a block, or an array over its bytes, keeps its buffer from being used again."""

    __slots__ = ("_buffers",)

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    def read(self, file: BufferedReader, size: int) -> bytearray:
        """The next bytes, fewer only at the end of the file; not to be changed. Raises what the file does."""
        buffer = self._free()
        if len(buffer) < size:
            buffer.extend(bytes(size - len(buffer)))
        else:
            del buffer[size:]
        del buffer[file.readinto(buffer) :]
        return buffer

    def _free(self) -> bytearray:
        buffers = self._buffers
        for number in range(len(buffers)):
            if getrefcount(buffers[number]) == _UNHELD:
                return buffers[number]
        if len(buffers) == _MAX_BUFFERS:
            del buffers[0]
        buffers.append(bytearray())
        return buffers[-1]
