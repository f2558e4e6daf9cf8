"""Conversations: asked, answered, asked again, given up; step by step, without a ring."""

from typing import Any

import pytest

from agiledart_kernel.instants import MILLISECOND, SECOND, Duration, Instant
from agiledart_kernel.machine import CancelTimer, Send, SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.pending_requests import PeerRequest, PendingRequests
from agiledart_node.wire.formation_messages import Acknowledged, NodeLoad, Survey

PEER, OTHER = Peer(NodeId(1), 3, "p"), Peer(NodeId(2), 1, "o")


def requests() -> PendingRequests:
    return PendingRequests(RandomStream(1, "t"), Duration(400 * MILLISECOND), limit=4)


def load(number: int) -> NodeLoad:
    return NodeLoad(number, 0, (), 1, 1, False, ())


class Principal:
    """One conversation that asks one question and keeps the answer."""

    def __init__(self, of: PendingRequests, *peers: Peer, resend_intervals: int = 1) -> None:
        self.of, self.numbers = of, [of.number() for _ in peers]
        self.questions: dict[int, PeerRequest | None] = {
            number: PeerRequest(peer, Survey(number), NodeLoad, resend_intervals)
            for number, peer in zip(self.numbers, peers, strict=True)
        }
        self.answers: dict[int, Any] | None = None
        of.begin(self.run())

    async def run(self) -> None:
        self.answers = await self.of.answers(self.questions, Duration(2 * SECOND))

    @property
    def timer(self) -> Any:
        return next(e.name for e in reversed(self.of.effects) if isinstance(e, SetTimer))


def sends(of: PendingRequests) -> list[Peer]:
    return [effect.to for effect in of.effects if isinstance(effect, Send)]


def test_an_answer_ends_the_request_in_the_same_step_and_cancels_its_timer() -> None:
    of = requests()
    principal = Principal(of, PEER)
    assert sends(of) == [PEER]
    assert of.reply_received(PEER, principal.numbers[0], load(principal.numbers[0]))
    assert principal.answers == {principal.numbers[0]: load(principal.numbers[0])}
    assert isinstance(of.effects[-1], CancelTimer)
    assert of.count == 0
    assert not of.reply_received(PEER, principal.numbers[0], load(principal.numbers[0])), (
        "a second copy matches no request"
    )


@pytest.mark.parametrize(
    ("sender", "answer"),
    [(OTHER, load(0)), (PEER, Acknowledged(0))],
    ids=["another peer", "another kind"],
)
def test_unmatched_answers_are_ignored(sender: Peer, answer: Any) -> None:
    of = requests()
    principal = Principal(of, PEER)
    assert not of.reply_received(sender, principal.numbers[0], answer)
    assert not of.resolve(principal.numbers[0], answer), "the driver does not answer for a peer"
    assert principal.answers is None


def test_an_unanswered_request_is_repeated_until_the_deadline() -> None:
    of = requests()
    principal = Principal(of, PEER, OTHER)
    assert of.reply_received(OTHER, principal.numbers[1], load(principal.numbers[1]))
    for tenth in (4, 8, 12, 16):
        of.effects.clear()
        of.now = Instant(tenth * 100 * MILLISECOND)
        name = of._waits[principal.numbers[0]].name
        of.timer(name)
        assert sends(of) == [PEER], "only the peer that has not answered"
    of.now = Instant(2 * SECOND)
    of.timer(name)
    assert principal.answers == {principal.numbers[1]: load(principal.numbers[1])}
    of.timer(name)
    assert of.count == 0


def test_the_timeout_grows_for_large_requests() -> None:
    of = requests()
    principal = Principal(of, PEER, resend_intervals=3)
    name = of._waits[principal.numbers[0]].name
    counts = []
    for round_ in range(1, 5):
        of.effects.clear()
        of.now = Instant(round_ * 400 * MILLISECOND)
        of.timer(name)
        counts.append(len(sends(of)))
    assert counts == [0, 0, 1, 0]


def test_a_dead_peer_fails_the_request_at_once_and_is_not_asked_again() -> None:
    of = requests()
    principal = Principal(of, PEER)
    of.peer_gone(PEER)
    assert principal.answers == {principal.numbers[0]: None}
    later = Principal(of, PEER)
    assert later.answers == {later.numbers[0]: None}
    reborn = Principal(of, Peer(PEER.node, PEER.incarnation + 1, "p"))
    assert reborn.answers is None
    of.peer_seen(PEER)
    again = Principal(of, PEER)
    assert again.answers is None, "it spoke: it was not dead"


def test_the_death_of_an_older_incarnation_leaves_the_new_ones_requests() -> None:
    of = requests()
    principal = Principal(of, PEER)
    of.peer_gone(Peer(PEER.node, PEER.incarnation - 1))
    assert principal.answers is None


def test_a_wait_for_no_request_returns_at_once() -> None:
    of = requests()
    assert Principal(of).answers == {}
    assert not of.effects


def test_the_request_limit_is_reported() -> None:
    of = requests()
    for _ in range(4):
        assert not of.is_full
        Principal(of, PEER)
    assert of.is_full


def test_pauses_end_on_time_only() -> None:
    of = requests()
    done = []

    async def wait() -> None:
        await of.pause(Duration(SECOND))
        done.append(of.now)

    of.begin(wait())
    timer = next(effect for effect in of.effects if isinstance(effect, SetTimer))
    assert timer.at == Instant(SECOND)
    of.now = Instant(SECOND)
    of.timer(timer.name)  # type: ignore[arg-type]
    assert done == [Instant(SECOND)]


def test_several_peers_are_asked_at_once_and_answers_come_in_order() -> None:
    of = requests()
    of.peer_gone(OTHER)
    got: list[tuple[Peer, NodeLoad | None]] = []

    async def ask() -> None:
        got.extend(await of.ask_all((OTHER, PEER), lambda number, _: Survey(number), NodeLoad, Duration(SECOND)))
        got.extend(await of.ask_all((), lambda number, _: Survey(number), NodeLoad, Duration(SECOND)))

    of.begin(ask())
    assert sends(of) == [PEER], "the dead are not asked"
    (number,) = (
        effect.message.request
        for effect in of.effects
        if isinstance(effect, Send)
        if isinstance(effect.message, Survey)
    )
    assert of.reply_received(PEER, number, load(number))
    assert got == [(OTHER, None), (PEER, load(number))]
    assert of.count == 0
