"""Whatever bytes come in, framing and decoding raise `RemoteProtocolError` or give valid values, and keep little."""

from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.frames import (
    DATA_HEADER_BYTES,
    LIMIT_BY_KIND,
    PUNCTUATION_ONLY,
    DataHeader,
    FrameReader,
    Hello,
    channel_of,
    decode_close_reason,
    decode_hello,
    encode_hello,
    frame,
    rows_of_channel,
)
from agiledart_kernel.limits import MAX_FRAME_BYTES, MAX_HELLO_BYTES

frames = st.lists(st.tuples(st.integers(0, 4), st.binary(max_size=200)), max_size=10)


@given(frames, st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_any_splitting_gives_the_same_frames(sent: list[tuple[int, bytes]], sizes: list[int]) -> None:
    stream = b"".join(frame(kind, body) for kind, body in sent)
    reader, got, at, turn = FrameReader(MAX_FRAME_BYTES), [], 0, 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        reader.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
        while (one := reader.next()) is not None:
            got.append(one)
            assert reader.is_empty == (reader.buffered == 0)
    assert got == sent
    assert reader.buffered == 0
    assert reader.is_empty


@given(st.lists(st.binary(max_size=300), max_size=8), st.integers(0, MAX_HELLO_BYTES))
def test_garbage_is_split_into_legal_frames_or_refused(chunks: list[bytes], limit: int) -> None:
    reader = FrameReader(limit)
    fed = 0
    try:
        for chunk in chunks:
            reader.feed(chunk)
            fed += len(chunk)
            while (one := reader.next()) is not None:
                kind, body = one
                assert len(body) <= min(limit, LIMIT_BY_KIND[kind])
            assert reader.buffered <= fed
    except RemoteProtocolError as error:
        assert error.reason in ("oversize", "kind")  # noqa: PT017  anything else raised fails the test by itself


@given(st.binary(max_size=400))
def test_a_garbage_hello_is_refused_or_valid(raw: bytes) -> None:
    try:
        hello = decode_hello(raw)
    except RemoteProtocolError as error:
        assert error.reason in ("form", "oversize")  # noqa: PT017  as above
    else:
        assert decode_hello(encode_hello(hello)) == hello


names = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=16)


@given(
    st.builds(
        Hello,
        protocol_min=st.integers(1, 65_535),
        protocol_max=st.integers(1, 65_535),
        service=st.sampled_from(["overlay", "data", "control", "sink_log", ""]),
        chain=st.lists(st.binary(min_size=65, max_size=576), max_size=6).map(tuple),
        incarnation=st.integers(0, 2**62),
        name=names,
        zone=names,
        host=names,
    ),
    st.data(),
)
def test_a_damaged_hello_is_detected_or_harmless(hello: Hello, data: st.DataObject) -> None:
    raw = encode_hello(hello)
    assert decode_hello(raw) == hello
    at = data.draw(st.integers(0, len(raw) - 1))
    damaged = raw[:at] + bytes([raw[at] ^ data.draw(st.integers(1, 255))]) + raw[at + 1 :]
    for mangled in (damaged, raw[:at]):
        try:
            decode_hello(mangled)
        except RemoteProtocolError as error:
            assert error.reason in ("form", "oversize")  # noqa: PT017  as above


u16, u32, u64 = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
headers = st.builds(
    DataHeader, application=u64, attempt=u32, edge=u16, source=u16, source_generation=u16, target=u16,
    target_generation=u16, epoch=u32,
    frame=u64, sequence=u64, rows=st.integers(1, 2**16), schema=u32, flags=st.just(0),
)  # fmt: skip


@given(headers, st.binary(max_size=20))
def test_a_data_header_survives_the_wire(header: DataHeader, rest: bytes) -> None:
    assert DataHeader.unpack(header.pack() + rest) == header
    quiet = header._replace(rows=0, flags=PUNCTUATION_ONLY)
    assert DataHeader.unpack(memoryview(quiet.pack())) == quiet


@given(
    headers,
    st.binary(max_size=20),
    st.lists(st.tuples(st.integers(0, DATA_HEADER_BYTES - 1), st.integers(0, 255)), max_size=3),
)
def test_a_frame_of_a_verified_channel_needs_no_second_verification(
    header: DataHeader, rest: bytes, damage: list[tuple[int, int]]
) -> None:
    """The fast path accepts only what the slow path accepts, with the same result; other channels never pass."""
    judged = header.pack()
    body = bytearray(judged + rest)
    for place, value in damage:
        body[place] = value
    found = rows_of_channel(bytes(body), channel_of(judged))
    if not damage:
        assert found == (header.frame, header.sequence, header.rows)
    if found is not None:
        again = DataHeader.unpack(bytes(body))
        assert (again.frame, again.sequence, again.rows, again.flags) == (*found, 0)
        assert again[:7] == header[:7]  # application, attempt, edge, both ends with their generations
    for cut in range(DATA_HEADER_BYTES):
        assert rows_of_channel(judged[:cut], channel_of(judged)) is None


@given(st.binary(max_size=2 * DATA_HEADER_BYTES))
def test_a_garbage_data_header_is_refused_or_valid(raw: bytes) -> None:
    try:
        header = DataHeader.unpack(raw)
    except RemoteProtocolError as error:
        assert error.reason in ("form", "oversize")  # noqa: PT017  as above
    else:
        assert DataHeader.unpack(header.pack()) == header


@settings(max_examples=50)
@given(st.binary(max_size=600))
def test_a_close_reason_is_printable(raw: bytes) -> None:
    assert decode_close_reason(raw).isprintable()
