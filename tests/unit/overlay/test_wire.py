"""Overlay messages on the wire."""

import pytest

from agiledart_kernel.codec import Codec, encode, tags_of
from agiledart_kernel.coordinates import Coordinate
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.node_id import NodeId
from agiledart_overlay.protocol import RETIRED_TAGS, TAGS, OverlayMessage
from agiledart_overlay.wire.messages import (
    LeafState,
    PeerProbe,
    ProbeAck,
    RecordWrite,
    RouteHop,
)
from agiledart_overlay.wire.sightings import MAX_SIGHTINGS, Sighting, Vitals
from tests.unit.overlay.bench import peer

CODEC: Codec[OverlayMessage] = Codec(OverlayMessage)


def test_tags_are_unique_and_in_range() -> None:
    tags = tags_of(OverlayMessage)
    assert all(any(tag in each for each in ranges) for kind, ranges in TAGS for tag in tags_of(kind))
    owned = [tag for _, ranges in TAGS for each in ranges for tag in each]
    assert len(owned) == len(set(owned)), "a tag has one owner"
    assert not set(RETIRED_TAGS) & set(tags)
    assert [tag for tag in range(10, 38) if tag not in RETIRED_TAGS] == [tag for tag in sorted(tags) if tag < 38]


def test_frames_are_golden() -> None:
    """Frames that version 1 put on the wire; a newer version must still read it."""
    assert CODEC.encode(PeerProbe(7, 1, True)).hex() == "95120701c3c0"
    assert CODEC.decode(bytes.fromhex("94120701c3")) == PeerProbe(7, 1, joined=True)
    leaf = LeafState(3, 0, True, (Sighting(peer(2), 4),))
    first = "950f0300c3919296c41002000000000000000000000000000000" + "01a0a0a0a004"
    assert CODEC.decode(bytes.fromhex(first)) == leaf
    described = first.replace("c3919296", "c3919397").replace("a0a0a0a004", "a0a0a0a0" + "9500a090c290" + "04")
    assert CODEC.encode(leaf).hex() == described + "c0"


def test_vitals_are_golden() -> None:
    """A coordinate is five integers, so that it is the same on all platforms."""
    vitals = Vitals(Coordinate(-1, 2, 300, 10, 250_000), 17)
    assert (
        CODEC.encode(ProbeAck(7, 1, True, vitals)).hex()
        == "98130701c3" + "92" + "95ff02cd012c0ace0003d090" + "11" + "ff" + "c000"
    )


def test_a_newer_field_is_ignored() -> None:
    assert CODEC.decode(encode([18, 7, 1, True, None, "new"])) == PeerProbe(7, 1, joined=True)


@pytest.mark.parametrize(
    "message",
    [
        [18, -1, 0, True],
        [18, 1, 0],
        [99, 1],
        [29, 1, b"short", b"", []],
        [29, 1, NodeId(1), b"", []],
        [15, 1, 0, True, [[[NodeId(1), 1], 0]] * (MAX_SIGHTINGS + 1)],
        [31, [NodeId(1)], 1, 0, NodeId(1), 0, b"x" * ((1 << 20) + 1)],
        "text",
    ],
)
def test_wrong_forms_are_refused(message: object) -> None:
    with pytest.raises(RemoteProtocolError):
        CODEC.decode(encode(message))


def test_the_largest_messages_survive_a_round_trip() -> None:
    store = RecordWrite(peer(1), 2**62, 3, NodeId(2**128 - 1), 0, b"x" * (1 << 20))
    assert CODEC.decode(CODEC.encode(store)) == store
    route = RouteHop(1, NodeId(0), b"payload", tuple(peer(number) for number in range(64)))
    assert CODEC.decode(CODEC.encode(route)) == route
