"""Messages between an agent and its process for columns: a length of four bytes, then MessagePack."""

import struct
from typing import Annotated, Final

import msgspec

MAX_MESSAGE_BYTES: Final = 64 << 20
_LENGTH = struct.Struct(">I")
LENGTH_BYTES: Final = _LENGTH.size


class RewriteSegments(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Request: rewrite full segments below a state directory, at most `limit`; the answer is `Rewritten`."""

    root: str
    limit: int = 4
    left: tuple[tuple[str, int, int], ...] = ()


class Rewritten(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Answer: numbers of rewritten segments.

    Args:
        left: (log, partition, first offset) of segments that stay as they are.
        failure: why the disk refused; empty: it did not.
    """

    segments: int
    left: tuple[tuple[str, int, int], ...] = ()
    failure: str = ""


class RowsWanted(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Request: the rows of a batch by columns; the answer is `RowsMade`."""

    root: str
    log: str
    rows: Annotated[int, msgspec.Meta(ge=0)]
    columns: tuple[bytes, ...]


class RowsMade(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Answer: the MessagePack array of the rows.

    Args:
        fault: why the columns are not readable; empty: they are.
    """

    body: bytes
    fault: str = ""


ColumnsRequest = RewriteSegments | RowsWanted
ColumnsAnswer = Rewritten | RowsMade

REQUESTS: Final = msgspec.msgpack.Decoder(ColumnsRequest)
ANSWERS: Final = msgspec.msgpack.Decoder(ColumnsAnswer)
_ENCODER = msgspec.msgpack.Encoder()


def message(value: ColumnsRequest | ColumnsAnswer) -> bytes:
    """Return a message with its length in front."""
    raw = _ENCODER.encode(value)
    return _LENGTH.pack(len(raw)) + raw


def length_of(head: bytes) -> int:
    """Return the length of a message. Raises ValueError for an impossible one."""
    (length,) = _LENGTH.unpack(head)
    if length > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {length} bytes")
    return int(length)
