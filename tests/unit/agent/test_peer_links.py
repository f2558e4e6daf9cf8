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


def test_a_dial_that_ends_by_a_bug_is_retried() -> None:
    async def play() -> int:
        dials: list[Peer] = []

        async def dial(peer: Peer, _directly: bool) -> Link:
            dials.append(peer)
            raise RuntimeError("a bug")

        links = PeerLinks(Codec(Word), dial, lambda sender, message: None, lambda node, refused: None)
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        for _ in range(2):
            links.send(Peer(NodeId(7), 1), Word())
            for _ in range(30):
                await asyncio.sleep(0)
        return len(dials)

    assert asyncio.run(play()) == 2


class LifeLink:
    """A link to one incarnation of a node; it notes what is sent, and by what it ended."""

    relay = ""

    def __init__(self, incarnation: int) -> None:
        self.peer, self.incarnation, self.sent, self.ended = self, incarnation, 0, ""

    @property
    def closed(self) -> bool:
        return bool(self.ended)

    def as_peer(self) -> Peer:
        return Peer(NodeId(7), self.incarnation)

    def send(self, _kind: int, _body: bytes) -> None:
        self.sent += 1

    def abort(self, reason: str) -> None:
        self.ended = reason


def test_a_message_to_a_later_incarnation_does_not_take_the_link_of_the_former() -> None:
    """The machine of the former lost its power, so its end of the link was never closed."""

    async def play() -> tuple[LifeLink, LifeLink]:
        former, later = LifeLink(1), LifeLink(2)

        async def dial(_peer: Peer, _directly: bool) -> Link:
            return cast(Link, cast(Any, later))

        links = PeerLinks(Codec(Word), dial, lambda sender, message: None, lambda node, refused: None)
        links.adopt(cast(Link, cast(Any, former)))
        links.send(former.as_peer(), Word())
        links.send(later.as_peer(), Word())
        for _ in range(30):
            await asyncio.sleep(0)
        return former, later

    former, later = asyncio.run(play())
    assert (former.sent, former.ended) == (1, "lost")
    assert (later.sent, later.ended) == (1, "")


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
