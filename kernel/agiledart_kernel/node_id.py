"""Positions on the ring.

A `NodeId` is a position on a ring of 2^B ids, read as B/b digits of b bits. A key is a `NodeId` too: both live in one
space, so a message can be routed to a key. Source: [Pastry] §2; `id_bits` and `digit_bits` can be set so that small
rings can be checked by hand.
"""

from hashlib import sha256

ID_BITS = 128
DIGIT_BITS = 4
ID_BYTES = ID_BITS // 8


class NodeId(int):
    """A 128-bit position on the ring: an int in memory, 16 bytes on the wire, 32 hex digits in text."""

    __slots__ = ()

    @classmethod
    def from_bytes16(cls, raw: bytes) -> "NodeId":
        """Return the id of 16 wire bytes. Raises ValueError for any other length."""
        if len(raw) != ID_BYTES:
            raise ValueError(f"an id has {ID_BYTES} bytes, got {len(raw)}")
        return cls(int.from_bytes(raw, "big"))

    @classmethod
    def from_hex(cls, text: str) -> "NodeId":
        """Return the id of hex digits. Fewer than 32 digits are padded with zeros on the right."""
        if not 1 <= len(text) <= 2 * ID_BYTES:
            raise ValueError(f"an id has 1 to {2 * ID_BYTES} hex digits, got {len(text)}")
        return cls(int(text.ljust(2 * ID_BYTES, "0"), 16))

    def to_bytes16(self) -> bytes:
        """Return the 16 wire bytes."""
        return int.to_bytes(self, ID_BYTES, "big")

    @property
    def hex(self) -> str:
        """All 32 hex digits."""
        return f"{int(self):032x}"

    @property
    def short(self) -> str:
        """The first 8 hex digits, enough for a reader to tell nodes of one ring apart. All of them in a ring of short ids."""
        return self.hex[:8] if self >> 64 else f"{int(self):x}"[:8]

    def __repr__(self) -> str:
        return f"NodeId({self.short}…)"

    def __str__(self) -> str:
        return self.hex


def node_id_of_key(public_key: bytes, virtual_index: int = 0) -> NodeId:
    """Return the id of a node: the first 16 bytes of SHA-256(Ed25519 public key ‖ virtual index, 2 bytes big-endian).

    Source: spec of the overlay, section 1 (ids cannot be chosen, only drawn by making keys).
    """
    return NodeId.from_bytes16(sha256(public_key + virtual_index.to_bytes(2, "big")).digest()[:ID_BYTES])


def key_of_name(kind: str, name: str) -> NodeId:
    """Return the ring position of a named thing, for example an application's record. `kind` keeps name spaces apart."""
    return NodeId.from_bytes16(sha256(f"agiledart/{kind}\0{name}".encode()).digest()[:ID_BYTES])


def ring_distance(a: int, b: int, bits: int = ID_BITS) -> int:
    """Return δ(a, b): the shorter distance around the ring, in `0 … 2^(bits-1)`."""
    d = (a - b) & ((1 << bits) - 1)
    return min(d, (1 << bits) - d)


def clockwise_distance(a: int, b: int, bits: int = ID_BITS) -> int:
    """Return how far b lies from a in the direction of growing ids."""
    return (b - a) & ((1 << bits) - 1)


def shared_prefix(a: int, b: int, bits: int = ID_BITS, digit_bits: int = DIGIT_BITS) -> int:
    """Return shl(a, b), the number of leading digits that two ids share; all of them when the ids are equal."""
    return (bits - (a ^ b).bit_length()) // digit_bits


def digit(a: int, position: int, bits: int = ID_BITS, digit_bits: int = DIGIT_BITS) -> int:
    """Return the digit of an id at a position; position 0 is the most significant."""
    return (a >> (bits - digit_bits * (position + 1))) & ((1 << digit_bits) - 1)
