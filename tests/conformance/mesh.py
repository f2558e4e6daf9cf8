"""Nodes on loopback for link tests: real sockets, real TLS, keys and chains from `tests.keys`."""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from agiledart_kernel.frames import Hello
from agiledart_kernel.node_id import NodeId, node_id_of_key
from agiledart_transport.certificates import make_credentials
from agiledart_transport.connecting import Link, LinkHandler, connect
from agiledart_transport.listener import Listener, ListenerLimits, serve
from agiledart_transport.local_peer_verifier import LocalPeerVerifier
from agiledart_transport.tls_contexts import client_context, server_context
from tests.keys import Authority, Chain, key_of, public_of

NOW = int(time.time())
NET = Authority(now=NOW)
TIMEOUT = 10.0
ROOM = ListenerLimits(links=100, reserved_for_agents=0)


@dataclass
class Node:
    """One end: its key, chain, contexts, and a record of all its events."""

    name: str
    chain: Chain
    network: bytes = NET.network
    services: tuple[str, ...] = ("overlay", "data", "control", "sink_log", "feed", "relay", "fragments")
    wall_seconds: Callable[[], float] = time.time
    frames: list[tuple[int, bytes]] = field(default_factory=list)
    accepted: list[Link] = field(default_factory=list)
    ended: list[tuple[str, str]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    on_frame: Callable[[Link, int, bytes], None] | None = None
    writable_again: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        credentials = make_credentials(key_of(self.name), self.network, NOW)
        self.server, self.client = server_context(credentials), client_context(credentials)
        self.verifier = LocalPeerVerifier(self.network, self.wall_seconds)

    @property
    def node_id(self) -> NodeId:
        return node_id_of_key(public_of(self.name))

    @property
    def hello(self) -> Hello:
        return Hello(chain=self.chain, incarnation=7, name=self.name, zone="attic")

    async def serve(self, *, timeout: float = TIMEOUT, limits: ListenerLimits = ROOM) -> Listener:
        return await serve(
            "127.0.0.1",
            0,
            context=self.server,
            hello=lambda peer: self.hello,
            verifier=self.verifier,
            services=self.services,
            on_link=self._take,
            on_refused=self._refuse,
            timeout=timeout,
            limits=limits,
            wall_seconds=self.wall_seconds,
        )

    async def dial(
        self,
        listener: Listener | str,
        service: str = "overlay",
        *,
        hello: Hello | None = None,
        expect: NodeId | None = None,
        context: ssl.SSLContext | None = None,
        timeout: float = TIMEOUT,
        on_echo: Callable[[Link, bytes], None] | None = None,
    ) -> Link:
        return await connect(
            listener if isinstance(listener, str) else listener.address,
            service=service,
            context=context or self.client,
            hello=hello or self.hello,
            verifier=self.verifier,
            expect=expect,
            on_frame=self._frame,
            on_closed=self._closed,
            on_writable=self._writable,
            on_echo=on_echo,
            timeout=timeout,
            wall_seconds=self.wall_seconds,
        )

    async def until(self, condition: Callable[[], bool], timeout: float = TIMEOUT) -> None:
        """Wait for something that a callback brings about."""
        async with asyncio.timeout(timeout):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def _take(self, link: Link) -> LinkHandler:
        self.accepted.append(link)
        self.changed.set()
        return LinkHandler(self._frame, self._closed, self._writable)

    def _refuse(self, reason: str, remote: str) -> None:
        self.refused[reason] += 1
        self.changed.set()

    def _frame(self, link: Link, kind: int, body: bytes) -> None:
        self.frames.append((kind, body))
        self.changed.set()
        if self.on_frame is not None:
            self.on_frame(link, kind, body)

    def _closed(self, link: Link, reason: str) -> None:
        self.ended.append((reason, link.detail))
        self.changed.set()

    def _writable(self, link: Link) -> None:
        self.writable_again += 1
        self.changed.set()


def agent(name: str, **settings: object) -> Node:
    """An agent of the network."""
    return Node(name, NET.member(name), **settings)  # type: ignore[arg-type]


async def settled(condition: Callable[[], bool], timeout: float = TIMEOUT) -> None:
    """Wait for a state that no callback reports."""
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110  that is the point
            await asyncio.sleep(0.002)
