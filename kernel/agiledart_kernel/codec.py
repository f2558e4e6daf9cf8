"""Typed, tagged MessagePack messages: the message classes are their own wire form.

A message is an array whose first item is its integer tag. Fields are validated while they are decoded. Unknown tags,
wrong types and oversize input raise `RemoteProtocolError` and nothing else. The decoder ignores trailing fields of a
newer version. Fields that an older version lacks take their defaults. So fields are only ever appended.
"""

from typing import Any, Generic, TypeVar, get_args

import msgspec

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.limits import MAX_FRAME_BYTES
from agiledart_kernel.node_id import NodeId

M = TypeVar("M")


def _to_wire(value: Any) -> Any:
    if isinstance(value, NodeId):
        return value.to_bytes16()
    raise NotImplementedError(f"{type(value).__name__} has no wire form")


def _from_wire(kind: type, value: Any) -> Any:
    if kind is NodeId and isinstance(value, bytes):
        return NodeId.from_bytes16(value)
    raise ValueError(f"expected {kind.__name__}, got {type(value).__name__}")


def encoder() -> msgspec.msgpack.Encoder:
    """Return a MessagePack encoder that knows the kernel's types."""
    return msgspec.msgpack.Encoder(enc_hook=_to_wire)


_ENCODER = encoder()


def encode(value: object) -> bytes:
    """Return the wire form of a message or of any value made of structs, NamedTuples, ids and plain data."""
    return _ENCODER.encode(value)


class Codec(Generic[M]):
    """Decoder of one type, usually a union of tagged messages: `Codec(A | B)`."""

    __slots__ = ("_decoder", "_limit")

    def __init__(self, kind: Any, limit: int = MAX_FRAME_BYTES) -> None:
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(kind, dec_hook=_from_wire)
        self._limit = limit

    def encode(self, message: M) -> bytes:
        """Return the wire form of a message."""
        return _ENCODER.encode(message)

    def decode(self, raw: bytes | bytearray | memoryview) -> M:
        """Return the message that these bytes encode. Raises `RemoteProtocolError` (reason `oversize` or `form`)."""
        if len(raw) > self._limit:
            raise RemoteProtocolError("oversize", f"{len(raw)} bytes, at most {self._limit}")
        try:
            return self._decoder.decode(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
            raise RemoteProtocolError("form", str(error)[:200]) from None


def tags_of(union: Any) -> dict[int, type]:
    """Return tag → message class of a union. Raises ValueError when two classes share a tag."""
    table: dict[int, type] = {}
    for kind in get_args(union) or (union,):
        tag = kind.__struct_config__.tag
        if tag in table:
            raise ValueError(f"tag {tag} is used by {table[tag].__name__} and {kind.__name__}")
        table[tag] = kind
    return table
