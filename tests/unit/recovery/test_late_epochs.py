"""An epoch that is not complete in time is skipped; one that takes longer each time is committed late."""

from agiledart_kernel.instants import SECOND
from agiledart_recovery.recovery_config import RecoveryConfig
from tests.unit.recovery.test_holding import Held, running

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
