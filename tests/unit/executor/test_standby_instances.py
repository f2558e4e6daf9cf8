"""A standby grows by the increments of each epoch, and goes on where the last committed one left off."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from agiledart_dataflow.plan.deployment import RestoreFrom
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.program import compile_program
from agiledart_executor.checkpointing.instance_restorer import read_of_stage
from agiledart_executor.handover.standby_instances import StandbyInstance, StandbyInstances
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.snapshots.snapshot_file import DamagedSnapshot, SnapshotHeader, StoredBlock, run_folder
from agiledart_executor.wire.agent_messages import InstanceName, PrepareStandby
from tests.unit.executor.test_increments import KEYS, SUMS, Chain, build, lived, more, small, undisturbed
from tests.unit.executor.test_instance_checkpointer import RUN, Life, logged, to_the_end

__all__ = ["small", "undisturbed"]

NAME = InstanceName(SUMS, 0, 1)


class Code:
    """User code that opens instances of the stage with state."""

    def __init__(self) -> None:
        self.program = compile_program(made := build(), plan_stages(made.specification()))

    async def open_instance(
        self, stage: int, index: int, *, by_epoch: bool = False, restores: bool = False
    ) -> RunningInstance:
        """Open an instance."""
        return RunningInstance(stage, index, "sums", instance=Instance(self.program, stage, index))

    def steps(self, stage: int) -> tuple[str, ...]:
        """Return the names of a stage's steps."""
        return tuple(step.name for step in self.program.steps(stage))


class Standby:
    """A waiting process, with the digests of the snapshots that it has read."""

    def __init__(self, root: Path) -> None:
        self.code, self.waiting, self.read_digests = Code(), StandbyInstances(), list[bytes]()
        self._read = partial(read_of_stage, run_folder(root, "sums", 1), RUN, self.code.steps)

    def read(self, running: RunningInstance, digest: bytes) -> tuple[SnapshotHeader, list[StoredBlock]]:
        """Read a snapshot."""
        self.read_digests.append(digest)
        return self._read(running, digest)

    async def advance(self, since: RestoreFrom) -> None:
        """Take a committed epoch."""
        await self.waiting.build(self.code, self.read, PrepareStandby(0, b"", (NAME,), since.snapshots))


class Heir(Life):
    """An attempt in which the standby's instance goes on."""

    waiting: StandbyInstance

    def restore(self, running: RunningInstance, since: RestoreFrom) -> None:
        """Restore the source and the sink from the disk, the stage from the standby."""
        if running.stage != SUMS:
            super().restore(running, since)
            return
        assert self.waiting.last is not None
        running.instance = self.waiting.running.instance
        self.epochs.restorer.resume(running, self.waiting.last, since.epoch)


async def saved_chain(root: Path, standby: Standby, epochs: int) -> Chain:
    """Save so many epochs, each of which the standby takes when it is committed; then kill the attempt between two epochs."""
    chain = Chain()
    attempt = await lived(root, 1, None, KEYS)
    for epoch in range(1, epochs + 1):
        chain.commit(attempt, epoch, await attempt.save(epoch))
        await standby.advance(chain.since)
        await more(attempt, 70)
    attempt.kill()
    return chain


def test_a_standby_reads_each_increment_once_and_continues_exactly(tmp_path: Path, undisturbed: list[object]) -> None:
    async def play() -> None:
        standby = Standby(tmp_path)
        chain = await saved_chain(tmp_path, standby, 5)
        assert standby.read_digests == [link.digest for link in chain.links], "nothing is read twice"
        assert len(chain.links) == 5
        waiting = standby.waiting.take(NAME, chain.since)
        assert waiting is not None
        Heir.waiting = waiting
        await to_the_end(Heir(tmp_path, 2, 0, chain.since))

    asyncio.run(play())
    assert logged(tmp_path) == undisturbed


def test_an_attempt_from_another_epoch_is_restored_from_the_disk(tmp_path: Path) -> None:
    async def play() -> None:
        standby = Standby(tmp_path)
        chain = await saved_chain(tmp_path, standby, 2)
        other = RestoreFrom(1, tuple(saved for saved in chain.since.snapshots if saved.stage != SUMS))
        assert standby.waiting.take(NAME, other) is None

    asyncio.run(play())


def test_a_damaged_increment_leaves_the_standby_without_state_until_the_next_one(tmp_path: Path) -> None:
    async def play() -> None:
        standby = Standby(tmp_path)
        chain = await saved_chain(tmp_path, standby, 2)
        good = chain.since
        (saved,) = (saved for saved in good.snapshots if saved.stage == SUMS)
        bad = RestoreFrom(2, (type(saved)(saved.stage, saved.index, saved.before[0], (saved.digest,)),))
        with pytest.raises(DamagedSnapshot):
            await standby.advance(bad)
        assert standby.waiting.take(NAME, bad) is None
        await standby.advance(good)
        assert standby.waiting.take(NAME, good) is not None

    asyncio.run(play())
