"""An epoch that is not complete in time is skipped; one that takes longer each time is committed late."""

from typing import Any

from agiledart_kernel.instants import SECOND
from agiledart_kernel.peer import Peer
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_recovery.wire import messages as wire
from tests.unit.recovery.test_holding import HOSTS, Held, running

TIMEOUT = RecoveryConfig().epoch_timeout_ns // SECOND


def seconds_until_the_next(world: Held) -> int:
    """No host prepares the open epoch."""
    epochs = world.coordinator.commit_protocol.epochs
    before, seconds = epochs.begun, 0
    while epochs.begun == before:
        world.run(1)
        seconds += 1
    return seconds


def test_the_next_epoch_gets_a_longer_timeout_until_one_is_committed() -> None:
    world = running()
    seconds_until_the_next(world)
    took = [seconds_until_the_next(world) for _ in range(4)]
    assert [round(each / TIMEOUT) for each in took] == [2, 4, 4, 4]
    world.run(3 * TIMEOUT)  # late, and soon enough
    world.prepare()
    assert world.coordinator.value.committed.epoch == world.coordinator.commit_protocol.epochs.begun
    seconds_until_the_next(world)
    assert round(seconds_until_the_next(world) / TIMEOUT) == 1


class Listening(Held):
    """Hosts that prepare nothing, and what BEGIN they receive."""

    def __init__(self) -> None:
        super().__init__()
        self.begins: list[tuple[str, int]] = []

    def answer(self, to: Peer, asked: Any) -> Any:
        if isinstance(asked, wire.Begin):
            self.begins += [(name, asked.epoch) for name, host in HOSTS.items() if host == to]
        return super().answer(to, asked)


def test_begin_of_an_epoch_that_stays_open_goes_to_all_hosts_that_owe_an_answer() -> None:
    world = Listening()  # the source is on the coordinator's own node
    world.run(20)
    epoch = world.coordinator.commit_protocol.epochs.begun
    world.run(2)
    assert ("stage", epoch) in world.begins, "its inputs may have ended, and then it begins the barrier itself"
    assert ("sink", epoch) in world.begins
    world.begins.clear()
    world.prepare()
    world.run(2)
    assert ("stage", epoch) not in world.begins
