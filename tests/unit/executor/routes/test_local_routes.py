"""Routes to executors of the same node: over a socket pair where the agent gives one, else as to any other node."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agiledart_executor.routes import data_routes
from agiledart_executor.routes.data_routes import DataRoutes
from agiledart_executor.wire.agent_messages import FindRelays, OpenPair, PairRefused, RelaysFound
from agiledart_executor.wire.executor_address import ExecutorAddress
from agiledart_executor.wire.handed_connections import HandedPair
from agiledart_kernel.frames import Hello
from agiledart_kernel.node_id import NodeId

HOME, OTHER_NODE, EXECUTOR = NodeId(1), NodeId(2), NodeId(77)
WHERE = ExecutorAddress("127.0.0.1:9464", EXECUTOR, at_agent=True).text


class Agent:
    """The agent of an executor: answers its requests, with a pair or without."""

    def __init__(self, *, gives: bool, published: str = "") -> None:
        self.gives, self.published, self.asked = gives, published, list[Any]()
        self.ends: list[socket.socket] = []
        nothing = cast(Any, None)
        configuration = SimpleNamespace(
            credentials=None, home=HOME, proxy="", path_timeout=60, incarnation=7, node_id=NodeId(3)
        )
        self.routes = DataRoutes(
            cast(Any, configuration), Hello(), nothing, cast(Any, SimpleNamespace(gather=None, run_woken=None, cork=None)),
            self.receive, nothing, nothing,
        )  # fmt: skip

    def receive(self, asked: FindRelays | OpenPair) -> None:
        self.asked.append(asked)
        asyncio.get_running_loop().call_soon(self.answer, asked)

    def answer(self, asked: FindRelays | OpenPair) -> None:
        if isinstance(asked, FindRelays):
            self.routes.receive_answer(RelaysFound(asked.request, address=self.published))
        elif self.gives:
            near, far = socket.socketpair()
            self.ends += [near, far]
            self.routes.pairs.receive(near, HandedPair(asked.request, b"leaf"))
        else:
            self.routes.receive_answer(PairRefused(asked.request))


class Dialled:
    """Keeps what `connect` was called with, and is the link that it returns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        monkeypatch.setattr(data_routes, "connect", self.connect)
        monkeypatch.setattr(data_routes, "client_context", lambda credentials: "tls")

    async def connect(self, address: str, **options: Any) -> Any:
        self.calls.append((address, options))
        kind = {"is_local": options["pair"] is not None, "is_punched": False, "relay": ""}
        return SimpleNamespace(number=1, remote="", frames_out=0, peer=SimpleNamespace(hello=Hello(name="a1")), **kind)


def dialled(monkeypatch: pytest.MonkeyPatch, agent: Agent, node: NodeId) -> tuple[dict[str, Any], dict[str, Any]]:
    """Open the route to an executor of a node; return the options of its link, and the route's figures."""
    dialler = Dialled(monkeypatch)

    async def play() -> dict[str, Any]:
        route = await agent.routes.to(WHERE, node, ("auto",))
        route.link.frames_out = 5
        return route.figures(counts=True)

    figures = asyncio.run(play())
    for end in agent.ends:
        end.close()
    ((address, options),) = dialler.calls
    assert (address, options["expect"]) == ("127.0.0.1:9464", EXECUTOR)
    return options, figures


def test_an_executor_of_the_same_node_is_linked_by_a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(gives=True)
    options, figures = dialled(monkeypatch, agent, HOME)
    assert (options["pair"], options["context"]) == ((agent.ends[0], b"leaf"), None)
    assert OpenPair(1, EXECUTOR) in agent.asked
    assert (figures["kind"], figures["relay"]) == ("local", "")
    assert figures["frames"] == {"direct": 0, "relayed": 0, "local": 5}


def test_without_a_pair_it_is_dialled_over_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    options, figures = dialled(monkeypatch, Agent(gives=False), HOME)
    assert (options["pair"], options["context"], options["ticket"]) == (None, "tls", EXECUTOR.to_bytes16())
    assert figures["frames"] == {"direct": 5, "relayed": 0, "local": 0}


def test_no_pair_is_asked_for_to_another_node(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(gives=True)
    options, figures = dialled(monkeypatch, agent, OTHER_NODE)
    assert (options["pair"], figures["kind"]) == (None, "direct")
    assert not any(isinstance(asked, OpenPair) for asked in agent.asked)


@pytest.mark.parametrize(
    ("where", "present"),
    [
        (ExecutorAddress("10.0.0.2:5001", EXECUTOR), "10.0.0.9:5001"),
        (ExecutorAddress("10.0.0.2:9464", EXECUTOR, at_agent=True), "10.0.0.9:9000"),
        (ExecutorAddress("[fd00::2]:5001", EXECUTOR), "10.0.0.9:5001"),
    ],
)
def test_a_link_is_dialled_again_at_the_address_that_the_node_published(
    monkeypatch: pytest.MonkeyPatch, where: ExecutorAddress, present: str
) -> None:
    agent, dialler = Agent(gives=False, published="10.0.0.9:9000"), Dialled(monkeypatch)

    async def play() -> None:
        route = await agent.routes.to(where.text, OTHER_NODE, ("auto",))
        await route._dialler.directly(1)
        agent.published = ""
        await route._dialler.directly(1)

    asyncio.run(play())
    assert [address for address, _ in dialler.calls] == [where.address, present, where.address]
