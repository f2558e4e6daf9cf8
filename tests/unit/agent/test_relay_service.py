"""Circuits through real sockets: a link between two ends over relays that cannot read it, and everything that is refused."""

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agiledart_agent.circuits.relay_messages import (
    AddressAnswer,
    CircuitBooked,
    CircuitRefused,
    RelayMessage,
    RequestAddress,
    RequestCircuit,
)
from agiledart_agent.circuits.relay_service import REFUSALS, RelayService
from agiledart_agent.circuits.reservations import Reservations
from agiledart_kernel.codec import Codec
from agiledart_kernel.frames import FrameKind
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_transport.circuit_tickets import MAX_CIRCUITS_OF_PEER
from agiledart_transport.circuits import Via, preface
from agiledart_transport.connecting import connect, parse_address
from agiledart_transport.link import Link, LinkHandler
from agiledart_transport.listener import Listener, serve
from agiledart_transport.outgoing import open_connection
from tests.conformance.mesh import NET, Node, agent

CODEC: Codec[RelayMessage] = Codec(RelayMessage)
EXECUTOR = NodeId(77)


class Relay:
    """An agent with a listener and a part in circuits; `knows` are the members that it has links with."""

    def __init__(self, name: str, *, is_on: bool = True) -> None:
        self.node: Node = agent(name)
        self.knows: list[Relay] = []
        self.others: list[Relay] = []
        self.came: asyncio.Queue[bytes] = asyncio.Queue()
        self.refused: list[str] = []
        self.relay_service = RelayService(
            self.node.node_id,
            is_on=is_on,
            bytes_per_second=0,
            connect=self.connect_relay,
            members=lambda: tuple(one.peer for one in self.knows),
            is_member=lambda node: any(one.node.node_id == node for one in (*self.knows, *self.others)),
            address_of=lambda app, executor: self.listener.address if (app, executor) in self.places else "",
            connect_back=lambda link, asked: self.reservations.connect_back(link, asked),
        )
        self.reservations = Reservations(
            self.relay_service.ask,
            lambda connection, link: self.listener.take(connection, link.peer.hello.name, link.peer.node_id.hex),
            self._hand_over,
            lambda: None,
        )
        self.places: list[tuple[str, NodeId]] = [("", NodeId(0))]
        self.listener: Listener

    def _hand_over(self, executor: NodeId, connection: socket.socket) -> bool:
        """Give a connection for an executor to this agent's own listener, as if it were the executor's."""
        if ("taxi", executor) not in self.places:
            return False
        self.listener.take(connection)
        return True

    @property
    def peer(self) -> Peer:
        return Peer(self.node.node_id, 7, self.node.name, self.listener.address)

    async def open(self) -> None:
        self.listener = await serve(
            "127.0.0.1",
            0,
            context=self.node.server,
            hello=lambda _: self.node.hello,
            verifier=self.node.verifier,
            services=("overlay", "relay"),
            on_link=self._accepted,
            on_refused=lambda reason, _: self.refused.append(reason),
            on_circuit=self.relay_service.begin,
        )

    def _accepted(self, link: Link) -> LinkHandler:
        if link.service == "relay":
            return self.relay_service.accept(link)
        return LinkHandler(lambda _, __, body: self.came.put_nowait(body), lambda _, __: None)

    async def connect(self, address: str, service: str = "overlay", via: Via | None = None, **more: Any) -> Link:
        return await connect(
            address,
            service=service,
            context=self.node.client,
            hello=self.node.hello,
            verifier=self.node.verifier,
            on_frame=more.pop("on_frame", lambda *_: None),
            on_closed=lambda *_: None,
            via=via,
            **more,
        )

    async def connect_relay(self, peer: Peer) -> Link:
        return await self.connect(
            peer.address,
            "relay",
            on_frame=self.relay_service.frame,
            expect=peer.node,
            on_echo=self.reservations.echoed,
        )

    async def close(self) -> None:
        await self.reservations.close()
        await self.relay_service.close()
        await self.listener.close()


def play(scenario: Callable[..., Awaitable[None]], *names: str, **settings: Any) -> None:
    """Run a scenario with agents of these names, the first of which asks; each has links with its neighbours in the row."""

    async def run() -> None:
        relays = [Relay(name, **(settings if number else {})) for number, name in enumerate(names)]
        for one in relays:
            await one.open()
        for left, right in itertools.pairwise(relays):
            left.knows.append(right)
            right.knows.append(left)
        for one in relays:
            one.others = [other for other in relays if other is not one]
        try:
            async with asyncio.timeout(20):
                await scenario(*relays)
        finally:
            for one in relays:
                await one.close()

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that follows by itself."""
    async with asyncio.timeout(10):
        for _ in iter(condition, True):
            await asyncio.sleep(0)


@pytest.mark.parametrize("names", [("a", "r", "b"), ("a", "r", "q", "b"), ("a", "r", "q", "p", "b")])
def test_two_ends_verify_each_other_through_any_relay(names: tuple[str, ...]) -> None:
    async def scenario(a: Relay, *between: Relay) -> None:
        *relays, b = between
        via = await a.relay_service.circuit(b.node.node_id)
        link = await a.connect("192.0.2.1:1", via=via, expect=b.node.node_id)  # no process is at that address
        assert link.peer.node_id == b.node.node_id
        link.send(FrameKind.CONTROL, b"row" * 100_000)
        assert await b.came.get() == b"row" * 100_000
        assert [one.relay_service.circuits for one in relays] == [1] * len(relays)
        assert all(one.relay_service.bytes > 300_000 for one in relays)
        link.close()
        await until(lambda: not any(one.relay_service.circuits for one in relays))

    play(scenario, *names)


def test_four_relays_are_too_many() -> None:
    async def scenario(a: Relay, *between: Relay) -> None:
        with pytest.raises(OSError, match="no relay leads there"):
            await a.relay_service.circuit(between[-1].node.node_id)

    play(scenario, "a", "r", "q", "p", "o", "b")


def test_a_relay_that_ends_closes_its_circuits() -> None:
    async def scenario(a: Relay, r: Relay, b: Relay) -> None:
        via = await a.relay_service.circuit(b.node.node_id)
        link = await a.connect(b.listener.address, via=via)
        await r.relay_service.close()
        await link.gone
        assert r.relay_service.circuits == 0

    play(scenario, "a", "r", "b")


def test_another_peer_at_the_other_end_is_detected() -> None:
    """A relay that leads somewhere else gains nothing."""

    async def scenario(a: Relay, r: Relay, b: Relay) -> None:
        via = await a.relay_service.circuit(b.node.node_id)
        with pytest.raises(Exception, match="another peer"):
            await a.connect(b.listener.address, via=via, expect=r.node.node_id)
        await until(lambda: not r.relay_service.circuits)

    play(scenario, "a", "r", "b")


def test_a_disabled_relay_relays_for_no_peer() -> None:
    async def scenario(a: Relay, r: Relay, b: Relay) -> None:
        with pytest.raises(OSError, match="off"):
            await a.relay_service.circuit(b.node.node_id)
        assert r.relay_service.refused == {"off": 1}

    play(scenario, "a", "r", "b", is_on=False)


async def asked(a: Relay, r: Relay, *questions: RelayMessage, node: Node | None = None) -> list[RelayMessage]:
    """Answers of the relay to raw requests, of the dialler or of another node."""
    answers: asyncio.Queue[RelayMessage] = asyncio.Queue()
    who = node or a.node
    link = await connect(
        r.listener.address,
        service="relay",
        context=who.client,
        hello=who.hello,
        verifier=who.verifier,
        on_frame=lambda _, __, body: answers.put_nowait(CODEC.decode(body)),
        on_closed=lambda *_: None,
    )
    for question in questions:
        link.send(FrameKind.CONTROL, CODEC.encode(question))
    found = [await answers.get() for _ in questions]
    link.close()
    return found


def test_invalid_targets_are_refused_with_a_listed_reason() -> None:
    async def scenario(a: Relay, r: Relay, b: Relay) -> None:
        b.places.append(("taxi", EXECUTOR))
        me, them, relay = a.node.node_id, b.node.node_id, r.node.node_id
        stranger = NodeId(5)
        wanted = [
            (RequestCircuit(1, relay), "self"),
            (RequestCircuit(2, me), "self"),
            (RequestCircuit(3, stranger), "no member"),
            (RequestCircuit(4, them, "taxi", NodeId(78)), "no such place"),
            (RequestCircuit(5, them, "bus", EXECUTOR), "no such place"),
            (RequestCircuit(6, them, "taxi"), "no such place"),
            (RequestCircuit(7, them, visited=(me, relay)), "visited"),
            (RequestCircuit(8, them, visited=(me, me)), "visited"),
            (RequestCircuit(9, them, visited=(me, NodeId(1), NodeId(2), NodeId(3))), "visited"),
        ]
        for question, reason in wanted:
            assert await asked(a, r, question) == [CircuitRefused(question.request, reason)]
            assert reason in REFUSALS
        (booked,) = await asked(a, r, RequestCircuit(10, them, "taxi", EXECUTOR, (me,)))
        assert isinstance(booked, CircuitBooked)

    play(scenario, "a", "r", "b")


def test_an_executor_is_relayed_to_its_own_application_only() -> None:
    async def scenario(a: Relay, r: Relay, b: Relay) -> None:
        b.places += [("taxi", EXECUTOR), ("bus", EXECUTOR)]
        worker = Node("worker", NET.executor("worker", "a", app="taxi"))
        them = b.node.node_id
        (booked,) = await asked(a, r, RequestCircuit(1, them, "taxi", EXECUTOR), node=worker)
        assert isinstance(booked, CircuitBooked)
        for question in (RequestCircuit(2, them, "bus", EXECUTOR), RequestCircuit(3, them)):
            assert await asked(a, r, question, node=worker) == [CircuitRefused(question.request, "scope")]
        assert await asked(a, b, RequestAddress(4, "taxi", EXECUTOR), node=worker) == [AddressAnswer(4, "")]

    play(scenario, "a", "r", "b")


def test_a_peer_that_requests_thousands_of_circuits_holds_its_share() -> None:
    async def scenario(a: Relay, r: Relay, b: Relay) -> None:
        questions = [RequestCircuit(number, b.node.node_id) for number in range(2_000)]
        answers = await asked(a, r, *questions)
        booked = [one for one in answers if isinstance(one, CircuitBooked)]
        assert len(booked) <= MAX_CIRCUITS_OF_PEER
        refused = [one.reason for one in answers if isinstance(one, CircuitRefused)]
        assert set(refused) == {"quota"}
        assert r.relay_service.refused["quota"] == len(refused)
        assert r.relay_service._tickets.held <= MAX_CIRCUITS_OF_PEER

    play(scenario, "a", "r", "b")


async def knocks(at: Relay, says: bytes, from_host: str = "127.0.0.1") -> bytes:
    """Bytes that a caller receives after sending this, until the other end closes."""
    loop = asyncio.get_running_loop()
    with socket.socket() as caller:
        caller.setblocking(False)
        caller.bind((from_host, 0))
        await loop.sock_connect(caller, parse_address(at.listener.address))
        await loop.sock_sendall(caller, says)
        caller.shutdown(socket.SHUT_WR)
        heard = b""
        try:
            while data := await loop.sock_recv(caller, 1_000):
                heard += data
        except ConnectionResetError:
            pass
        return heard


def test_invalid_tickets_are_refused_at_accept() -> None:
    async def scenario(a: Relay, r: Relay, b: Relay) -> None:
        used = await a.relay_service.circuit(b.node.node_id)
        passage = await open_connection(used.host, used.port, preface(used.ticket))
        await until(lambda: r.relay_service.circuits == 1)
        good = await a.relay_service.circuit(b.node.node_id)
        calls = [
            (preface(bytes(16)), "127.0.0.1"),
            (preface(used.ticket), "127.0.0.1"),
            (preface(good.ticket)[:-1], "127.0.0.1"),
            (b"\0ADT\x02" + good.ticket, "127.0.0.1"),
            (b"\0ADT", "127.0.0.1"),
        ]
        for says, from_host in calls:
            before = len(r.refused)
            assert await knocks(r, says, from_host) == b""
            await until(lambda before=before: len(r.refused) > before)
        assert r.refused == ["ticket", "ticket", "ticket", "tls", "tls"]
        assert r.relay_service.circuits == 1
        link = await a.connect(b.listener.address, via=good)  # none of them used it up
        link.close()
        passage.close()

    play(scenario, "a", "r", "b")


def test_a_preface_at_a_port_that_relays_nothing_is_refused() -> None:
    async def scenario() -> None:
        node = agent("plain")
        listener = await node.serve()
        link = await open_connection(*parse_address(listener.address), preface(bytes(16)))
        assert await asyncio.get_running_loop().sock_recv(link, 100) == b""
        assert node.refused == {"service": 1}
        link.close()
        await listener.close()

    asyncio.run(scenario())
