"""Socket pairs between executors of one run: handed to both ends, or refused. Through real sockets for connections."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agiledart_agent.executors import executor_pairs
from agiledart_agent.executors.executor_credentials import ExecutorCredentials
from agiledart_agent.executors.executor_pairs import MAX_PAIRS, ExecutorPairs
from agiledart_agent.executors.executor_process import ExecutorProcess
from agiledart_agent.identity.executor_pass import make_executor_pass
from agiledart_executor.programs.worker import _take_connection
from agiledart_executor.routes.agent_pairs import AgentPairs
from agiledart_executor.wire.agent_messages import OpenPair, PairRefused
from agiledart_kernel.node_id import NodeId
from agiledart_transport.certificates import verify_peer_certificate
from tests.unit.agent.test_identity import founder


class Executor(ExecutorProcess):
    """An executor as its agent sees it, with the other end of its socket for connections.

    Attributes:
        told: messages that it got.
        accepted: (connection, certificate) of pairs that other executors have asked for.
        own: (request, certificate) of pairs that it has asked for itself, with their ends.
    """

    def __init__(self, number: int, application: str = "taxi", version: int = 1) -> None:
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, self.theirs):
            end.setblocking(False)
        nothing = cast(Any, None)
        super().__init__(application, version, number, nothing, nothing, own_node=NodeId(number), handover=ours)
        self.told: list[Any] = []
        self.accepted: list[tuple[socket.socket, bytes]] = []
        self.own: list[tuple[socket.socket, int, bytes]] = []

    def send(self, message: Any) -> None:
        self.told.append(message)

    def take_handed(self) -> None:
        """As the process does when its socket for connections is readable."""
        pairs = SimpleNamespace(receive=lambda end, handed: self.own.append((end, handed.request, handed.certificate)))
        links = SimpleNamespace(take=lambda end, certificate: self.accepted.append((end, certificate)))
        _take_connection(self.theirs, cast(Any, SimpleNamespace(accepted_links=links, pairs=pairs)))

    def close(self) -> None:
        assert self.handover is not None
        ends = [row[0] for row in self.accepted] + [row[0] for row in self.own]
        for end in (self.handover, self.theirs, *ends):
            end.close()


class World:
    """Executors of one node, and their agent's maker of pairs."""

    def __init__(self) -> None:
        self.one, self.other = Executor(1), Executor(2)
        self.executors = [self.one, self.other]
        self.pairs = ExecutorPairs(lambda: self.executors, lambda executor: b"leaf %d" % executor)

    def add(self, executor: Executor) -> Executor:
        self.executors.append(executor)
        return executor

    def ask(self, *requests: OpenPair) -> list[Any]:
        """The first executor asks; return what the agent says about it."""

        async def play() -> None:
            for request in requests:
                self.pairs.open(request, self.one)

        asyncio.run(play())
        return self.one.told


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    for executor in made.executors:
        executor.close()


def test_both_executors_get_an_end_and_the_certificate_of_the_other(world: World) -> None:
    assert world.ask(OpenPair(7, NodeId(2))) == []
    world.one.take_handed()
    world.other.take_handed()
    ((near, request, others_leaf),) = world.one.own
    ((far, own_leaf),) = world.other.accepted
    assert (request, others_leaf, own_leaf) == (7, b"leaf 2", b"leaf 1")
    near.sendall(b"row")
    assert far.recv(3) == b"row"
    near.close()
    assert far.recv(1) == b"", "the agent holds no end"


@pytest.mark.parametrize("wanted", [1, 3, 4, 5], ids=["itself", "another run", "another application", "unknown"])
def test_only_executors_of_the_run_are_paired(world: World, wanted: int) -> None:
    world.add(Executor(3, version=2))
    world.add(Executor(4, application="bus"))
    assert world.ask(OpenPair(7, NodeId(wanted))) == [PairRefused(7)]


def test_an_executor_that_ends_gets_no_pair(world: World) -> None:
    world.other.ending = True
    assert world.ask(OpenPair(7, NodeId(2))) == [PairRefused(7)]


def test_an_executor_without_a_known_certificate_gets_no_pair(world: World) -> None:
    world.pairs = ExecutorPairs(lambda: world.executors, lambda executor: b"leaf" if executor == NodeId(1) else b"")
    assert world.ask(OpenPair(7, NodeId(2))) == [PairRefused(7)]


def test_a_pair_that_the_caller_does_not_take_breaks_at_the_other_end(world: World) -> None:
    assert world.one.handover is not None
    world.one.handover.close()
    assert world.ask(OpenPair(7, NodeId(2))) == [PairRefused(7)]
    world.other.take_handed()
    assert world.other.accepted[0][0].recv(1) == b""


def test_the_system_without_descriptors_refuses(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(executor_pairs, "socket", SimpleNamespace(socketpair=fail))
    assert world.ask(OpenPair(7, NodeId(2))) == [PairRefused(7)]


def test_an_executor_gets_a_bounded_number_of_pairs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Executor, "hand", lambda self, packet, connection: True)
    requests = [OpenPair(number, NodeId(2)) for number in range(1, MAX_PAIRS + 3)]
    assert world.ask(*requests) == [PairRefused(MAX_PAIRS + 1), PairRefused(MAX_PAIRS + 2)]
    world.one.pairs_since -= executor_pairs.PAIRS_SECONDS + 1
    world.one.told.clear()
    assert world.ask(OpenPair(1, NodeId(2))) == []


def test_the_agent_vouches_for_the_key_of_an_executor_that_it_configured(tmp_path: Path) -> None:
    identity = founder(tmp_path)
    papers = make_executor_pass(identity, "app:taxi")
    credentials = ExecutorCredentials.__new__(ExecutorCredentials)
    credentials._passes = {papers.node_id.hex: papers}
    assert verify_peer_certificate(credentials.certificate_of(papers.node_id)) == papers.public_key
    assert credentials.certificate_of(NodeId(3)) == b""
    identity.close()


class Asking:
    """The executor's side: its requests, and sockets that come as answers."""

    def __init__(self) -> None:
        self.asked: list[OpenPair] = []
        self.pairs = AgentPairs(self.asked.append)


def test_a_late_end_is_closed() -> None:
    async def play() -> tuple[int, int]:
        asking = Asking()
        with pytest.raises(TimeoutError):
            await asking.pairs.open(NodeId(2), 0.0)
        near, far = socket.socketpair()
        with far:
            asking.pairs.receive(near, cast(Any, SimpleNamespace(request=1, certificate=b"leaf")))
        return near.fileno(), len(asking.pairs._open)

    assert asyncio.run(play()) == (-1, 0)


def test_an_end_that_comes_while_its_caller_gives_up_is_closed() -> None:
    async def play() -> int:
        asking = Asking()
        caller = asyncio.create_task(asking.pairs.open(NodeId(2), 60.0))
        await asyncio.sleep(0)
        near, far = socket.socketpair()
        with far:
            asking.pairs.receive(near, cast(Any, SimpleNamespace(request=1, certificate=b"leaf")))
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller
        return near.fileno()

    assert asyncio.run(play()) == -1


def test_answers_go_to_their_requests() -> None:
    async def play() -> tuple[Any, Any]:
        asking = Asking()
        callers = [asyncio.create_task(asking.pairs.open(NodeId(number), 60.0)) for number in (2, 3)]
        await asyncio.sleep(0)
        assert asking.asked == [OpenPair(1, NodeId(2)), OpenPair(2, NodeId(3))]
        near, far = socket.socketpair()
        with near, far:
            asking.pairs.receive(near, cast(Any, SimpleNamespace(request=2, certificate=b"leaf")))
            asking.pairs.receive_refusal(PairRefused(1))
            asking.pairs.receive_refusal(PairRefused(9))
            refused, given = await asyncio.gather(*callers)
            return refused, given is not None and given == (near, b"leaf")

    assert asyncio.run(play()) == (None, True)
