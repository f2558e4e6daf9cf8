"""A member that does not vote says that a run goes on in a later era, or under ballots beyond all: nothing comes of it."""

from collections.abc import Callable

import msgspec
import pytest

from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.machine import Completed, Message, Received, Send, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observe import Observation
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.config import RecoveryConfig
from agiledart_recovery.limits import LIVES_OF_AN_ERA, ROUNDS_AT_ONCE, ROUNDS_OF_AN_ERA
from agiledart_recovery.machine import RecoveryMachine
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import KeepLife, KeepVoter, LifeFile, Request, VoterFile
from agiledart_recovery.wire.events import Booted
from agiledart_recovery.wire.names import Ballot, Run, Snapshot, Stamp, Voter
from agiledart_recovery.wire.observations import RunLeft
from agiledart_recovery.wire.value import Value
from tests.unit.recovery.bench import RUN, peer, value

ORDER, NEXT_ORDER, FORGED = b"1 signed", b"2 signed", b"3 forged"
NOW = Ballot(4, NodeId(4), 1)
HERE = value(2, Snapshot(2, 7))
STRANGER = peer(9)
FIRST = ROUNDS_OF_AN_ERA  # the first round of the next era


def is_ordered(_: Run, order: bytes, last: bytes) -> bool:
    return order.endswith(b"signed") and order > last


def of_era(era: int, order: bytes, by: Peer = STRANGER) -> Value:
    """What who leads in an era writes."""
    return msgspec.structs.replace(
        HERE,
        generation=1 + era,
        life=era * LIVES_OF_AN_ERA,
        voters=(Voter(by, 9), Voter(peer(4), 4), Voter(peer(1), 1)),
        order=order,
    )


class Node:
    """A node that votes on the run; everything that it asks of its disk succeeds."""

    def __init__(self, number: int = 1) -> None:
        self.now, self.observed = Instant(0), list[Observation]()
        self.number, self.said = number, list[Message]()
        self.voter, self.life = VoterFile(RUN, number, NOW, Stamp(NOW, 1), HERE), LifeFile(RUN, 2)
        self.restart()

    def restart(self) -> None:
        self.machine = RecoveryMachine(
            peer(self.number), RecoveryConfig(), RandomStream(1), self.observed.append, is_ordered
        )
        self.give(Booted((self.voter,), (self.life,)))

    def give(self, event: object) -> list[Message]:
        """What it says."""
        said, queue = list[Message](), list(self.machine.step(event, self.now))  # type: ignore[arg-type]
        while queue:
            effect = queue.pop(0)
            if isinstance(effect, Send):
                said.append(effect.message)
            if isinstance(effect, KeepVoter):
                self.voter = effect.file
            elif isinstance(effect, KeepLife):
                self.life = effect.file
            if isinstance(effect, Request):
                queue += self.machine.step(Completed(effect.request), self.now)
        return said

    def hear(self, sender: Peer, message: Message) -> list[Message]:
        return self.give(Received(sender, message))

    def asks(self) -> wire.Prepare | None:
        """What it asks other voters, when nobody was heard for a minute."""
        self.now = Instant(self.now + 60 * SECOND)
        said = self.give(TimerFired((RUN, "tick")))
        return next((one for one in said if isinstance(one, wire.Prepare)), None)

    @property
    def ballot(self) -> Ballot:
        return self.machine.coordinators[RUN].proposer.ballot


def forgeries(of: Ballot, order: bytes) -> list[Message]:
    """All with which a stranger may say that a run goes on under a ballot."""
    mine = Ballot(of.round, STRANGER.node, STRANGER.incarnation)
    era = max(1, mine.era)
    far = of_era(mine.era, order)
    return [
        wire.Prepare(RUN, mine, order),
        wire.Leading(RUN, mine, False, order),
        wire.Accept(RUN, Stamp(mine, 1), far),
        wire.Refused(RUN, NOW, mine, order),
        wire.ResetRefused(RUN, era * LIVES_OF_AN_ERA, "a later life", order=order),
        wire.Reset(RUN, mine, of_era(era, order)),
        wire.Committed(RUN, era * LIVES_OF_AN_ERA, of_era(era, order)),
    ]


@pytest.mark.parametrize("order", [b"", FORGED])
@pytest.mark.parametrize("height", [FIRST, 7 * FIRST + 3, FIRST - 1, FIRST // 2, 1 << 32])
@pytest.mark.parametrize("number", range(7))
def test_what_a_stranger_says_of_ballots_beyond_changes_nothing(number: int, height: int, order: bytes) -> None:
    node = Node()
    node.hear(STRANGER, forgeries(Ballot(height), order)[number])
    assert node.voter.promised == NOW
    assert node.life.life == 2
    asked = node.asks()
    assert asked is not None
    assert asked.ballot.round < NOW.round + 5
    # Also while it asks, and its own ballot is known.
    node.hear(STRANGER, msgspec.structs.replace(forgeries(Ballot(height), order)[3], ballot=node.ballot))
    node.hear(STRANGER, forgeries(Ballot(height), order)[number])
    node.restart()
    asked = node.asks()
    assert asked is not None
    assert asked.ballot.round < NOW.round + 9
    assert not [one for one in node.observed if isinstance(one, RunLeft)]


LATER = Ballot(FIRST + 1, NodeId(9), 1)

PROOFS: list[Callable[[Node, bytes], Message]] = [
    lambda node, order: wire.Leading(RUN, LATER, False, order),
    lambda node, order: wire.Refused(RUN, node.ballot, LATER, order),
]


@pytest.mark.parametrize("proof", PROOFS)
def test_with_an_admins_order_a_voter_lets_go_and_tells_its_like(proof: Callable[[Node, bytes], Message]) -> None:
    node = Node()
    node.asks()
    node.hear(STRANGER, proof(node, ORDER))
    assert node.voter.promised == LATER
    for _ in range(2):
        assert node.asks() is None
        (refused,) = node.hear(peer(4), wire.Leading(RUN, Ballot(99, NodeId(4), 1)))
        assert refused == wire.Refused(RUN, Ballot(99, NodeId(4), 1), LATER, ORDER)
        node.restart()
    like = Node(4)
    like.asks()
    like.hear(peer(1), wire.Refused(RUN, like.ballot, LATER, ORDER))
    assert like.asks() is None


def test_an_order_begins_one_era() -> None:
    node = Node()
    ballot = Ballot(FIRST + 1, STRANGER.node, 1)
    assert node.hear(STRANGER, wire.Prepare(RUN, ballot, ORDER))
    accepted = node.hear(STRANGER, wire.Accept(RUN, Stamp(ballot, 1), of_era(1, ORDER)))
    assert accepted == [wire.Accepted(RUN, Stamp(ballot, 1), 1)]
    for _ in range(2):
        node.hear(STRANGER, wire.Prepare(RUN, Ballot(2 * FIRST + 1, STRANGER.node, 1), ORDER))
        node.hear(STRANGER, wire.Leading(RUN, Ballot(2 * FIRST + 1, STRANGER.node, 1), False, ORDER))
        assert node.voter.promised == ballot
        node.restart()
    assert node.hear(STRANGER, wire.Prepare(RUN, Ballot(2 * FIRST + 1, STRANGER.node, 1), NEXT_ORDER))
    assert node.voter.promised.era == 2


def test_a_host_enters_a_life_of_a_later_era_with_the_order_only_and_shows_it() -> None:
    node = Node()
    reset = wire.Reset(RUN, LATER, of_era(1, ORDER))
    node.hear(STRANGER, msgspec.structs.replace(reset, value=of_era(1, FORGED)))
    assert node.life.life == 2
    node.hear(STRANGER, reset)
    assert node.life == LifeFile(RUN, LIVES_OF_AN_ERA, ORDER)
    node.restart()
    (refused,) = node.hear(peer(4), wire.Reset(RUN, Ballot(99, NodeId(4), 1), HERE))
    assert isinstance(refused, wire.ResetRefused)
    assert (refused.life, refused.order) == (LIVES_OF_AN_ERA, ORDER)


def test_a_proposer_comes_up_to_its_ballot_in_steps() -> None:
    """A stranger has raised what one voter promised, in steps; the others are below, and vote for who goes on above it."""
    voter = Node(4)
    mine = Ballot(3 * ROUNDS_AT_ONCE + 9, NodeId(1), 1)
    asker = Node()
    proposer = asker.machine.coordinators[RUN].proposer
    proposer.highest = msgspec.structs.replace(mine, round=mine.round - 1)
    asker.asks()
    assert asker.ballot == mine
    asked: Message = wire.Prepare(RUN, mine)
    promises = []
    for _ in range(9):
        (answer,) = voter.hear(peer(1), asked)
        if isinstance(answer, wire.Promise):
            promises.append(answer.ballot)
            asked = wire.Prepare(RUN, mine)
        else:
            (asked,) = asker.hear(peer(4), answer)
    assert promises[-1] == mine
