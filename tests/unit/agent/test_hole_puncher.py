"""Punching between two agents of this process. Routers, and both ends that connect at one moment: `test_kinds_of_routers`."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from agiledart_agent.circuits import hole_puncher as module
from agiledart_agent.circuits.hole_puncher import HolePuncher
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.reachability import Reachability
from agiledart_node.reaching.reachability_messages import PunchAnswer, PunchMessage, RequestPunch


class End:
    """One agent; `sent` are its messages, `taken` the connections that it treats as accepted."""

    def __init__(self, number: int, member: socket.socket) -> None:
        reach = Reachability(1, f"11.0.0.{number}", (NodeId(9),))
        self.peer = Peer(NodeId(number), 1, f"n{number}", reach=reach)
        self.taken: asyncio.Queue[socket.socket] = asyncio.Queue()
        self.sent: list[PunchMessage] = []
        self.other: End | None = None
        self.is_seen, self.loses = True, False
        self._member, self.mirrored = member, list[socket.socket]()
        self.puncher = HolePuncher(self.peer.node, self._send, self._mirror, lambda: reach, self.taken.put_nowait)

    def _send(self, _peer: Peer, message: PunchMessage) -> None:
        self.sent.append(message)
        if self.other is not None and not self.loses:
            asyncio.get_running_loop().call_later(0.01, self.other.puncher.receive, self.peer, message)

    async def _mirror(self, unconnected: socket.socket) -> Any:
        await asyncio.get_running_loop().sock_connect(unconnected, self._member.getsockname())
        self.mirrored.append(unconnected)
        host, port = unconnected.getsockname()
        hello = SimpleNamespace(seen=f"{host}:{port}" if self.is_seen else "")
        return SimpleNamespace(
            local=(host, port), peer=SimpleNamespace(hello=hello), close=lambda _: unconnected.close()
        )


def play(scenario: Callable[[End, End], Awaitable[None]]) -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as member:
            left, right = End(1, member), End(2, member)
            left.other, right.other = right, left
            try:
                await scenario(left, right)
            finally:
                for end in (left, right):
                    await end.puncher.close()

    asyncio.run(run())


@pytest.fixture(autouse=True)
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses of this machine may be punched here."""
    monkeypatch.setattr(module, "is_punchable", lambda address: bool(address))


def test_one_connection_comes_of_two_ends_that_connect_at_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second try works; each end connects from its own mirrored port to what the other end said."""
    tries: list[tuple[tuple[str, int], str]] = []
    ends = socket.socketpair()

    async def connect_from(local: tuple[str, int], outside: str) -> socket.socket:
        tries.append((local, outside))
        if len(tries) <= 2:
            raise ConnectionRefusedError
        return ends[len(tries) - 3]

    monkeypatch.setattr(module, "_connect_from", connect_from)

    async def scenario(left: End, right: End) -> None:
        with await left.puncher.punch(right.peer) as opened, await asyncio.wait_for(right.taken.get(), 5.0) as taken:
            for end in (opened, taken):
                end.setblocking(False)
            assert isinstance(left.sent[0], RequestPunch)
            assert isinstance(right.sent[0], PunchAnswer)
            of_left, of_right = left.sent[0].outside, right.sent[0].outside
            used = {(f"{local[0]}:{local[1]}", outside) for local, outside in tries}
            assert used == {(of_left, of_right), (of_right, of_left)}
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(opened, b"row")
            assert await loop.sock_recv(taken, 10) == b"row"
        assert (left.puncher.opened, left.puncher.missed) == (1, 0)
        assert all(port.fileno() == -1 for end in (left, right) for port in end.mirrored)
        assert left.puncher.is_due(right.peer), "it worked, so it is tried again when that link is lost"

    play(scenario)


def test_an_end_without_an_observer_reports_it() -> None:
    async def scenario(left: End, right: End) -> None:
        right.is_seen = False
        with pytest.raises(ConnectionError, match="n2 does not punch"):
            await left.puncher.punch(right.peer)
        assert [type(message) for message in right.sent] == [PunchAnswer]
        assert not left.puncher.is_due(right.peer), "not again for an hour"

    play(scenario)


def test_a_peer_that_does_not_answer_costs_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.1)

    async def scenario(left: End, right: End) -> None:
        right.loses = True
        with pytest.raises(TimeoutError):
            await left.puncher.punch(right.peer)
        assert (left.puncher.opened, left.puncher.missed) == (0, 1)

    play(scenario)


def test_a_peer_that_asks_without_end_is_answered_once_in_ten_seconds() -> None:
    async def scenario(left: End, right: End) -> None:
        for number in range(50):
            right.puncher.receive(left.peer, RequestPunch(number, "11.0.0.1:40000"))
        answers: list[PunchAnswer] = []
        while len(answers) < 50:  # the one with an address comes later
            await asyncio.sleep(0)
            answers = [message for message in right.sent if isinstance(message, PunchAnswer)]
        assert len(answers) == 50
        assert sum(bool(message.outside) for message in answers) == 1
        assert len(right.mirrored) == 1

    play(scenario)


def test_only_the_smaller_id_asks_and_only_between_two_networks() -> None:
    async def scenario(left: End, right: End) -> None:
        assert left.puncher.is_due(right.peer)
        assert not right.puncher.is_due(left.peer)
        for reach in (Reachability(2, "11.0.0.1", (NodeId(9),)), Reachability(2, "11.0.0.2", is_open=True)):
            assert not left.puncher.is_due(right.peer.with_reach(reach))

    play(scenario)
