"""A member that does not vote reports a run in a later configuration, or under ballots beyond all: nothing comes of it."""

from collections.abc import Callable

import msgspec
import pytest

from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.machine import Completed, Message, Received, Send, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observation
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.limits import ATTEMPTS_PER_CONFIGURATION, MAX_ROUND_STEP, ROUNDS_PER_CONFIGURATION
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import AttemptFile, RequestEffect, StoreAttempt, StoreVoter, VoterFile
from agiledart_recovery.wire.events import Booted
from agiledart_recovery.wire.names import Ballot, CheckpointId, RunId, Stamp, Voter
from agiledart_recovery.wire.observations import VoterExcluded
from agiledart_recovery.wire.register_value import RegisterValue, RunState
from tests.unit.recovery.bench import RUN, peer, value

ORDER, NEXT_ORDER, FORGED = b"1 signed", b"2 signed", b"3 forged"
NOW = Ballot(4, NodeId(4), 1)
HERE = value(2, CheckpointId(2, 7))
STRANGER = peer(9)
FIRST = ROUNDS_PER_CONFIGURATION  # the first round of the next configuration


def is_command_authorised(_: RunId, signed_command: bytes, last: bytes) -> bool:
    return signed_command.endswith(b"signed") and signed_command > last


def of_era(configuration: int, signed_command: bytes, by: Peer = STRANGER) -> RegisterValue:
    """A value written by a leader of a configuration."""
    return msgspec.structs.replace(
        HERE,
        quorum_generation=1 + configuration,
        attempt=configuration * ATTEMPTS_PER_CONFIGURATION,
        voters=(Voter(by, 9), Voter(peer(4), 4), Voter(peer(1), 1)),
        signed_command=signed_command,
    )


class Node:
    """A node that votes on the run; everything that it asks of its disk succeeds."""

    def __init__(self, number: int = 1) -> None:
        self.now, self.observed = Instant(0), list[Observation]()
        self.number, self.said = number, list[Message]()
        self.voter, self.attempt = VoterFile(RUN, number, NOW, Stamp(NOW, 1), HERE), AttemptFile(RUN, 2)
        self.restart()

    def restart(self) -> None:
        self.machine = RecoveryMachine(
            peer(self.number), RecoveryConfig(), RandomStream(1), self.observed.append, is_command_authorised
        )
        self.give(Booted((self.voter,), (self.attempt,)))

    def give(self, event: object) -> list[Message]:
        """Its messages."""
        said, queue = list[Message](), list(self.machine.step(event, self.now))  # type: ignore[arg-type]
        while queue:
            effect = queue.pop(0)
            if isinstance(effect, Send):
                said.append(effect.message)
            if isinstance(effect, StoreVoter):
                self.voter = effect.file
            elif isinstance(effect, StoreAttempt):
                self.attempt = effect.file
            if isinstance(effect, RequestEffect):
                queue += self.machine.step(Completed(effect.request), self.now)
        return said

    def hear(self, sender: Peer, message: Message) -> list[Message]:
        return self.give(Received(sender, message))

    def asks(self) -> wire.Prepare | None:
        """Its requests to other voters, after a minute of silence."""
        self.now = Instant(self.now + 60 * SECOND)
        said = self.give(TimerFired((RUN, "tick")))
        return next((one for one in said if isinstance(one, wire.Prepare)), None)

    @property
    def ballot(self) -> Ballot:
        return self.machine.coordinators[RUN].proposer.ballot


def forgeries(of: Ballot, signed_command: bytes) -> list[Message]:
    """All with which a stranger may say that a run goes on under a ballot."""
    mine = Ballot(of.round, STRANGER.node, STRANGER.incarnation)
    configuration = max(1, mine.configuration)
    far = of_era(mine.configuration, signed_command)
    return [
        wire.Prepare(RUN, mine, signed_command),
        wire.LeaderAnnounced(RUN, mine, False, signed_command),
        wire.Accept(RUN, Stamp(mine, 1), far),
        wire.BallotRefused(RUN, NOW, mine, signed_command),
        wire.ResetRefused(
            RUN, configuration * ATTEMPTS_PER_CONFIGURATION, "a later life", signed_command=signed_command
        ),
        wire.Reset(RUN, mine, of_era(configuration, signed_command)),
        wire.Committed(RUN, configuration * ATTEMPTS_PER_CONFIGURATION, of_era(configuration, signed_command)),
    ]


@pytest.mark.parametrize("signed_command", [b"", FORGED])
@pytest.mark.parametrize("height", [FIRST, 7 * FIRST + 3, FIRST - 1, FIRST // 2, 1 << 32])
@pytest.mark.parametrize("number", range(7))
def test_a_message_with_ballots_from_an_unknown_node_changes_nothing(
    number: int, height: int, signed_command: bytes
) -> None:
    node = Node()
    node.hear(STRANGER, forgeries(Ballot(height), signed_command)[number])
    assert node.voter.promised == NOW
    assert node.attempt.attempt == 2
    asked = node.asks()
    assert asked is not None
    assert asked.ballot.round < NOW.round + 5
    # Also while it asks, and its own ballot is known.
    node.hear(STRANGER, msgspec.structs.replace(forgeries(Ballot(height), signed_command)[3], ballot=node.ballot))
    node.hear(STRANGER, forgeries(Ballot(height), signed_command)[number])
    node.restart()
    asked = node.asks()
    assert asked is not None
    assert asked.ballot.round < NOW.round + 9
    assert not [one for one in node.observed if isinstance(one, VoterExcluded)]


LATER = Ballot(FIRST + 1, NodeId(9), 1)

PROOFS: list[Callable[[Node, bytes], Message]] = [
    lambda node, signed_command: wire.LeaderAnnounced(RUN, LATER, False, signed_command),
    lambda node, signed_command: wire.BallotRefused(RUN, node.ballot, LATER, signed_command),
]


@pytest.mark.parametrize("proof", PROOFS)
def test_an_admins_command_supersedes_a_voters_ballot_and_is_passed_on(
    proof: Callable[[Node, bytes], Message],
) -> None:
    node = Node()
    node.asks()
    node.hear(STRANGER, proof(node, ORDER))
    assert node.voter.promised == LATER
    for _ in range(2):
        assert node.asks() is None
        (refused,) = node.hear(peer(4), wire.LeaderAnnounced(RUN, Ballot(99, NodeId(4), 1)))
        assert refused == wire.BallotRefused(RUN, Ballot(99, NodeId(4), 1), LATER, ORDER)
        node.restart()
    like = Node(4)
    like.asks()
    like.hear(peer(1), wire.BallotRefused(RUN, like.ballot, LATER, ORDER))
    assert like.asks() is None


def test_an_admins_command_begins_one_configuration() -> None:
    node = Node()
    ballot = Ballot(FIRST + 1, STRANGER.node, 1)
    assert node.hear(STRANGER, wire.Prepare(RUN, ballot, ORDER))
    accepted = node.hear(STRANGER, wire.Accept(RUN, Stamp(ballot, 1), of_era(1, ORDER)))
    assert accepted == [wire.Accepted(RUN, Stamp(ballot, 1), 1)]
    for _ in range(2):
        node.hear(STRANGER, wire.Prepare(RUN, Ballot(2 * FIRST + 1, STRANGER.node, 1), ORDER))
        node.hear(STRANGER, wire.LeaderAnnounced(RUN, Ballot(2 * FIRST + 1, STRANGER.node, 1), False, ORDER))
        assert node.voter.promised == ballot
        node.restart()
    assert node.hear(STRANGER, wire.Prepare(RUN, Ballot(2 * FIRST + 1, STRANGER.node, 1), NEXT_ORDER))
    assert node.voter.promised.configuration == 2


def test_a_host_enters_an_attempt_of_a_later_configuration_by_command_only() -> None:
    node = Node()
    reset = wire.Reset(RUN, LATER, of_era(1, ORDER))
    node.hear(STRANGER, msgspec.structs.replace(reset, value=of_era(1, FORGED)))
    assert node.attempt.attempt == 2
    node.hear(STRANGER, reset)
    later = of_era(1, ORDER)
    assert node.attempt == AttemptFile(RUN, ATTEMPTS_PER_CONFIGURATION, ORDER, later.voters)
    node.restart()
    (refused,) = node.hear(peer(4), wire.Reset(RUN, Ballot(99, NodeId(4), 1), HERE))
    assert isinstance(refused, wire.ResetRefused)
    assert (refused.attempt, refused.signed_command) == (ATTEMPTS_PER_CONFIGURATION, ORDER)


def test_a_proposer_reaches_its_ballot_in_steps() -> None:
    """A stranger has raised what one voter promised, in steps; the others are below, and vote for a proposer above it."""
    voter = Node(4)
    mine = Ballot(3 * MAX_ROUND_STEP + 9, NodeId(1), 1)
    principal = Node()
    proposer = principal.machine.coordinators[RUN].proposer
    proposer.highest = msgspec.structs.replace(mine, round=mine.round - 1)
    principal.asks()
    assert principal.ballot == mine
    asked: Message = wire.Prepare(RUN, mine)
    promises = []
    for _ in range(9):
        (answer,) = voter.hear(peer(1), asked)
        if isinstance(answer, wire.Promise):
            promises.append(answer.ballot)
            asked = wire.Prepare(RUN, mine)
        else:
            (asked,) = principal.hear(peer(4), answer)
    assert promises[-1] == mine


def away_host() -> Node:
    """A host that was restarted, and votes no more; its disk names the voters 9, 4 and 1 of attempt 2."""
    node = Node(7)
    before = of_era(0, b"", peer(3))
    node.voter, node.attempt = VoterFile(RUN, 7), AttemptFile(RUN, 2, b"", before.voters)
    node.restart()
    node.machine.voter_slots.clear()
    return node


def test_a_restarted_host_believes_no_stranger() -> None:
    node = away_host()
    stranger = msgspec.structs.replace(HERE, attempt=3, voters=(Voter(STRANGER, 9),))
    said = node.hear(STRANGER, wire.Reset(RUN, Ballot(9, STRANGER.node, 1), stranger))
    assert {type(message) for message in said} == {wire.QueryVoters}
    node.hear(STRANGER, wire.Committed(RUN, 3, msgspec.structs.replace(stranger, state=RunState.FINISHED)))
    assert (node.attempt.attempt, node.machine.participants[RUN].is_closed) == (2, False)


@pytest.mark.parametrize("asks", [False, True])
def test_a_restarted_host_believes_a_voter_of_before_and_a_voter_that_one_names(asks: bool) -> None:
    node = away_host()
    leader = peer(5) if asks else peer(4)
    later = msgspec.structs.replace(HERE, attempt=3, voters=(Voter(leader, 5), Voter(peer(1), 1), Voter(peer(3), 9)))
    reset = wire.Reset(RUN, Ballot(9, leader.node, 1), later)
    node.hear(leader, reset)
    if asks:
        assert node.attempt.attempt == 2
        node.hear(peer(1), wire.VotersKnown(RUN, 3, later.voters))
        node.hear(leader, reset)
    assert (node.attempt.attempt, node.attempt.voters) == (3, later.voters)
