"""Garbage collection of what a node still has of runs that ended, or moved elsewhere, while it was away or only held fragments.

The register informs the hosts of a run. This is for all other nodes: a host that restarts after its instances were taken over, a
voter that gave up its voter slot, a replica node that missed the last message. They read the application's record, which decides
nothing about a run; here it only frees a disk. Records are in memory, so after a power cut of the whole network there is none of
a
run that had ended; the register says so then.
"""

from typing import Final, Protocol

from agiledart_kernel.instants import SECOND, Instant
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.hosting.hosted_application import Key
from agiledart_node.records.application import FINISHED
from agiledart_node.records.records import Records
from agiledart_node.wire.effects import ForgetRun
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.wire.names import RunId

MAX_AT_ONCE = 16
"""Records read in one patrol; the others wait for the next one."""


EMPTY_SLOT_NS: Final = 120 * SECOND
"""Time within which a voter slot gets its first value: a coordinator that asked for it writes at once."""


class CollectableRuns(Protocol):
    """Runs of this node, as the garbage collector sees them."""

    machine: RecoveryMachine
    runs_on_disk: dict[Key, None]

    def hosted_runs(self) -> dict[Key, int]:
        """Return the runs whose code this node has, each with the attempt that it was in last."""
        ...

    def forget_run(self, key: Key) -> bool:
        """Delete everything of a run that is over."""
        ...

    def emitted(self, key: Key) -> tuple[bytes, ...]:
        """Return the digests of snapshots of a run's sinks on this node."""
        ...

    def release_run(self, key: Key) -> None:
        """Delete the part of a run that goes on without this node."""
        ...


class GarbageCollector:
    """Checks the records of runs of which this node runs no part."""

    def __init__(
        self, context: NodeContext, records: Records, hosting: ApplicationHost, collectable: CollectableRuns
    ) -> None:
        self._context, self._records, self._hosting, self._collectable = context, records, hosting, collectable
        self._at_work: dict[Key, None] = {}
        self._seen: dict[Key, None] = {}
        self._empty_since: dict[Key, Instant] = {}

    def patrol(self) -> None:
        """Check some of these runs, each once per round."""
        machine = self._collectable.machine
        self._expire_empty_slots()
        runs = (*machine.voter_slots, *machine.participants, *machine.fragment_store.runs)
        known: dict[Key, None] = dict.fromkeys((run.app, run.version) for run in runs)
        known |= dict.fromkeys(self._collectable.hosted_runs()) | self._collectable.runs_on_disk
        idle = [key for key in known if key not in self._hosting.table and key not in self._at_work]
        if idle and all(key in self._seen for key in idle):
            self._seen.clear()  # a new round
        fresh = [key for key in idle if key not in self._seen]
        for key in fresh[: MAX_AT_ONCE - len(self._at_work)]:
            if not self._context.requests.is_full:
                self._at_work[key] = self._seen[key] = None
                self._context.requests.begin(self._look(key))

    def _expire_empty_slots(self) -> None:
        """Forget voter slots that have no value after `EMPTY_SLOT_NS`: any agent may ask for one, for a run that does not exist."""
        machine, now = self._collectable.machine, self._context.now
        empty = {
            (run.app, run.version): run
            for run, voter_slot in machine.voter_slots.items()
            if voter_slot.value is None and run not in machine.participants
        }
        self._empty_since = {key: self._empty_since.get(key, now) for key in empty if key not in self._hosting.table}
        for key, since in tuple(self._empty_since.items()):
            if now - since >= EMPTY_SLOT_NS and key not in self._collectable.hosted_runs():
                del self._empty_since[key]
                self._forget(key, "")

    async def _look(self, key: Key) -> None:
        before = self._collectable.hosted_runs().get(key)
        try:
            _, record = await self._records.application(key[0])
        except CommandRefused:
            return
        finally:
            del self._at_work[key]
        hosted = self._collectable.hosted_runs()
        if key in self._hosting.table or hosted.get(key) != before:
            return  # this node has entered an attempt of the run meanwhile
        if record is None:
            if self._collectable.machine.is_over(RunId(*key)):
                self._forget(key, "")
        elif record.version > key[1] or (record.version == key[1] and record.is_final):
            is_failure = record.version == key[1] and record.state != FINISHED
            self._forget(key, (record.reason or record.state) if is_failure else "")
        elif before is not None and record.attempt > before and not record.instances_on(self._context.me.node):
            self._collectable.release_run(key)

    def _forget(self, key: Key, why: str) -> None:
        emitted = self._collectable.emitted(key)
        self._collectable.forget_run(key)
        self._context.emit(ForgetRun(*key, emitted, why))
