"""Agents that only dial out: relays with a reservation ask them to connect back, through real sockets."""

import pytest

from agiledart_agent.circuits import reservations as module
from agiledart_agent.circuits.relay_messages import ConnectBack, RelayMessage
from agiledart_agent.circuits.relay_service import MAX_RESERVATIONS
from agiledart_kernel.codec import Codec
from agiledart_kernel.frames import FrameKind
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.reachability import Reachability
from agiledart_transport.link import Link
from tests.unit.agent.test_relay_service import EXECUTOR, Relay, play, until

CODEC: Codec[RelayMessage] = Codec(RelayMessage)
NOWHERE = "192.0.2.1:1"


def test_relay_with_reservation_reaches_an_agent_that_takes_no_dials() -> None:
    async def scenario(a: Relay, r: Relay, b: Relay) -> None:
        b.places.clear()  # it gives no relay an address
        assert await b.reservations.reserve(r.peer) == ""
        assert b.reservations.holders == (r.node.node_id,)
        assert r.relay_service.reserved == (b.node.node_id,)
        via = await a.relay_service.circuit(b.node.node_id)
        link = await a.connect(NOWHERE, via=via, expect=b.node.node_id)
        link.send(FrameKind.CONTROL, b"row" * 100_000)
        assert await b.came.get() == b"row" * 100_000
        assert r.relay_service.circuits == 1
        link.close()
        await until(lambda: r.relay_service.circuits == 0)

    play(scenario, "a", "r", "b")


def test_circuit_ends_at_an_executor_of_that_agent() -> None:
    async def scenario(a: Relay, r: Relay, b: Relay) -> None:
        await b.reservations.reserve(r.peer)
        b.places[:] = [("taxi", EXECUTOR)]
        via = await a.relay_service.circuit(b.node.node_id, "taxi", EXECUTOR)
        link = await a.connect(NOWHERE, via=via)
        link.send(FrameKind.CONTROL, b"rows")
        assert await b.came.get() == b"rows"
        unknown = await a.relay_service.circuit(b.node.node_id, "taxi", NodeId(78))
        with pytest.raises(OSError):
            await a.connect(NOWHERE, via=unknown)
        link.close()
        await until(lambda: r.relay_service.circuits == 0)

    play(scenario, "a", "r", "b")


def test_a_relay_far_away_asks_the_one_with_the_reservation() -> None:
    """`a` knows `q` only, which has a link to `r`; the holder is known by what the target says of itself."""

    async def scenario(a: Relay, q: Relay, r: Relay, b: Relay) -> None:
        await b.reservations.reserve(r.peer)
        b.places.clear()
        r.knows.remove(b)
        via = await a.relay_service.circuit(b.node.node_id)
        link = await a.connect(NOWHERE, via=via, expect=b.node.node_id)
        assert [one.relay_service.circuits for one in (q, r)] == [1, 1]
        link.close()

    play(scenario, "a", "q", "r", "b")


def test_a_lost_relay_is_noticed_at_both_ends() -> None:
    async def scenario(a: Relay, r: Relay, b: Relay) -> None:
        await b.reservations.reserve(r.peer)
        b.reservations.drop_all()
        await until(lambda: not b.reservations.holders and not r.relay_service.reserved)

    play(scenario, "a", "r", "b")


def test_a_relay_that_does_not_answer_loses_the_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ECHO_SECONDS", 0.05)
    monkeypatch.setattr(module, "ECHO_WAIT_SECONDS", 0.2)

    async def scenario(a: Relay, r: Relay, b: Relay) -> None:
        echoes = 0
        noted = b.reservations.echoed

        def count(link: Link, body: bytes) -> None:
            nonlocal echoes
            echoes += 1
            noted(link, body)

        monkeypatch.setattr(b.reservations, "echoed", count)
        await b.reservations.reserve(r.peer)
        (link,) = b.reservations._links.values()
        await until(lambda: echoes > 2)
        assert not link.closed, "it answers"
        next(iter(r.relay_service._reserved.values())).pause_reading()
        await until(lambda: not b.reservations.holders)

    play(scenario, "a", "r", "b")


def test_a_request_to_connect_without_a_reservation_is_ignored() -> None:
    async def scenario(a: Relay, r: Relay, b: Relay) -> None:
        link = await r.connect_relay(b.peer)
        link.send(FrameKind.CONTROL, CODEC.encode(ConnectBack(bytes(16))))
        await until(lambda: b.reservations.ignored == 1)
        assert not b.reservations._connecting

    play(scenario, "a", "r", "b")


def test_a_flood_of_requests_opens_a_bounded_number_of_connections() -> None:
    async def scenario(a: Relay, r: Relay, b: Relay) -> None:
        await b.reservations.reserve(r.peer)
        (link,) = r.relay_service._reserved.values()
        for number in range(500):
            link.send(FrameKind.CONTROL, CODEC.encode(ConnectBack(number.to_bytes(16, "big"))))
        await until(lambda: b.reservations.ignored > 0)
        assert max(b.reservations._connecting.values()) <= module.MAX_CONNECTING
        await until(lambda: not sum(b.reservations._connecting.values()))
        assert link in r.relay_service._reserved.values()

    play(scenario, "a", "r", "b")


def test_a_relay_that_is_off_or_full_grants_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def off(a: Relay, r: Relay, b: Relay) -> None:
        assert await a.reservations.reserve(r.peer) == "off"

    play(off, "a", "r", "b", is_on=False)
    monkeypatch.setattr("agiledart_agent.circuits.relay_service.MAX_RESERVATIONS", 1)

    async def full(a: Relay, r: Relay, b: Relay) -> None:
        assert await a.reservations.reserve(r.peer) == ""
        assert await b.reservations.reserve(r.peer) == "quota"
        assert await a.reservations.reserve(r.peer) == "", "the same agent again takes no second place"
        assert r.relay_service.reserved == (a.node.node_id,)

    play(full, "a", "r", "b")
    assert MAX_RESERVATIONS > 1


def test_an_agent_that_only_dials_out_is_asked_for_no_circuit() -> None:
    async def scenario(a: Relay, r: Relay, b: Relay) -> None:
        closed = r.peer.with_reach(Reachability(1, "203.0.113.9", (NodeId(9),)))
        a.relay_service._members = lambda: (closed,)
        with pytest.raises(OSError, match="no other member is known"):
            await a.relay_service.circuit(b.node.node_id)

    play(scenario, "a", "r", "b")
