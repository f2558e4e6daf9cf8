"""A run that is to end with its state kept: behind its last epoch nothing is read, and its end is written only there."""

from typing import Any

import msgspec

from agiledart_kernel.machine import Received
from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.coordinator import Phase
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import CheckpointId, InstanceId
from agiledart_recovery.wire.register_value import RunState, SavedState
from tests.unit.recovery.bench import RUN, peer, plan
from tests.unit.recovery.test_waiting import World

HOSTS = {"source": peer(1), "stage": peer(2), "sink": peer(3)}


class Held(World):
    """All hosts are in the attempt, and prepare what they are asked for."""

    def __init__(self) -> None:
        super().__init__(4, 5)

    def answer(self, to: Peer, asked: Any) -> Any:
        if isinstance(asked, wire.Reset):
            self.attempts[asked.value.attempt] = None
            return wire.ResetOk(RUN, asked.value.attempt, asked.value.committed.epoch, ())
        if isinstance(asked, wire.Committed):
            return wire.CommittedOk(RUN, asked.value.attempt, asked.value.committed)
        return super().answer(to, asked)

    def prepare(self) -> None:
        """All instances have saved the open epoch."""
        commit_protocol = self.coordinator.commit_protocol
        for name, host in HOSTS.items():
            instance = InstanceId(name)
            answer = wire.Prepared(
                RUN, commit_protocol.attempt, commit_protocol.epochs.begun, instance, SavedState(instance)
            )
            self.carry_out(self.machine.step(Received(host, answer), self.now))

    def is_held(self) -> bool:
        return self.coordinator.commit_protocol.held is not None

    def has_request(self) -> bool:
        return self.coordinator.commit_protocol.has_request

    def hold(self) -> str:
        why = self.machine.request_hold(RUN)
        self.carry_out(self.machine.take_effects())
        return why

    def end(self, at: CheckpointId) -> str:
        why = self.machine.request_end_held(RUN, at, "stopped by me")
        self.carry_out(self.machine.take_effects())
        return why


def running() -> Held:
    """Led by node 1, in an attempt that has begun."""
    world = Held()
    world.run(20)
    assert world.coordinator.phase is Phase.RUNNING
    return world


def committed(world: Held) -> CheckpointId:
    """Held at an epoch."""
    world.prepare()  # the epoch that was under way
    assert world.hold() == ""
    world.prepare()  # both epochs follow at once: a successor may wait for the end
    assert not world.is_held(), "rows that waited for the last watermarks are not processed yet"
    world.prepare()
    at = world.coordinator.commit_protocol.held
    assert at is not None
    assert at == world.coordinator.value.committed
    return at


def test_the_requested_last_epoch_stops_reading_and_no_other_begins_after_it() -> None:
    world = running()
    before = world.coordinator.commit_protocol.epochs.begun
    assert not world.has_request()
    at = committed(world)
    assert world.has_request(), "no other node knows that it is held"
    assert at.epoch == before + 2
    world.run(60)
    assert world.coordinator.commit_protocol.epochs.begun == at.epoch
    assert world.coordinator.value.committed == at
    assert world.coordinator.value.state is RunState.RUNNING


def test_only_begin_tells_the_sources_to_hold() -> None:
    world = running()
    commit_protocol, value = world.coordinator.commit_protocol, world.coordinator.value
    context = world.machine._context
    context.effects, context.outbox = [], []
    commit_protocol._began = context.now
    commit_protocol._begin(value, None)
    commit_protocol.hold()
    commit_protocol._open = commit_protocol.epochs.committed
    commit_protocol._begin(value, None)
    said = [one for one in context.outbox if isinstance(one, wire.Begin)]  # the source is here
    assert [one.holds for one in said] == [False, True]


def test_a_run_ends_at_the_epoch_where_it_was_held() -> None:
    world = running()
    at = committed(world)
    assert world.end(at) == ""
    value = world.coordinator.value
    assert (value.state, value.committed, value.reason) == (RunState.FINISHED, at, "stopped by me")
    world.run(2)
    assert world.coordinator.phase is Phase.CLOSING


def test_a_run_does_not_end_at_another_epoch() -> None:
    world = running()
    at = committed(world)
    assert world.end(CheckpointId(at.attempt, at.epoch - 1)) == "it has committed more meanwhile"
    assert world.coordinator.value.state is RunState.RUNNING


def test_a_new_attempt_reads_on_and_must_be_held_again() -> None:
    world = running()
    at = committed(world)
    attempts = len(world.attempts)
    world.machine.request_release(RUN, "no room")
    world.carry_out(world.machine.take_effects())
    world.run(5)
    assert len(world.attempts) == attempts + 1
    assert not world.coordinator.commit_protocol.is_held
    assert world.coordinator.commit_protocol.held is None
    assert world.end(at) == "it has committed more meanwhile"


def test_a_coordinator_that_transfers_its_voter_slot_begins_no_hold() -> None:
    """It would be lost: the successor does not know of it."""
    world = running()
    world.coordinator.voter_replacement.is_leaving = True
    assert world.hold() == "another node coordinates it"
    assert world.machine.request_change(RUN, plan(stage=4)) == "another node coordinates it"
    assert not world.has_request()


def test_stages_do_not_change_during_a_hold() -> None:
    world = running()
    committed(world)
    assert world.machine.request_change(RUN, plan()) == "the application is being stopped"
    assert world.machine.request_evacuation(RUN, peer(2)) == "the application is being stopped"


def test_a_node_that_does_not_lead_holds_nothing() -> None:
    world = Held()
    assert world.machine.request_hold(RUN) == "another node coordinates it"
    assert world.machine.request_end_held(RUN, CheckpointId(1, 1), "") == "another node coordinates it"
    assert world.machine.request_hold(msgspec.structs.replace(RUN, app="else")) == "another node coordinates it"
