"""Frames: how a stream of bytes becomes messages, and the two frame bodies that need no codec union.

A frame is `length u32 big-endian · kind u8 · body`; the length counts the body. The functions take bytes and return
values; they do no I/O.
"""

import struct
from enum import IntEnum
from hashlib import sha256
from typing import Annotated, Final, NamedTuple

import msgspec

from agiledart_kernel.clocks import WallMs
from agiledart_kernel.codec import Codec
from agiledart_kernel.counts import Count
from agiledart_kernel.errors import Refused, RemoteProtocolError
from agiledart_kernel.limits import (
    MAX_CHAIN_LINKS,
    MAX_DATA_FRAME_BYTES,
    MAX_FRAME_BYTES,
    MAX_HELLO_BYTES,
    MAX_LINK_BYTES,
    MAX_RECEIPT_BYTES,
    MAX_TOKEN_RECORD_BYTES,
)
from agiledart_kernel.machine import Message
from agiledart_kernel.reachability import UNKNOWN_REACHABILITY, Reachability

PROTOCOL_MIN: Final = 1
PROTOCOL_MAX: Final = 5
"""The wire protocols that this software speaks. Protocol 2 names attempt and generations in DATA and ACK frames.

In protocol 3 a link answers probes, and data frames may be sent again over another link. In protocol 4 a barrier may overtake
rows that wait for credit. In protocol 5 registers hold digests of the runs' keys, and their voters have shares.
"""

DATA_PROTOCOL: Final = 3
"""The first protocol in which executors understand each other's rows."""

PROBE_PROTOCOL: Final = 3
"""The first protocol in which a link answers probes."""

OVERTAKING_PROTOCOL: Final = 4
"""The first protocol in which a receiver takes barriers that have overtaken rows."""

SPLIT_KEY_PROTOCOL: Final = 5
"""The first protocol in which agents understand each other's registers. Before it a register held the key of its run."""

HEADER_BYTES: Final = 5
FRAME_HEADER: Final = struct.Struct(">IB")
"""Length of the body, kind."""


class FrameKind(IntEnum):
    """Kind of a frame's body. Numbers are never reused."""

    HELLO = 0
    CONTROL = 1
    DATA = 2
    ACK = 3
    CLOSE = 4
    PROBE = 5
    ECHO = 6


MAX_ACK_BYTES: Final = 1_024
MAX_CLOSE_BYTES: Final = 256
MAX_PROBE_BYTES: Final = 16
"""A probe asks whether the other end of the link is there. The link itself answers with an echo of the same bytes."""

LIMIT_BY_KIND: Final = (
    MAX_HELLO_BYTES,
    MAX_FRAME_BYTES,
    MAX_DATA_FRAME_BYTES,
    MAX_ACK_BYTES,
    MAX_CLOSE_BYTES,
    MAX_PROBE_BYTES,
    MAX_PROBE_BYTES,
)
"""Largest body of each kind, by the kind's number."""


def oversize(kind: int, body: bytes) -> ValueError:
    """Return the error to raise for a body that is larger than its kind allows."""
    return ValueError(f"a {FrameKind(kind).name} frame has at most {LIMIT_BY_KIND[kind]} bytes, got {len(body)}")


def frame(kind: int, body: bytes) -> bytes:
    """Return the wire form of one frame. Raises ValueError when the body is larger than its kind allows: our own mistake."""
    if len(body) > LIMIT_BY_KIND[kind]:
        raise oversize(kind, body)
    return FRAME_HEADER.pack(len(body), kind) + body


_LONG_FRAME_BYTES: Final = 1 << 20


class FrameReader:
    """Splitter of a byte stream into frames. The caller feeds received bytes, then takes frames until `next` returns None.

    Args:
        limit: largest body, whatever its kind. It is `MAX_HELLO_BYTES` until the peer is verified; the caller raises it
            then.

    Attributes:
        is_empty: no byte is left, so the caller need not call `next`.
    """

    __slots__ = ("_buffer", "_kept", "_missing", "_parts", "_start", "is_empty", "limit")

    def __init__(self, limit: int = MAX_HELLO_BYTES) -> None:
        self.limit = limit
        self._buffer: bytes | bytearray = b""
        self._start = 0
        self._parts: list[bytes | bytearray] = []  # parts of an incomplete long frame: joined once, never grown
        self._missing = self._kept = 0
        self.is_empty = True

    @property
    def buffered(self) -> int:
        """Bytes that were fed and are not part of a frame taken so far."""
        return len(self._buffer) - self._start + self._kept

    def feed(self, data: bytes) -> None:
        """Append received bytes."""
        self.is_empty = self.is_empty and not data
        if self._missing:
            self._keep(data)
            return
        if self._start == len(self._buffer):
            self._buffer, self._start = data, 0  # the usual case: no bytes were left over, so nothing is copied
            return
        if isinstance(self._buffer, bytes):
            self._buffer = bytearray(memoryview(self._buffer)[self._start :])
        elif self._start:
            del self._buffer[: self._start]
        self._start = 0
        self._buffer += data

    def _keep(self, data: bytes) -> None:
        self._parts.append(data)
        self._kept += len(data)
        self._missing -= min(len(data), self._missing)
        if not self._missing:
            self._buffer = b"".join(self._parts)
            self._parts.clear()
            self._kept = 0

    def next(self) -> tuple[int, bytes] | None:
        """Return the next complete frame as (kind, body), or None.

        Raises `RemoteProtocolError` (`oversize`, `kind`) as soon as a header shows the violation.
        """
        if len(self._buffer) - self._start < HEADER_BYTES:
            return None
        length, kind = FRAME_HEADER.unpack_from(self._buffer, self._start)
        if kind >= len(LIMIT_BY_KIND):
            raise RemoteProtocolError("kind", f"no frame has the kind {kind}")
        if length > self.limit or length > LIMIT_BY_KIND[kind]:
            raise RemoteProtocolError("oversize", f"{length} bytes, at most {min(self.limit, LIMIT_BY_KIND[kind])}")
        begin = self._start + HEADER_BYTES
        end = begin + length
        if len(self._buffer) < end:
            # A long frame is collected in parts: one growing buffer would be copied with every read.
            if length >= _LONG_FRAME_BYTES:
                self._missing = end - len(self._buffer)
                rest, self._buffer, self._start = self._buffer[self._start :], b"", 0
                self._parts.append(rest)
                self._kept = len(rest)
            return None
        buffer = self._buffer
        body = buffer[begin:end] if type(buffer) is bytes else bytes(memoryview(buffer)[begin:end])
        self._start = end
        self.is_empty = end == len(buffer)
        return kind, body


def encode_close_reason(reason: str) -> bytes:
    """Return the body of a CLOSE frame."""
    return reason.encode()[:MAX_CLOSE_BYTES]


def decode_close_reason(body: bytes) -> str:
    """Return the reason in a CLOSE frame, safe to print: a peer's control characters must not reach a log or a terminal."""
    text = body[:MAX_CLOSE_BYTES].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "?" for c in text) or "no reason given"


# ---------------------------------------------------------------------------------------------------------------- HELLO

_Printable = r"^[^\x00-\x20\x7f]*\Z"
_Text64 = Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
_Text32 = Annotated[str, msgspec.Meta(max_length=32, pattern=_Printable)]
_Address = Annotated[str, msgspec.Meta(max_length=270, pattern=_Printable)]
_SocketAddress = Annotated[str, msgspec.Meta(max_length=64, pattern=_Printable)]
_Feature = Annotated[str, msgspec.Meta(min_length=1, max_length=32, pattern=_Printable)]
_SignedLink = Annotated[bytes, msgspec.Meta(min_length=65, max_length=64 + MAX_LINK_BYTES)]
_Receipt = Annotated[bytes, msgspec.Meta(max_length=MAX_RECEIPT_BYTES)]
_Version = Annotated[int, msgspec.Meta(ge=1, le=65_535)]


class Hello(Message, frozen=True, gc=False, tag=1):
    """First frame in both directions: the sender's identity, its protocols, and the service that it wants.

    The receiver trusts none of it before verification.

    Args:
        protocol_min, protocol_max: wire protocols that the sender speaks.
        service: the logical port that the dialer wants (`kernel/services.py`); the acceptor repeats it.
        features: optional abilities; abilities that both sides have may be used.
        chain: the sender's signed links, from the authority's down to its own (`kernel/grants.py`).
        incarnation, name, address, zone, host: as in `Peer`.
        software: the sender's version of AgileDart; empty: a version before 0.2, which did not send it.
        wall_ms: the sender's clock when it sent this frame, milliseconds since 1970; 0: unknown.
        token: the signed record of the token by which the sender joined; empty: it joined without a token.
        receipt: proof that the sender's key was registered as a use of that token (`kernel/registrations.py`).
        welcome: the receiver's own receipt, for the receiver to store.
        seen: the address from which the acceptor saw the dialer's connection come; empty in a dialer's HELLO.
        reach: how the sender is reached.
    """

    protocol_min: _Version = PROTOCOL_MIN
    protocol_max: _Version = PROTOCOL_MAX
    features: Annotated[tuple[_Feature, ...], msgspec.Meta(max_length=32)] = ()
    service: Annotated[str, msgspec.Meta(max_length=16)] = ""
    chain: Annotated[tuple[_SignedLink, ...], msgspec.Meta(max_length=MAX_CHAIN_LINKS)] = ()
    incarnation: Count = 0
    name: _Text64 = ""
    address: _Address = ""
    zone: _Text64 = ""
    host: _Text64 = ""
    software: _Text32 = ""
    wall_ms: WallMs = 0
    token: Annotated[bytes, msgspec.Meta(max_length=MAX_TOKEN_RECORD_BYTES)] = b""
    receipt: _Receipt = b""
    welcome: _Receipt = b""
    seen: _SocketAddress = ""
    reach: Reachability = UNKNOWN_REACHABILITY


_HELLO: Final[Codec[Hello]] = Codec(Hello, MAX_HELLO_BYTES)


def encode_hello(hello: Hello) -> bytes:
    """Return the body of a HELLO frame."""
    return _HELLO.encode(hello)


def decode_hello(body: bytes) -> Hello:
    """Decode the body of a HELLO frame. Raises `RemoteProtocolError`."""
    return _HELLO.decode(body)


def negotiate(mine: Hello, theirs: Hello) -> int:
    """Return the highest protocol that both sides speak. Raises `Refused("protocol")` when there is none."""
    older, newer = sorted((mine, theirs), key=lambda hello: hello.protocol_max)
    if older.protocol_max < newer.protocol_min:
        text = f"update AgileDart on {_named(older)}, it speaks protocol {older.protocol_max}, {_named(newer)} {newer.protocol_min}"
        raise Refused("protocol", text)
    return older.protocol_max


def _named(hello: Hello) -> str:
    return f"{hello.name or 'the peer'} ({hello.software})" if hello.software else hello.name or "the peer"


# ----------------------------------------------------------------------------------------------------------------- DATA

DATA_VERSION: Final = 2
"""Layout of DATA and ACK bodies. Layout 1 (protocol 1) named neither attempts nor generations and is refused."""

PUNCTUATION_ONLY: Final = 1
"""Flag: the frame has no rows, only the position up to which its input is complete. It needs no credit."""

BARRIER: Final = 2
"""Flag: the frame has no rows; checkpoint `epoch` begins behind it. It keeps its place among the rows and needs credit.
"""

OVERTAKING_BARRIER: Final = BARRIER | PUNCTUATION_ONLY
"""Flags: a barrier that has overtaken the rows that waited for credit. It needs none, and is acknowledged on receipt."""

MAX_ROWS: Final = 1 << 16
"""Largest number of rows that a header may claim: no sensible encoding fits more into a data frame of 4 MiB."""

_DATA = struct.Struct(">BBxxQIHHHHHxxIQQII")
DATA_HEADER_BYTES: Final = _DATA.size


def application_number(name: str, version: int, ticket: int) -> int:
    """Return the number of a run, which its frames carry: 8 bytes of a hash of its application's name, version and ticket.

    Args:
        ticket: random number of the submission. Both sides of a partition may assign the same version of a name; the
            ticket tells them apart.
    """
    return int.from_bytes(sha256(f"agiledart/application\0{name}\0{version}\0{ticket}".encode()).digest()[:8], "big")


class DataHeader(NamedTuple):
    """Fixed start of a DATA body: a receiver can refuse the frame from it without decoding the rows.

    Application, attempt, edge and both ends name the channel. They stand together, so all frames of one channel have
    these 24 bytes in common. A stage gets a new generation when its instances change nodes or number while rows flow.

    Args:
        flags: 0, or `PUNCTUATION_ONLY`, `BARRIER` or `OVERTAKING_BARRIER`, which go with 0 rows.
        application: `application_number` of its run.
        attempt: number of the execution attempt. It grows with every roll-back, and a receiver takes frames of its own
            attempt only.
        edge: index of the edge in the plan.
        source, source_generation: instance number of the upstream stage, and the generation to which the instance
            belongs.
        target, target_generation: the same of the downstream stage.
        epoch: checkpoint epoch that the rows belong to; of a barrier: the epoch that begins behind it.
        frame: number of this frame on its channel, from 0. Rows, watermarks and barriers are counted alike.
        sequence: number of the first row on this channel.
        rows: number of rows in the frame.
        schema: id of the rows' schema.
    """

    application: int
    attempt: int
    edge: int
    source: int
    source_generation: int
    target: int
    target_generation: int
    epoch: int
    frame: int
    sequence: int
    rows: int
    schema: int
    flags: int = 0

    def pack(self) -> bytes:
        """Return the 56 header bytes. Raises struct.error when a field is out of its range: our own mistake."""
        return _DATA.pack(DATA_VERSION, self.flags, *self[:-1])

    def bytes_outside_position(self) -> tuple[bytes, bytes]:
        """Return the header bytes that all row frames of this channel share, before and behind the packed `ROWS_POSITION`."""
        packed = self._replace(flags=0, epoch=0).pack()
        return packed[:_POSITION_AT], packed[_POSITION_AT + ROWS_POSITION.size :]

    @classmethod
    def unpack(cls, body: bytes | memoryview) -> "DataHeader":
        """Decode the header of a DATA body. Raises `RemoteProtocolError("form")`."""
        if len(body) < DATA_HEADER_BYTES:
            raise RemoteProtocolError("form", f"a data frame has at least {DATA_HEADER_BYTES} bytes, got {len(body)}")
        version, flags, *rest = _DATA.unpack_from(body)
        if version != DATA_VERSION:
            raise RemoteProtocolError("form", f"data frame of version {version}")
        header = cls._make((*rest, flags))
        if flags not in (0, PUNCTUATION_ONLY, BARRIER, OVERTAKING_BARRIER) or (header.rows == 0) != (flags != 0):
            raise RemoteProtocolError("form", f"flags {flags} with {header.rows} rows")
        if flags & BARRIER and not header.epoch:
            raise RemoteProtocolError("form", "a barrier without a number")
        if header.rows > MAX_ROWS:
            raise RemoteProtocolError("oversize", f"{header.rows} rows, at most {MAX_ROWS}")
        return header


_CHANNEL: Final = slice(4, 28)
ROWS_POSITION: Final = struct.Struct(">QQI")
"""Fields of a frame with rows: its number, its sequence, its number of rows."""

_POSITION_AT: Final = 32


def channel_of(body: bytes) -> bytes:
    """Return the bytes that the headers of one channel have in common: application, attempt, edge, both ends with their
    generations.
    """
    return body[_CHANNEL]


def rows_of_channel(body: bytes, channel: bytes) -> tuple[int, int, int] | None:
    """Return (frame, sequence, rows) of a DATA body with rows on a verified channel, or None.

    `channel` is the `channel_of` of a header that `DataHeader.unpack` accepted. The result is None for every other
    body; `DataHeader.unpack` then validates it. That method accepts every body that this function accepts, with the
    same values.
    """
    if body[_CHANNEL] != channel or body[0] != DATA_VERSION or body[1] or len(body) < DATA_HEADER_BYTES:
        return None
    frame, sequence, rows = ROWS_POSITION.unpack_from(body, _POSITION_AT)
    return (frame, sequence, rows) if 0 < rows <= MAX_ROWS else None


# ------------------------------------------------------------------------------------------------------------------ ACK

_ACK: Final = struct.Struct(">BBxxQIHHHHHHQQ")
ACK_BYTES: Final = _ACK.size


class Acknowledgement(NamedTuple):
    """Body of an ACK frame: what the downstream end of a channel has taken, in totals since the channel began.

    Args:
        channel: as in `DataHeader`, from `application` to `target_generation`.
        frame_rows: largest number of rows in a data frame from now on; 0: not stated, as by older software.
        frames: data frames and barriers that the operator has taken.
        watermarks: frames without rows that arrived.
        rest: quarters of a second for which sources upstream are to let rows gather; 0: for none, as by older software.
    """

    application: int
    attempt: int
    edge: int
    source: int
    source_generation: int
    target: int
    target_generation: int
    frame_rows: int
    frames: int
    watermarks: int
    rest: int = 0

    def pack(self) -> bytes:
        """Return the 44 bytes."""
        return _ACK.pack(DATA_VERSION, self.rest, *self[:-1])

    @classmethod
    def unpack(cls, body: bytes | memoryview) -> "Acknowledgement":
        """Decode an ACK body. Raises `RemoteProtocolError("form")`."""
        if len(body) != ACK_BYTES:
            raise RemoteProtocolError("form", f"an acknowledgement has {ACK_BYTES} bytes, got {len(body)}")
        version, rest, *totals = _ACK.unpack(body)
        if version != DATA_VERSION:
            raise RemoteProtocolError("form", f"acknowledgement of version {version}")
        return cls._make((*totals, rest))
