"""Standby hosts: their choice, their state after each commit, and the node that takes an instance over."""

import msgspec

from agiledart_kernel.machine import Send
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.participant import Participant, Phase
from agiledart_recovery.attempts.replanning import next_plan
from agiledart_recovery.attempts.standby_choice import with_standbys
from agiledart_recovery.attempts.standby_holding import StandbyHolding
from agiledart_recovery.wire import messages
from agiledart_recovery.wire.effects import AttemptFile, HoldStandby, ReleaseStandby, RequestEffect, StoreAttempt
from agiledart_recovery.wire.names import CheckpointId, InstanceId
from agiledart_recovery.wire.register_value import RegisterValue, Standby
from tests.unit.recovery import bench

STAGE = InstanceId("stage")
PRIMARY, OTHER_HOST, VOTER, FREE, ALSO_FREE = 2, 3, 4, 7, 8


EPOCH = CheckpointId(1, 5)


def wanting(committed: CheckpointId = EPOCH) -> RegisterValue:
    """Return a running value whose stage asks for a standby."""
    plan = bench.plan()
    assignments = tuple(
        msgspec.structs.replace(assignment, standby=int(assignment.instance == STAGE))
        for assignment in plan.assignments
    )
    return bench.value(committed=committed, made=msgspec.structs.replace(plan, assignments=assignments))


def held_by(value: RegisterValue, number: int) -> RegisterValue:
    """Return the value with a standby of the stage on this node."""
    return msgspec.structs.replace(value, standbys=(Standby(STAGE, bench.peer(number)),))


def chosen(value: RegisterValue, *candidates: Peer, gone: tuple[int, ...] = ()) -> list[int]:
    """Return the numbers of the standby hosts that are chosen among these candidates."""
    lost = {NodeId(number) for number in gone}
    after = with_standbys(value, lambda node: node not in lost, candidates, lambda peer: peer)
    return [int(standby.host.node) for standby in after.standbys]


def peers(*numbers: int) -> tuple[Peer, ...]:
    """Return candidates in this order."""
    return tuple(bench.peer(number) for number in numbers)


def test_a_node_that_runs_nothing_of_the_run_and_does_not_vote_is_chosen_before_others() -> None:
    assert chosen(wanting(), *peers(PRIMARY, OTHER_HOST, VOTER, FREE)) == [FREE]
    assert chosen(wanting(), *peers(PRIMARY, OTHER_HOST, VOTER)) == [VOTER]
    assert chosen(wanting(), *peers(PRIMARY, OTHER_HOST)) == [OTHER_HOST]


def test_the_primary_alone_gives_no_standby() -> None:
    assert chosen(wanting(), *peers(PRIMARY)) == []


def test_a_stage_that_asks_for_none_has_none() -> None:
    assert chosen(bench.value(), *peers(PRIMARY, FREE)) == []


def test_another_machine_is_preferred_to_a_free_node_of_the_same_machine() -> None:
    value = wanting()
    assignments = tuple(
        msgspec.structs.replace(assignment, host=msgspec.structs.replace(assignment.host, host="rack-a"))
        if assignment.instance == STAGE
        else assignment
        for assignment in value.plan.assignments
    )
    value = msgspec.structs.replace(value, plan=msgspec.structs.replace(value.plan, assignments=assignments))
    same, other = (
        msgspec.structs.replace(bench.peer(FREE), host="rack-a"),
        msgspec.structs.replace(bench.peer(OTHER_HOST), host="rack-b"),
    )
    assert chosen(value, same, other) == [OTHER_HOST]
    assert chosen(value, same) == [FREE]


def test_a_standby_stays_until_it_is_lost_or_has_taken_over() -> None:
    candidates = peers(PRIMARY, OTHER_HOST, FREE, ALSO_FREE)
    assert chosen(held_by(wanting(), ALSO_FREE), *candidates) == [ALSO_FREE]
    assert chosen(held_by(wanting(), ALSO_FREE), *candidates, gone=(ALSO_FREE,)) == [FREE]
    assert chosen(held_by(wanting(), PRIMARY), *candidates) == [FREE]


def test_the_standby_takes_over_even_where_another_node_is_nearer_and_idle() -> None:
    value = held_by(wanting(), OTHER_HOST)  # it runs the sink, so by load alone the free node would be taken
    plan, _ = next_plan(value, lambda node: node != PRIMARY, peers(FREE, OTHER_HOST), lambda peer: peer)
    assert plan is not None
    assert plan.is_at(STAGE, NodeId(OTHER_HOST))
    plan, _ = next_plan(value, lambda node: node not in (PRIMARY, OTHER_HOST), peers(1, FREE), lambda peer: peer)
    assert plan is None  # the sink is pinned to the standby's host
    plan, _ = next_plan(
        held_by(wanting(), ALSO_FREE), lambda node: node not in (PRIMARY, ALSO_FREE), peers(FREE), lambda peer: peer
    )
    assert plan is not None
    assert plan.is_at(STAGE, NodeId(FREE))  # primary and standby are lost: any other node


def test_a_standby_that_is_no_candidate_takes_over_all_the_same() -> None:
    plan, _ = next_plan(held_by(wanting(), ALSO_FREE), lambda node: node != PRIMARY, peers(FREE), lambda peer: peer)
    assert plan is not None
    assert plan.is_at(STAGE, NodeId(ALSO_FREE))


class Host:
    """A participant of the run on one node, which enters each attempt at once."""

    def __init__(self, number: int, stored: AttemptFile | None = None) -> None:
        self.context = bench.context(number)
        self.part = Participant(self.context, bench.RUN, stored)

    def receive(self, value: RegisterValue) -> list[object]:
        """Deliver COMMITTED twice, as a coordinator repeats it; return all effects."""
        effects: list[object] = []
        for _ in range(2):
            self.part.on_committed(bench.peer(1), messages.Committed(bench.RUN, value.attempt, value))
            while self.context.effects:
                effect = self.context.effects.pop(0)
                effects.append(effect)
                if isinstance(effect, RequestEffect):
                    self.context.answered(effect.request, None, "")
        return effects


def of_kind(effects: list[object], kind: type) -> list[object]:
    """Return the effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def test_a_standby_holds_each_committed_epoch_once() -> None:
    host = Host(FREE)
    first, second = held_by(wanting(CheckpointId(1, 5)), FREE), held_by(wanting(CheckpointId(1, 6)), FREE)
    held = of_kind(host.receive(first), HoldStandby)
    assert [effect.saved for effect in held if isinstance(effect, HoldStandby)] == [first.saved]
    held = of_kind(host.receive(second), HoldStandby)
    assert [effect.saved for effect in held if isinstance(effect, HoldStandby)] == [second.saved]
    assert of_kind(host.receive(second), HoldStandby) == []


def test_a_former_standby_releases_its_executors() -> None:
    host = Host(FREE)
    host.receive(held_by(wanting(), FREE))
    assert len(of_kind(host.receive(held_by(wanting(), ALSO_FREE)), ReleaseStandby)) == 1


def test_a_host_of_a_run_with_standbys_holds_the_code_alone() -> None:
    context = bench.context(OTHER_HOST)
    holding = StandbyHolding(context, bench.RUN)
    value = held_by(wanting(), FREE)
    holding.update(value)
    later = msgspec.structs.replace(value, committed=CheckpointId(1, 6))
    holding.update(later)  # nothing new is asked of this host
    assert context.effects == [HoldStandby(bench.RUN, value.attempt, value.plan, (), ())]


def test_no_host_holds_anything_for_a_run_without_standbys() -> None:
    context = bench.context(OTHER_HOST)
    StandbyHolding(context, bench.RUN).update(bench.value(committed=CheckpointId(1, 5)))
    assert context.effects == []


def test_a_restarted_standby_goes_on_without_a_new_attempt() -> None:
    value = held_by(wanting(), FREE)
    host = Host(FREE, AttemptFile(bench.RUN, value.attempt))
    effects = host.receive(value)
    sent = [effect.message for effect in effects if isinstance(effect, Send)]
    assert not [message for message in sent if isinstance(message, messages.NewAttemptNeeded)]
    assert [message for message in sent if isinstance(message, messages.CommittedOk)]
    assert of_kind(effects, StoreAttempt) == []
    assert len(of_kind(effects, HoldStandby)) == 1
    assert host.part.phase is Phase.READY
