"""Chains in the register: an increment is prepared with its base or not at all, and replica nodes stay known."""

import msgspec

from agiledart_kernel.node_id import NodeId
from agiledart_recovery.limits import MAX_CHAIN
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import SendFragment
from agiledart_recovery.wire.events import CandidatesFound, SnapshotTaken
from agiledart_recovery.wire.names import Ballot, CheckpointId, InstanceId
from agiledart_recovery.wire.register_value import InstanceSnapshot, RegisterValue, SavedState
from tests.unit.recovery.bench import RUN, peer, value
from tests.unit.recovery.test_machine import ZERO, carry_out, machine, told

STAGE = InstanceId("stage")
HOLDERS = (NodeId(6), NodeId(7))


def snapshot(epoch: int, replica_nodes: tuple[NodeId, ...] = HOLDERS) -> InstanceSnapshot:
    return InstanceSnapshot(CheckpointId(1, epoch), b"%d" % epoch, 10, 1, replica_nodes)


def saved(*epochs: int) -> SavedState:
    return SavedState(STAGE, tuple(snapshot(epoch) for epoch in epochs))


def at(epoch: int, now: SavedState, before: SavedState) -> RegisterValue:
    """The register's epochs: the committed epoch, and the one committed before it."""
    return msgspec.structs.replace(value(1, CheckpointId(1, epoch)), saved=(now,), before=(before,))


def in_life(known: RegisterValue) -> RecoveryMachine:
    made = machine(2)
    made.step(CandidatesFound((peer(6), peer(7))), ZERO)
    told(made, peer(1), wire.Reset(RUN, Ballot(1, peer(1).node, 1), known))
    told(made, peer(1), wire.Start(RUN, 1))
    return made


def snapped(made: RecoveryMachine, epoch: int, onto: bytes) -> tuple[list[wire.Prepared], int]:
    """A snapshot's description, and how many of its fragments are sent."""
    effects = made.step(SnapshotTaken(RUN, STAGE, CheckpointId(1, epoch), b"new", 10, onto), ZERO)
    sent = sum(isinstance(each, SendFragment) for each in effects)
    said = [each.message for each in carry_out(made, effects)]
    return [each for each in said if isinstance(each, wire.Prepared)], sent


def test_a_snapshot_is_prepared_with_the_chain_it_rests_on() -> None:
    made = in_life(at(3, saved(1, 3), saved(1)))
    ((prepared,), sent) = snapped(made, 4, b"3")
    assert [one.digest for one in prepared.saved.chain] == [b"1", b"3", b"new"]
    assert sent == len(prepared.saved.chain[-1].replica_nodes) == 2, "of the new one only"


def test_an_increment_may_rest_on_the_previous_epoch_when_the_commit_was_missed() -> None:
    made = in_life(at(3, saved(3), saved(1, 2)))
    ((prepared,), _) = snapped(made, 4, b"2")
    assert [one.digest for one in prepared.saved.chain] == [b"1", b"2", b"new"]


def test_a_full_snapshot_rests_on_nothing() -> None:
    made = in_life(at(3, saved(1, 3), saved(1)))
    ((prepared,), _) = snapped(made, 4, b"")
    assert [one.digest for one in prepared.saved.chain] == [b"new"]


def test_an_increment_on_a_collected_snapshot_is_not_prepared() -> None:
    made = in_life(at(3, saved(3), saved(2)))
    assert snapped(made, 4, b"1") == ([], 0)


def test_a_chain_length_is_bounded() -> None:
    made = in_life(at(MAX_CHAIN, saved(*range(1, MAX_CHAIN + 1)), saved(1)))
    assert snapped(made, MAX_CHAIN + 1, b"%d" % MAX_CHAIN) == ([], 0)
    made = in_life(at(MAX_CHAIN - 1, saved(*range(1, MAX_CHAIN)), saved(1)))
    assert len(snapped(made, MAX_CHAIN, b"%d" % (MAX_CHAIN - 1))[0][0].saved.chain) == MAX_CHAIN


def test_rebuilt_fragments_stay_where_they_are() -> None:
    """A host's answer names the replica nodes that it knew of; the register knows of newer ones."""
    known = msgspec.structs.replace(
        at(3, SavedState(STAGE, (snapshot(1, (NodeId(6), NodeId(9))), snapshot(3))), saved(1)),
    )
    after = known.with_known(SavedState(STAGE, (snapshot(1), snapshot(3), snapshot(4))))
    assert [one.replica_nodes for one in after.chain] == [(NodeId(6), NodeId(9)), HOLDERS, HOLDERS]


def test_all_links_are_needed_while_the_last_one_is() -> None:
    needed = at(5, saved(1, 3, 5), saved(1, 3)).needed
    assert sorted(checkpoint.epoch for _, checkpoint in needed) == [1, 3, 5]
    needed = at(6, saved(6), saved(1, 3, 5)).needed
    assert sorted(checkpoint.epoch for _, checkpoint in needed) == [1, 3, 5, 6]
    assert sorted(checkpoint.epoch for _, checkpoint in at(7, saved(6, 7), saved(6)).needed) == [6, 7]
