"""Entry of an attempt on this node: code, capacity, state, then the restart of `hosted_run`.

When something is missing this node refuses the attempt and says why. An attempt without this node closes what ran of the run
here.
"""

from collections.abc import Awaitable, Callable, Container
from typing import Protocol

import msgspec

from agiledart_dataflow.plan.deployment import DOES_NOT_FIT
from agiledart_kernel.codec import encode
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.hosting.hosted_application import HostedApplication, Key
from agiledart_node.recovery.bundle_transfer import fetch_bundle
from agiledart_node.recovery.change_finaliser import ChangeFinaliser
from agiledart_node.recovery.hosted_run import HostedRun, restart
from agiledart_node.recovery.register_bootstrap import copy_of
from agiledart_node.recovery.state_fetcher import ReportProgress, StateFetcher, StateUnavailable
from agiledart_node.wire.effects import StopInstances
from agiledart_node.wire.shared_model import SharedModel
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.wire import effects as asked
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import InstanceSnapshot, Plan, RegisterValue, RunState, SavedState

FetchModels = Callable[[str, tuple[SharedModel, ...], Peer], Awaitable[None]]
"""(application, models, the host that has them) → done when they are here, or have not come in time."""


class RunHost(Protocol):
    """Runs of this node, and the driver that carries out the machine's effects."""

    machine: RecoveryMachine
    runs: dict[Key, HostedRun]
    closed: Callable[[HostedApplication, str, str], None]

    def step(self, event: Event) -> None:
        """Pass an event to the machine."""
        ...

    def flush(self) -> None:
        """Carry out the effects that a call to the machine has produced."""
        ...

    def value(self, run: RunId) -> RegisterValue | None:
        """Return the register's value as this node knows it as a host."""
        ...

    def keep(self, key: Key, name: str, content: bytes) -> None:
        """Write a file without waiting for it."""
        ...


async def _fetch_none(application: str, models: tuple[SharedModel, ...], peer: Peer) -> None:
    """Fetch no models; default of the hook."""


class AttemptEntry:
    """Enters attempts on this node.

    Attributes:
        models_of: returns the models of an application that this node has.
        fetch_models: called on a node that is new to an application, with the models that another host has.
        local_snapshots: returns the digests of a run's snapshots that were verified on this disk for a standby.
    """

    def __init__(
        self,
        context: NodeContext,
        hosting: ApplicationHost,
        run_host: RunHost,
        state_fetcher: StateFetcher,
        change_finaliser: ChangeFinaliser,
    ) -> None:
        self._context, self._hosting, self._run_host = context, hosting, run_host
        self._state_fetcher, self._change_finaliser = state_fetcher, change_finaliser
        self.models_of: Callable[[str], tuple[SharedModel, ...]] = lambda application: ()
        self.fetch_models: FetchModels = _fetch_none
        self.local_snapshots: Callable[[RunId], Container[bytes]] = lambda run: ()

    async def enter(self, effect: asked.EnterAttempt) -> None:
        """Enter an attempt, or report why this node cannot."""
        key = (effect.run.app, effect.run.version)
        hosted, value = self._hosting.table.get(key), self._run_host.value(effect.run)
        assert value is not None, "a node enters an attempt only with its register value"
        if not effect.assignments:
            self._close_local(effect, hosted)
            return
        try:
            run = await self.obtain_run(effect.run, effect.attempt, effect.plan)
            hosted = self._hosting.adopt(run.part)
            hosted.has_register = True
            mine = [copy_of(assignment.instance) for assignment in effect.assignments]
            # The first attempt needs no restart where the deployment has started all instances of this node.
            if effect.attempt == 1 and run.attempt == 0 and all(copy in hosted.instances for copy in mine):
                run.attempt = 1
                self._run_host.step(Completed(effect.request, None))
                return
            self._check_open(hosted)
            self._check_capacity(hosted, len(mine))
            self._context.emit(StopInstances(*key))
            for saved in (*effect.saved, *effect.emitted):
                await self._state_fetcher.ensure_local(effect.run, saved, value, self.local_snapshots(effect.run))
            # Fetching the state takes time, so check again whether this attempt still counts and the run is still open.
            part = self._run_host.machine.participants.get(effect.run)
            if part is None or part.attempt != effect.attempt:
                return  # the run is over, or a later attempt has begun meanwhile
            self._check_open(hosted)
            self._run_host.machine.report_entering(effect.run, effect.attempt, "restore")
            self._run_host.flush()
            hosted.begin_again(dict.fromkeys(mine, 0), run.base + effect.attempt)
            restarted = await restart(self._context, run, effect, value.committed.epoch, value.origin)
        except OperationFailed as error:
            part = self._run_host.machine.participants.get(effect.run)
            if isinstance(error, StateUnavailable) and part is not None:
                part.lacks(effect.attempt, error.replica_nodes)
            self._run_host.step(Failed(effect.request, str(error)))
            if value.is_brought and DOES_NOT_FIT in str(error) and hosted is not None:
                # A state that does not fit this topology will not fit in the next attempt either.
                self._run_host.closed(hosted, RunState.FAILED.value, str(error))
            return
        self._hosting.moved(hosted, msgspec.structs.replace(restarted, bundle=b""))
        self._run_host.step(Completed(effect.request, None))

    async def obtain_run(self, run: RunId, attempt: int, plan: Plan) -> HostedRun:
        """Return the run with its code, from this node's disk or another host. Raises OperationFailed."""
        key = (run.app, run.version)
        if key not in self._run_host.runs:
            part, models, peer = await fetch_bundle(self._context, run, attempt, plan, self._hosting.objection_to_part)
            if models:
                self._run_host.machine.report_entering(run, attempt, "fetch")  # else its coordinator gives this host up
                self._run_host.flush()
            await self.fetch_models(run.app, models, peer)
            self._run_host.runs.setdefault(key, HostedRun(part, part.attempt - 1))
            self._run_host.keep(key, "part", encode(part))
        return self._run_host.runs[key]

    async def ensure_old_state(
        self,
        run: RunId,
        saved: SavedState,
        known: Container[bytes],
        report_progress: ReportProgress,
        origin: Peer | None,
    ) -> list[InstanceSnapshot]:
        """Fetch the snapshots of an old instance to this disk; return those that were missing. Raises OperationFailed.

        Args:
            known: digests of snapshots that are here.
            report_progress: receives the number of bytes that have come.
            origin: the node that has saved them.
        """
        value = self._run_host.value(run)
        assert value is not None, "a node that takes over is in the attempt"
        return await self._state_fetcher.ensure_local(run, saved, value, known, report_progress, origin)

    def check_free_capacity(self, key: Key, more: int) -> None:
        """Raise OperationFailed when this node has no capacity for so many more instances."""
        hosted = self._hosting.table.get(key)
        held, context = self._hosting.operators, self._context
        if more > 0 and (context.no_work_reason or held + more > context.config.capacity):
            reason = context.no_work_reason or f"has room for {context.config.capacity} instances and runs {held}"
            raise OperationFailed(f"{context.me.name} {reason}")
        if more > 0 and hosted is not None:
            self._check_open(hosted)

    def _check_open(self, hosted: HostedApplication) -> None:
        """Raise OperationFailed when a run is being closed, because nothing would stop what is started then."""
        if hosted.is_closing:
            raise OperationFailed(f"{hosted.part.application} is being stopped on {self._context.me.name}")

    def _check_capacity(self, hosted: HostedApplication, count: int) -> None:
        context = self._context
        held = self._hosting.operators - hosted.reserved
        if count > hosted.reserved and (context.no_work_reason or held + count > context.config.capacity):
            reason = context.no_work_reason or f"has room for {context.config.capacity} instances and runs {held}"
            raise OperationFailed(f"{context.me.name} {reason}")

    def _close_local(self, effect: asked.EnterAttempt, hosted: HostedApplication | None) -> None:
        """Close the run's local instances, because the attempt runs without this node."""
        if hosted is not None and hosted.instances:
            hosted.has_moved = True
            self._hosting.close(hosted, f"its instances run on other nodes since attempt {effect.attempt}")
        elif hosted is not None:
            self._change_finaliser.left(hosted)
        self._run_host.step(Completed(effect.request, None))
