"""The machine as peers see it: whatever they say, it does not raise, and what does not fit moves nothing."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_kernel.codec import Codec, tags_of
from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import Completed, Failed, Received, Send, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observation
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import (
    EnterAttempt,
    FragmentKey,
    RequestEffect,
    SendFragment,
    StoreAttempt,
    StoreVoter,
)
from agiledart_recovery.wire.events import Booted, BootstrapRun, CandidatesFound, HostLost, MakeVoterSlot, SnapshotTaken
from agiledart_recovery.wire.key_share import KeyShare
from agiledart_recovery.wire.names import Ballot, CheckpointId, GenerationPause, InstanceId, Stamp, Voter
from agiledart_recovery.wire.observations import MessageIgnored
from agiledart_recovery.wire.register_value import Plan, ReplacedFragment, RunState, SavedState
from tests.unit.recovery.bench import RUN, peer, plan, value

ZERO = Instant(0)


def machine(number: int = 1, observed: list[Observation] | None = None) -> RecoveryMachine:
    made = RecoveryMachine(
        peer(number), RecoveryConfig(), RandomStream(1), (observed if observed is not None else []).append
    )
    made.step(Booted(), ZERO)
    return made


def carry_out(made: RecoveryMachine, effects: Any) -> list[Send]:
    """Everything that is asked for succeeds; returns what is said."""
    queue, said = list(effects), []
    while queue:
        effect = queue.pop(0)
        if isinstance(effect, Send):
            said.append(effect)
        elif isinstance(effect, RequestEffect):
            queue += made.step(Completed(effect.request), ZERO)
    return said


def told(made: RecoveryMachine, sender: Peer, message: Any) -> list[Any]:
    return [each.message for each in carry_out(made, made.step(Received(sender, message), ZERO))]


def test_message_tags_are_in_one_range_and_unique() -> None:
    tags = tags_of(wire.RecoveryMessage)
    assert len(tags) == len(get_args(wire.RecoveryMessage))
    assert all(373 <= tag < 410 for tag in tags)


def test_a_voter_answers_when_its_file_is_on_the_disk() -> None:
    made = machine()
    made.step(MakeVoterSlot(RUN), ZERO)
    (keep,) = made.step(Received(peer(4), wire.Prepare(RUN, Ballot(1, peer(4).node, 1))), ZERO)
    assert isinstance(keep, StoreVoter)
    (promise,) = carry_out(made, made.step(Completed(keep.request), ZERO))
    assert isinstance(promise.message, wire.Promise)


def test_only_the_owner_of_a_ballot_proposes_under_it() -> None:
    observed: list[Observation] = []
    made = machine(observed=observed)
    made.step(MakeVoterSlot(RUN), ZERO)
    ballot = Ballot(1, peer(4).node, 1)
    assert told(made, peer(5), wire.Prepare(RUN, ballot)) == []
    assert told(made, peer(4, 2), wire.Accept(RUN, Stamp(ballot, 1), value())) == []
    assert [each.reason for each in observed if isinstance(each, MessageIgnored)] == ["ballot", "ballot"]


def test_an_attempt_is_stored_before_it_is_entered_and_answered() -> None:
    made = machine(2)
    reset = wire.Reset(RUN, Ballot(1, peer(1).node, 1), value(1))
    (store,) = made.step(Received(peer(1), reset), ZERO)
    assert isinstance(store, StoreAttempt)
    (enter,) = made.step(Completed(store.request), ZERO)
    assert isinstance(enter, EnterAttempt)
    assert [each.instance for each in enter.assignments] == [InstanceId("stage")]
    (answer,) = carry_out(made, made.step(Completed(enter.request), ZERO))
    assert isinstance(answer.message, wire.ResetOk)
    # The same attempt again is a question; an older one is refused, and so is one of a sender that votes for nothing.
    assert isinstance(told(made, peer(1), reset)[0], wire.ResetOk)
    assert told(made, peer(9), wire.Reset(RUN, Ballot(1, peer(9).node, 1), value(2))) == []
    (later,) = told(made, peer(1), wire.Reset(RUN, Ballot(1, peer(1).node, 1), value(2)))
    assert later.attempt == 2
    (refused,) = told(made, peer(1), reset)
    assert refused == wire.ResetRefused(RUN, 2, "this host has entered a later attempt")


def test_nothing_is_committed_or_released_on_a_message_of_a_non_voter() -> None:
    observed: list[Observation] = []
    made = machine(2, observed=observed)
    told(made, peer(1), wire.Reset(RUN, Ballot(1, peer(1).node, 1), value(1)))
    key = FragmentKey(RUN, InstanceId("other"), CheckpointId(1, 1), 0)
    made.fragment_store.put(key, NodeId(7))
    over = msgspec.structs.replace(value(1, CheckpointId(1, 2)), state=RunState.FINISHED)
    assert told(made, peer(9), wire.Committed(RUN, 1, over)) == []
    assert [each.reason for each in observed if isinstance(each, MessageIgnored)] == ["committed"]
    assert made.fragment_store.has(key)
    assert isinstance(told(made, peer(1), wire.Committed(RUN, 1, over))[0], wire.CommittedOk)
    assert not made.fragment_store.has(key)


def test_an_attempt_that_an_earlier_process_entered_is_refused() -> None:
    made = machine(2)
    reset = wire.Reset(RUN, Ballot(1, peer(1).node, 1), value(1))
    (store, *_) = made.step(Received(peer(1), reset), ZERO)
    assert isinstance(store, StoreAttempt)
    again = RecoveryMachine(peer(2, 2), RecoveryConfig(), RandomStream(1))
    again.step(Booted((), (store.file,)), ZERO)
    assert isinstance(told(again, peer(1), reset)[0], wire.ResetRefused)
    assert isinstance(told(again, peer(1), wire.Start(RUN, 1))[0], wire.NewAttemptNeeded)


def test_a_host_that_lost_its_disk_enters_no_previously_planned_attempt() -> None:
    again = machine(2)
    later = RecoveryMachine(peer(2, 2), RecoveryConfig(), RandomStream(1))
    reset = wire.Reset(RUN, Ballot(1, peer(1).node, 1), value(3))
    assert isinstance(told(again, peer(1), reset)[0], wire.ResetOk)
    assert isinstance(told(later, peer(1), reset)[0], wire.ResetRefused)
    assert isinstance(told(later, peer(1), wire.QueryPrepared(RUN, 3, 0))[0], wire.NewAttemptNeeded)


def test_a_host_that_lost_its_disk_learns_of_the_end_without_an_attempt() -> None:
    again = machine(2)
    over = msgspec.structs.replace(value(3, CheckpointId(3, 2)), state=RunState.FINISHED)
    assert isinstance(told(again, peer(1), wire.Committed(RUN, 3, over))[0], wire.CommittedOk)
    assert again.has_ended(RUN)
    assert again.violations() == []


def test_two_requests_under_one_number_need_a_new_attempt() -> None:
    made = machine(1)
    told(made, peer(4), wire.Reset(RUN, Ballot(1, peer(4).node, 1), value(1)))
    told(made, peer(4), wire.Begin(RUN, 1, 1, plan().digest))
    other = plan(stage=7)
    (need,) = told(made, peer(5), wire.Begin(RUN, 1, 1, plan().digest, other))
    assert isinstance(need, wire.NewAttemptNeeded)


def test_after_many_skipped_epochs_a_new_attempt_is_needed() -> None:
    """A host remembers 64 of them; it does not keep silent about those behind."""
    made = machine(1)
    told(made, peer(4), wire.Reset(RUN, Ballot(1, peer(4).node, 1), value(1)))
    for epoch in range(1, 65):
        assert told(made, peer(4), wire.Begin(RUN, 1, epoch, plan().digest)) == []
    (need,) = told(made, peer(4), wire.Begin(RUN, 1, 65, plan().digest))
    assert isinstance(need, wire.NewAttemptNeeded)
    assert "none behind 0 was committed" in need.reason


@pytest.mark.parametrize(("has_ended", "epoch"), [(True, 3), (False, 4)])
def test_a_snapshot_is_saved_again_until_it_is_safe(has_ended: bool, epoch: int) -> None:
    made, instance = machine(2), InstanceId("stage")
    made.step(CandidatesFound((peer(6), peer(7))), ZERO)
    told(made, peer(1), wire.Reset(RUN, Ballot(1, peer(1).node, 1), value(1)))
    told(made, peer(1), wire.Start(RUN, 1))
    timer = TimerFired((RUN, "save", instance, CheckpointId(1, 4)))
    effects = made.step(SnapshotTaken(RUN, instance, CheckpointId(1, 4), b"hash", 10, has_ended=has_ended), ZERO)
    for _ in range(2):
        for each in effects:
            if isinstance(each, SendFragment):
                made.step(Failed(each.request, "it can't be reached"), ZERO)
        assert made.step(timer, ZERO)
        effects = made.step(timer, ZERO)
    said = carry_out(made, effects)
    (prepared,) = [each.message for each in said if isinstance(each.message, wire.Prepared)]
    assert (prepared.epoch, prepared.has_ended) == (epoch, has_ended)


def test_a_snapshot_is_not_saved_again_once_a_later_epoch_is_committed() -> None:
    made, instance = machine(2), InstanceId("stage")
    made.step(CandidatesFound((peer(6), peer(7))), ZERO)
    told(made, peer(1), wire.Reset(RUN, Ballot(1, peer(1).node, 1), value(1)))
    told(made, peer(1), wire.Start(RUN, 1))
    timer = TimerFired((RUN, "save", instance, CheckpointId(1, 4)))
    for each in made.step(SnapshotTaken(RUN, instance, CheckpointId(1, 4), b"hash", 10), ZERO):
        if isinstance(each, SendFragment):
            made.step(Failed(each.request, "it can't be reached"), ZERO)
    made.step(timer, ZERO)
    told(made, peer(1), wire.Committed(RUN, 1, value(1, CheckpointId(1, 5))))
    assert made.step(timer, ZERO) == []


_COUNTS = st.one_of(st.integers(0, 4), st.integers(0, 1 << 62))
_VALUES = st.builds(
    lambda attempt, epoch, made: value(attempt, CheckpointId(attempt, epoch), made),
    _COUNTS,
    _COUNTS,
    st.sampled_from([plan(), plan(1, 1, 1), Plan(())]),
)
_PEERS = st.builds(peer, st.integers(1, 9), st.integers(0, 3))
_BALLOTS = st.builds(lambda round_, who: Ballot(round_, who.node, who.incarnation), _COUNTS, _PEERS)
_PREPARED = st.builds(
    lambda attempt, epoch, name, ended: wire.Prepared(
        RUN, attempt, epoch, InstanceId(name), SavedState(InstanceId(name)), epoch, None, True, ended
    ),
    _COUNTS,
    _COUNTS,
    st.sampled_from(["source", "stage", "sink", "other"]),
    st.booleans(),
)


def _messages() -> st.SearchStrategy[Any]:
    """Each kind of message, with numbers that may fit."""
    shares = st.builds(KeyShare, st.binary(max_size=4), st.integers(1, 5), st.binary(max_size=4))
    by_name: dict[str, st.SearchStrategy[Any]] = {
        "run": st.just(RUN),
        "ballot": _BALLOTS,
        "promised": _BALLOTS,
        "stamp": st.builds(Stamp, _BALLOTS, _COUNTS),
        "accepted": st.builds(Stamp, _BALLOTS, _COUNTS),
        "value": _VALUES,
        "prepared": st.lists(_PREPARED, max_size=3).map(tuple),
        "instance": st.just(InstanceId("stage")),
        "saved": st.just(SavedState(InstanceId("stage"))),
        "after": st.just(plan(stage=7)),
        "digest": st.sampled_from([plan().digest, plan(stage=7).digest, b""]),
        "committed": st.builds(CheckpointId, _COUNTS, _COUNTS),
        "reason": st.just("why"),
        "lacks": st.lists(st.integers(1, 9).map(NodeId), max_size=3).map(tuple),
        "signed_command": st.sampled_from([b"", b"signed"]),
        "phase": st.sampled_from(["fetch", "restore"]),
        "needed": st.lists(st.builds(CheckpointId, _COUNTS, _COUNTS), max_size=3).map(tuple),
        **{flag: st.booleans() for flag in ("is_over", "asks", "builds", "is_caught_up", "is_crash", "has_ended")},
        "voters": st.lists(st.builds(Voter, _PEERS, _COUNTS), max_size=3).map(tuple),
        "held": st.lists(st.tuples(st.builds(CheckpointId, _COUNTS, _COUNTS), _COUNTS), max_size=3).map(tuple),
        "made": st.lists(
            st.builds(
                ReplacedFragment,
                st.just(InstanceId("stage")),
                st.builds(CheckpointId, _COUNTS, _COUNTS),
                st.integers(0, 255),
                st.integers(1, 9).map(NodeId),
            ),
            max_size=3,
        ).map(tuple),
        "share": shares,
        "shares": st.lists(shares, max_size=3).map(tuple),
        "key": st.sampled_from([b"", bytes(32)]),
        "changeover_pauses": st.lists(st.builds(GenerationPause, st.just("stage"), _COUNTS, _COUNTS), max_size=2).map(
            tuple
        ),
    }
    begin = {
        "before": st.sampled_from([plan().digest, b""]),
        "after": st.sampled_from([None, plan(stage=7)]),
        "holds": st.booleans(),
    }
    own: dict[type, dict[str, st.SearchStrategy[Any]]] = {
        wire.Begin: begin,
        wire.ProposeGeneration: {"before": st.just(plan()), "stamp": st.builds(Stamp, _BALLOTS, _COUNTS)},
    }
    kinds = [
        st.builds(
            kind,
            **{name: own.get(kind, by_name).get(name, by_name.get(name, _COUNTS)) for name in kind.__struct_fields__},
        )
        for kind in get_args(wire.RecoveryMessage)
    ]
    return st.one_of(*kinds)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(_PEERS, _messages()), max_size=40))
def test_no_message_raises_whatever_its_sender(said: list[tuple[Peer, Any]]) -> None:
    made, codec = machine(1), Codec[Any](wire.RecoveryMessage)
    made.step(MakeVoterSlot(RUN), ZERO)
    founded = value(0)
    voter_slot = made.voter_slots[RUN].voter_slot
    voters = (msgspec.structs.replace(founded.voters[0], voter_slot=voter_slot), *founded.voters[1:])
    carry_out(made, made.step(BootstrapRun(msgspec.structs.replace(founded, voters=voters)), ZERO))
    carry_out(made, made.step(HostLost(peer(3).node), ZERO))
    for sender, message in said:
        carry_out(made, made.step(Received(sender, codec.decode(codec.encode(message))), ZERO))
    assert made.voter_slots[RUN].violations() == []
