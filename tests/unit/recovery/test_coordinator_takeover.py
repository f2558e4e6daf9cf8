"""When a voter takes the coordination over: after silence, and at once when the coordinator is known to be dead."""

import msgspec
import pytest

from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import Send
from agiledart_recovery.attempts.coordinator import Coordinator
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.register.quorums import rank
from agiledart_recovery.register.voter_slot import VoterSlot
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import VoterFile
from agiledart_recovery.wire.names import Ballot, Stamp, Voter
from tests.unit.recovery.bench import RUN, context, peer, value

VALUE = value()
BY_RANK = sorted(
    (int(voter.peer.node) for voter in VALUE.voters), key=lambda number: rank(VALUE.voters, RUN, peer(number).node)
)
"""The voters, the nearest to the key first."""

SILENCE = RecoveryConfig().silence_ns


def follower(number: int, leader: int) -> tuple[Coordinator, RecoveryContext]:
    """A voter that has just received a message of another one."""
    mine = context(number)
    mine.now = Instant(10 * SILENCE)
    stamp = Stamp(Ballot(1, peer(leader).node, 1), 1)
    made = Coordinator(mine, VoterSlot(mine, VoterFile(RUN, number, stamp.ballot, stamp, VALUE)))
    made.leadership.on_leader_announced(peer(leader), wire.LeaderAnnounced(RUN, stamp.ballot))
    mine.effects.clear()
    return made, mine


def waits(made: Coordinator, mine: RecoveryContext) -> int:
    """Duration of silence before it prepares, in tenths of the configured one."""
    for tenths in range(1, 60):
        mine.now = Instant(mine.now + SILENCE // 10)
        made.on_tick()
        if any(isinstance(effect, Send) and isinstance(effect.message, wire.Prepare) for effect in mine.effects):
            return tenths
        mine.effects.clear()
    raise AssertionError("it never prepares")


@pytest.mark.parametrize(("place", "tenths"), [(1, 16), (2, 21)])
def test_the_nearest_voter_takes_over_first_after_silence(place: int, tenths: int) -> None:
    assert waits(*follower(BY_RANK[place], BY_RANK[0])) == tenths


@pytest.mark.parametrize(("place", "tenths"), [(1, 1), (2, 6)])
def test_voters_do_not_wait_for_a_dead_coordinator(place: int, tenths: int) -> None:
    made, mine = follower(BY_RANK[place], BY_RANK[0])
    mine.lost[peer(BY_RANK[0]).node] = None
    assert waits(made, mine) == tenths


def test_voters_do_not_wait_for_a_coordinator_that_votes_no_more() -> None:
    """It has transferred its voter slot, and hosts take nothing from it."""
    made, mine = follower(BY_RANK[1], BY_RANK[0])
    others = tuple(Voter(peer(9), 9) if voter.peer.node == BY_RANK[0] else voter for voter in VALUE.voters)
    voter_slot, ballot = made.leadership._voter_slot, Ballot(1, peer(BY_RANK[0]).node, 1)
    before = msgspec.structs.replace(VALUE, voters=others, old_voters=VALUE.voters)
    voter_slot.on_accept(peer(BY_RANK[0]), wire.Accept(RUN, Stamp(ballot, 2), before))
    waited, mine.now = mine.now, Instant(mine.now + SILENCE // 10)
    made.on_tick()
    assert not [one for one in mine.effects if isinstance(one, Send) and isinstance(one.message, wire.Prepare)], (
        "it leads"
    )
    mine.now = waited
    after = msgspec.structs.replace(before, old_voters=())
    voter_slot.on_accept(peer(BY_RANK[0]), wire.Accept(RUN, Stamp(ballot, 3), after))
    assert waits(made, mine) <= 6


def test_another_voters_death_only_hurries_the_voter_behind_it() -> None:
    made, mine = follower(BY_RANK[2], BY_RANK[0])
    mine.lost[peer(BY_RANK[1]).node] = None
    assert waits(made, mine) == 16


@pytest.mark.parametrize(("place", "takes_over"), [(1, True), (2, False)])
def test_the_next_voter_takes_over_on_news_of_the_coordinators_death(place: int, takes_over: bool) -> None:
    made, mine = follower(BY_RANK[place], BY_RANK[0])
    mine.now = Instant(mine.now + 1)
    mine.lost[peer(BY_RANK[0]).node] = None
    made.on_host_lost(peer(BY_RANK[0]).node)
    asks = [effect for effect in mine.effects if isinstance(effect, Send) and isinstance(effect.message, wire.Prepare)]
    assert bool(asks) == takes_over
