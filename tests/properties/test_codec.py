"""Whatever bytes come in, a codec gives a message of its union or raises `RemoteProtocolError`."""

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import ID_BITS, NodeId
from agiledart_kernel.peer import Peer


class Note(Message, frozen=True, gc=False, tag=911):
    to: Peer
    path: tuple[Peer, ...] = ()
    body: bytes = b""


class Count(Message, frozen=True, gc=False, tag=912):
    values: dict[str, int]


CODEC: Codec[Note | Count] = Codec(Note | Count, limit=4_096)

ids = st.integers(0, 2**ID_BITS - 1).map(NodeId)
peers = st.builds(Peer, ids, st.integers(0, 2**62), st.text(max_size=8), st.text(max_size=8))
messages = st.one_of(
    st.builds(Note, peers, st.lists(peers, max_size=4).map(tuple), st.binary(max_size=50)),
    st.builds(Count, st.dictionaries(st.text(max_size=5), st.integers(-(2**63), 2**64 - 1), max_size=5)),
)


def decode_or_refuse(raw: bytes) -> Note | Count | None:
    try:
        return CODEC.decode(raw)
    except RemoteProtocolError as error:
        assert error.reason in ("form", "oversize")  # noqa: PT017  anything else raised fails the test by itself
        return None


@given(messages)
def test_messages_survive_the_wire(message: Note | Count) -> None:
    assert CODEC.decode(CODEC.encode(message)) == message


@given(messages)
def test_an_independent_library_reads_the_same_array(message: Note | Count) -> None:
    tag, *fields = msgpack.unpackb(CODEC.encode(message), strict_map_key=False)
    assert tag == type(message).__struct_config__.tag
    assert len(fields) == len(type(message).__struct_fields__)


@given(st.binary(max_size=5_000))
def test_garbage_is_refused_or_a_message(raw: bytes) -> None:
    found = decode_or_refuse(raw)
    assert found is None or isinstance(found, (Note, Count))


@given(messages, st.data())
def test_damage_is_refused_or_a_message(message: Note | Count, data: st.DataObject) -> None:
    raw = CODEC.encode(message)
    at = data.draw(st.integers(0, len(raw) - 1))
    damaged = raw[:at] + bytes([raw[at] ^ data.draw(st.integers(1, 255))]) + raw[at + 1 :]
    for mangled in (damaged, raw[:at], raw + b"\0"):
        found = decode_or_refuse(mangled)
        assert found is None or isinstance(found, (Note, Count))


@given(st.integers(1, 4_000))
def test_deep_nesting_is_refused(depth: int) -> None:
    assert decode_or_refuse(b"\x91" * depth) is None
    assert decode_or_refuse(b"\x93\xcd\x03\x8f" + b"\x91" * depth) is None
