"""Links to peers, with dials that fail."""

import asyncio
from typing import Any, cast

import pytest

from agiledart_agent.ring.peer_links import PeerLinks
from agiledart_kernel.codec import Codec
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_transport.connecting import parse_address
from agiledart_transport.link import HIGH_WATER_BYTES, Link


class Word(Message, frozen=True, gc=False, tag=1):
    """Anything."""


class ClosedLink:
    """Closed before its owner looked."""

    closed = True


async def _to_no_address(peer: Peer, _directly: bool) -> Link:
    parse_address("nowhere")
    raise AssertionError


async def _to_one_who_hangs_up(peer: Peer, _directly: bool) -> Link:
    return cast(Link, cast(Any, ClosedLink()))


async def _to_a_machine_without_it(peer: Peer, _directly: bool) -> Link:
    raise ConnectionRefusedError(111, "refused")


@pytest.mark.parametrize(
    ("dial", "refused"), [(_to_no_address, False), (_to_one_who_hangs_up, False), (_to_a_machine_without_it, True)]
)
def test_a_failed_dial_is_reported_and_retried(dial: Any, refused: bool) -> None:
    async def play() -> tuple[list[tuple[NodeId, bool]], int]:
        lost: list[tuple[NodeId, bool]] = []
        links = PeerLinks(Codec(Word), dial, lambda sender, message: None, lambda *told: lost.append(told))
        for _ in range(2):
            links.send(Peer(NodeId(7), 1, "x", "nowhere"), Word())
            for _ in range(30):
                await asyncio.sleep(0)
        return lost, links.dropped["no link"]

    assert asyncio.run(play()) == ([(NodeId(7), refused), (NodeId(7), refused)], 2)


class FilledLink:
    """A link of which `unsent_bytes` wait."""

    closed = False
    relay = ""

    def __init__(self, node: int, unsent_bytes: int) -> None:
        self.peer, self.unsent_bytes = self, unsent_bytes
        self.node = NodeId(node)

    def as_peer(self) -> Peer:
        return Peer(self.node, 1)


def test_the_use_of_a_link_is_reported_when_it_changes() -> None:
    links = PeerLinks(Codec(Word), _to_no_address, lambda sender, message: None, lambda node, refused: None)
    slow, free = FilledLink(1, 0), FilledLink(2, 0)
    for link in (slow, free):
        links.adopt(cast(Link, cast(Any, link)))
    assert links.moved() == []
    slow.unsent_bytes = HIGH_WATER_BYTES // 2
    assert links.moved() == [(NodeId(1), 500)]
    slow.unsent_bytes += 1_000
    assert links.moved() == []
    slow.unsent_bytes = 5 * HIGH_WATER_BYTES
    assert links.moved() == [(NodeId(1), 1_000)]
    links.closed(cast(Link, cast(Any, slow)))
    assert links.moved() == [(NodeId(1), 0)]
    assert links.moved() == []
