"""Opening of links: `connect` dials a node, and both ends verify each other; `listener` has the other end.

A node has one TCP port for all its services; the dialer's HELLO says which service it wants. Source: the admission
spec, section 3; decision 0002.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

import msgspec

from agiledart_kernel.errors import Refused, RemoteProtocolError
from agiledart_kernel.frames import Hello, encode_hello, negotiate
from agiledart_kernel.limits import HELLO_TIMEOUT_SECONDS
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.services import first_protocol
from agiledart_transport.circuits import Via, preface
from agiledart_transport.link import LINK_REASONS, Link, LinkHandler, RefusedByPeer
from agiledart_transport.outgoing import open_connection
from agiledart_transport.peer_verifier import PeerVerifier
from agiledart_transport.socket_pair import PairEnd, begin_on_pair

__all__ = [
    "LINK_REASONS", "Link", "LinkHandler", "NoHello", "RefusedByPeer", "connect", "for_service", "format_address", "parse_address",
]  # fmt: skip

SHUTDOWN_SECONDS: Final = 1.0
"""Time for a closing link to send the rest; after it the link is aborted."""


class NoHello(TimeoutError):
    """A machine took the connection, and no node greeted there in time: it is too busy, if it is one."""


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[v6]:port`. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f'an address is HOST:PORT, got "{address}"')
    return host.removeprefix("[").removesuffix("]"), int(port)


def format_address(host: str, port: int) -> str:
    """Return the text that `parse_address` reads."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _opened(address: str, via: Via | None, ticket: bytes, proxy: str, pair: PairEnd | None) -> socket.socket:
    if pair is not None:
        return pair.connection
    if via is not None:
        return await open_connection(via.host, via.port, preface(via.ticket), proxy)
    host, port = parse_address(address)
    return await open_connection(host, port, preface(ticket) if ticket else b"", proxy)


async def connect(
    address: str,
    *,
    service: str,
    context: ssl.SSLContext | None,
    hello: Hello,
    verifier: PeerVerifier,
    expect: NodeId | None = None,
    on_frame: Callable[[Link, int, bytes], None],
    on_closed: Callable[[Link, str], None],
    on_writable: Callable[[Link], None] | None = None,
    before: Callable[[Link], None] | None = None,
    after: Callable[[Link], None] | None = None,
    on_echo: Callable[[Link, bytes], None] | None = None,
    via: Via | None = None,
    ticket: bytes = b"",
    proxy: str = "",
    punched: socket.socket | None = None,
    pair: PairEnd | None = None,
    timeout: float = HELLO_TIMEOUT_SECONDS,
    wall_seconds: Callable[[], float] = time.time,
) -> Link:
    """Return a link to the node at `address`, after both ends have verified each other.

    Args:
        service: the logical port; put into the HELLO.
        context: of TLS; None on a socket pair.
        hello: what we say about ourselves.
        on_frame, on_closed, on_writable, before, after, on_echo: as of `LinkHandler`.
        expect: refuse the peer when its id is another one.
        via: connect through this relay, which has agreed to lead to `address`.
        ticket: of a process behind the port at `address`, which is another one's.
        proxy: HOST:PORT of an HTTP proxy that leads to other networks.
        punched: a connection to that node that is open already.
        pair: a socket pair to that process of this machine; it needs no TLS.
        timeout: seconds for TCP, TLS and HELLO together.

    Raises:
        RefusedByPeer: the peer refused us; `reason` is its reason.
        RemoteProtocolError: we refuse the peer (`Refused`), or it broke the protocol.
        OSError: no node listens, it is unreachable, timed out (TimeoutError; `NoHello`: a machine is there), or got lost.
        ValueError: `address` has another form.
    """
    parse_address(address)
    link = Link(service, dialled=True, wall_seconds=wall_seconds)
    opened = punched
    mine = for_service(hello, service)
    handler = LinkHandler(on_frame, on_closed, on_writable, before, after, on_echo)
    try:
        async with asyncio.timeout(timeout):
            link.is_punched = punched is not None
            link.relay = (via.name or via.host) if via is not None and punched is None else ""
            opened = punched or await _opened(address, via, ticket, proxy, pair)
            await _begin(link, opened, pair or context, timeout)
            if proxy and via is None:
                link.remote = address  # the socket's other end is the proxy
            # The dialer speaks first: the acceptor answers only after it has verified this HELLO.
            link.greet(encode_hello(mine))
            theirs = await link.greeting()
            negotiate(mine, theirs)
            if theirs.service != service:
                raise Refused("service", "the peer answered for another service")
            peer = await verifier.verify_peer(link.certificate, theirs, service, serves=True)
            if expect is not None and peer.node_id != expect:
                raise Refused("another peer", f"{peer.node_id.short} answered instead of {expect.short}")
            link.open(peer, handler)
    except TimeoutError:
        link.abort("timeout")
        _close_unused(link, opened)
        raise (TimeoutError if opened is None else NoHello)(f"{address} did not answer within {timeout:g} s") from None
    except RemoteProtocolError as error:
        link.close(error.reason)
        raise
    except ssl.SSLError as error:
        link.abort("tls")
        raise Refused("tls", error.reason or str(error)) from None
    except BaseException:
        link.abort("lost")
        _close_unused(link, opened)
        raise
    return link


async def _begin(link: Link, opened: socket.socket, over: PairEnd | ssl.SSLContext | None, timeout: float) -> None:
    """Let a link begin on a connection, up to its HELLO: over TLS, or on a socket pair as it is."""
    if isinstance(over, PairEnd):
        await begin_on_pair(link, over)
        return
    await asyncio.get_running_loop().create_connection(
        lambda: link,
        sock=opened,
        ssl=over,
        server_hostname="",  # the name of the callee must not travel in clear
        ssl_handshake_timeout=timeout + 1,
        ssl_shutdown_timeout=SHUTDOWN_SECONDS,
    )


def _close_unused(link: Link, opened: socket.socket | None) -> None:
    """Close a connection over which TLS never came up: no link owns it."""
    if opened is not None and not link.certificate:
        opened.close()


def for_service(hello: Hello, service: str) -> Hello:
    """Return the HELLO for this service: with its name, and the first protocol that is spoken there."""
    least = max(hello.protocol_min, first_protocol(service))
    return msgspec.structs.replace(hello, service=service, protocol_min=least)
