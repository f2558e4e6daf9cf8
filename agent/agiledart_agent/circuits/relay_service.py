"""Relay service: this agent relays circuits for others, answers where circuits reach it, and finds relays for itself.

A relay leads only to members to which it has a link, and only to the address that the target's agent gives: it is no
open proxy. An agent with a reservation here is asked to connect back instead. The relay holds no key of a circuit and
reads nothing of it. `CircuitTickets` and a number of open requests bound each requester.
"""

import asyncio
import contextlib
import secrets
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from agiledart_agent.circuits.awaited_callers import AwaitedCallers
from agiledart_agent.circuits.cost_prober import CostProber
from agiledart_agent.circuits.next_hops import NextHops
from agiledart_agent.circuits.relay_messages import (
    AddressAnswer,
    CircuitBooked,
    CircuitRefused,
    ConnectBack,
    CostsToGo,
    DialBackAnswer,
    ProbeCosts,
    RequestAddress,
    RequestCircuit,
    RequestDialBack,
    RequestReservation,
    ReservationGranted,
)
from agiledart_agent.circuits.relay_questions import ASK_SECONDS, RELAY_CODEC, RelayQuestions
from agiledart_kernel.errors import Refused, RemoteProtocolError
from agiledart_kernel.frames import FrameKind
from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_kernel.services import application_of_scope
from agiledart_shuffle.hop_costs import HopCosts
from agiledart_shuffle.link_indices import KL_EXPLORATION, index_named
from agiledart_shuffle.proposals import COST_MOST, MAX_RELAYS, Proposals, may_relay
from agiledart_transport.circuit_tickets import MAX_CIRCUITS_OF_PEER, Booking, CircuitTickets, origin_of
from agiledart_transport.circuits import TICKET_BYTES, Via, preface
from agiledart_transport.connecting import format_address, parse_address
from agiledart_transport.link import Link, LinkHandler
from agiledart_transport.outgoing import OpenConnection, open_connection
from agiledart_transport.splice import splice

REFUSALS: Final = (
    "off", "scope", "self", "no member", "visited", "quota", "unreachable", "no such place", "ticket",
)  # fmt: skip
"""Every reason for which a circuit is refused.

`off`: this agent does not relay; `self`: the target is the relay or the requester; `visited`: too many relays, or one
twice; `no such place`: the target has no such executor; `ticket`: no valid one.
"""

RELAYS_ASKED: Final = 3
"""Relays that are asked for one circuit."""

RELAYS_TRIED: Final = 2
"""Relays that a relay asks one after the other for another node."""

HALVING_NS: Final = 8 * SECOND
"""Time in which half of the evidence about a link between agents is forgotten, unless a setting says otherwise."""

LATER_SECONDS: Final = 0.05
"""Time for other relays to answer after the first has."""

MAX_RESERVATIONS: Final = 128
"""Agents that only dial out and keep a link to this relay."""

CONNECT_BACK_SECONDS: Final = 3.0
"""Time for an agent with a reservation to connect to the relay."""

AGENT_ITSELF: Final = NodeId(0)
HandOver = Callable[[NodeId, socket.socket], bool]


class CircuitRequirements(NamedTuple):
    """Requirements of an executor for relayed paths.

    Args:
        most: number of paths; avoid: names of relays that it has already.
        by: names of the only relays that may lead; empty: any.
        doubted: names of relays whose paths took more than twice their claimed cost.
        direct: HOST:PORT of the agent, where the direct path leads to its port already.
    """

    most: int = RELAYS_ASKED
    avoid: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    doubted: tuple[str, ...] = ()
    direct: str = ""


def _random() -> RandomStream:
    return RandomStream(int.from_bytes(secrets.token_bytes(8)), "proposals")


def _booked(asking: "list[asyncio.Task[Via]]") -> list[Via]:
    """Return the finished bookings, in the order of the ranking."""
    return [task.result() for task in asking if task.done() and not task.cancelled() and task.exception() is None]


class RelayService:
    """One agent's part in circuits.

    Args:
        me: its id.
        is_on: does it relay circuits for others?
        bytes_per_second: of each direction of each circuit; 0: unlimited.
        connect: opens a link to the service `relay` of a peer.
        members: returns the nodes that have a link with this one now, the nearest first.
        is_member: is this a running node of the ring, as far as this node knows?
        known: returns all nodes of the ring that this node knows.
        rtt_ns: measured round trip to a peer; None: not measured.
        address_of: HOST:PORT of an executor here by application and id, or of this agent for "" and 0; empty: none.
        connect_back: does what a relay asks of this agent over a link of this agent's reservation.
        dial_back: dials an agent at an address; returns "" when it answered, else why it did not.
        hand_over: hands a connection over to an executor here, by its id; returns whether it has. An executor's id is
            a ticket that is good as long as the executor runs. It grants nothing: TLS and verification follow.
        connection: opens a connection to another node.
        only: names of the only relays that this agent asks for links of its own; empty: any.
        here: returns this agent's name, and HOST:PORT of its port for processes of this machine.
        costs: ω and J of the next hops; None: with the default policy.
        neighbours: returns the peers with a direct link that answer probes, the nearest first; None: all members.
    """

    def __init__(
        self,
        me: NodeId,
        *,
        is_on: bool,
        bytes_per_second: int,
        connect: Callable[[Peer], Awaitable[Link]],
        members: Callable[[], tuple[Peer, ...]],
        is_member: Callable[[NodeId], bool],
        address_of: Callable[[str, NodeId], str],
        known: Callable[[], Iterable[Peer]] = tuple,
        rtt_ns: Callable[[NodeId], int | None] = lambda _: None,
        connect_back: Callable[[Link, ConnectBack], None] = lambda _link, _asked: None,
        dial_back: Callable[[Link, str], Awaitable[str]] | None = None,
        hand_over: HandOver | None = None,
        connection: OpenConnection = open_connection,
        only: tuple[str, ...] = (),
        here: Callable[[], tuple[str, str]] = lambda: ("", "127.0.0.1:0"),
        costs: HopCosts | None = None,
        neighbours: Callable[[], tuple[Peer, ...]] | None = None,
    ) -> None:
        self._open_connection, self._only, self._here = connection, only, here
        self._hand_over = hand_over
        self._connect_back, self._dial_back = connect_back, dial_back
        self._reserved: dict[NodeId, Link] = {}
        self._me, self._is_on, self._rate = me, is_on, bytes_per_second
        self._members, self._is_member, self._address_of = members, is_member, address_of
        self._questions = RelayQuestions(connect)
        self.ask, self.closed, self.send = self._questions.ask, self._questions.closed, self._questions.send
        self._callers = AwaitedCallers(self._reserved, self.send)
        self._known = known
        costs = costs or HopCosts(me, index_named("kl", KL_EXPLORATION, _random()), HALVING_NS, time.monotonic_ns())
        self.prober = CostProber(costs, neighbours or members, self._questions)
        self.next_hops = NextHops(me, costs, self.prober.use, members, known)
        self._proposals = Proposals(rtt_ns, _random(), costs.omega, costs.received_cost)
        self._tickets = CircuitTickets()
        self._tasks: set[asyncio.Task[None]] = set()
        self._working: Counter[bytes] = Counter()
        self.bytes = 0
        self.refused: Counter[str] = Counter()

    @property
    def circuits(self) -> int:
        """Number of circuits that pass here now."""
        return self._tickets.open

    @property
    def hands_over(self) -> bool:
        """Return whether connections at this agent's port reach its executors."""
        return self._hand_over is not None

    @property
    def reserved(self) -> tuple[NodeId, ...]:
        """Agents that only dial out and are reached through this relay."""
        return tuple(self._reserved)

    async def close(self) -> None:
        """End all circuits and links."""
        await self.prober.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._questions.close()

    # ---- requesting circuits

    async def circuit(
        self,
        target: NodeId,
        application: str = "",
        executor: NodeId = AGENT_ITSELF,
        visited: tuple[NodeId, ...] = (),
        holders: tuple[NodeId, ...] = (),
    ) -> Via:
        """Return a relayed path to an agent, or to an executor of it. Raises OSError: no relay leads there.

        Args:
            holders: relays at which the target is said to have a reservation.
            visited: nodes that were asked before, when this agent is a relay that needs another. It then asks one relay
                after the other, and goes on when a relay leads nowhere.
        """
        if target in self._reserved and not visited:
            return self._own_circuit(target, application, executor)
        relays = self._candidates(target, visited, holders=holders)
        question = RequestCircuit(0, target, application, executor, (*visited, self._me))
        if not visited:
            return (await self._book(relays[:RELAYS_ASKED], 1, question))[0]
        async with asyncio.timeout(ASK_SECONDS):
            for relay in relays[: RELAYS_TRIED - 1]:
                with contextlib.suppress(ConnectionError):
                    return await self._book_one(relay, question)
            return (await self._book(relays[RELAYS_TRIED - 1 :][:1], 1, question))[0]

    async def find_relays(
        self, target: NodeId, application: str, executor: NodeId, wish: CircuitRequirements
    ) -> tuple[Via, ...]:
        """Return paths to an executor through relays, no two through the same one. Raises OSError: no relay leads there."""
        name = self._here()[0]
        if target in self._reserved and name not in wish.avoid and (not wish.by or name in wish.by):
            return (self._own_circuit(target, application, executor),)
        self._proposals.doubt(wish.doubted, time.monotonic_ns())
        relays = self._candidates(target, (), wish.by)
        if wish.by and not relays:
            raise ConnectionError(f"no node of the ring is called {' or '.join(wish.by)}")
        relays = [relay for relay in relays if relay.name not in wish.avoid][:RELAYS_ASKED]
        question = RequestCircuit(0, target, application, executor, (self._me,))
        return await self._book(relays, min(wish.most, RELAYS_ASKED), question)

    async def offer(self, target: NodeId, holders: tuple[NodeId, ...]) -> tuple[str, bytes]:
        """Return a relay's HOST:PORT and a ticket with which a client of this agent reaches another one.

        An empty address: this agent is the relay. Raises OSError: no relay leads there.
        """
        if target not in self._reserved:
            via = await self.circuit(target, holders=holders)
            return format_address(via.host, via.port), via.ticket
        return "", self._own_circuit(target, "", AGENT_ITSELF).ticket

    def _own_circuit(self, target: NodeId, application: str, executor: NodeId) -> Via:
        """Return the path through this agent to one that has a reservation here. Raises OSError."""
        ticket = secrets.token_bytes(TICKET_BYTES)
        try:
            booking = Booking(self._me.to_bytes16(), callee=(target, application, executor))
            self._tickets.book(ticket, booking, time.monotonic_ns())
        except Refused as refused:
            raise ConnectionError(str(refused)) from None
        name, address = self._here()
        return Via(*parse_address(address), ticket, name, self._proposals.cost_to(target))

    def _candidates(
        self,
        target: NodeId,
        visited: tuple[NodeId, ...],
        by: tuple[str, ...] = (),
        holders: tuple[NodeId, ...] = (),
    ) -> list[Peer]:
        """Return the relays to ask, the most promising first. Named relays and holders need no link with this agent yet."""
        known = {peer.node: peer for peer in (*self._known(), *self._members())}
        if target in known:
            holders = known[target].reach.holders or holders
        if self._only and not visited:
            by = by or self._only
            known = {node: peer for node, peer in known.items() if peer.name in self._only}
        members = [peer for peer in known.values() if peer.name in by] if by else self._members()
        usable = [peer for peer in members if not peer.reach.holders]  # a node that only dials out takes no circuit
        if not by:
            usable = list(
                {peer.node: peer for peer in (*usable, *(known[node] for node in holders if node in known))}.values()
            )
        ranked = self._proposals.ranked(usable, target, time.monotonic_ns(), (*visited, self._me, target))
        return sorted(ranked, key=lambda peer: peer.node not in holders)

    async def _book(self, relays: list[Peer], most: int, question: RequestCircuit) -> tuple[Via, ...]:
        """Book circuits at all relays at one time, since a relay may have failed.

        Relays that answer much later than the first are not waited for.
        """
        asking = [asyncio.ensure_future(self._book_one(relay, question)) for relay in relays]
        try:
            waiting: set[asyncio.Task[Via]] = set(asking)
            timeout_seconds: float | None = None
            while waiting and len(_booked(asking)) < most:
                done, waiting = await asyncio.wait(
                    waiting, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
                if _booked(asking):
                    timeout_seconds = LATER_SECONDS
            if offers := _booked(asking):
                return tuple(offers[:most])
            refusals = [str(task.exception()) for task in asking if task.done()]
            raise ConnectionError(f"no relay leads there ({refusals[-1] if refusals else 'no other member is known'})")
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def _book_one(self, relay: Peer, question: RequestCircuit) -> Via:
        name = relay.name or relay.node.short
        try:
            answer, link = await self.ask(relay, lambda number: msgspec.structs.replace(question, request=number))
        except (OSError, RemoteProtocolError) as error:
            raise ConnectionError(f"{name}: {error}") from None
        if isinstance(answer, CircuitBooked):
            self._proposals.claimed(relay.node, question.target, answer.cost)
            self.next_hops.note_circuit(question.target, name, answer.relays)
            host, port = parse_address(link.remote)
            return Via(host, port, answer.ticket, name, self._proposals.cost_to(relay.node) + answer.cost)
        raise ConnectionError(f"{name}: {answer.reason if isinstance(answer, CircuitRefused) else 'speaks nonsense'}")

    def frame(self, link: Link, kind: int, body: bytes) -> None:
        """Handle a frame on a link of this service, whichever side dialled it. Raises RemoteProtocolError."""
        if kind != FrameKind.CONTROL:
            raise RemoteProtocolError("kind", "only CONTROL frames are taken here")
        message = RELAY_CODEC.decode(body)
        match message:
            case RequestCircuit():
                self._handle_request(link, message)
            case RequestAddress():
                is_agent = link.peer.grant.role == "agent"
                address = self._address_of(message.application, message.executor) if is_agent else ""
                has_door = bool(address and message.application) and self.hands_over
                self.send(link, AddressAnswer(message.request, address, has_door))
            case RequestReservation():
                self._reserve(link, message)
            case RequestDialBack():
                self._run(self._answer_dial_back(link, message), link.peer.grant.key)
            case ConnectBack():
                self._connect_back(link, message)
            case ProbeCosts():
                self.prober.probed(link, message)
            case CostsToGo(request=0):
                self.prober.noticed(link, message)
            case _:
                self._questions.receive_answer(message)

    def accept(self, _link: Link) -> LinkHandler:
        """Accept a link of a requester."""
        return LinkHandler(self.frame, self._requester_gone)

    def _requester_gone(self, link: Link, _reason: str) -> None:
        self.prober.closed(link)
        if self._reserved.get(link.peer.node_id) is link:
            del self._reserved[link.peer.node_id]

    # ---- relaying for others

    def _handle_request(self, link: Link, asked: RequestCircuit) -> None:
        key = link.peer.grant.key
        try:
            self._authorise(link, asked)
            if self._working[key] >= MAX_CIRCUITS_OF_PEER:
                raise Refused("quota", "too many questions at one time")
        except Refused as refused:
            self._refuse(link, asked.request, refused.reason)
            return
        self._run(self._prepare(link, asked), key)

    def _run(self, work: Coroutine[Any, Any, None], key: bytes) -> None:
        """Work on a question of this key."""
        self._working[key] += 1
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, key))

    def _ended(self, task: "asyncio.Task[None]", key: bytes) -> None:
        self._tasks.discard(task)
        self._working[key] -= 1
        if not self._working[key]:
            del self._working[key]

    def _reserve(self, link: Link, asked: RequestReservation) -> None:
        """Keep a link over which an agent that only dials out is asked to connect back."""
        node = link.peer.node_id
        if not self._is_on:
            self._refuse(link, asked.request, "off")
        elif link.peer.grant.role != "agent" or link.dialled:
            self._refuse(link, asked.request, "scope")
        elif len(self._reserved) >= MAX_RESERVATIONS and node not in self._reserved:
            self._refuse(link, asked.request, "quota")
        else:
            self._reserved[node] = link
            self.send(link, ReservationGranted(asked.request))

    async def _answer_dial_back(self, link: Link, asked: RequestDialBack) -> None:
        reason = "off" if self._dial_back is None or link.peer.grant.role != "agent" else ""
        if self._working[link.peer.grant.key] > 2:
            reason = "quota"
        elif self._dial_back is not None and not reason:
            reason = await self._dial_back(link, asked.address)
        self.send(link, DialBackAnswer(asked.request, not reason, reason))

    def _refuse(self, link: Link, request: int, reason: str) -> None:
        self.refused[reason] += 1
        self.send(link, CircuitRefused(request, reason))

    def _authorise(self, link: Link, asked: RequestCircuit) -> None:
        """Raise `Refused` with one of `REFUSALS` unless this request is permitted."""
        grant = link.peer.grant
        if not self._is_on:
            raise Refused("off")
        if grant.role == "executor" and application_of_scope(grant.scope) != (asked.application or "-"):
            raise Refused("scope", "an executor asks for its own application")
        if bool(asked.application) != bool(asked.executor):
            raise Refused("no such place", "an executor has an application")
        if asked.target in (self._me, link.peer.agent_id):
            raise Refused("self")
        if not may_relay(self._me, asked.visited):
            raise Refused("visited")
        if not (asked.target in self._reserved or self._is_member(asked.target)):
            raise Refused("no member", "this relay does not know the target")
        self._tickets.check_quota(grant.key, time.monotonic_ns(), origin_of(link.remote))

    async def _prepare(self, link: Link, asked: RequestCircuit) -> None:
        try:
            booking, cost, relays = await self._onward(asked, link.peer.grant.key)
            ticket = secrets.token_bytes(TICKET_BYTES)
            self._tickets.book(ticket, booking._replace(origin=origin_of(link.remote)), time.monotonic_ns())
        except Refused as refused:
            self._refuse(link, asked.request, refused.reason)
        except (OSError, ValueError, RemoteProtocolError):
            self._refuse(link, asked.request, "unreachable")
        else:
            self.send(link, CircuitBooked(asked.request, ticket, min(COST_MOST, cost), relays))

    async def _onward(self, asked: RequestCircuit, key: bytes) -> tuple[Booking, int, tuple[str, ...]]:
        """Return where the circuit leads from here, its cost, and the further relays: the hop with the least ω + J.

        Raises:
            Refused: `no such place`.
            OSError: the target cannot be reached.
        """
        own_cost = self._proposals.cost_to(asked.target)
        if asked.target in self._reserved:
            return Booking(key, callee=(asked.target, asked.application, asked.executor)), own_cost, ()
        if asked.application:
            self.next_hops.use(asked.target)
        target = next((peer for peer in self._members() if peer.node == asked.target), None)
        is_direct = target is not None and not target.reach.holders
        if (
            asked.application
            and is_direct
            and (relay := self.next_hops.cheaper_relay(asked.target, asked.visited)) is not None
        ):
            with contextlib.suppress(ConnectionError):
                question = msgspec.structs.replace(asked, request=0, visited=(*asked.visited, self._me))
                return self._booking_through(await self._book_one(relay, question), asked, key)
        if target is None or not is_direct:
            via = await self.circuit(asked.target, asked.application, asked.executor, asked.visited)
            return self._booking_through(via, asked, key)
        answer, link = await self.ask(target, lambda number: RequestAddress(number, asked.application, asked.executor))
        if not isinstance(answer, AddressAnswer) or not answer.address:
            raise Refused("no such place")
        if asked.application and answer.has_door:
            return Booking(key, *parse_address(link.remote), preface(asked.executor.to_bytes16())), own_cost, ()
        # Only the port is the target's choice: with a host of its choice, this relay would be an open proxy.
        return Booking(key, parse_address(link.remote)[0], parse_address(answer.address)[1]), own_cost, ()

    def _booking_through(self, via: Via, asked: RequestCircuit, key: bytes) -> tuple[Booking, int, tuple[str, ...]]:
        behind = self.next_hops.relays_behind(asked.target, via.name)
        return Booking(key, via.host, via.port, preface(via.ticket)), via.cost, (via.name, *behind)[:MAX_RELAYS]

    def begin(self, connection: socket.socket, ticket: bytes) -> None:
        """Take over the connection of a caller with a ticket. Raises `Refused`."""
        if self._callers.take(connection, ticket):
            return
        if self._hand_over is not None and self._hand_over(NodeId.from_bytes16(ticket), connection):
            return
        try:
            booking = self._tickets.redeem(ticket, time.monotonic_ns())
        except Refused as refused:
            self.refused[refused.reason] += 1
            raise
        task = asyncio.ensure_future(self._carry(connection, booking))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, connection: socket.socket, booking: Booking) -> None:
        try:
            async with asyncio.timeout(CONNECT_BACK_SECONDS if booking.callee else ASK_SECONDS):
                if booking.callee is not None:
                    onward = await self._callers.connection_of(booking.callee)
                else:
                    onward = await self._open_connection(booking.host, booking.port, booking.initial_bytes)
        except OSError:
            connection.close()
            self.refused["unreachable"] += 1
        else:
            await splice(connection, onward, self._passed, self._rate)
        finally:
            self._tickets.ended(booking)

    def _passed(self, count: int) -> None:
        self.bytes += count
