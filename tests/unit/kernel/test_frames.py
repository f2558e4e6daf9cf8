"""Frames, HELLO and the header of data frames."""

import msgpack
import msgspec
import pytest

from agiledart_kernel import frames
from agiledart_kernel.errors import Refused, RemoteProtocolError
from agiledart_kernel.frames import (
    ROWS_POSITION,
    Acknowledgement,
    DataHeader,
    FrameKind,
    FrameReader,
    Hello,
    decode_hello,
    encode_hello,
    frame,
)
from agiledart_kernel.limits import MAX_DATA_FRAME_BYTES, MAX_FRAME_BYTES, MAX_HELLO_BYTES
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.reachability import Reachability

GOLDEN_HELLO = (
    "dc0012010101" "91a56c61746572" "a76f7665726c6179" "91c441" + "07" * 65 + "03"
    "a3706931" "ae3139322e302e322e313a39343634"
    "a56174746963" "a5686f737431" "a5302e322e30" "cf0000018bcfe5687b"
    "c401aa" "c401bb" "c401cc" "a0" "9500a090c290"
)  # fmt: skip


def read_all(reader: FrameReader) -> list[tuple[int, bytes]]:
    found = []
    while (one := reader.next()) is not None:
        found.append(one)
    return found


def test_a_frame_is_length_kind_body() -> None:
    assert frame(FrameKind.CONTROL, b"abc").hex() == "0000000301616263"
    assert frame(FrameKind.CLOSE, b"").hex() == "0000000004"


def test_frames_cut_anywhere_are_reassembled() -> None:
    sent = [(1, b"a" * 10), (2, b"b" * 3_000), (3, b""), (4, b"c")]
    stream = b"".join(frame(kind, body) for kind, body in sent)
    for size in (1, 2, 3, 5, 7, 1_000, len(stream)):
        reader = FrameReader(limit=MAX_FRAME_BYTES)
        got = []
        for start in range(0, len(stream), size):
            reader.feed(stream[start : start + size])
            got += read_all(reader)
        assert got == sent
        assert reader.buffered == 0


def test_a_part_is_kept_until_the_rest_comes() -> None:
    reader = FrameReader()
    whole = frame(1, b"hello")
    reader.feed(whole[:3])
    assert reader.next() is None
    assert reader.buffered == 3
    reader.feed(whole[3:7])
    assert reader.next() is None
    reader.feed(whole[7:] + whole)
    assert read_all(reader) == [(1, b"hello"), (1, b"hello")]


@pytest.mark.parametrize(
    ("kind", "limit"),
    [(0, MAX_HELLO_BYTES), (1, MAX_FRAME_BYTES), (2, MAX_DATA_FRAME_BYTES), (3, 1_024), (4, 256)],
)
def test_each_kind_has_its_limit_checked_on_the_header(kind: int, limit: int) -> None:
    reader = FrameReader(limit=MAX_FRAME_BYTES)
    reader.feed(limit.to_bytes(4, "big") + bytes([kind]))
    assert reader.next() is None
    reader = FrameReader(limit=MAX_FRAME_BYTES)
    reader.feed((limit + 1).to_bytes(4, "big") + bytes([kind]))
    with pytest.raises(RemoteProtocolError) as error:
        reader.next()
    assert error.value.reason == "oversize"
    with pytest.raises(ValueError, match="at most"):
        frame(kind, bytes(limit + 1))


def test_before_hello_is_accepted_every_kind_is_small() -> None:
    reader = FrameReader()
    reader.feed((MAX_HELLO_BYTES + 1).to_bytes(4, "big") + b"\x01")
    with pytest.raises(RemoteProtocolError) as error:
        reader.next()
    assert error.value.reason == "oversize"


def test_an_unknown_kind_ends_the_connection() -> None:
    reader = FrameReader()
    reader.feed(b"\0\0\0\0\x07")
    with pytest.raises(RemoteProtocolError) as error:
        reader.next()
    assert error.value.reason == "kind"


def test_plain_http_is_refused_as_oversize_without_waiting() -> None:
    reader = FrameReader()
    reader.feed(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(RemoteProtocolError):
        reader.next()


def test_a_close_reason_cannot_control_a_terminal() -> None:
    assert frames.decode_close_reason(frames.encode_close_reason("expired")) == "expired"
    assert "\x1b" not in frames.decode_close_reason(b"\x1b[31mred\n\xff\x00")
    assert frames.decode_close_reason(b"") == "no reason given"
    assert len(frames.encode_close_reason("x" * 10_000)) <= frames.MAX_CLOSE_BYTES
    frame(FrameKind.CLOSE, frames.encode_close_reason("é" * 10_000))


# ---------------------------------------------------------------------------------------------------------------- HELLO

HELLO = Hello(
    1, 1, ("later",), "overlay", (b"\x07" * 65,), 3, "pi1", "192.0.2.1:9464", "attic", "host1", "0.2.0", 1_700_000_000_123,
    b"\xaa", b"\xbb", b"\xcc",
)  # fmt: skip


def test_golden_hello() -> None:
    raw = encode_hello(HELLO)
    assert raw.hex() == GOLDEN_HELLO
    assert decode_hello(raw) == HELLO


def test_hello_read_by_an_independent_library() -> None:
    assert msgpack.unpackb(encode_hello(HELLO)) == [
        1, 1, 1, ["later"], "overlay", [b"\x07" * 65], 3, "pi1", "192.0.2.1:9464", "attic", "host1", "0.2.0", 1_700_000_000_123,
        b"\xaa", b"\xbb", b"\xcc", "", [0, "", [], False, []],
    ]  # fmt: skip


def test_a_newer_hello_is_read_and_an_older_one_gets_defaults() -> None:
    newer = msgpack.packb([*msgpack.unpackb(encode_hello(HELLO)), "appended in version 2", 7])
    assert decode_hello(newer) == HELLO
    assert decode_hello(msgpack.packb([1, 1, 1])) == Hello(1, 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (0, 2), (1, 0), (1, "1"), (2, 70_000), (3, "x"), (3, ["a b"]), (3, ["x"] * 33), (4, "s" * 17), (5, [b"short"]),
        (5, [b"\x07" * 65] * 7), (5, [b"\x07" * 600]), (6, -1), (6, 2**63), (7, "n" * 65), (7, "a\nb"), (7, None),
        (8, "no spaces"), (8, "a" * 271), (9, "z" * 65), (10, "\x1b[2J"),
        (13, bytes(257)), (14, bytes(1_281)), (15, "text"), (16, "no spaces"), (17, [0, "", [bytes(16)] * 3]),
    ],
)  # fmt: skip
def test_a_hello_with_a_bad_field_is_refused(field: int, value: object) -> None:
    plain = msgpack.unpackb(encode_hello(HELLO))
    plain[field] = value
    with pytest.raises(RemoteProtocolError) as error:
        decode_hello(msgpack.packb(plain))
    assert error.value.reason == "form"


def test_the_largest_legal_chain_fits_into_a_hello() -> None:
    chain = tuple(bytes([n]) * 576 for n in range(6))
    names = ("é" * 64, "a" * 270, "z" * 64, "h" * 64)
    features = tuple("f" * 30 + f"{n:02}" for n in range(32))
    reach = Reachability(2**62, "o" * 64, (NodeId(2**128 - 1), NodeId(1)), True)
    more = (bytes(256), bytes(1_280), bytes(1_280))
    hello = Hello(1, 65_535, features, "sink_log", chain, 2**62, *names, "s" * 32, 2**52, *more)
    hello = msgspec.structs.replace(hello, seen="s" * 64, reach=reach)
    assert len(encode_hello(hello)) < MAX_HELLO_BYTES
    assert decode_hello(encode_hello(hello)) == hello


@pytest.mark.parametrize(
    ("mine", "theirs", "agreed"),
    [((1, 1), (1, 1), 1), ((1, 3), (2, 5), 3), ((2, 5), (1, 2), 2), ((1, 1), (2, 3), None), ((4, 5), (1, 3), None)],
)
def test_the_highest_common_protocol_is_used(
    mine: tuple[int, int], theirs: tuple[int, int], agreed: int | None
) -> None:
    a, b = Hello(*mine), Hello(*theirs)
    if agreed is not None:
        assert frames.negotiate(a, b) == frames.negotiate(b, a) == agreed
        return
    with pytest.raises(Refused) as refusal:
        frames.negotiate(a, b)
    assert refusal.value.reason == "protocol"


def test_a_refusal_names_the_older_side_and_the_remedy() -> None:
    old, new = Hello(1, 4, name="pi1", software="0.1.0"), Hello(5, 6, name="pi2", software="0.2.0")
    text = "protocol: update AgileDart on pi1 (0.1.0), it speaks protocol 4, pi2 (0.2.0) 5"
    for mine, theirs in ((old, new), (new, old)):
        with pytest.raises(Refused) as refusal:
            frames.negotiate(mine, theirs)
        assert str(refusal.value) == text


# ----------------------------------------------------------------------------------------------------------------- DATA

HEADER = DataHeader(
    application=0x0102030405060708, attempt=9, edge=10, source=11, source_generation=12, target=13,
    target_generation=14, epoch=15, frame=16,
    sequence=17, rows=18, schema=19,
)  # fmt: skip
GOLDEN_HEADER = (
    "02000000" "0102030405060708" "00000009" "000a" "000b" "000c" "000d" "000e" "0000" "0000000f" "0000000000000010"
    "0000000000000011" "00000012" "00000013"
)  # fmt: skip
GOLDEN_HEADER_OF_PROTOCOL_1 = (
    "01001200" "0102030405060708" "00000009" "000a" "000b" "000c" "0000" "0000000d" "0000000e" "000000000000000f"
    "00000010" "00000011"
)  # fmt: skip
ACK = Acknowledgement(0x0102030405060708, 9, 10, 11, 12, 13, 14, frame_rows=17, frames=15, watermarks=16)
GOLDEN_ACK = (
    "02000000" "0102030405060708" "00000009" "000a" "000b" "000c" "000d" "000e" "0011" "000000000000000f" "0000000000000010"
)  # fmt: skip
GOLDEN_ACK_OF_PROTOCOL_1 = "0102030405060708000a000b000c0000000000000000000f0000000000000010"


def test_golden_data_header() -> None:
    assert HEADER.pack().hex() == GOLDEN_HEADER
    assert DataHeader.unpack(HEADER.pack() + b"rows") == HEADER
    assert len(HEADER.pack()) == frames.DATA_HEADER_BYTES == 56


def test_golden_acknowledgement() -> None:
    assert ACK.pack().hex() == GOLDEN_ACK
    assert Acknowledgement.unpack(ACK.pack()) == ACK
    resting = ACK._replace(rest=20)
    assert resting.pack().hex() == GOLDEN_ACK.replace("02000000", "02140000", 1)
    assert Acknowledgement.unpack(resting.pack()) == resting


def test_frames_of_protocol_1_name_no_attempt_and_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="version 1"):
        DataHeader.unpack(bytes.fromhex(GOLDEN_HEADER_OF_PROTOCOL_1) + b"some more rows")
    with pytest.raises(RemoteProtocolError, match="has 44 bytes, got 32"):
        Acknowledgement.unpack(bytes.fromhex(GOLDEN_ACK_OF_PROTOCOL_1))
    with pytest.raises(RemoteProtocolError, match="version 1"):
        Acknowledgement.unpack(b"\x01" + ACK.pack()[1:])


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"", "form"),
        (HEADER.pack()[:-1], "form"),
        (b"\x01" + HEADER.pack()[1:], "form"),
        (b"\x03" + HEADER.pack()[1:], "form"),
        (HEADER._replace(flags=2).pack(), "form"),
        (HEADER._replace(flags=frames.PUNCTUATION_ONLY).pack(), "form"),
        (HEADER._replace(rows=0).pack(), "form"),
        (HEADER._replace(rows=frames.MAX_ROWS + 1).pack(), "oversize"),
    ],
)
def test_a_bad_data_header_is_refused(header: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError) as error:
        DataHeader.unpack(header)
    assert error.value.reason == reason


@pytest.mark.parametrize("flags", [frames.PUNCTUATION_ONLY, frames.BARRIER, frames.OVERTAKING_BARRIER])
def test_a_punctuation_and_a_barrier_have_no_rows(flags: int) -> None:
    header = HEADER._replace(rows=0, flags=flags, epoch=3)
    assert DataHeader.unpack(header.pack()) == header
    assert bool(flags & frames.BARRIER) == (flags in (2, 3))
    if flags & frames.BARRIER:
        with pytest.raises(RemoteProtocolError, match="without a number"):
            DataHeader.unpack(header._replace(epoch=0).pack())


def test_numbers_of_runs_differ_by_name_version_and_ticket() -> None:
    numbers = {
        frames.application_number(name, version, ticket)
        for name in ("a", "b", "a\0")
        for version in (1, 2, 12)
        for ticket in (0, 1)
    }
    assert len(numbers) == 18
    assert all(0 <= number < 2**64 for number in numbers)


def test_the_header_of_rows_surrounds_their_body() -> None:
    header = DataHeader(2**63, 7, 3, 4, 1, 5, 2, 0, 98, 99, 12, 8)
    before, behind = header.bytes_outside_position()
    assert before + ROWS_POSITION.pack(98, 99, 12) + behind == header.pack()


@pytest.mark.parametrize("step", [1_000, 65_536, 1 << 20, 4 << 20])
def test_a_long_frame_arrives_in_parts_and_the_next_one_is_not_lost(step: int) -> None:
    bodies = [b"short", bytes(range(256)) * 12_288, b"", b"x" * (2 << 20), b"last"]
    stream = b"".join(frame(FrameKind.CONTROL, body) for body in bodies)
    reader = FrameReader(limit=MAX_FRAME_BYTES)
    found, fed = [], 0
    for begin in range(0, len(stream), step):
        data = stream[begin : begin + step]
        reader.feed(data)
        fed += len(data)
        while (item := reader.next()) is not None:
            found.append(item[1])
        assert reader.buffered == fed - sum(len(body) + frames.HEADER_BYTES for body in found)
        assert reader.is_empty == (reader.buffered == 0)
    assert found == bodies
