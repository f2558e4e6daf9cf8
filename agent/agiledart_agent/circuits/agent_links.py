"""Links of this agent: the port at which it takes them, and the dials to other nodes, directly or through relays."""

import asyncio
import errno
import socket
from collections.abc import Callable, Mapping

from agiledart_agent.admission.registrar import RegisteredPeerVerifier
from agiledart_agent.circuits.dialer import Dialer
from agiledart_agent.circuits.relay_service import RelayService
from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_agent.host.network_addresses import WILDCARDS, not_own_address_text, outbound_address, process_on_port
from agiledart_agent.identity.identity import Identity
from agiledart_agent.ring.peer_links import PeerLinks
from agiledart_agent.settings import AgentSettings, split_address
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.machine import Event, LinkLost, Message, Received, Send
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.protocol import NODE_CODEC
from agiledart_overlay.wire.events import SetCongestion
from agiledart_transport.circuits import Via
from agiledart_transport.connecting import format_address
from agiledart_transport.link import ORDINARY_ENDS, Link, LinkHandler, RefusedByPeer
from agiledart_transport.listener import Listener, serve
from agiledart_transport.relay_fallback import dial_direct_or_relayed

LINK_LOOK_SECONDS = 2.0
LINK_ASK_SECONDS = 1.0
DIRECT_SECONDS = 1.0
"""Time for which only the direct path to a peer is tried."""


class AgentLinks:
    """Takes and opens the links of one agent, and gives each to its service.

    Args:
        registrar: verifies nodes and users.
        feed: takes events for the node.
        known_peers: returns the nodes of the ring that this node knows to be alive.
        rtt_ns: returns the round-trip time to a node, if it is known.
        executor_address: returns the address of an executor of (application, its id) here; empty: there is none.

    Attributes:
        relay_service: passes links of other nodes on, and finds relays for links of this one.
        peers: links to the other nodes of the ring; None before `open`.
    """

    def __init__(
        self,
        settings: AgentSettings,
        identity: Identity,
        registrar: RegisteredPeerVerifier,
        log: AgentLog,
        feed: Callable[[Event], None],
        known_peers: Callable[[], tuple[Peer, ...]],
        rtt_ns: Callable[[NodeId], int | None],
        executor_address: Callable[[str, NodeId], str],
    ) -> None:
        self._settings, self._registrar, self._log, self._feed = settings, registrar, log, feed
        self._rtt_ns, self._executor_address = rtt_ns, executor_address
        self._dialling = Dialer(settings, identity, registrar, lambda: self.address)
        self._listener: Listener | None = None
        self._services: dict[str, Callable[[Link], LinkHandler]] = {}
        self.peers: PeerLinks | None = None
        self.mapped_address = ""
        self.relay_service = RelayService(
            identity.node_id,
            is_on=settings.relay,
            bytes_per_second=settings.relay_bytes_per_second,
            connect=self._connect_relay,
            members=self._nearest_linked,
            is_member=lambda node: any(peer.node == node for peer in known_peers()),
            address_of=self._address_of,
            known=known_peers,
            rtt_ns=rtt_ns,
        )

    @property
    def address(self) -> str:
        """Address under which others reach this agent."""
        assert self._listener is not None
        if advertised := self.mapped_address or self._settings.advertised_address:
            return advertised
        host, port = split_address(self._listener.address)
        return format_address(outbound_address() if host in WILDCARDS else host, port)

    async def listen(self, services: Mapping[str, Callable[[Link], LinkHandler]]) -> None:
        """Take links of others, each for one of these services, for a relay, or for the ring.

        Raises:
            OperationFailed: with a text for the user.
        """
        self._services = {**services, "relay": self.relay_service.accept}
        host, port = split_address(self._settings.listen, "agent.listen")
        try:
            self._listener = await serve(
                host,
                port,
                context=self._dialling.server_tls,
                hello=lambda peer: self._dialling.hello(self._registrar.welcome(peer)),
                verifier=self._registrar,
                services=("overlay", *self._services),
                on_link=self._accepted,
                on_refused=self._log.refused,
                on_circuit=self.relay_service.begin,
            )
        except socket.gaierror:
            raise OperationFailed(not_own_address_text(host, port)) from None
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                process_name = process_on_port(port)
                owner_text = f" ({process_name})" if process_name else ""
                raise OperationFailed(
                    f"Port {port} is in use by another process{owner_text}. "
                    f"Give --listen {host}:0 for any free one, or stop the other."
                ) from None
            if error.errno == errno.EADDRNOTAVAIL:
                raise OperationFailed(not_own_address_text(host, port)) from None
            raise OperationFailed(f"Cannot listen on {host}:{port}: {error.strerror}.") from None

    def open(self) -> None:
        """Begin to keep links to the other nodes of the ring."""
        self.peers = PeerLinks(NODE_CODEC, self._dial, self._receive, self._lost)

    async def close(self) -> None:
        """Close the links to nodes of the ring, and those of relays."""
        await self.relay_service.close()
        if self.peers is not None:
            await self.peers.close()

    async def stop_listening(self) -> None:
        """Close the port."""
        if self._listener is not None:
            await self._listener.close()

    def renew_leaf(self) -> None:
        """Present a fresh TLS leaf before the old one expires. Existing links are not touched."""
        self._dialling.renew_leaf()

    def send(self, effect: Send) -> None:
        """Send a message of the node to another node."""
        if self.peers is not None:
            self.peers.send(effect.to, effect.message)

    async def greet(self, address: str) -> Peer | str:
        """Return the node at an address, with a link to it, or the reason for which there is none."""
        assert self.peers is not None
        if address == self.address:
            return "this is our own address"
        try:
            link = await self._connect(address, None)
        except RefusedByPeer as error:
            clock_hint = " (our clock is ahead of its: compare the two)" if error.reason == "not yet valid" else ""
            return f"{address}: {error}{clock_hint}"
        except (OSError, ValueError, RemoteProtocolError) as error:
            return f"{address}: {error}"
        self.peers.adopt(link)
        return link.peer.as_peer()

    async def dial_fragments(
        self, peer: Peer, on_frame: Callable[[Link, int, bytes], None], on_closed: Callable[[Link, str], None]
    ) -> Link:
        """Return a link to the fragment service of a peer."""
        return await self._dialling.connect(peer.address, "fragments", on_frame, on_closed, expect=peer.node)

    async def report_congestion_forever(self) -> None:
        """Report to the node which links are slower than their load, so that routes avoid them."""
        while True:
            await asyncio.sleep(LINK_LOOK_SECONDS)
            if self.peers is not None:
                for peer, permille in self.peers.moved():
                    self._feed(SetCongestion(peer, permille))

    async def check_forever(self) -> None:
        """Check which links answer after a frame was sent."""
        while True:
            await asyncio.sleep(LINK_ASK_SECONDS)
            if self.peers is not None:
                self.peers.look()

    async def _connect(self, address: str, expect: NodeId | None, via: Via | None = None) -> Link:
        assert self.peers is not None
        on_frame, on_echo = self.peers.frame, self.peers.echoed
        return await self._dialling.connect(
            address, "overlay", on_frame, self._link_closed, expect=expect, on_echo=on_echo, via=via
        )

    async def _dial(self, peer: Peer, directly: bool) -> Link:
        """Return a link to a peer, directly, or through a relay when the peer does not answer and a relayed link is allowed."""

        async def direct() -> Link:
            return await self._connect(peer.address, peer.node)

        async def relayed() -> Link:
            via = await self.relay_service.circuit(peer.node)
            return await self._connect(peer.address, peer.node, via)

        return await (direct() if directly else dial_direct_or_relayed(direct, relayed, DIRECT_SECONDS))

    async def _connect_relay(self, peer: Peer) -> Link:
        """Return a link to the relay service of a peer."""
        relay_service = self.relay_service
        return await self._dialling.connect(
            peer.address,
            "relay",
            relay_service.frame,
            lambda link, reason: relay_service.closed(link),
            expect=peer.node,
        )

    def _nearest_linked(self) -> tuple[Peer, ...]:
        """Return peers with an open link, the nearest first."""
        if self.peers is None:
            return ()
        return tuple(sorted(self.peers.linked, key=lambda peer: (self._rtt_ns(peer.node) or 1 << 62, peer.node)))

    def _address_of(self, application: str, executor: NodeId) -> str:
        """Return the address at which this agent, or an executor of it, takes connections; empty: no such executor here."""
        return self._executor_address(application, executor) if application else self.address

    def _accepted(self, link: Link) -> LinkHandler:
        if accept := self._services.get(link.service):
            return accept(link)
        assert self.peers is not None
        links = self.peers
        asyncio.get_running_loop().call_soon(lambda: None if link.closed else links.adopt(link))
        return LinkHandler(links.frame, self._link_closed, on_echo=links.echoed)

    def _link_closed(self, link: Link, reason: str) -> None:
        if self.peers is not None:
            self.peers.closed(link)
        if reason not in ORDINARY_ENDS:
            self._log.refused(reason, link.remote)

    def _receive(self, sender: Peer, message: Message) -> None:
        self._feed(Received(sender, message))

    def _lost(self, node: NodeId, refused: bool) -> None:
        self._feed(LinkLost(node, refused))
