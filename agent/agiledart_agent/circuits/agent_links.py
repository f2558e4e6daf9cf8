"""Links of this agent: the port at which it takes them, and the dials to other nodes, directly or through relays."""

import asyncio
import errno
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from agiledart_agent.admission.registrar import RegisteredPeerVerifier
from agiledart_agent.circuits.cost_prober import has_costs_feature
from agiledart_agent.circuits.dialer import Dialer
from agiledart_agent.circuits.hole_puncher import HolePuncher
from agiledart_agent.circuits.peer_dialer import PeerDialer
from agiledart_agent.circuits.relay_service import CircuitRequirements, HandOver, RelayService
from agiledart_agent.circuits.reservations import Reservations
from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_agent.host.network_addresses import (
    WILDCARDS,
    not_own_address_text,
    outbound_address,
    own_addresses,
    process_on_port,
)
from agiledart_agent.identity.identity import Identity
from agiledart_agent.ring.not_greeted import NotGreeted
from agiledart_agent.ring.peer_links import PeerLinks
from agiledart_agent.settings import AgentSettings, split_address
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Event, LinkLost, Message, Received, Send
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_kernel.reachability import MAX_FURTHER_ADDRESSES, UNKNOWN_REACHABILITY, Reachability
from agiledart_node.protocol import NODE_CODEC
from agiledart_node.reaching.dial_rules import host_of, is_private, may_dial
from agiledart_node.reaching.reachability_messages import (
    PUNCHING_FEATURE,
    REACHABILITY_FEATURE,
    TICKETS_FEATURE,
    ReachabilityChanged,
)
from agiledart_overlay.wire.events import SetCongestion, SetReachability
from agiledart_shuffle.hop_costs import HopCosts
from agiledart_shuffle.link_indices import index_named
from agiledart_transport.circuits import Via
from agiledart_transport.connecting import format_address, parse_address
from agiledart_transport.link import ORDINARY_ENDS, Link, LinkHandler, kind_of
from agiledart_transport.listener import Listener, serve
from agiledart_transport.outgoing import open_connection

LINK_LOOK_SECONDS = 2.0
LINK_ASK_SECONDS = 1.0


def _not_listening_text(error: OSError, host: str, port: int) -> str:
    """Describe for users why this agent cannot listen at an address."""
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return not_own_address_text(host, port)
    if error.errno == errno.EADDRINUSE:
        process_name = process_on_port(port)
        owner_text = f" ({process_name})" if process_name else ""
        return (
            f"Port {port} is in use by another process{owner_text}. "
            f"Give --listen {host}:0 for any free one, or stop the other."
        )
    return f"Cannot listen on {host}:{port}: {error.strerror}."


class AgentLinks:
    """Takes and opens the links of one agent, and gives each to its service.

    Args:
        registrar: verifies nodes and users.
        feed: takes events for the node.
        known_peers: returns the nodes of the ring that this node knows to be alive.
        rtt_ns: returns the round-trip time to a node, if it is known.
        executor_address: returns the address of an executor of (application, its id) here; empty: there is none.
        hand_over: hands a connection over to an executor here, by its id; returns whether it has.

    Attributes:
        reach: how other nodes reach this one now.
        reservations: links to relays that lead to this agent.
        on_seen: called with a peer that this agent has dialled, the HOST:PORT under which that peer saw it, and the local port.
        on_caller: called with a peer that has dialled this agent, and the host from which it did.
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
        hand_over: HandOver,
    ) -> None:
        self._settings, self._registrar, self._log, self._feed = settings, registrar, log, feed
        self._rtt_ns, self._executor_address = rtt_ns, executor_address
        self._me, self._known_peers = identity.node_id, known_peers
        self._incarnation = identity.incarnation
        self.reach = UNKNOWN_REACHABILITY
        self.on_seen: Callable[[Peer, str, int], None] = lambda _peer, _address, _port: None
        self.on_caller: Callable[[Peer, str], None] = lambda _peer, _host: None
        self.on_reservations: Callable[[], None] = lambda: None
        self._dialling = Dialer(settings, identity, registrar, lambda: self.address, lambda: self.reach)
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
            connect_back=lambda link, asked: self.reservations.connect_back(link, asked),
            dial_back=self._dialling.dial_back,
            hand_over=hand_over,
            connection=partial(open_connection, proxy=settings.proxy),
            only=settings.relay_names,
            here=lambda: (settings.name, self._local_address),
            costs=_hop_costs(settings, identity),
            neighbours=self._probed_neighbours,
        )
        self.reservations = Reservations(
            self.relay_service.ask,
            self._take,
            hand_over,
            lambda: self.on_reservations(),
            partial(open_connection, proxy=settings.proxy),
        )
        self._peer_dialer = PeerDialer(self.relay_service, lambda: self.reach, self._newest)
        self.hole_puncher = HolePuncher(
            identity.node_id,
            lambda peer, message: self.peers.send(peer, message) if self.peers is not None else None,
            self._connect_mirror,
            lambda: self.reach,
            lambda connection: self._listener.take(connection, is_punched=True) if self._listener is not None else None,
        )
        self._punching: dict[NodeId, asyncio.Task[None]] = {}

    @property
    def address(self) -> str:
        """Address under which others reach this agent."""
        assert self._listener is not None
        if advertised := self.mapped_address or self._settings.advertised_address:
            return advertised
        host, port = split_address(self._listener.address)
        return format_address(outbound_address() if host in WILDCARDS else host, port)

    @property
    def _local_address(self) -> str:
        """HOST:PORT at which processes of this machine reach this agent."""
        assert self._listener is not None
        host, port = split_address(self._listener.address)
        return format_address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)

    @property
    def further_addresses(self) -> tuple[str, ...]:
        """Addresses at which this agent takes connections beside the usual one: the user's, or those of IPv6."""
        assert self._listener is not None
        if self._settings.advertise or self.mapped_address:
            return self._settings.further_addresses
        host, port = split_address(self._listener.address)
        public = [own for own in own_addresses() if ":" in own and not is_private(own)] if host == "::" else []
        return tuple(format_address(own, port) for own in public if format_address(own, port) != self.address)[
            :MAX_FURTHER_ADDRESSES
        ]

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
        except OSError as error:
            raise OperationFailed(_not_listening_text(error, host, port)) from None

    def open(self) -> None:
        """Begin to keep links to the other nodes of the ring."""
        self.peers = PeerLinks(NODE_CODEC, self._dial, self._receive, self._lost)
        self.peers.on_punch = self.hole_puncher.receive

    async def close(self) -> None:
        """Close the links to nodes of the ring, and those of relays."""
        for task in self._punching.values():
            task.cancel()
        await self.hole_puncher.close()
        await self.reservations.close()
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

    async def greet(self, address: str) -> Peer | NotGreeted:
        """Return the node at an address, with a link to it, or the reason for which there is none."""
        assert self.peers is not None
        try:
            link = await self._connect(address, None)
        except (OSError, ValueError, RemoteProtocolError) as error:
            return NotGreeted.by(error, address)
        if self._is_me(link):
            link.close("done")
            return NotGreeted("this is our own address")
        self.peers.adopt(link)
        return link.peer.as_peer()

    def publish(self, reach: Reachability) -> None:
        """Say to the ring, and to all nodes with a link, how this one is reached from now on."""
        self.reach = reach
        self._feed(SetReachability(reach, self.address))
        if self.peers is not None:
            self.peers.announce(ReachabilityChanged(reach), REACHABILITY_FEATURE)

    def reached_by_dial(self) -> tuple[Peer, ...]:
        """Return peers with an open link that this agent has dialled without a relay, the nearest first."""
        assert self.peers is not None
        direct = {
            link.peer.node_id
            for link in self.peers.links()
            if link.dialled and kind_of(link) == "direct" and not link.closed
        }
        return tuple(peer for peer in self._nearest_linked() if peer.node in direct)

    def _probed_neighbours(self) -> tuple[Peer, ...]:
        """Return peers with a direct link that answer probes of the costs to go, the nearest first."""
        links = self.peers.used if self.peers is not None else ()
        direct = {link.peer.node_id for link in links if not link.relay and has_costs_feature(link)}
        return tuple(peer for peer in self._nearest_linked() if peer.node in direct and self.may_dial(peer))

    def knows_reachability(self, node: NodeId) -> bool:
        """Report whether a peer with a link understands questions about reachability."""
        return self.peers is not None and any(
            link.peer.node_id == node and REACHABILITY_FEATURE in link.peer.hello.features
            for link in self.peers.links()
        )

    def may_dial(self, peer: Peer) -> bool:
        """Report whether the address of a peer may be dialled from here."""
        return may_dial(self._newest(peer), self.reach, is_proven=self._peer_dialer.is_proven(peer))

    def may_dial_node(self, node: NodeId) -> bool:
        """Report whether the address of a node may be dialled from here; a node that is not known may."""
        return all(self.may_dial(peer) for peer in self._known_peers() if peer.node == node)

    def published_address(self, node: NodeId) -> str:
        """Return the address that a node published last; "" for a node that is not known."""
        known = [peer for peer in self._known_peers() if peer.node == node]
        return max(known, key=lambda peer: (peer.incarnation, peer.reach.revision)).address if known else ""

    def know_tickets(self, nodes: Iterable[NodeId]) -> bool:
        """Report whether these nodes, and all that may relay for them, reach executors here at this agent's port."""
        links = self.peers.used if self.peers is not None else ()
        knows = {link.peer.node_id: TICKETS_FEATURE in link.peer.hello.features for link in links}
        return all(knows.values()) and all(node == self._me or node in knows for node in nodes)

    async def dial_fragments(
        self, peer: Peer, on_frame: Callable[[Link, int, bytes], None], on_closed: Callable[[Link, str], None]
    ) -> Link:
        """Return a link to the fragment service of a peer."""

        async def connect(address: str, via: Via | None) -> Link:
            return await self._dialling.connect(address, "fragments", on_frame, on_closed, expect=peer.node, via=via)

        return await self._peer_dialer.connect_by_any_path(peer, connect)

    async def find_circuits(
        self, target: NodeId, application: str, executor: NodeId, wish: CircuitRequirements
    ) -> tuple[Via, ...]:
        """Return paths to an executor: through its agent's port where that can be dialled, and through relays.

        Raises OSError: no path leads there.
        """
        door = self._door(target, executor)
        is_direct = door is not None and format_address(door.host, door.port) == wish.direct
        if wish.by or door is None or is_direct or door.name in wish.avoid:
            return await self.relay_service.find_relays(target, application, executor, wish)
        if wish.most < 2:
            return (door,)
        try:
            more = wish._replace(most=wish.most - 1)
            return (door, *await self.relay_service.find_relays(target, application, executor, more))
        except OSError:
            return (door,)

    def _door(self, target: NodeId, executor: NodeId) -> Via | None:
        """Return the path to an executor through the port of its agent, when a direct link to that agent is open."""
        for link in self.peers.used if self.peers is not None else ():
            is_direct = link.peer.node_id == target and not link.relay
            if is_direct and REACHABILITY_FEATURE in link.peer.hello.features:
                peer = self._newest(link.peer.as_peer())
                if peer.reach.holders and not self._peer_dialer.is_proven(peer):
                    return None
                host, port = parse_address(peer.address)
                return Via(host, port, executor.to_bytes16(), peer.name or peer.node.short)
        return None

    async def relay_to(self, peer: Peer) -> tuple[str, bytes]:
        """Return the relay's HOST:PORT and the ticket by which a client of this agent reaches a peer.

        Without a ticket the client dials the peer itself; without an address this agent is the relay. Raises OSError.
        """
        peer = self._newest(peer)
        if peer.node == self._me or not peer.reach.holders:
            return "", b""
        return await self.relay_service.offer(peer.node, peer.reach.holders)

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

    async def _connect(
        self, address: str, expect: NodeId | None, via: Via | None = None, punched: socket.socket | None = None
    ) -> Link:
        assert self.peers is not None
        on_frame, on_echo = self.peers.frame, self.peers.echoed
        link = await self._dialling.connect(
            address, "overlay", on_frame, self._link_closed, expect=expect, on_echo=on_echo, via=via, punched=punched
        )
        if via is None and punched is None:
            peer = link.peer.as_peer()
            self._peer_dialer.note_address(peer, address)
            if link.peer.hello.seen:
                self.on_seen(peer, link.peer.hello.seen, link.local[1])
        return link

    def _is_me(self, link: Link) -> bool:
        return link.peer.node_id == self._me and link.peer.hello.incarnation == self._incarnation

    def _newest(self, peer: Peer) -> Peer:
        """Return a peer with what it said last about its reachability."""
        for known in (*self._known_peers(), *(self.peers.linked if self.peers is not None else ())):
            if known.node == peer.node and known.incarnation == peer.incarnation:
                peer = peer.with_reach(known.reach)
        return peer

    async def _dial(self, peer: Peer, directly: bool) -> Link:
        """Return a link to a peer, directly, or through a relay when the peer does not answer and a relayed link is allowed."""

        async def connect(address: str, via: Via | None) -> Link:
            return await self._connect(address, peer.node, via)

        if directly and self.hole_puncher.is_due(peer := self._newest(peer)) and self._knows_punching(peer.node):
            task = self._punching[peer.node] = asyncio.ensure_future(self._punch(peer))
            task.add_done_callback(lambda done: self._punching.pop(peer.node, None) if done is task else None)
        return await self._peer_dialer.connect_by_any_path(peer, connect, directly=directly)

    def _knows_punching(self, node: NodeId) -> bool:
        """Report whether a peer has a relayed link that a punched one can replace."""
        links = self.peers.used if self.peers is not None and node not in self._punching else ()
        return any(
            link.peer.node_id == node and link.relay and PUNCHING_FEATURE in link.peer.hello.features for link in links
        )

    async def _punch(self, peer: Peer) -> None:
        """Replace the relayed link to a peer by a punched one, if the routers let it pass."""
        assert self.peers is not None
        relayed = [link for link in self.peers.used if link.peer.node_id == peer.node and link.relay]
        try:
            link = await self._connect(peer.address, peer.node, punched=await self.hole_puncher.punch(peer))
        except (OSError, RemoteProtocolError) as error:
            self._log.info("reach.not_punched", f"  {peer.name or peer.node.short} stays behind a relay: {error}")
            return
        self.peers.adopt(link)
        for old in relayed:
            old.close("done")

    async def _connect_mirror(self, unconnected: socket.socket) -> Link:
        """Connect a socket to an open member, whose HELLO then says under which address it sees this agent."""
        members = [peer for peer in self.reached_by_dial() if not peer.reach.holders]
        try:
            if not members:
                raise ConnectionError("no member is reached by a dial")
            await asyncio.get_running_loop().sock_connect(unconnected, parse_address(members[0].address))
        except BaseException:
            unconnected.close()
            raise
        return await self._dialling.connect(
            members[0].address, "relay", lambda *_: None, lambda *_: None, expect=members[0].node, punched=unconnected
        )

    async def _connect_relay(self, peer: Peer) -> Link:
        """Return a link to the relay service of a peer."""
        if not self.may_dial(peer):
            raise ConnectionError(f"{peer.address} is an address of another network")
        return await self._dialling.connect(
            peer.address,
            "relay",
            self.relay_service.frame,
            lambda link, reason: self.relay_service.closed(link),
            expect=peer.node,
            on_echo=self.reservations.echoed,
        )

    def _take(self, connection: socket.socket, link: Link) -> None:
        """Take a connection to a relay, which has a caller for this agent at its other end."""
        assert self._listener is not None
        self._listener.take(connection, link.peer.hello.name or link.peer.node_id.short, link.peer.node_id.hex)

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
        if self._is_me(link):
            return LinkHandler(lambda *_: None, lambda *_: None)
        if not link.relay:
            peer, host = link.peer.as_peer(), host_of(link.remote)
            if host == host_of(peer.address):
                self._peer_dialer.note_address(peer, peer.address)
            self.on_caller(peer, host)
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


def _hop_costs(settings: AgentSettings, identity: Identity) -> HopCosts:
    draws = RandomStream(identity.incarnation, "paths")
    return HopCosts(
        identity.node_id,
        index_named(settings.paths_policy, settings.paths_exploration, draws),
        settings.paths_memory * SECOND,
        time.monotonic_ns(),
    )
