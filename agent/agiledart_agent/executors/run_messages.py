"""Messages of an agent to all executors of a run that it hosts."""

import asyncio
from abc import ABC, abstractmethod

from agiledart_agent.executors.executor_process import ExecutorProcess
from agiledart_executor.wire.agent_messages import (
    BeginEpoch,
    DropPendingPlan,
    EndInput,
    ForceSourceLogs,
    NotifyEpochCommitted,
    OpenTap,
    PreviousStateStored,
    StartReading,
)


class RunMessages(ABC):
    """Base of the pool of executors: sends what all executors of a run get."""

    @abstractmethod
    def _of(self, application: str, version: int) -> list[ExecutorProcess]:
        """Return the executors of a run."""

    def start_sources(self, application: str, version: int) -> None:
        """Let the sources read."""
        for executor in self._of(application, version):
            executor.send(StartReading())

    def begin_epoch(self, run: tuple[str, int], begin: BeginEpoch) -> None:
        """Let the sources of a run insert a barrier behind the rows that they have sent."""
        for executor in self._of(*run):
            if begin.after:
                executor.waiting.pop(begin.after, None)  # the plan takes effect: they are instances like others
            executor.send(begin)

    def commit_epoch(self, application: str, version: int, epoch: int) -> None:
        """Let the sinks commit the rows of an epoch."""
        for executor in self._of(application, version):
            executor.send(NotifyEpochCommitted(epoch))

    def open_tap(self, application: str, version: int, step: str) -> None:
        """Sample the rows that leave a step for some seconds more."""
        for executor in self._of(application, version):
            executor.send(OpenTap(step))

    def drain_sources(self, application: str, version: int) -> None:
        """Let the sources end as if their input had ended."""
        for executor in self._of(application, version):
            executor.send(EndInput())

    def hand_over(self, application: str, version: int, previous_state: PreviousStateStored) -> None:
        """Report to the executors that the state of a previous generation is on this disk."""
        for executor in self._of(application, version):
            executor.send(previous_state)

    def drop_generation(self, application: str, version: int, plan_name: bytes) -> None:
        """Drop a pending plan."""
        for executor in self._of(application, version):
            executor.send(DropPendingPlan(plan_name))
            for name in executor.waiting.pop(plan_name, ()):
                executor.remove(name)

    async def sync_logs(self, application: str, version: int) -> None:
        """Force the logs of sources to the disk. Raises `LaunchError`."""
        await asyncio.gather(*(executor.ask(ForceSourceLogs) for executor in self._of(application, version)))
