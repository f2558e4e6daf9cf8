"""Messages between an agent and its reach process: one MessagePack value each, behind four bytes of length."""

import struct
from typing import Final

import msgspec

MAX_MESSAGE_BYTES: Final = 64 * 1024
"""Bytes of one message; a longer one ends the process, as a damaged stream does."""

MAX_LAN_ADDRESSES: Final = 64
"""Addresses of neighbours that are kept; each of them is a guess that TLS has to prove."""

_LENGTH: Final = struct.Struct(">I")


class ReachStart(msgspec.Struct, frozen=True, tag=True):
    """First message of the agent.

    Attributes:
        public_key: the node's Ed25519 key, 32 bytes: the peer id that neighbours see.
        network: prefix of the network's fingerprint, under which neighbours are announced.
        host, port: where the agent accepts links.
        announce: announce and look for neighbours on the local network.
        map_port: ask the router for a port.
    """

    public_key: bytes
    network: str
    host: str
    port: int
    announce: bool
    map_port: bool


class LanPeerFound(msgspec.Struct, frozen=True, tag=True):
    """An address under which a node of this network was announced. Anybody on the local network may announce one."""

    address: str


class AnnouncementSent(msgspec.Struct, frozen=True, tag=True):
    """This node is announced on the local network, and announcements of others are heard from now on."""


class PortMapped(msgspec.Struct, frozen=True, tag=True):
    """The router passes this outside address on to the agent."""

    address: str


class ReachFailed(msgspec.Struct, frozen=True, tag=True):
    """A service does not work, with a reason for users. `service`: `mdns` or `upnp`."""

    service: str
    reason: str


ReachMessage = ReachStart | LanPeerFound | AnnouncementSent | PortMapped | ReachFailed

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(ReachMessage)


def encode_message(message: ReachMessage) -> bytes:
    """Return a message with its length in front."""
    body = _ENCODER.encode(message)
    return _LENGTH.pack(len(body)) + body


class MessageReader:
    """Messages out of a stream of bytes."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[ReachMessage]:
        """Return the messages that are complete now.

        Raises:
            ValueError: a message is too long, or is none.
        """
        self._bytes += data
        messages = []
        while len(self._bytes) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._bytes)
            if length > MAX_MESSAGE_BYTES:
                raise ValueError(f"a message of {length} bytes")
            end = _LENGTH.size + length
            if len(self._bytes) < end:
                break
            try:
                messages.append(_DECODER.decode(bytes(self._bytes[_LENGTH.size : end])))
            except msgspec.MsgspecError as error:
                raise ValueError(str(error)) from None
            del self._bytes[:end]
        return messages
