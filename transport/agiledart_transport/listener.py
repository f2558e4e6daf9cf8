"""Listener: accepts callers, verifies them, and hands their links to their owners.

The acceptor sends its HELLO only after it has verified the dialer's, so a dialer that has received one is admitted. (In
TLS 1.3 the dialer is "connected" before the server has checked its certificate.) A caller that is not verified within
`HELLO_TIMEOUT_SECONDS` of the first packet is closed. `handshake_slots` and `first_record` decide how many callers may
be in that phase, and which is evicted. Source: the admission spec, section 3; decision 0002.
"""

import asyncio
import errno
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from agiledart_kernel.errors import Refused, RemoteProtocolError
from agiledart_kernel.frames import Hello, encode_hello, negotiate
from agiledart_kernel.limits import (
    HELLO_TIMEOUT_SECONDS,
    MAX_LINKS,
    MAX_LINKS_OF_KEY,
    MAX_PENDING_CALLERS,
    MAX_UNVERIFIED_LINKS,
    MAX_UNVERIFIED_OF_ADDRESS,
)
from agiledart_kernel.registrations import REFUSALS as UNCOUNTED
from agiledart_kernel.services import links_of_key
from agiledart_transport.connecting import SHUTDOWN_SECONDS, for_service, format_address
from agiledart_transport.first_record import first_record
from agiledart_transport.handshake_slots import HandshakeSlots, UnverifiedCaller, block_of
from agiledart_transport.link import Link, LinkHandler
from agiledart_transport.outgoing import plain_host
from agiledart_transport.peer_verifier import PeerInfo, PeerVerifier
from agiledart_transport.socket_pair import PairEnd, begin_on_pair

_REFUSAL_READ_SECONDS: Final = 0.25
"""Time for a refused peer to read the reason. It occupies one of the unverified places meanwhile."""

_EXPLAINED: Final = (*UNCOUNTED, "protocol")
"""Reasons that a refused peer reads with their explanation. Its key was verified before."""

_LOCAL: Final = "local"
"""Address of all callers on socket pairs."""

_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class ListenerLimits(NamedTuple):
    """Numbers of connections that a listener accepts.

    Args:
        links: verified links.
        reserved_for_agents: of these, reserved for agents.
        per_key: of these, of one key to one service; more to services of logs and feeds (`links_of_key`).
        unverified: connections in TLS or HELLO, before their peers are verified.
        per_address: of these, from one address.
        pending: connections that have sent too little for TLS, or wait.
    """

    links: int = MAX_LINKS
    reserved_for_agents: int = MAX_LINKS // 4
    per_key: int = MAX_LINKS_OF_KEY
    unverified: int = MAX_UNVERIFIED_LINKS
    per_address: int = MAX_UNVERIFIED_OF_ADDRESS
    pending: int = MAX_PENDING_CALLERS


@dataclass(eq=False, slots=True)
class _Arrival:
    """A connection that was accepted and is not verified."""

    caller: UnverifiedCaller
    connection: socket.socket
    remote: str
    link: Link
    seen: str
    slot_granted: "asyncio.Future[None]"
    task: "asyncio.Task[None] | None" = None
    was_evicted: bool = False
    pair: PairEnd | None = None


class Listener:
    """Listener for links.

    Attributes:
        address: in use, with the real port when 0 was requested; empty until `listen`.
    """

    def __init__(
        self,
        *,
        context: ssl.SSLContext,
        hello: Callable[[PeerInfo], Hello],
        verifier: PeerVerifier,
        services: Collection[str],
        on_link: Callable[[Link], LinkHandler],
        on_refused: Callable[[str, str], None],
        on_circuit: Callable[[socket.socket, bytes], None] | None = None,
        timeout: float = HELLO_TIMEOUT_SECONDS,
        limits: ListenerLimits = ListenerLimits(),  # noqa: B008  it is immutable
        wall_seconds: Callable[[], float] = time.time,
    ) -> None:
        self._context, self._hello, self._verifier = context, hello, verifier
        self._services, self._on_link, self._on_refused = services, on_link, on_refused
        self._on_circuit, self._timeout, self._limits = on_circuit, timeout, limits
        self._wall_seconds = wall_seconds
        self._loop = asyncio.get_running_loop()
        self._slots = HandshakeSlots(limits.unverified, limits.per_address, limits.pending)
        self._arrivals: dict[UnverifiedCaller, _Arrival] = {}
        self._look_timer: asyncio.TimerHandle | None = None
        self._open = 0
        self._open_of_agents = 0
        self._by_key: Counter[tuple[bytes, str]] = Counter()
        self.address = ""
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None

    def listen(self, listening: socket.socket) -> None:
        """Accept connections at a socket that listens, besides those that `take` gets. Called once."""
        host, port = listening.getsockname()[:2]
        self._socket, self.address = listening, format_address(host, port)
        self._accepting = self._loop.create_task(self._accept(listening), name="accept links")

    @property
    def unverified(self) -> int:
        """Number of connections that are not yet verified, or were refused and are not gone yet."""
        return len(self._arrivals)

    @property
    def links(self) -> int:
        """Number of verified links that came in here and are still open."""
        return self._open

    async def close(self) -> None:
        """Stop accepting and drop callers that are not verified. Existing links stay: they belong to their owners."""
        tasks = [arrival.task for arrival in self._arrivals.values() if arrival.task is not None]
        tasks += [self._accepting] if self._accepting is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._look_timer is not None:
            self._look_timer.cancel()
        if self._socket is not None:
            self._socket.close()

    # ---- accepting

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, name = await self._loop.sock_accept(listening)
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._on_refused("descriptors", "")
                    await asyncio.sleep(0.1)  # only time helps; the backlog keeps the callers
                continue  # a caller left before it was accepted
            host = plain_host(name[0])
            remote = format_address(host, name[1])
            if self._open >= self._limits.links:
                connection.close()
                self._on_refused("full", remote)
                continue
            self._begin(connection, block_of(host), remote)

    def take(
        self, connection: socket.socket, relay: str = "", relay_key: str = "", *, is_punched: bool = False
    ) -> None:
        """Treat a connection as one that was accepted here: to a relay, or taken by another process.

        The caller behind a relay counts against the relay's key: its own address is unknown here.

        Args:
            relay: name of the relay, for people; empty: the connection comes from the caller itself.
            relay_key: of the relay, as text.
            is_punched: both ends have opened it at one moment.
        """
        try:
            host, port = connection.getpeername()[:2]
            host = plain_host(host)
        except OSError:
            connection.close()
            self._on_refused("lost", relay)
            return
        if self._open >= self._limits.links:
            connection.close()
            self._on_refused("full", relay or format_address(host, port))
            return
        self._begin(
            connection,
            f"relay {relay_key}" if relay_key else block_of(host),
            format_address(host, port),
            relay,
            is_punched=is_punched,
        )

    def take_pair(self, end: PairEnd) -> None:
        """Treat an end of a socket pair as a connection that was accepted here. All of them count as of one address."""
        if self._open >= self._limits.links:
            end.connection.close()
            self._on_refused("full", _LOCAL)
            return
        self._begin(end.connection, _LOCAL, _LOCAL, pair=end)

    def _begin(
        self,
        connection: socket.socket,
        block: str,
        remote: str,
        relay: str = "",
        *,
        is_punched: bool = False,
        pair: PairEnd | None = None,
    ) -> None:
        link = Link("", dialled=False, wall_seconds=self._wall_seconds)
        link.relay, link.is_punched = relay, is_punched
        seen = "" if relay or pair is not None else remote
        slot_granted = self._loop.create_future()
        arrival = _Arrival(UnverifiedCaller(block), connection, remote, link, seen, slot_granted, pair=pair)
        self._arrivals[arrival.caller] = arrival
        arrival.task = self._loop.create_task(self._admit(arrival))
        arrival.task.add_done_callback(lambda _: self._end(arrival))
        if (displaced := self._slots.arrive(arrival.caller)) is not None:
            self._evict(displaced)

    def _end(self, arrival: _Arrival) -> None:
        self._slots.leave(arrival.caller)
        del self._arrivals[arrival.caller]
        if not arrival.link.certificate:
            arrival.connection.close()  # TLS never came up
        self._assign_slots()

    def _evict(self, caller: UnverifiedCaller) -> None:
        arrival = self._arrivals[caller]
        arrival.was_evicted = True
        assert arrival.task is not None
        arrival.task.cancel()

    def _assign_slots(self) -> None:
        """Assign free slots, and do so again when the minimum time of a slot holder is over."""
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        changes = self._slots.assign(self._loop.time())
        for caller in changes.granted:
            slot_granted = self._arrivals[caller].slot_granted
            if not slot_granted.done():
                slot_granted.set_result(None)
        for caller in changes.evicted:
            self._evict(caller)
        if changes.next_check_in is not None:
            self._look_timer = self._loop.call_later(changes.next_check_in, self._assign_slots)

    # ---- one caller

    async def _admit(self, arrival: _Arrival) -> None:
        if reason := await self._reason_against(arrival):
            self._on_refused(reason, arrival.remote)
            await _close_refused(arrival.link)

    async def _reason_against(self, arrival: _Arrival) -> str:
        """Return why this caller is not admitted; empty when it is, and its link is open."""
        link, words = arrival.link, ""
        try:
            async with asyncio.timeout(self._timeout):
                if arrival.pair is None and (ticket := await first_record(arrival.connection)):
                    self._hand_over(arrival, ticket)
                    return ""
                self._slots.request_slot(arrival.caller)
                self._assign_slots()
                await arrival.slot_granted
                await self._greet(arrival)
            return ""
        except asyncio.CancelledError:
            if not arrival.was_evicted:
                link.abort("done")
                raise
            assert arrival.task is not None
            arrival.task.uncancel()
            link.abort("crowded")
            return "crowded"
        except TimeoutError:
            reason = "timeout"
        except RemoteProtocolError as error:
            reason, words = error.reason, error.detail if error.reason in _EXPLAINED else ""
        except ssl.SSLError:
            reason = "tls"
        except OSError:
            reason = "lost"
        except Exception as error:  # noqa: BLE001  boundary to verifier and owner: their mistake costs one caller
            self._loop.call_exception_handler({"message": "error while a caller was verified", "exception": error})
            reason = "internal"
        if reason == "lost" and not link.certificate:
            reason = "tls"  # gone before TLS was up: a scanner, or a member of another network that noticed first
        if reason in ("tls", "lost", "timeout"):
            link.abort(reason)
        else:
            link.close(reason, words)
        return reason

    def _hand_over(self, arrival: _Arrival, ticket: bytes) -> None:
        """Hand a connection for a circuit over to the relay. Raises `Refused` when the relay does not know its ticket."""
        if self._on_circuit is None:
            raise Refused("service", "this node is no relay")
        connection = socket.socket(fileno=arrival.connection.detach())
        try:
            self._on_circuit(connection, ticket)
        except BaseException:
            connection.close()
            raise

    async def _greet(self, arrival: _Arrival) -> None:
        link = arrival.link
        if arrival.pair is not None:
            await begin_on_pair(link, arrival.pair)
        else:
            await self._loop.connect_accepted_socket(
                lambda: link,
                arrival.connection,
                ssl=self._context,
                ssl_handshake_timeout=self._timeout + 1,  # the timeout around this comes first
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        theirs = await link.greeting()
        arrival.caller.is_being_verified = True
        if theirs.service not in self._services:
            raise Refused("service", "not served here")
        link.service = theirs.service
        peer = await self._verifier.verify_peer(link.certificate, theirs, theirs.service)
        mine = msgspec.structs.replace(for_service(self._hello(peer), theirs.service), seen=arrival.seen)
        negotiate(mine, theirs)
        self._check_limits(peer, theirs.service)
        if link.closed or link.gone.done():
            raise ConnectionResetError("closed while it was verified")
        link.peer = peer
        handler = self._on_link(link)  # from here to `open` nothing waits, so `on_closed` will report the link's end
        link.greet(encode_hello(mine))
        link.open(peer, handler)
        self._count(peer, theirs.service, 1)
        link.gone.add_done_callback(lambda _: self._count(peer, theirs.service, -1))

    def _check_limits(self, peer: PeerInfo, service: str) -> None:
        """Raise `Refused` when this peer, or all peers that are no agents, have as many links as they may."""
        limits = self._limits
        allowed = links_of_key(service, limits.per_key)
        if self._by_key[peer.grant.key, service] >= allowed:
            raise Refused("too many links", f"{allowed} of this key to {service}")
        of_others = self._open - self._open_of_agents
        if self._open >= limits.links or (
            peer.grant.role != "agent" and of_others >= limits.links - limits.reserved_for_agents
        ):
            raise Refused("full", "the listener has as many links as it may")

    def _count(self, peer: PeerInfo, service: str, by: int) -> None:
        self._open += by
        self._open_of_agents += by if peer.grant.role == "agent" else 0
        self._by_key[peer.grant.key, service] += by
        if not self._by_key[peer.grant.key, service]:
            del self._by_key[peer.grant.key, service]


async def _close_refused(link: Link) -> None:
    """Let a refused peer read the reason, then make sure that its socket is gone: it holds a slot until then."""
    if not link.certificate:
        return
    try:
        async with asyncio.timeout(_REFUSAL_READ_SECONDS):
            await link.gone
    except TimeoutError:
        link.abort("slow")


async def serve(
    host: str,
    port: int,
    *,
    context: ssl.SSLContext,
    hello: Callable[[PeerInfo], Hello],
    verifier: PeerVerifier,
    services: Collection[str],
    on_link: Callable[[Link], LinkHandler],
    on_refused: Callable[[str, str], None],
    on_circuit: Callable[[socket.socket, bytes], None] | None = None,
    timeout: float = HELLO_TIMEOUT_SECONDS,
    limits: ListenerLimits = ListenerLimits(),  # noqa: B008  it is immutable
    wall_seconds: Callable[[], float] = time.time,
) -> Listener:
    """Accept links at `host:port` (port 0: any free one). Raises OSError when that address cannot be bound.

    Args:
        hello: what we say to this (already verified) peer; an executor of several applications picks the chain that
            fits.
        services: logical ports offered here.
        on_link: a peer was admitted: `link.peer`, `link.service`. Returns the handler of its frames. May raise
            `Refused`.
        on_refused: (one of `LINK_REASONS`, remote address); called for each attempt, so count, and log once per reason.
        on_circuit: takes the connection of a caller that begins with the preface of a circuit, and its ticket; may
            raise `Refused`. None: this node is no relay.
        timeout: seconds from accept to the end of HELLO.
        limits: numbers of connections that are accepted.
    """
    listening = await listening_socket(host, port)
    listener = Listener(
        context=context,
        hello=hello,
        verifier=verifier,
        services=services,
        on_link=on_link,
        on_refused=on_refused,
        on_circuit=on_circuit,
        timeout=timeout,
        limits=limits,
        wall_seconds=wall_seconds,
    )
    listener.listen(listening)
    return listener


async def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens at `host:port` (port 0: any free one). Raises OSError when that cannot be bound."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, where = addresses[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # two listeners still clash
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(where[0] != "::"))
        listening.bind(where)
        listening.listen(128)
    except OSError:
        listening.close()
        raise
    return listening
