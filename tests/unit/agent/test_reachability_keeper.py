"""Whether others reach an agent by a dial, and which relays hold it when they do not."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agiledart_agent.circuits.relay_messages import DialBackAnswer, RelayAnswer, RelayMessage
from agiledart_agent.reaching import reachability_keeper as module
from agiledart_agent.reaching.reachability_keeper import ReachabilityKeeper
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.reachability import Reachability

INSIDE, OUTSIDE = "192.168.1.20", "11.0.0.101"


def member(number: int, **reach: Any) -> Peer:
    return Peer(NodeId(number), 1, f"o{number}", f"11.0.0.{number}:9464", reach=Reachability(1, **reach))


class FakeLinks:
    """Links of an agent to members; each member answers requests to dial back with one of `answers`, by its name."""

    def __init__(self, members: list[Peer], answers: dict[str, str | None], address: str = f"{INSIDE}:9464") -> None:
        self.members, self.answers, self.address = members, answers, address
        self.reach = Reachability()
        self.published: list[Reachability] = []
        self.refusing: set[str] = set()
        self.asked: list[str] = []
        self.reservations, self.relay_service = self, self
        self.held: list[NodeId] = []
        self.on_seen: Callable[[Peer, str, int], None] = lambda _peer, _address, _port: None
        self.further_addresses: tuple[str, ...] = ()
        self.on_caller: Callable[[Peer, str], None] = lambda _peer, _host: None
        self.on_reservations: Callable[[], None] = lambda: None

    @property
    def holders(self) -> tuple[NodeId, ...]:
        return tuple(self.held)

    async def reserve(self, relay: Peer) -> str:
        if relay.name in self.refusing:
            return "quota"
        self.held.append(relay.node)
        self.on_reservations()
        return ""

    def drop_all(self) -> None:
        self.held.clear()
        self.on_reservations()

    def publish(self, reach: Reachability) -> None:
        self.reach = reach
        self.published.append(reach)

    def reached_by_dial(self) -> tuple[Peer, ...]:
        return tuple(self.members)

    def knows_reachability(self, _node: NodeId) -> bool:
        return True

    async def ask(
        self, peer: Peer, question: Callable[[int], RelayMessage], _seconds: float
    ) -> tuple[RelayAnswer, Any]:
        self.asked.append(peer.name)
        failure = self.answers.get(peer.name)
        if failure is None:
            raise TimeoutError
        hello = SimpleNamespace(seen=f"{OUTSIDE}:40000")
        return DialBackAnswer(1, not failure, failure), SimpleNamespace(peer=SimpleNamespace(hello=hello))


def play(links: FakeLinks, scenario: Callable[[ReachabilityKeeper], Awaitable[None]]) -> None:
    async def run() -> None:
        log = SimpleNamespace(info=lambda *_, **__: None)
        await scenario(ReachabilityKeeper(cast(Any, links), "", cast(Any, log), lambda: tuple(links.members)))

    asyncio.run(run())


@pytest.fixture(autouse=True)
def addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "own_addresses", lambda: ["127.0.0.1", INSIDE])


def test_an_agent_behind_a_router_reserves_before_it_joins() -> None:
    first = member(1)
    links = FakeLinks([first], {})

    async def scenario(keeper: ReachabilityKeeper) -> None:
        links.on_seen(first, f"{OUTSIDE}:40000", 40000)
        assert keeper.is_behind_router
        await keeper.prepare([first])
        assert links.published[-1] == Reachability(2, OUTSIDE, (first.node,))

    play(links, scenario)


def test_a_new_address_is_published_once_with_a_higher_revision() -> None:
    links = FakeLinks([], {})

    async def scenario(keeper: ReachabilityKeeper) -> None:
        await keeper.look()
        assert links.published == []
        links.address = "192.168.7.3:9464"
        await keeper.look()
        await keeper.look()
        assert links.published == [Reachability(1)]

    play(links, scenario)


def test_an_agent_with_its_own_address_asks_for_nothing_before_it_joins() -> None:
    first = member(1)
    links = FakeLinks([first], {})

    async def scenario(keeper: ReachabilityKeeper) -> None:
        links.on_seen(first, f"{INSIDE}:40000", 40000)
        await keeper.prepare([first])
        assert links.held == []
        assert links.published == []

    play(links, scenario)


@pytest.mark.parametrize(
    ("answers", "is_open"),
    [
        ({"o1": "", "o2": ""}, True),
        ({"o1": "", "o2": "no answer"}, False),
        ({"o1": "refused", "o2": None}, False),
        ({"o1": "", "o2": None}, True),
        ({"o1": None, "o2": None}, None),
        ({"o1": "off", "o2": "quota"}, None),
    ],
)
def test_an_agent_is_open_when_all_members_that_answer_have_reached_it(
    answers: dict[str, str | None], is_open: bool | None
) -> None:
    links = FakeLinks([member(1), member(2), member(3)], answers)

    async def scenario(keeper: ReachabilityKeeper) -> None:
        await keeper.look()
        assert links.asked == ["o1", "o2"], "two members are enough"
        assert keeper.is_open is is_open
        assert len(links.held) == (2 if is_open is False else 0)
        await keeper.look()
        assert links.asked == ["o1", "o2"], "it does not ask again at once"

    play(links, scenario)


def test_two_relays_are_held_and_a_lost_one_is_replaced() -> None:
    links = FakeLinks([member(1), member(2), member(3)], {"o1": "no answer", "o2": "no answer"})

    async def scenario(keeper: ReachabilityKeeper) -> None:
        await keeper.look()
        assert links.held == [NodeId(1), NodeId(2)]
        links.held.remove(NodeId(1))
        links.members = [peer for peer in links.members if peer.name != "o1"]
        links.on_reservations()
        assert list(links.published[-1].holders) == [NodeId(2)]
        await keeper.look()
        assert list(links.published[-1].holders) == [NodeId(2), NodeId(3)]

    play(links, scenario)


def test_a_relay_that_refuses_is_passed_over() -> None:
    links = FakeLinks([member(1), member(2), member(3)], {"o1": "no answer", "o2": "no answer"})
    links.refusing = {"o1"}

    async def scenario(keeper: ReachabilityKeeper) -> None:
        await keeper.look()
        assert links.held == [NodeId(2), NodeId(3)]

    play(links, scenario)


def test_an_agent_that_became_open_gives_its_reservations_back() -> None:
    answers: dict[str, str | None] = {"o1": "no answer"}
    links = FakeLinks([member(1)], answers)

    async def scenario(keeper: ReachabilityKeeper) -> None:
        await keeper.look()
        assert links.held == [NodeId(1)]
        answers["o1"] = ""
        links.address = "11.0.0.9:9464"  # the router passes a port on
        await keeper.look()
        assert keeper.is_open
        assert links.held == []
        assert links.published[-1].holders == ()
        assert links.published[-1].is_open

    play(links, scenario)


def test_calls_from_elsewhere_prove_an_agent_that_has_dialled_none() -> None:
    links = FakeLinks([], {}, "11.0.0.1:9464")

    async def scenario(keeper: ReachabilityKeeper) -> None:
        verdicts: list[bool | None] = []
        for host in (INSIDE, "11.0.0.2"):  # a caller on this machine proves nothing
            links.on_caller(member(2), host)
            await keeper.look()
            verdicts.append(keeper.is_open)
        assert verdicts == [None, True]
        assert links.published[-1].is_open

    play(links, scenario)


def test_the_outside_host_is_a_public_one_and_does_not_flap() -> None:
    links = FakeLinks([], {})

    async def scenario(keeper: ReachabilityKeeper) -> None:
        links.on_seen(member(1), "192.168.1.7:40000", 50000)
        assert keeper.outside == "192.168.1.7", "behind two routers, the inner one"
        keeper._outside_at -= 2 * module.OUTSIDE_SECONDS
        links.on_seen(member(1), f"{OUTSIDE}:40000", 40000)
        assert keeper.outside == OUTSIDE
        keeper._outside_at -= 2 * module.OUTSIDE_SECONDS
        links.on_seen(member(1), "192.168.1.7:40000", 50000)
        assert keeper.outside == OUTSIDE, "a neighbour sees less"
        links.on_seen(member(1), "11.0.0.102:40000", 50000)
        links.on_seen(member(2), "11.0.0.103:40000", 50000)
        assert keeper.outside == "11.0.0.102", "some routers use several hosts"
        await keeper.look()
        assert keeper.outside == "11.0.0.102"
        keeper._outside_at -= 2 * module.OUTSIDE_SECONDS
        await keeper.look()
        assert keeper.outside == "11.0.0.103", (
            "the latest sight counts once the former host is old: no further dial may come"
        )

    play(links, scenario)


def test_tokens_name_open_agents_first_where_others_cannot_dial_this_one() -> None:
    opened = [member(number, is_open=True) for number in range(1, 7)]
    links = FakeLinks([*opened, member(9)], {"o1": "no answer"})

    async def scenario(keeper: ReachabilityKeeper) -> None:
        assert list(keeper.token_addresses) == [links.address, "11.0.0.1:9464", "11.0.0.2:9464", "11.0.0.3:9464"]
        keeper.is_open = False
        assert list(keeper.token_addresses) == [f"11.0.0.{number}:9464" for number in range(1, 5)]
        links.members = [opened[0]]
        assert list(keeper.token_addresses) == ["11.0.0.1:9464", links.address]

    play(links, scenario)


def test_agents_of_one_machine_ask_no_member() -> None:
    links = FakeLinks([member(1)], {"o1": "no answer"}, "127.0.0.1:9464")

    async def scenario(keeper: ReachabilityKeeper) -> None:
        links.on_seen(member(1), "127.0.0.1:40000", 50000)
        await keeper.prepare([member(1)])
        await asyncio.wait_for(keeper.keep_forever(), 1.0)
        assert links.asked == []
        assert keeper.document()["text"] == ""

    play(links, scenario)
