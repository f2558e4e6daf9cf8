"""`SnapshotReader`: a whole snapshot of an instance, read as its bytes come: no more than a key group of it is held at once.

    snapshot = [entered, [[[group, bytes]*], rest], sent, mark, counts]

A state of 64 MB in one piece would be there four times while it is put back: as the file, as its block, as the bytes of its groups
and as what they become. On a machine with one gigabyte that is the difference between coming back and being killed.
Source: recovery specification §11.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgpack

from agiledart_dataflow.state.key_groups import OperatorState
from agiledart_dataflow.state.plain_codec import StateFormatError, array_header

Pieces = Iterable[bytes]
"""The bytes of a snapshot behind each other; whoever asks again gets them from the beginning."""

PIECE_BYTES: Final = 1 << 20
"""Of bytes that are there in one piece, so much is given at once."""

_MOST_BYTES: Final = (1 << 31) - 1
"""Of one group: beyond what a block of an element may have, so that its bound is the one that counts."""


def restore_groups(state: OperatorState, snapshot: bytes | Pieces) -> bytes:
    """Make the groups of a state those of a whole snapshot; returns the snapshot without them (`SnapshotReader.remainder`).

    Raises `StateFormatError` for bytes that are no snapshot, or that the code cannot read.
    """
    reader = SnapshotReader(snapshot)
    for group in state.groups():
        state.drop_group(group)
    for group, data in reader.groups():
        state.restore_group(group, data)
    return reader.remainder()


class SnapshotReader:
    """Reads a snapshot once: all of `groups` first, then `remainder`.

    Args:
        snapshot: its bytes, or the pieces of which they are made.

    Both raise `StateFormatError` for bytes that are no snapshot, or end too soon.
    """

    def __init__(self, snapshot: bytes | Pieces) -> None:
        self._pieces = iter(_in_pieces(snapshot) if isinstance(snapshot, bytes) else snapshot)
        self._unpacker = msgpack.Unpacker(max_buffer_size=_MOST_BYTES)
        self._held: list[bytes] = []  # pieces from `_held_from` on, for parts that are read by their types later
        self._held_from = 0
        self._entered = b""

    def groups(self) -> Iterator[tuple[int, bytes]]:
        """The key groups of the state."""
        self._array(5)
        self._entered = self._raw()
        self._array(2)
        for _ in range(self._next(self._unpacker.read_array_header)):
            self._array(2)
            group, data = self._next(self._unpacker.unpack), self._next(self._unpacker.unpack)
            if type(group) is not int or type(data) is not bytes:
                raise StateFormatError("what stands for a key group in a snapshot is none")
            self._discard_read_pieces()
            yield group, data

    def remainder(self) -> bytes:
        """All but the groups, as the snapshot of an instance whose state has none."""
        rest, sent, watermark, counts = (self._raw() for _ in range(4))
        if self._unpacker.tell() != self._held_from + sum(map(len, self._held)) or any(self._pieces):
            raise StateFormatError("a snapshot goes on behind its end")
        return b"".join(
            (array_header(5), self._entered, array_header(2), array_header(0), rest, sent, watermark, counts)
        )

    def _array(self, length: int) -> None:
        if self._next(self._unpacker.read_array_header) != length:
            raise StateFormatError(f"a part of a snapshot has not the {length} parts that it should have")

    def _raw(self) -> bytes:
        """The next value as it is written."""
        self._discard_read_pieces()
        start = self._unpacker.tell() - self._held_from
        self._next(self._unpacker.skip)
        end = self._unpacker.tell() - self._held_from
        return b"".join(self._held)[start:end]

    def _discard_read_pieces(self) -> None:
        """Pieces that have been read are held no longer."""
        read = self._unpacker.tell()
        while self._held and self._held_from + len(self._held[0]) <= read:
            self._held_from += len(self._held.pop(0))

    def _next(self, read: Callable[[], Any]) -> Any:
        while True:
            try:
                return read()
            except msgpack.OutOfData:
                piece = next(self._pieces, None)
                if piece is None:
                    raise StateFormatError("a snapshot ends before it is whole") from None
                self._unpacker.feed(piece)
                self._held.append(piece)
            except (ValueError, msgpack.UnpackException) as error:
                raise StateFormatError(f"what should be a snapshot cannot be read: {error}") from None


def _in_pieces(raw: bytes) -> Iterator[bytes]:
    """The pieces of bytes that are there."""
    for start in range(0, len(raw), PIECE_BYTES):
        yield raw[start : start + PIECE_BYTES]
