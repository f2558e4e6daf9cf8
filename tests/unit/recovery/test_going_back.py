"""A state of the committed epoch is lost: by its topology's policy the run goes on from the epoch before.

Specification §2: "`previous` (the epoch before, if kept; rows of the epochs in between appear twice, said in status and ledger)".
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.lives.committing import Committing
from agiledart_recovery.lives.next_life import NextLife
from agiledart_recovery.lives.participant import Participant
from agiledart_recovery.lives.verdicts import can_go, verdict
from agiledart_recovery.register.regaining import Finding, regained
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import EnterLife, KeepLife
from agiledart_recovery.wire.names import NOTHING_SAVED, Ballot, Party, Snapshot, Voter
from agiledart_recovery.wire.value import Element, IfLost, Plan, Role, Saved, SinkEnd, Value
from tests.unit.recovery.bench import RUN, desk, peer, plan, value

BEFORE, LAST = Snapshot(1, 11), Snapshot(1, 12)
STAGE, SINK = Party("stage"), Party("sink")


def saved(at: Snapshot, *holders: int) -> tuple[Saved, ...]:
    """The source, the stage with its holders, and the sink, which lies on its node's disk."""
    name = str(at.epoch).encode()
    kept = tuple(NodeId(number) for number in holders)
    return (
        Saved(Party("source"), (), name),
        Saved(STAGE, (Element(at, b"stage" + name, 10, 2, kept),)),
        Saved(SINK, (Element(at, b"sink" + name, 10, 1, ()),)),
    )


def going_back(made: Plan) -> Plan:
    assignments = tuple(
        msgspec.structs.replace(each, if_lost=IfLost.PREVIOUS) if each.role is Role.STAGE else each
        for each in made.assignments
    )
    return msgspec.structs.replace(made, assignments=assignments)


def lost() -> Value:
    """Epoch 12 is committed, with the stage's state on 6, 7 and 8; that of epoch 11 is on 7, 8 and 9. The stage runs on 2."""
    return msgspec.structs.replace(
        value(1, LAST, going_back(plan())),
        saved=saved(LAST, 6, 7, 8),
        before=saved(BEFORE, 7, 8, 9),
        parts=(SinkEnd("sink", 0, NodeId(3), LAST, 40),),
        earlier=BEFORE,
    )


def without(*gone: int) -> Callable[[NodeId], bool]:
    return lambda node: int(node) not in gone


def named(node: NodeId) -> str:
    return f"node-{int(node)}"


def test_the_epoch_before_is_gone_on_from_when_nobody_waits_any_more() -> None:
    now, there = lost(), without(2, 6, 7)
    assert not verdict(now, there, {}, named, is_patient=True).goes_back
    judged = verdict(now, there, {}, named, is_patient=False)
    assert judged.goes_back
    assert judged.note == (
        "went back to epoch 11, for a state of epoch 12 is lost with node-6, node-7: rows of epoch 12 come twice"
    )
    after = judged.applied(now)
    assert after.saved == now.before, "all of them, not the lost one alone"
    assert after.before == now.saved, "it is not let go before the next commit"
    assert (after.committed, after.at, after.parts) == (LAST, BEFORE, now.parts), "what is committed stays committed"
    assert [one.chain[0].digest for one in after.shown if one.party == SINK] == [b"sink12"]


def test_where_the_epoch_before_is_lost_too_the_run_waits_for_holders() -> None:
    now, there = lost(), without(2, 6, 7, 8)
    assert not verdict(now, there, {}, named, is_patient=False).goes_back
    world = NextLife(here := desk(5))
    here.lost = {NodeId(number): None for number in (2, 6, 7, 8)}
    here.room, here.now = (peer(9),), Instant(SECOND)
    for _ in range(3):
        decision = world.decide(now)
        here.now = Instant(here.now + 61 * SECOND)
    assert decision.value is None
    assert [int(node) for node in decision.missing] == [2, 6, 7, 8]


def test_only_the_time_in_which_a_state_is_missing_counts_against_the_patience() -> None:
    world = NextLife(here := desk(5))
    here.room, here.now = (peer(9),), Instant(SECOND)
    here.lost = {NodeId(1): None}  # the source's host, which the run waits for
    assert world.decide(lost()).missing == (NodeId(1),)
    here.now = Instant(here.now + 600 * SECOND)
    here.lost = {NodeId(number): None for number in (2, 6, 7)}
    assert world.decide(lost()).value is None, "who held that state is away since a moment ago"
    here.now = Instant(here.now + 61 * SECOND)
    made = world.decide(lost()).value
    assert made is not None
    assert (made.gone_back, made.life) == (BEFORE, 2)
    assert "went back to epoch 11" in made.reason


def test_a_run_that_went_back_in_vain_goes_forth_again_when_the_later_state_is_there() -> None:
    back = msgspec.structs.replace(lost().gone_to_the_other, life=2, reason="went back to epoch 11")
    asked = {NodeId(2): (NodeId(7), NodeId(8), NodeId(9))}
    judged = verdict(back, without(), asked, named, is_patient=False)
    assert judged.goes_back
    assert "goes on from epoch 12 after all" in judged.note
    forth = judged.applied(back)
    assert (forth.saved, forth.at, forth.earlier) == (lost().saved, LAST, BEFORE)
    assert can_go(forth, without()), "and back again, where that was in vain: holders come back in any order"


def test_a_sink_that_may_move_needs_what_it_saved_at_both_epochs() -> None:
    now = lost()
    assignments = tuple(
        msgspec.structs.replace(each, is_pinned=False) if each.role is Role.SINK else each
        for each in now.plan.assignments
    )
    kept = tuple(
        Saved(SINK, (msgspec.structs.replace(each.chain[0], holders=(NodeId(6),)),)) if each.party == SINK else each
        for each in now.saved
    )
    moves = msgspec.structs.replace(now, plan=msgspec.structs.replace(now.plan, assignments=assignments), saved=kept)
    assert can_go(moves, without(2, 6, 7)), "its host is there"
    assert not can_go(moves, without(2, 3, 6, 7)), "nobody else knows up to where it has shown rows"


def moving_source(now: Value) -> Value:
    """Its source may move, and may have a log."""
    assignments = tuple(
        msgspec.structs.replace(each, is_pinned=False, has_log=True) if each.role is Role.SOURCE else each
        for each in now.plan.assignments
    )
    return msgspec.structs.replace(now, plan=msgspec.structs.replace(now.plan, assignments=assignments))


def test_where_the_log_of_a_source_is_gone_with_its_host_nobody_goes_back() -> None:
    now = moving_source(lost())
    assert can_go(now, without(2, 6, 7)), "its log is there"
    assert not can_go(now, without(1, 2, 6, 7)), "what was read in between is in that log only"
    assert not can_go(now, without(2, 6, 7), unfit=(NodeId(1),)), "it would move at once"
    back = now.gone_to_the_other
    assert can_go(back, without(1)), "that it goes forth does not rest on what was read in between"


@pytest.mark.parametrize("gone", [1, 2])
def test_behind_a_life_in_which_a_source_moves_there_is_no_way_back(gone: int) -> None:
    world = NextLife(here := desk(5))
    here.lost, here.room, here.now = {NodeId(gone): None}, (peer(9),), Instant(SECOND)
    made = world.decide(moving_source(lost())).value
    assert made is not None
    assert made.earlier == (None if gone == 1 else BEFORE)
    here.lost = {NodeId(number): None for number in (2, 6, 7)}
    last = msgspec.structs.replace(made, plan=moving_source(lost()).plan)  # where it runs now says nothing any more
    assert verdict(last, without(2, 6, 7), {}, named, is_patient=False).goes_back == (gone == 2)


def test_a_source_without_a_log_takes_no_way_away() -> None:
    """Its position is in the register, and what it read can be read again anywhere."""
    now = moving_source(lost())
    assignments = tuple(msgspec.structs.replace(each, has_log=False) for each in now.plan.assignments)
    now = msgspec.structs.replace(now, plan=msgspec.structs.replace(now.plan, assignments=assignments))
    assert can_go(now, without(1, 2, 6, 7))


def test_who_goes_back_asks_for_the_state_of_hosts_that_are_there_and_lack_theirs() -> None:
    """Where the other epoch is away, too, nothing is said, and no way is used up: they wait."""
    now, all_of_it = lost(), {NodeId(2): (NodeId(6), NodeId(7), NodeId(8))}
    assert verdict(now, without(6, 7), all_of_it, named, is_patient=False).goes_back
    assert not verdict(now, without(6, 7, 8), all_of_it, named, is_patient=False).goes_back


def test_nobody_goes_forth_before_the_later_state_is_there_again() -> None:
    back = msgspec.structs.replace(lost().gone_to_the_other, life=2)
    asked = {NodeId(2): (NodeId(7), NodeId(8), NodeId(9))}
    judged = verdict(back, without(6, 7, 8), asked, named, is_patient=False)
    assert (judged.goes_back, judged.note) == (False, "")
    assert not can_go(back, without(6, 7, 8)), "also for who has the earlier one: it lacked the later one"


def committed_after(now: Value, after: Plan | None = None) -> Value:
    """The value of the next commit in the life of a value."""
    committing = Committing(desk(), RUN)
    committing.enter(now)
    committing.started(now)
    epoch = now.committed.epoch + 1
    committing.epochs.begun = epoch
    for each in now.plan.assignments:
        answer = wire.Prepared(RUN, now.life, epoch, each.party, Saved(each.party), 50, after)
        committing.prepared(each.host, answer)
    made = committing.next_value(now)
    assert made is not None
    return made


def test_a_commit_says_which_epoch_can_be_gone_back_to() -> None:
    now = lost()
    assert committed_after(now).earlier == LAST
    assert committed_after(msgspec.structs.replace(now, plan=plan())).earlier is None, "nobody has asked for it"
    first = msgspec.structs.replace(now, committed=NOTHING_SAVED, earlier=None)
    assert committed_after(first).earlier is None, "at the beginning a source may begin elsewhere"
    again = committed_after(msgspec.structs.replace(now.gone_to_the_other, life=2))
    assert (again.earlier, again.gone_back, again.before) == (BEFORE, None, now.before), "what it really went on from"


def test_behind_a_change_there_is_no_way_back() -> None:
    now = lost()
    assert committed_after(now, going_back(plan(stage=4))).earlier is None


@pytest.mark.parametrize("life", [1, 2])
def test_nor_where_a_source_may_have_moved_since(life: int) -> None:
    now = lost()
    assignments = tuple(msgspec.structs.replace(each, is_pinned=False) for each in now.plan.assignments)
    moves = msgspec.structs.replace(now, life=life, plan=msgspec.structs.replace(now.plan, assignments=assignments))
    assert committed_after(moves).earlier == (LAST if life == 1 else None)


def test_hosts_of_sinks_hear_what_they_had_shown() -> None:
    here = desk(3)
    part = Participant(here, RUN)
    back = msgspec.structs.replace(lost().gone_to_the_other, life=2)
    part.on_reset(peer(4), wire.Reset(RUN, Ballot(1, NodeId(4), 1), back))
    (kept,) = [one for one in here.effects if isinstance(one, KeepLife)]
    here.answered(kept.request, None, "")
    (enter,) = [one for one in here.effects if isinstance(one, EnterLife)]
    assert enter.base == 12, "barriers go on behind what is committed"
    assert [one.chain[0].digest for one in enter.saved] == [b"sink11"]
    assert [one.chain[0].digest for one in enter.shown] == [b"sink12"]
    assert [end.offset for end in enter.ends] == [40]


def test_who_goes_on_without_a_majority_of_voters_has_no_way_back() -> None:
    voters = (Voter(peer(4), 4),)
    made, _ = regained(Finding(value=lost()), (), voters, "without those")
    assert (made.earlier, made.before) == (None, ())
    back, _ = regained(Finding(value=lost().gone_to_the_other), (), voters, "without those")
    assert [one.chain[0].digest for one in back.shown if one.party == SINK] == [b"sink12"]


def test_values_of_before_are_read() -> None:
    """A voter's file that was written before these fields were."""
    codec: Codec[Value] = Codec(Value)
    fields: list[Any] = msgspec.msgpack.decode(encode(value(1, LAST)))
    assert codec.decode(msgspec.msgpack.encode(fields[:-2])) == value(1, LAST)
    assert codec.decode(encode(lost())) == lost()
