"""A run that is to end with its state kept: behind its last epoch nothing is read, and its end is written only there."""

from typing import Any

import msgspec

from agiledart_kernel.machine import Received
from agiledart_kernel.peer import Peer
from agiledart_recovery.lives.coordinator import Phase
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import Party, Snapshot
from agiledart_recovery.wire.value import Saved, State
from tests.unit.recovery.bench import RUN, peer, plan
from tests.unit.recovery.test_waiting import World

HOSTS = {"source": peer(1), "stage": peer(2), "sink": peer(3)}


class Held(World):
    """All hosts are in the life, and prepare what they are asked for."""

    def __init__(self) -> None:
        super().__init__(4, 5)

    def answer(self, to: Peer, asked: Any) -> Any:
        if isinstance(asked, wire.Reset):
            self.lives[asked.value.life] = None
            return wire.ResetOk(RUN, asked.value.life, asked.value.committed.epoch, ())
        if isinstance(asked, wire.Committed):
            return wire.CommittedOk(RUN, asked.value.life, asked.value.committed)
        return super().answer(to, asked)

    def prepare(self) -> None:
        """All parties have saved the open epoch."""
        committing = self.coordinator.committing
        for name, host in HOSTS.items():
            party = Party(name)
            answer = wire.Prepared(RUN, committing.life, committing.epochs.begun, party, Saved(party))
            self.carry_out(self.machine.step(Received(host, answer), self.now))

    def is_held(self) -> bool:
        return self.coordinator.committing.held is not None

    def has_request(self) -> bool:
        return self.coordinator.committing.has_request

    def hold(self) -> str:
        why = self.machine.request_hold(RUN)
        self.carry_out(self.machine.take_effects())
        return why

    def end(self, at: Snapshot) -> str:
        why = self.machine.request_end_held(RUN, at, "stopped by me")
        self.carry_out(self.machine.take_effects())
        return why


def running() -> Held:
    """Led by node 1, in a life that has begun."""
    world = Held()
    world.run(20)
    assert world.coordinator.phase is Phase.RUNNING
    return world


def committed(world: Held) -> Snapshot:
    """Held at an epoch."""
    world.prepare()  # the epoch that was under way
    assert world.hold() == ""
    world.run(0.5)
    world.prepare()
    assert not world.is_held(), "what waited for the last marks is not worked off yet"
    world.run(0.5)
    world.prepare()
    at = world.coordinator.committing.held
    assert at is not None
    assert at == world.coordinator.value.committed
    return at


def test_the_epoch_that_was_wanted_says_to_read_nothing_more_and_no_other_begins_behind_it() -> None:
    world = running()
    before = world.coordinator.committing.epochs.begun
    assert not world.has_request()
    at = committed(world)
    assert world.has_request(), "nobody else knows that it is held"
    assert at.epoch == before + 2
    world.run(60)
    assert world.coordinator.committing.epochs.begun == at.epoch
    assert world.coordinator.value.committed == at
    assert world.coordinator.value.state is State.RUNNING


def test_begin_tells_the_sources_to_hold_and_only_then() -> None:
    world = running()
    committing, value = world.coordinator.committing, world.coordinator.value
    desk = world.machine._desk
    desk.effects, desk.outbox = [], []
    committing._began = desk.now
    committing._begin(value, None)
    committing.hold()
    committing._open = committing.epochs.committed
    committing._begin(value, None)
    said = [one for one in desk.outbox if isinstance(one, wire.Begin)]  # the source is here
    assert [one.holds for one in said] == [False, True]


def test_it_ends_where_it_was_held() -> None:
    world = running()
    at = committed(world)
    assert world.end(at) == ""
    value = world.coordinator.value
    assert (value.state, value.committed, value.reason) == (State.FINISHED, at, "stopped by me")
    world.run(2)
    assert world.coordinator.phase is Phase.CLOSING


def test_it_does_not_end_elsewhere() -> None:
    world = running()
    at = committed(world)
    assert world.end(Snapshot(at.life, at.epoch - 1)) == "it has gone on meanwhile"
    assert world.coordinator.value.state is State.RUNNING


def test_a_new_life_reads_on_and_must_be_held_again() -> None:
    world = running()
    at = committed(world)
    lives = len(world.lives)
    world.machine.request_release(RUN, "no room")
    world.carry_out(world.machine.take_effects())
    world.run(5)
    assert len(world.lives) == lives + 1
    assert not world.coordinator.committing.is_held
    assert world.coordinator.committing.held is None
    assert world.end(at) == "it has gone on meanwhile"


def test_nothing_begins_at_a_coordinator_that_gives_its_seat_away() -> None:
    """It would be lost: who comes next does not know of it."""
    world = running()
    world.coordinator.replacing.is_leaving = True
    assert world.hold() == "another node coordinates it"
    assert world.machine.request_change(RUN, plan(stage=4)) == "another node coordinates it"
    assert not world.has_request()


def test_stages_do_not_change_meanwhile() -> None:
    world = running()
    committed(world)
    assert world.machine.request_change(RUN, plan()) == "the application is being stopped"
    assert world.machine.request_relief(RUN, peer(2)) == "the application is being stopped"


def test_who_does_not_lead_holds_nothing() -> None:
    world = Held()
    assert world.machine.request_hold(RUN) == "another node coordinates it"
    assert world.machine.request_end_held(RUN, Snapshot(1, 1), "") == "another node coordinates it"
    assert world.machine.request_hold(msgspec.structs.replace(RUN, app="else")) == "another node coordinates it"
