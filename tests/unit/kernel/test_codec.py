"""The codec: typed, tagged, size-checked; older and newer versions read each other."""

from typing import Annotated

import msgpack
import msgspec
import pytest

from agiledart_kernel.codec import Codec, encode, tags_of
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer


class Ping(Message, frozen=True, gc=False, tag=901):
    to: Peer
    number: int


class PingOfVersionTwo(Message, frozen=True, gc=False, tag=901):
    to: Peer
    number: int
    note: str = "none"


class Pong(Message, frozen=True, gc=False, tag=902):
    keys: tuple[NodeId, ...] = ()
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


CODEC: Codec[Ping | Pong] = Codec(Ping | Pong, limit=1_000)
PEER = Peer(NodeId.from_hex("ab"), 3, "pi", "192.0.2.1:9464", "attic", "host")


def test_a_message_is_an_array_that_begins_with_its_tag() -> None:
    raw = CODEC.encode(Ping(PEER, 7))
    reach = [0, "", [], False, []]
    peer = [PEER.node.to_bytes16(), 3, "pi", "192.0.2.1:9464", "attic", "host", reach]
    assert msgpack.unpackb(raw) == [901, peer, 7]


def test_encoded_bytes_are_golden() -> None:
    assert CODEC.encode(Pong((NodeId(1),), 0.5)).hex() == "93cd038691c410" + "00" * 15 + "01" + "cb3fe0000000000000"


@pytest.mark.parametrize("message", [Ping(PEER, 7), Pong(), Pong((NodeId(0), NodeId(2**128 - 1)), 1.0)])
def test_messages_survive_a_round_trip(message: Ping | Pong) -> None:
    decoded = CODEC.decode(CODEC.encode(message))
    assert decoded == message
    assert type(decoded) is type(message)


def test_ids_are_decoded_as_ids() -> None:
    decoded = CODEC.decode(CODEC.encode(Pong((NodeId(5),))))
    assert isinstance(decoded, Pong)
    assert type(decoded.keys[0]) is NodeId


def test_newer_fields_are_ignored_and_missing_ones_get_the_default() -> None:
    newer: Codec[PingOfVersionTwo] = Codec(PingOfVersionTwo)
    assert CODEC.decode(newer.encode(PingOfVersionTwo(PEER, 1, "hi"))) == Ping(PEER, 1)
    assert newer.decode(CODEC.encode(Ping(PEER, 1))) == PingOfVersionTwo(PEER, 1, "none")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        msgpack.packb([]),
        msgpack.packb([999]),
        msgpack.packb(["901"]),
        msgpack.packb({"tag": 901}),
        msgpack.packb([901, [b"short"], 1]),
        msgpack.packb([901, ["a" * 16], 1]),
        msgpack.packb([901, [bytes(16)], "7"]),
        msgpack.packb([902, [], 2.0]),
        msgpack.packb([902, [], 0.5]) + b"\0",
        b"\x91" * 900,
    ],
)
def test_other_forms_are_refused_as_malformed(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as error:
        CODEC.decode(raw)
    assert error.value.reason == "form"


def test_oversize_is_refused_before_decoding() -> None:
    with pytest.raises(RemoteProtocolError) as error:
        CODEC.decode(bytes(1_001))
    assert error.value.reason == "oversize"


def test_a_tag_belongs_to_one_class() -> None:
    assert tags_of(Ping | Pong) == {901: Ping, 902: Pong}
    assert tags_of(Ping) == {901: Ping}
    with pytest.raises(ValueError, match="901"):
        tags_of(Ping | PingOfVersionTwo)


def test_a_type_without_a_wire_form_is_an_internal_error() -> None:
    with pytest.raises(NotImplementedError):
        encode(object())
