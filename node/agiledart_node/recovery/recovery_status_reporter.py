"""`RecoveryStatusReporter`: rows about the runs that this node coordinates or hosts, for users, other nodes and metrics."""

from collections.abc import Callable

import msgspec

from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.hosting.hosted_application import Key
from agiledart_node.recovery.run_status import (
    StatusRows,
    as_plain,
    changes_in,
    changes_of,
    epoch_row_in_minority,
    minority_status,
    run_status,
    saved_snapshots,
)
from agiledart_node.wire.change_responses import ChangeRow
from agiledart_node.wire.recovery_messages import QueryRecovery, RecoveryStatus
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.wire.names import RunId


class RecoveryStatusReporter:
    """Status of recovery.

    Args:
        context, machine: of this node.

    Attributes:
        scaling_of: returns what the autoscaler of a run shows about its stages.
        placement_of: returns the last decisions about moves of a run.
    """

    def __init__(self, context: NodeContext, machine: RecoveryMachine) -> None:
        self._context, self._machine = context, machine
        self.scaling_of: Callable[[RunId], tuple[dict[str, object], ...]] = lambda run: ()
        self.placement_of: Callable[[RunId], tuple[dict[str, object], ...]] = lambda run: ()

    def ask_recovery(self, sender: Peer, message: QueryRecovery) -> None:
        """Answer a node that asks for the recovery status of a run."""
        rows = as_plain(self.run_status((message.application, message.version)))
        run = RunId(message.application, message.version)
        coordinator = self._machine.coordinators.get(run)
        changes = tuple(msgspec.to_builtins(row) for row in changes_of(coordinator))
        snapshots: tuple[dict[str, object], ...] = ()
        if coordinator is not None and coordinator.is_coordinating and coordinator.proposer.value is not None:
            if message.begin:
                coordinator.commit_protocol.want_epoch()
            if message.snapshots:
                snapshots = saved_snapshots(coordinator.value, self._machine.name_of)
        self._context.send(
            sender,
            RecoveryStatus(message.request, *rows, changes, snapshots, self.scaling_of(run), self.placement_of(run)),
        )

    def changes_known(self, key: Key) -> list[ChangeRow]:
        """Return the changes of a run that this node hosts, as of the last epoch that it received."""
        part = self._machine.participants.get(RunId(*key))
        return changes_in(part.value) if part is not None and part.value is not None else []

    def run_status(self, key: Key) -> StatusRows:
        """Return the recovery and epoch rows of a run.

        This node answers for runs that it coordinates, and for runs that it keeps working on while cut off from their
        coordinator.
        """
        run, now, known = RunId(*key), self._context.now, self._context.known()
        coordinator, part = self._machine.coordinators.get(run), self._machine.participants.get(run)
        recovery, epoch = run_status(coordinator, now, known, self._machine.name_of)
        if part is not None and part.is_in_attempt:
            value, since = part.value, part.committed_at
        elif coordinator is not None:
            value, since = coordinator.known, coordinator.progress.committed_at
        else:
            return recovery, epoch
        cut_off = minority_status(value, since, now, self._machine.can_reach, self._machine.name_of)
        if value is None or cut_off is None:
            return recovery, epoch
        return cut_off, epoch or epoch_row_in_minority(value, since, now, known)

    def commit_ages(self, now: Instant) -> tuple[tuple[str, float], ...]:
        """Return (application, seconds since its last commit) for each run that this node coordinates; 0 while it has nothing to
        save.
        """
        commits = [
            (run.app, now if coordinator.is_idle else coordinator.progress.committed_at)
            for run, coordinator in self._machine.coordinators.items()
            if coordinator.is_coordinating
        ]
        return tuple((name, (now - at) / SECOND) for name, at in commits if at is not None)

    def missing(self) -> tuple[tuple[str, int], ...]:
        """Return (application, number of nodes that it waits for) for each run that this node coordinates."""
        active = [coordinator for coordinator in self._machine.coordinators.values() if coordinator.is_coordinating]
        return tuple((coordinator.run.app, len(coordinator.progress.waits_for)) for coordinator in active)
