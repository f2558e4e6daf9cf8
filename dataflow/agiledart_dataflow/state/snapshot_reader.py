"""`SnapshotReader`: reader of a whole snapshot of an instance from a stream of bytes; it holds at most one key group at once.

    snapshot = [entered, [[[group, bytes]*], rest], sent, mark, counts]

A state of 64 MB in one piece would be in memory four times during its restore: as the file, as its block, as the bytes of its
groups and as objects. On a machine with one gigabyte that decides between a restart and being killed. Source: recovery
specification §11.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgpack

from agiledart_dataflow.state.key_groups import OperatorState
from agiledart_dataflow.state.plain_codec import StateFormatError, array_header

Pieces = Iterable[bytes]
"""Pieces of a snapshot in order; every iteration begins with the first."""

PIECE_BYTES: Final = 1 << 20
"""Size of the pieces into which bytes in memory are cut."""

_MOST_BYTES: Final = (1 << 31) - 1
"""Bound of one group: above the bound of a block of a snapshot, so that the latter applies."""


def restore_groups(state: OperatorState, snapshot: bytes | Pieces) -> bytes:
    """Restore the groups of a state from a whole snapshot; returns the snapshot without them (`SnapshotReader.remainder`).

    Raises `StateFormatError` for bytes that are not a snapshot, or that the code cannot read.
    """
    reader = SnapshotReader(snapshot)
    for group in state.groups():
        state.drop_group(group)
    for group, data in reader.groups():
        state.restore_group(group, data)
    return reader.remainder()


class SnapshotReader:
    """Reader of one snapshot, for one pass: all of `groups` first, then `remainder`.

    Args:
        snapshot: its bytes, or the pieces of which they are made.

    Both methods raise `StateFormatError` for bytes that are not a snapshot, or that end too soon.
    """

    def __init__(self, snapshot: bytes | Pieces) -> None:
        self._pieces = iter(_in_pieces(snapshot) if isinstance(snapshot, bytes) else snapshot)
        self._unpacker = msgpack.Unpacker(max_buffer_size=_MOST_BYTES)
        self._held: list[bytes] = []  # pieces from `_held_from` on, for parts that are read by their types later
        self._held_from = 0
        self._entered = b""

    def groups(self) -> Iterator[tuple[int, bytes]]:
        """Yield the key groups of the state."""
        self._array(5)
        self._entered = self._raw()
        self._array(2)
        for _ in range(self._next(self._unpacker.read_array_header)):
            self._array(2)
            group, data = self._next(self._unpacker.unpack), self._next(self._unpacker.unpack)
            if type(group) is not int or type(data) is not bytes:
                raise StateFormatError("corrupt snapshot: a key group is not a pair of an int and bytes")
            self._discard_read_pieces()
            yield group, data

    def remainder(self) -> bytes:
        """Return everything but the groups, as the snapshot of an instance whose state has none."""
        rest, sent, watermark, counts = (self._raw() for _ in range(4))
        if self._unpacker.tell() != self._held_from + sum(map(len, self._held)) or any(self._pieces):
            raise StateFormatError("corrupt snapshot: bytes follow its end")
        return b"".join(
            (array_header(5), self._entered, array_header(2), array_header(0), rest, sent, watermark, counts)
        )

    def _array(self, length: int) -> None:
        if self._next(self._unpacker.read_array_header) != length:
            raise StateFormatError(f"corrupt snapshot: an array has not the expected length of {length}")

    def _raw(self) -> bytes:
        """Return the next value as encoded bytes."""
        self._discard_read_pieces()
        start = self._unpacker.tell() - self._held_from
        self._next(self._unpacker.skip)
        end = self._unpacker.tell() - self._held_from
        return b"".join(self._held)[start:end]

    def _discard_read_pieces(self) -> None:
        """Release the pieces that have been read."""
        read_bytes = self._unpacker.tell()
        while self._held and self._held_from + len(self._held[0]) <= read_bytes:
            self._held_from += len(self._held.pop(0))

    def _next(self, read: Callable[[], Any]) -> Any:
        while True:
            try:
                return read()
            except msgpack.OutOfData:
                piece = next(self._pieces, None)
                if piece is None:
                    raise StateFormatError("corrupt snapshot: it ends too soon") from None
                self._unpacker.feed(piece)
                self._held.append(piece)
            except (ValueError, msgpack.UnpackException) as error:
                raise StateFormatError(f"corrupt snapshot: {error}") from None


def _in_pieces(raw: bytes) -> Iterator[bytes]:
    """Yield bytes in pieces."""
    for start in range(0, len(raw), PIECE_BYTES):
        yield raw[start : start + PIECE_BYTES]
