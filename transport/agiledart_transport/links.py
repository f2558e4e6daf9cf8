"""Opening links: `connect` to a node, `serve` those who come.

A node has one TCP port for all its services; the dialer's HELLO says which one it wants. The acceptor sends its HELLO
only after it has judged the dialer's, so a dialer that has one is in (in TLS 1.3 it is "connected" before the server
has looked at its certificate). Whoever has not proven itself within `HELLO_TIMEOUT_SECONDS` of the first packet is
closed; at most `MAX_UNVERIFIED_LINKS` are in that phase at one time. Source: the admission spec, section 3; decision
0002.
"""

import asyncio
import errno
import socket
import ssl
import time
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from agiledart_kernel.errors import Refused, RemoteProtocolError
from agiledart_kernel.frames import Hello, encode_hello, negotiate
from agiledart_kernel.limits import HELLO_TIMEOUT_SECONDS, MAX_LINKS, MAX_UNVERIFIED_LINKS
from agiledart_kernel.node_id import NodeId
from agiledart_transport.framed import LINK_REASONS, Link, LinkHandler, RefusedByPeer
from agiledart_transport.judge import Judge, PeerInfo

__all__ = [
    "LINK_REASONS", "Link", "LinkHandler", "Listener", "RefusedByPeer",
    "connect", "format_address", "parse_address", "serve",
]  # fmt: skip

_SHUTDOWN_SECONDS: Final = 1.0
"""How long a closing link may take to send the rest; then it is cut."""

_LAST_WORD_SECONDS: Final = 0.25
"""How long a refused peer may take to read why; it occupies one of the unverified places meanwhile."""

_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`; raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f'an address is HOST:PORT, got "{address}"')
    return host.removeprefix("[").removesuffix("]"), int(port)


def format_address(host: str, port: int) -> str:
    """The text that `parse_address` reads."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def connect(
    address: str,
    *,
    service: str,
    context: ssl.SSLContext,
    hello: Hello,
    judge: Judge,
    expect: NodeId | None = None,
    on_frame: Callable[[Link, int, bytes], None],
    on_closed: Callable[[Link, str], None],
    on_writable: Callable[[Link], None] | None = None,
    before: Callable[[Link], None] | None = None,
    after: Callable[[Link], None] | None = None,
    timeout: float = HELLO_TIMEOUT_SECONDS,
    wall_seconds: Callable[[], float] = time.time,
) -> Link:
    """A link to the node at `address`, judged by both ends.

    Args:
        service: the logical port; put into the HELLO.
        hello: what we say about ourselves.
        on_frame, on_closed, on_writable, before, after: as of `LinkHandler`.
        expect: give up when the peer's id is another one.
        timeout: seconds for TCP, TLS and HELLO together.

    Raises:
        RefusedByPeer: the peer refused us; `reason` is its word for it.
        RemoteProtocolError: we refuse the peer (`Refused`), or it spoke nonsense.
        OSError: nobody there, unreachable, timed out (TimeoutError), or cut off.
        ValueError: `address` is none.
    """
    host, port = parse_address(address)
    link = Link(service, dialled=True, wall_seconds=wall_seconds)
    mine = _for_service(hello, service)
    handler = LinkHandler(on_frame, on_closed, on_writable, before, after)
    try:
        async with asyncio.timeout(timeout):
            await asyncio.get_running_loop().create_connection(
                lambda: link,
                host,
                port,
                ssl=context,
                server_hostname="",  # nothing about whom we call travels in clear
                ssl_handshake_timeout=timeout + 1,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
            link.greet(encode_hello(mine))
            theirs = await link.greeting()
            negotiate(mine, theirs)
            if theirs.service != service:
                raise Refused("service", "the peer answered for another service")
            peer = await judge.judge(link.certificate, theirs, service, serves=True)
            if expect is not None and peer.node_id != expect:
                raise Refused("another peer", f"{peer.node_id.short} answered instead of {expect.short}")
            link.open(peer, handler)
    except TimeoutError:
        link.abort("timeout")
        raise TimeoutError(f"{address} did not answer within {timeout:g} s") from None
    except RemoteProtocolError as error:
        link.close(error.reason)
        raise
    except ssl.SSLError as error:
        link.abort("tls")
        raise Refused("tls", error.reason or str(error)) from None
    except BaseException:
        link.abort("lost")
        raise
    return link


def _for_service(hello: Hello, service: str) -> Hello:
    return hello if hello.service == service else msgspec.structs.replace(hello, service=service)


class Listener:
    """Accepts links. `address` is where (the real port when 0 was asked for)."""

    def __init__(
        self,
        listening: socket.socket,
        *,
        context: ssl.SSLContext,
        hello: Callable[[PeerInfo], Hello],
        judge: Judge,
        services: Collection[str],
        on_link: Callable[[Link], LinkHandler],
        on_refused: Callable[[str, str], None],
        timeout: float,
        max_links: int,
        max_unverified: int,
        wall_seconds: Callable[[], float],
    ) -> None:
        self._socket, self._context, self._hello, self._judge = listening, context, hello, judge
        self._services, self._on_link, self._on_refused = services, on_link, on_refused
        self._timeout, self._max_links, self._max_unverified = timeout, max_links, max_unverified
        self._wall_seconds = wall_seconds
        self._admissions: set[asyncio.Task[None]] = set()
        self._open = 0
        host, port = listening.getsockname()[:2]
        self.address = format_address(host, port)
        self._accepting = asyncio.get_running_loop().create_task(self._accept(), name="accept links")

    @property
    def unverified(self) -> int:
        """Connections that have not yet proven themselves, or were refused and are not gone yet."""
        return len(self._admissions)

    @property
    def links(self) -> int:
        """Verified links that came in here and are still open."""
        return self._open

    async def close(self) -> None:
        """Stop accepting and drop who has not proven itself. Links that exist stay: they belong to their owners."""
        tasks = [self._accepting, *self._admissions]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, name = await loop.sock_accept(self._socket)
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._on_refused("descriptors", "")
                    await asyncio.sleep(0.1)  # there is nothing to wait for but time; the backlog keeps the callers
                continue  # else a caller that went away before it was accepted
            remote = format_address(*name[:2])
            reason = ""
            if len(self._admissions) >= self._max_unverified:
                reason = "crowded"
            elif self._open + len(self._admissions) >= self._max_links:
                reason = "full"
            if reason:
                connection.close()
                self._on_refused(reason, remote)
                continue
            task = loop.create_task(self._admit(connection, remote))
            self._admissions.add(task)
            task.add_done_callback(self._admissions.discard)

    async def _admit(self, connection: socket.socket, remote: str) -> None:
        link = Link("", dialled=False, wall_seconds=self._wall_seconds)
        try:
            async with asyncio.timeout(self._timeout):
                await self._greet(link, connection)
            return
        except TimeoutError:
            reason = "timeout"
        except RemoteProtocolError as error:
            reason = error.reason
        except ssl.SSLError:
            reason = "tls"
        except OSError:
            reason = "lost"
        except Exception as error:  # noqa: BLE001  the boundary to judge and owner: their mistake costs one caller
            asyncio.get_running_loop().call_exception_handler({"message": "error while judging", "exception": error})
            reason = "internal"
        except BaseException:
            link.abort("done")
            raise
        if reason == "lost" and not link.certificate:
            reason = "tls"  # gone before TLS was up: a scanner, or one whose network is another and who noticed first
        if reason in ("tls", "lost", "timeout"):
            link.abort(reason)
        else:
            link.close(reason)
        self._on_refused(reason, remote)
        await self._see_out(link)

    async def _greet(self, link: Link, connection: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: link,
            connection,
            ssl=self._context,
            ssl_handshake_timeout=self._timeout + 1,  # the timeout around this comes first
            ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
        )
        theirs = await link.greeting()
        if theirs.service not in self._services:
            raise Refused("service", "not served here")
        link.service = theirs.service
        peer = await self._judge.judge(link.certificate, theirs, theirs.service)
        mine = _for_service(self._hello(peer), theirs.service)
        negotiate(mine, theirs)
        if link.closed or link.gone.done():
            raise ConnectionResetError("closed while it was judged")
        link.peer = peer
        handler = self._on_link(link)  # from here to `open` nothing waits, so the owner will hear of the link's end
        link.greet(encode_hello(mine))
        link.open(peer, handler)
        self._open += 1
        link.gone.add_done_callback(self._count_out)

    def _count_out(self, gone: object) -> None:
        self._open -= 1

    async def _see_out(self, link: Link) -> None:
        """Let a refused peer read why, then make sure that its socket is gone: it holds a place until then."""
        if not link.certificate:
            return  # TLS never came up, the loop has closed the socket
        try:
            async with asyncio.timeout(_LAST_WORD_SECONDS):
                await link.gone
        except TimeoutError:
            link.abort("slow")


async def serve(
    host: str,
    port: int,
    *,
    context: ssl.SSLContext,
    hello: Callable[[PeerInfo], Hello],
    judge: Judge,
    services: Collection[str],
    on_link: Callable[[Link], LinkHandler],
    on_refused: Callable[[str, str], None],
    timeout: float = HELLO_TIMEOUT_SECONDS,
    max_links: int = MAX_LINKS,
    max_unverified: int = MAX_UNVERIFIED_LINKS,
    wall_seconds: Callable[[], float] = time.time,
) -> Listener:
    """Accept links at `host:port` (port 0: any free one); raises OSError when that address cannot be had.

    Args:
        hello: what we say to this (already judged) peer; an executor of several applications picks the chain that fits.
        services: logical ports offered here.
        on_link: a peer was admitted: `link.peer`, `link.service`; returns what its frames go to. May raise `Refused`.
        on_refused: (one of `LINK_REASONS`, remote address); called for each attempt, so count, and log once per reason.
        timeout: seconds from accept to the end of HELLO.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, where = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # two listeners still clash
        listening.bind(where)
        listening.listen(128)
    except OSError:
        listening.close()
        raise
    return Listener(
        listening,
        context=context,
        hello=hello,
        judge=judge,
        services=services,
        on_link=on_link,
        on_refused=on_refused,
        timeout=timeout,
        max_links=max_links,
        max_unverified=max_unverified,
        wall_seconds=wall_seconds,
    )
