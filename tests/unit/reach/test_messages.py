"""Messages of the reach process: whole ones in any pieces, long and wrong ones refused."""

import pytest

from agiledart_reach.messages import (
    MAX_MESSAGE_BYTES,
    AnnouncementSent,
    LanPeerFound,
    MessageReader,
    PortMapped,
    ReachFailed,
    ReachStart,
    encode_message,
)

ONE_OF_EACH = (
    ReachStart(b"\1" * 32, "ab" * 32, "192.0.2.7", 9464, announce=True, map_port=False),
    LanPeerFound("192.0.2.8:9464"),
    AnnouncementSent(),
    PortMapped("11.0.0.1:9464"),
    ReachFailed("upnp", "no router"),
)


@pytest.mark.parametrize("size", [1, 3, 1_000])
def test_messages_come_whole_out_of_pieces(size: int) -> None:
    stream = b"".join(encode_message(message) for message in ONE_OF_EACH)
    reader, read = MessageReader(), []
    for begin in range(0, len(stream), size):
        read += reader.feed(stream[begin : begin + size])
    assert tuple(read) == ONE_OF_EACH


@pytest.mark.parametrize(
    "stream", [(MAX_MESSAGE_BYTES + 1).to_bytes(4, "big"), b"\0\0\0\1\xc1", b"\0\0\0\2\x81\xa1", b"\0\0\0\1\x90"]
)
def test_a_long_or_wrong_message_is_refused(stream: bytes) -> None:
    with pytest.raises(ValueError, match=r"message|MessagePack|truncated|Expected"):
        MessageReader().feed(stream)
