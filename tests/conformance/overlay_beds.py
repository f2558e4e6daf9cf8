"""Two worlds for one overlay scenario: the simulator, and real sockets with the agent's own links and driver.

Both use the same ids, so that a scenario must come to the same answers in both.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Protocol

from agiledart_agent.driver import Driver
from agiledart_agent.ring.peer_links import PeerLinks
from agiledart_kernel.codec import Codec
from agiledart_kernel.frames import Hello
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.machine import Effect, Event, LinkLost, Received
from agiledart_kernel.node_id import NodeId, node_id_of_key
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.overlay_machine import OverlayMachine
from agiledart_overlay.protocol import OverlayMessage
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.effects import Delivered, JoinFailed, LeaveCompleted, RecordAnswer
from agiledart_overlay.wire.events import JoinRing, LeaveRing, ReadRecord, RouteMessage, StoreRecord
from agiledart_simulation.world.world import World
from agiledart_transport.certificates import make_credentials
from agiledart_transport.connecting import connect
from agiledart_transport.link import Link, LinkHandler
from agiledart_transport.listener import serve
from agiledart_transport.local_peer_verifier import LocalPeerVerifier
from agiledart_transport.tls_contexts import client_context, server_context
from tests.keys import Authority, key_of, public_of

NOW = int(time.time())
NET = Authority(now=NOW)

SLOWER = 6
"""Real seconds for each second of a scenario: a busy machine gives its nodes a part of the time."""


class Bed(Protocol):
    """Operations that a scenario can apply to a ring, and observations of it. Nodes are numbers."""

    effects: list[tuple[int, Effect]]

    async def start(self, number: int, *seeds: int) -> None:
        """Start a node, or its next incarnation, and have it join through these."""

    async def kill(self, number: int) -> None:
        """End a node as `kill -9` does: its connections are reset."""

    def tell(self, number: int, event: Event) -> None:
        """Give a node an event, as its own driver would."""

    def machine(self, number: int) -> OverlayMachine:
        """The machine of a node that is up."""

    @property
    def up(self) -> list[int]:
        """Nodes that are up."""

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Let time pass until a condition holds; false when it did not in so many seconds."""

    async def close(self) -> None:
        """End everything."""


def id_of(number: int) -> NodeId:
    """The id of a node, in both worlds."""
    return node_id_of_key(public_of(f"node{number}"))


class SimulatedBed:
    """Virtual nodes."""

    def __init__(self) -> None:
        self.effects: list[tuple[int, Effect]] = []
        self._numbers: dict[NodeId, int] = {}
        self._world: World[OverlayMachine] = World(
            1,
            lambda peer, random: OverlayMachine(peer, OverlayConfig.lan(), random),
            codec=Codec(OverlayMessage),
            on_effect=lambda peer, effect: self.effects.append((self._numbers[peer.node], effect)),
        )

    async def start(self, number: int, *seeds: int) -> None:
        node = id_of(number)
        self._numbers[node] = number
        self._world.start(Peer(node, 1, f"node{number}"))
        self._world.inject(node, JoinRing(tuple(self._world.nodes[id_of(seed)].peer for seed in seeds)))

    async def kill(self, number: int) -> None:
        self._world.crash(id_of(number))

    def tell(self, number: int, event: Event) -> None:
        self._world.inject(id_of(number), event)

    def machine(self, number: int) -> OverlayMachine:
        return self._world.nodes[id_of(number)].machine

    @property
    def up(self) -> list[int]:
        return sorted(self._numbers[node.peer.node] for node in self._world.live)

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        return self._world.run_until(condition, int(seconds * SECOND), 10 * MILLISECOND)

    async def close(self) -> None:
        pass


class DirectNode:
    """One node on loopback: the machine, the agent's driver and its links, TLS and grants; everything but processes."""

    def __init__(self, number: int, incarnation: int, on_effect: Callable[[Effect], None]) -> None:
        name = f"node{number}"
        credentials = make_credentials(key_of(name), NET.network, NOW)
        self._server, self._client = server_context(credentials), client_context(credentials)
        self._judge = LocalPeerVerifier(NET.network, time.time)
        self._hello = Hello(service="overlay", chain=NET.member(name), incarnation=incarnation, name=name)
        self._on_effect = on_effect
        self.peer = Peer(id_of(number), incarnation, name)
        self.machine: OverlayMachine

    async def start(self) -> None:
        self._listener = await serve(
            "127.0.0.1",
            0,
            context=self._server,
            hello=lambda _: self._hello,
            verifier=self._judge,
            services=("overlay",),
            on_link=self._accepted,
            on_refused=lambda reason, remote: None,
        )
        address = self._listener.address
        self.peer = Peer(self.peer.node, self.peer.incarnation, self.peer.name, address)
        self._hello = Hello(
            service="overlay",
            chain=self._hello.chain,
            incarnation=self.peer.incarnation,
            name=self.peer.name,
            address=address,
        )
        random = RandomStream(1, int(self.peer.node), self.peer.incarnation)
        self.machine = OverlayMachine(self.peer, OverlayConfig.lan(), random)
        self._links = PeerLinks(Codec(OverlayMessage), self._dial, self._received, self._lost)
        self.driver = Driver(self.machine, lambda effect: self._links.send(effect.to, effect.message))  # type: ignore[arg-type]
        for kind in (Delivered, JoinFailed, LeaveCompleted, RecordAnswer):
            self.driver.on(kind, self._on_effect)

    async def _dial(self, peer: Peer, directly: bool) -> Link:
        return await connect(
            peer.address,
            service="overlay",
            context=self._client,
            hello=self._hello,
            verifier=self._judge,
            expect=peer.node,
            on_frame=self._links.frame,
            on_closed=lambda link, reason: self._links.closed(link),
            timeout=3.0,
        )

    def _accepted(self, link: Link) -> LinkHandler:
        asyncio.get_running_loop().call_soon(lambda: None if link.closed else self._links.adopt(link))
        return LinkHandler(self._links.frame, lambda gone, reason: self._links.closed(gone))

    def _received(self, sender: Peer, message: object) -> None:
        self.driver.feed(Received(sender, message))  # type: ignore[arg-type]

    def _lost(self, node: NodeId, refused: bool) -> None:
        self.driver.feed(LinkLost(node, refused))

    async def stop(self) -> None:
        self.driver.stop()
        for link in list(self._links._senders):
            link.abort("killed")
        await self._links.close()
        await self._listener.close()


class DirectBed:
    """Nodes on real sockets of this machine, in one process and loop."""

    def __init__(self) -> None:
        self.effects: list[tuple[int, Effect]] = []
        self._nodes: dict[int, DirectNode] = {}
        self._lives: dict[int, int] = {}
        self._peers: dict[int, Peer] = {}

    async def start(self, number: int, *seeds: int) -> None:
        self._lives[number] = self._lives.get(number, 0) + 1
        node = DirectNode(number, self._lives[number], lambda effect: self.effects.append((number, effect)))
        await node.start()
        self._nodes[number] = node
        self._peers[number] = node.peer
        node.driver.feed(JoinRing(tuple(self._peers[seed] for seed in seeds)))

    async def kill(self, number: int) -> None:
        await self._nodes.pop(number).stop()

    def tell(self, number: int, event: Event) -> None:
        self._nodes[number].driver.feed(event)

    def machine(self, number: int) -> OverlayMachine:
        return self._nodes[number].machine

    @property
    def up(self) -> list[int]:
        return sorted(self._nodes)

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SLOWER * seconds):
                while not condition():  # noqa: ASYNC110 no event reports the state of all machines
                    await asyncio.sleep(0.01)
        return condition()

    async def close(self) -> None:
        for number in list(self._nodes):
            await self.kill(number)


def route(bed: Bed, number: int, key: NodeId, payload: bytes) -> None:
    """Send a look-up on its way."""
    bed.tell(number, RouteMessage(key, payload))


def store(bed: Bed, number: int, request: int, key: NodeId, expected: int, value: bytes) -> None:
    """Write a record."""
    bed.tell(number, StoreRecord(request, key, expected, value))


def read(bed: Bed, number: int, request: int, key: NodeId) -> None:
    """Read a record."""
    bed.tell(number, ReadRecord(request, key))


def leave(bed: Bed, number: int) -> None:
    """Leave the ring in good order."""
    bed.tell(number, LeaveRing())
