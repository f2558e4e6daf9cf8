"""Connections that come in at the agent's port and are handed over to an executor, through real socket pairs."""

import asyncio
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agiledart_agent.executors.executor_process import ExecutorProcess, address_of, hand_over
from agiledart_executor.programs import worker
from agiledart_kernel.node_id import NodeId

EXECUTOR = NodeId(77)


class Pair:
    """The agent's process and the executor's end of the pair; `taken` are connections that the executor has got."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, self.theirs):
            end.setblocking(False)
        anything = cast(Any, None)
        self.process = ExecutorProcess("taxi", 1, 0, anything, anything, own_node=EXECUTOR, handover=ours)
        self.process.address = f"192.0.2.1:40000/{EXECUTOR.hex}"
        self.taken: list[socket.socket] = []

    def take(self) -> None:
        """As the executor does when its end is readable."""
        links = SimpleNamespace(accepted_links=SimpleNamespace(take=self.taken.append))
        worker._take_connection(self.theirs, cast(Any, links))

    def close(self) -> None:
        assert self.process.handover is not None
        for end in (self.process.handover, self.theirs, *self.taken):
            end.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def test_the_executor_gets_the_connection_and_the_agent_holds_it_no_more(pair: Pair) -> None:
    caller, accepted = socket.socketpair()
    with caller:
        assert hand_over([pair.process], EXECUTOR, accepted)
        assert accepted.fileno() == -1
        pair.take()
        (taken,) = pair.taken
        caller.sendall(b"hello")
        assert taken.recv(5) == b"hello"
        assert taken.gettimeout() == 0.0


def test_a_connection_for_another_executor_stays_with_the_agent(pair: Pair) -> None:
    caller, accepted = socket.socketpair()
    with caller, accepted:
        assert not hand_over([pair.process], NodeId(78), accepted)
        assert not hand_over([], EXECUTOR, accepted)
        assert accepted.fileno() != -1


def test_an_executor_that_takes_nothing_fills_its_queue_and_no_more(pair: Pair) -> None:
    ends: list[socket.socket] = []
    given = 0
    while given < 5_000:
        caller, accepted = socket.socketpair()
        ends += [caller, accepted]
        if not pair.process.take(accepted):
            break
        given += 1
    assert 0 < given < 5_000
    assert ends[-1].fileno() != -1, "the caller of `take` closes what was not taken"
    pair.take()
    assert pair.process.take(ends[-1]), "it goes on once the executor takes"
    for end in ends:
        end.close()


def test_an_end_that_the_agent_has_closed_is_read_no_more(pair: Pair) -> None:
    async def play() -> bool:
        loop, called = asyncio.get_running_loop(), asyncio.Event()

        def take() -> None:
            pair.take()
            called.set()

        loop.add_reader(pair.theirs, take)
        assert pair.process.handover is not None
        pair.process.handover.close()
        await asyncio.wait_for(called.wait(), 10.0)
        return loop.remove_reader(pair.theirs)

    assert asyncio.run(play()) is False, "it was not watched any more"
    assert pair.taken == []


def test_addresses_of_executors_are_those_of_their_application(pair: Pair) -> None:
    assert address_of([pair.process], "taxi", EXECUTOR) == "192.0.2.1:40000"
    assert address_of([pair.process], "bus", EXECUTOR) == ""
    assert address_of([pair.process], "taxi", NodeId(78)) == ""
