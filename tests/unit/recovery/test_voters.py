"""A host whose loss would take a state along does not vote when another node can."""

import msgspec

from agiledart_kernel.machine import Send
from agiledart_recovery.attempts.voter_replacement import VoterReplacement
from agiledart_recovery.register.proposer import Phase, Proposer
from agiledart_recovery.wire.messages import Accept, RequestVoterSlot
from agiledart_recovery.wire.names import InstanceId, Voter
from tests.unit.recovery.bench import RUN, context, peer, plan, value


def test_a_voter_that_took_over_a_stage_gives_its_slot_to_an_idle_node() -> None:
    here = context(1)
    proposer, voter_replacement = Proposer(here, RUN), VoterReplacement(here, RUN)
    proposer.phase, proposer.value = Phase.LEADING, value(made=plan(stage=4))
    voter_replacement.began(proposer.value)
    here.candidates = (peer(2), peer(3), peer(9))
    voter_replacement.on_tick(proposer)
    assert [(one.to, one.message) for one in here.effects if isinstance(one, Send)][:2] == [
        (peer(2), RequestVoterSlot(RUN, value().voters))
    ]
    voter_replacement.on_voter_slot_made(peer(2), 77)
    voter_replacement.on_tick(proposer)
    written = next(one.message for one in here.effects if isinstance(one, Send) and isinstance(one.message, Accept))
    assert [(voter.peer.node, voter.voter_slot) for voter in written.value.voters] == [(1, 1), (2, 77), (5, 5)]
    assert written.value.old_voters == value().voters


def test_a_voter_keeps_its_slot_when_every_node_hosts_an_instance() -> None:
    here = context(1)
    proposer, voter_replacement = Proposer(here, RUN), VoterReplacement(here, RUN)
    proposer.phase, proposer.value = Phase.LEADING, value(made=plan(stage=4))
    voter_replacement.began(proposer.value)
    here.candidates = (peer(3), peer(4))
    voter_replacement.on_tick(proposer)
    assert not here.effects


def test_a_coordinator_keeps_its_slot_while_a_successor_would_lack_pending_work() -> None:
    here = context(4)
    proposer, voter_replacement = Proposer(here, RUN), VoterReplacement(here, RUN)
    proposer.phase, proposer.value = Phase.LEADING, value(made=plan(stage=4))
    voter_replacement.began(proposer.value)
    here.candidates = (peer(2),)
    voter_replacement.on_tick(proposer, is_free=False)
    assert not here.effects
    voter_replacement.on_tick(proposer)
    assert [(one.to, one.message) for one in here.effects if isinstance(one, Send)] == [
        (peer(2), RequestVoterSlot(RUN, value().voters))
    ]


def test_a_coordinator_transfers_its_voter_slot_last() -> None:
    here = context(1)
    both = plan(stage=4)
    mine = msgspec.structs.replace(both.assignments[1], instance=InstanceId("other"), host=peer(1))
    both = msgspec.structs.replace(both, assignments=(mine, *both.assignments))
    proposer, voter_replacement = Proposer(here, RUN), VoterReplacement(here, RUN)
    proposer.phase, proposer.value = Phase.LEADING, value(made=both)
    voter_replacement.began(proposer.value)
    given, leaves = [], []
    for number in (2, 6):
        here.candidates = (peer(number),)
        voter_replacement.on_tick(proposer)
        voter_replacement.on_voter_slot_made(peer(number), 77)
        voter_replacement.on_tick(proposer)
        proposer.phase, proposer.value = Phase.LEADING, msgspec.structs.replace(proposer._want, old_voters=())
        given.append([voter.peer.node for voter in proposer.value.voters])
        leaves.append(voter_replacement.is_leaving)
    assert given == [[1, 2, 5], [6, 2, 5]]
    assert leaves == [False, True]


def test_a_removed_voter_is_notified() -> None:
    """Otherwise it would not learn the coordinator, and take over."""
    here = context(1)
    proposer = Proposer(here, RUN)
    before = value()
    after = msgspec.structs.replace(before, voters=(*before.voters[:2], Voter(peer(2), 77)))
    proposer.phase = Phase.LEADING
    proposer.value = msgspec.structs.replace(after, old_voters=before.voters)
    proposer.write(after)
    (told,) = [one.message for one in here.effects if isinstance(one, Send) and one.to == before.voters[2].peer]
    assert isinstance(told, Accept)
    assert told.value == after
