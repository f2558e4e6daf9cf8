"""Recovery believes the voters of the held value, and nodes that one of those names; no node by its own word."""

from collections.abc import Callable

import msgspec
import pytest

from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.machine import Received, Send, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.recovery import garbage_collector
from agiledart_recovery.attempts.coordinator import Phase
from agiledart_recovery.attempts.participant import Phase as HostPhase
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.events import HostLost
from agiledart_recovery.wire.names import Ballot, RunId, Stamp, Voter
from agiledart_recovery.wire.register_value import RegisterValue, RunState
from tests.adversary.findings import probe, twin
from tests.simulation.mesh import Mesh
from tests.unit.recovery.bench import RUN, peer
from tests.unit.recovery.test_machine import ZERO, carry_out
from tests.unit.recovery.test_strangers import STRANGER, Leader, _answer, leader

__all__ = ["leader"]

THIEF = STRANGER
VOTERS = (1, 4, 5)


def ballot(of: Peer, number: int = 9) -> Ballot:
    return Ballot(number, of.node, of.incarnation)


def held(leader: Leader) -> RegisterValue:
    value = leader.machine.voter_slots[RUN].value
    assert value is not None
    return value


def thieving(value: RegisterValue) -> RegisterValue:
    """Return a value that makes the thief its only voter, and finishes the run."""
    return msgspec.structs.replace(value, voters=(Voter(THIEF, 1),), old_voters=(), state=RunState.FINISHED)


def joined(value: RegisterValue) -> RegisterValue:
    """Return a value in which the thief is one of three voters."""
    return msgspec.structs.replace(value, voters=(*value.voters[:2], Voter(THIEF, 1)))


@probe(4)
def test_a_node_that_is_no_voter_reads_no_register(leader: Leader) -> None:
    said = leader.hear(THIEF, wire.Prepare(RUN, ballot(THIEF)))
    assert [each for each in said if isinstance(each.message, wire.Promise)] == []


@probe(4)
@pytest.mark.parametrize("forged", [thieving, joined])
def test_a_node_that_is_no_voter_writes_no_register(
    leader: Leader, forged: Callable[[RegisterValue], RegisterValue]
) -> None:
    before = held(leader)
    said = leader.hear(THIEF, wire.Accept(RUN, Stamp(ballot(THIEF), 1), forged(before)))
    assert held(leader) == before
    assert [each for each in said if isinstance(each.message, wire.Accepted)] == []


@twin(4)
def test_a_voter_reads_and_writes_the_register(leader: Leader) -> None:
    voter = peer(4)
    said = leader.hear(voter, wire.Prepare(RUN, ballot(voter)))
    assert [type(each.message) for each in said if each.to.node == voter.node] == [wire.Promise]
    later = msgspec.structs.replace(held(leader), attempt=held(leader).attempt + 1)
    leader.hear(voter, wire.Accept(RUN, Stamp(ballot(voter), 1), later))
    assert held(leader) == later


@probe(4)
@pytest.mark.parametrize("is_over", [True, False])
def test_a_node_that_is_no_voter_coordinates_no_run(leader: Leader, is_over: bool) -> None:
    coordinator = leader.machine.coordinators[RUN]
    before = leader.state()
    for _ in range(2):
        said = leader.hear(THIEF, wire.LeaderAnnounced(RUN, ballot(THIEF), is_over))
        assert THIEF.node not in {each.to.node for each in said}
        leader.hear(THIEF, wire.VotersKnown(RUN, held(leader).attempt, joined(held(leader)).voters))
    assert leader.state() == before
    assert coordinator.is_coordinating
    assert not coordinator.is_over


@twin(4)
def test_a_voter_follows_another_one_and_a_new_one_that_a_held_one_names(leader: Leader) -> None:
    coordinator = leader.machine.coordinators[RUN]
    voter = peer(4)
    leader.hear(voter, wire.LeaderAnnounced(RUN, ballot(voter)))
    assert (coordinator.leads, coordinator.leader) == (False, voter)
    later, new = away(leader)
    announced = wire.LeaderAnnounced(RUN, ballot(new, 10))
    assert questions(leader.hear(new, announced)) == {NodeId(4), NodeId(5)}
    assert coordinator.leader == voter
    leader.hear(peer(5), wire.VotersKnown(RUN, later.attempt, later.voters))
    leader.hear(new, announced)
    assert coordinator.leader == new


@probe(5)
@pytest.mark.parametrize("forged", [thieving, joined])
@pytest.mark.parametrize("with_reset", [True, False])
def test_a_host_enters_and_ends_nothing_at_the_word_of_a_node_that_is_no_voter(
    leader: Leader, forged: Callable[[RegisterValue], RegisterValue], with_reset: bool
) -> None:
    part = leader.machine.participants[RUN]
    before = (part.phase, part.attempt, part.value)
    value = msgspec.structs.replace(forged(held(leader)), attempt=part.attempt + with_reset)
    message = wire.Reset(RUN, ballot(THIEF), value) if with_reset else wire.Committed(RUN, value.attempt, value)
    leader.hear(THIEF, message)
    assert (part.phase, part.attempt, part.value) == before


@twin(5)
def test_a_host_enters_the_attempt_of_a_voter(leader: Leader) -> None:
    voter, part = peer(4), leader.machine.participants[RUN]
    value = msgspec.structs.replace(held(leader), attempt=part.attempt + 1)
    leader.hear(voter, wire.Reset(RUN, ballot(voter), value))
    assert (part.attempt, part.phase) == (value.attempt, HostPhase.STORING) or part.attempt == value.attempt


def questions(said: list[Send]) -> set[NodeId]:
    return {each.to.node for each in said if isinstance(each.message, wire.QueryVoters)}


def away(leader: Leader) -> tuple[RegisterValue, Peer]:
    """Return the value of a change of voters that this node has missed, and its new voter."""
    new = peer(12)
    value = held(leader)
    voters = (value.voters[0], value.voters[1], Voter(new, 12))
    return msgspec.structs.replace(value, voters=voters, attempt=value.attempt + 1), new


@twin(5)
def test_a_host_that_was_away_believes_a_new_voter_that_a_held_one_names(leader: Leader) -> None:
    later, new = away(leader)
    part = leader.machine.participants[RUN]
    reset = wire.Reset(RUN, ballot(new), later)
    assert questions(leader.hear(new, reset)) == {NodeId(4), NodeId(5)}
    assert part.attempt != later.attempt
    leader.hear(peer(5), wire.VotersKnown(RUN, later.attempt, later.voters))
    leader.hear(new, reset)
    assert part.attempt == later.attempt


@probe(5)
def test_the_thief_confirms_itself_to_no_host(leader: Leader) -> None:
    part = leader.machine.participants[RUN]
    before = part.attempt
    forged = msgspec.structs.replace(joined(held(leader)), attempt=before + 1)
    for _ in range(3):
        leader.hear(THIEF, wire.Reset(RUN, ballot(THIEF), forged))
        leader.hear(THIEF, wire.VotersKnown(RUN, forged.attempt, forged.voters))
        leader.hear(peer(2), wire.VotersKnown(RUN, forged.attempt, forged.voters))  # a host is no voter
    assert part.attempt == before


@twin(5)
def test_without_a_majority_of_the_held_voters_the_values_word_counts(leader: Leader) -> None:
    later, new = away(leader)
    for number in (4, 5):
        leader.machine.step(HostLost(NodeId(number)), ZERO)
    leader.hear(new, wire.Reset(RUN, ballot(new), later))
    assert leader.machine.participants[RUN].attempt == later.attempt


@probe(4)
def test_a_slot_with_dead_voters_takes_no_value_of_a_stranger(leader: Leader) -> None:
    before = leader.state()
    for number in (4, 5):
        leader.machine.step(HostLost(NodeId(number)), ZERO)
    between = leader.state()
    for message in (
        wire.Accept(RUN, Stamp(ballot(THIEF), 1), joined(held(leader))),
        wire.LeaderAnnounced(RUN, ballot(THIEF), is_over=True),
    ):
        leader.hear(THIEF, message)
    assert leader.state() == between
    assert before[3] == between[3], "the slot"


@probe(5)
def test_a_host_in_an_attempt_that_the_register_lacks_stops_no_run(leader: Leader) -> None:
    """A stranger has led host 2 into a later attempt, and it refuses the true one."""
    coordinator, forged = leader.machine.coordinators[RUN], coordinator_attempt(leader) + 3
    ballots = {coordinator.proposer.ballot}

    def hear(sender: Peer, message: wire.RunMessage, now: Instant) -> list[Send]:
        return carry_out(leader.machine, leader.machine.step(Received(sender, message), now))

    def answers(asked: Send, now: Instant) -> list[Send]:
        ballots.add(coordinator.proposer.ballot)
        is_deceived = asked.to.node == NodeId(2) and isinstance(asked.message, wire.Reset)
        if is_deceived and coordinator_attempt(leader) < forged:
            return hear(asked.to, wire.ResetRefused(RUN, forged, "this host has entered a later attempt"), now)
        answer = _answer(asked)
        return hear(asked.to, answer, now) if answer is not None else []

    before = coordinator_attempt(leader)
    said = hear(peer(2), wire.NewAttemptNeeded(RUN, before, "it broke"), ZERO)
    for number in range(1, 40):
        now = Instant(number * SECOND // 4)
        said += carry_out(leader.machine, leader.machine.step(TimerFired((RUN, "tick")), now))
        said = [later for asked in said for later in answers(asked, now)]
    assert coordinator.phase is Phase.RUNNING
    assert coordinator_attempt(leader) == before + 2, "the next attempt, and the one after the refusal"
    assert NodeId(2) not in coordinator.value.plan.hosts, "its stage has moved"
    assert len(ballots) == 2, "the register was read once more"


def coordinator_attempt(leader: Leader) -> int:
    return leader.machine.coordinators[RUN].value.attempt


@probe(4)
def test_a_stranger_does_not_learn_the_voters_of_a_run(leader: Leader) -> None:
    assert leader.hear(THIEF, wire.QueryVoters(RUN)) == []
    (said,) = leader.hear(THIEF, wire.QueryVoters(RunId("another", 1)))
    assert said.message == wire.VotersKnown(RunId("another", 1), 0, ()), "it does not vote there"


@twin(4)
@pytest.mark.parametrize("number", [4, 2])
def test_a_voter_and_a_host_learn_the_voters_of_their_run(leader: Leader, number: int) -> None:
    (said,) = leader.hear(peer(number), wire.QueryVoters(RUN))
    assert said.message == wire.VotersKnown(RUN, held(leader).attempt, held(leader).voters)


# ---- 17: seats for runs that do not exist


@probe(17)
def test_slots_for_runs_that_do_not_exist_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collector, "EMPTY_SLOT_NS", 2 * SECOND)
    mesh = Mesh(1, 2).build()
    node, asker = mesh.machine("a1"), mesh.machine("a2").me
    machine = node.recovery_service.machine
    for number in range(40):
        mesh.world.inject(node.me.node, Received(asker, wire.RequestVoterSlot(RunId(f"invented-{number}", 1))))
    assert mesh.world.run_until(lambda: len(machine.voter_slots) == 40, 10 * SECOND, SECOND), "the seats are taken"
    assert mesh.world.run_until(lambda: not machine.voter_slots, 120 * SECOND, SECOND)


@twin(17)
def test_a_slot_with_a_value_stays(leader: Leader) -> None:
    assert held(leader) is not None
    assert RUN in leader.machine.voter_slots
