"""Barriers of epochs in one executor: its sources send them, and each instance that has come to one reports its snapshot."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.instance_snapshot import EncodedSnapshot
from agiledart_dataflow.runtime.program import Program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_executor.instances.running_instance import RunningInstance


def _ignore_barrier(
    running: RunningInstance, epoch: int, snapshot: EncodedSnapshot, began_ns: int, change: bytes
) -> None:
    """Ignore a barrier: the run has no epochs."""


class EpochBarriers:
    """Barriers that the instances of one executor send or come to.

    Args:
        running: the instances, by stage and index.
        programs: the topology with the plans that barriers may bring, by their names.
        wake: schedules an instance to work.
        redirect_outputs: lets the outputs of an instance follow a plan that a barrier has brought.

    Attributes:
        on_barrier: called when an instance has come to a barrier: (instance, epoch, its snapshot, instant at which saving began,
            name of the plan that the barrier brings).
    """

    def __init__(
        self,
        running: Mapping[tuple[int, int], RunningInstance],
        programs: Mapping[bytes, Program],
        wake: Callable[[RunningInstance], None],
        redirect_outputs: Callable[[RunningInstance], None],
    ) -> None:
        self._running, self._programs = running, programs
        self._wake, self._redirect_outputs = wake, redirect_outputs
        self.on_barrier: Callable[[RunningInstance, int, Any, int, bytes], None] = _ignore_barrier
        self._saving_since_ns = 0

    def begin_epoch(self, epoch: int, change: bytes = b"", *, holds: bool = False) -> None:
        """Let all sources, also idle ones, send the barrier of an epoch behind the rows that they have sent.

        Args:
            epoch: its number.
            change: name of the plan that the barrier brings.
            holds: the sources read nothing more behind the barrier.
        """
        for running in self._running.values():
            if running.source is not None and epoch > running.wanted:
                running.wanted, running.change, running.holds = epoch, (epoch, change), holds
                self._wake(running)
            elif running.instance is not None and change and running.has_begun and running.barrier < epoch:
                running.instance.expect_change(
                    epoch
                )  # an instance that begins behind the barrier, or has passed it already, expects none
                self._wake(running)
            elif running.instance is not None and not change and epoch > running.wanted:
                running.wanted = epoch  # it begins the barrier itself if its inputs have ended
                self._wake(running)

    def begin_here(self, running: RunningInstance, instance: Instance) -> None:
        """Let an instance whose inputs have all ended begin the due barriers: no channel brings them any more."""
        while running.barrier < running.wanted:
            instance.pass_barrier(running.barrier + 1, running.emit)

    def send_due(self, running: RunningInstance, source: SourceInstance) -> None:
        """Send all due barriers in order, missed ones included, because epochs on a channel have no gap."""
        while running.barrier < running.wanted:
            began = time.monotonic_ns()
            epoch = running.barrier + 1
            change = running.change[1] if running.change[0] == epoch else b""
            if change and source.finished and not running.has_sent_end:
                return  # the end goes by the plan before
            snapshot = source.send_barrier(epoch, running.emit, change, self._programs.get(change))
            self.at_barrier(running, epoch, snapshot, change, began)
            if change:
                self._redirect_outputs(running)

    def at_barrier(
        self, running: RunningInstance, epoch: int, snapshot: EncodedSnapshot, change: bytes = b"", began_ns: int = 0
    ) -> None:
        """Report an instance that has come to a barrier, with its snapshot."""
        running.barrier = epoch
        self.on_barrier(running, epoch, snapshot, began_ns or self._saving_since_ns, change)

    def note_saving(self) -> None:
        """Note the time at which the working instance, or one nested in its call, comes to a barrier."""
        self._saving_since_ns = time.monotonic_ns()
