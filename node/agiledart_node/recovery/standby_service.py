"""Standbys on this node: code and committed state are fetched while the run goes on, into executors that wait.

The recovery machine asks anew after each commit. Only its newest request counts: an older one that is still being carried out ends
at its next step. A failure here costs time only: a take-over then fetches and starts everything, as without a standby.
"""

from collections.abc import Awaitable, Callable, Container
from typing import Final

import msgspec

from agiledart_dataflow.plan.deployment import SnapshotChain
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.machine import Completed, Failed
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.hosting.hosted_application import Key
from agiledart_node.recovery.hosted_run import HostedRun, part_of_attempt
from agiledart_node.recovery.register_bootstrap import copy_of
from agiledart_node.recovery.state_fetcher import ReportProgress
from agiledart_node.wire.effects import HoldLocalStandby, ReleaseLocalStandby
from agiledart_recovery.wire import effects as asked
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import InstanceRole, InstanceSnapshot, Plan, SavedState

ObtainRun = Callable[[RunId, int, Plan], Awaitable[HostedRun]]
EnsureLocal = Callable[
    [RunId, SavedState, Container[bytes], ReportProgress, Peer | None], Awaitable[list[InstanceSnapshot]]
]

NOTHING: Final[Container[bytes]] = ()


def expected_attempt(effect: asked.HoldStandby, me: Peer) -> asked.EnterAttempt:
    """Return the attempt in which this node runs what it stands by for, beside what it runs now."""
    mine = {assignment.instance: None for assignment in effect.assignments}
    assignments = tuple(
        msgspec.structs.replace(assignment, host=me) if assignment.instance in mine else assignment
        for assignment in effect.plan.assignments
    )
    plan = msgspec.structs.replace(effect.plan, assignments=assignments)
    return asked.EnterAttempt(0, effect.run, effect.attempt, 0, plan, plan.at(me.node), (), ())


class StandbyService:
    """Holds executors ready on this node.

    Args:
        obtain_run: returns the code of a run, from this node or from another host of this plan.
        ensure_local: fetches the snapshots of an instance to this disk, except those known to be here.
    """

    def __init__(self, context: NodeContext, obtain_run: ObtainRun, ensure_local: EnsureLocal) -> None:
        self._context, self._obtain_run, self._ensure_local = context, obtain_run, ensure_local
        self._wanted: dict[RunId, asked.HoldStandby] = {}
        self._at_work: dict[RunId, None] = {}
        self._local: dict[RunId, dict[bytes, None]] = {}

    def carry_out(self, effect: asked.HoldStandby | asked.ReleaseStandby) -> None:
        """Carry out an effect of the recovery machine."""
        if isinstance(effect, asked.HoldStandby):
            self.hold(effect)
        else:
            self.release(effect.run)

    def hold(self, effect: asked.HoldStandby) -> None:
        """Hold what a request of the recovery machine asks for, in the background."""
        if self._context.no_work_reason:
            self.release(effect.run)
            return
        self._wanted[effect.run] = effect
        if effect.run not in self._at_work:
            self._at_work[effect.run] = None
            self._context.requests.begin(self._work(effect.run))

    def release(self, run: RunId) -> None:
        """Release what is held of a run."""
        self._local.pop(run, None)
        if self._wanted.pop(run, None) is not None:
            self._context.emit(ReleaseLocalStandby(run.app, run.version))

    def forget(self, key: Key) -> None:
        """Release what is held of a run that is over, or that goes on without this node."""
        self.release(RunId(*key))

    def is_held(self, key: Key) -> bool:
        """Return whether this node holds executors of a run ready."""
        return RunId(*key) in self._wanted

    def local_snapshots(self, run: RunId) -> Container[bytes]:
        """Return the digests of a run's snapshots that were verified on this disk."""
        return self._local.get(run, NOTHING)

    async def _work(self, run: RunId) -> None:
        try:
            while (effect := self._wanted.get(run)) is not None:
                try:
                    await self._fetch(effect)
                except OperationFailed:
                    self._context.drop("standby")
                if self._wanted.get(run) is effect:
                    return
        finally:
            del self._at_work[run]

    async def _fetch(self, effect: asked.HoldStandby) -> None:
        """Fetch the code and the state, and have the executors take them. Raises OperationFailed."""
        run, me = effect.run, self._context.me
        hosted = await self._obtain_run(run, effect.attempt, effect.plan)
        hosts = {assignment.instance: assignment.host for assignment in effect.assignments}
        before = self._local.get(run, {})
        for saved in effect.saved:
            await self._ensure_local(run, saved, before, lambda got, of: None, hosts.get(saved.instance))
            if self._wanted.get(run) is not effect:
                return
        self._local[run] = {snapshot.digest: None for saved in effect.saved for snapshot in saved.chain}
        attempt = expected_attempt(effect, me)
        steps = [assignment for assignment in effect.assignments if assignment.role is InstanceRole.STAGE]
        chains = [(copy_of(saved.instance), [link.digest for link in saved.chain]) for saved in effect.saved]
        number = self._context.requests.number()
        length = sum(snapshot.length for saved in effect.saved for snapshot in saved.chain)
        timeout_ns = self._context.config.start_timeout_ns + length * self._context.config.recovery.slowest_ns
        command = HoldLocalStandby(
            number,
            part_of_attempt(hosted, attempt),
            tuple(copy_of(assignment.instance) for assignment in steps),
            tuple(SnapshotChain(*copy, digests[-1], tuple(digests[:-1])) for copy, digests in chains if digests),
            timeout_ns,
        )
        answer = (await self._context.ask_driver(number, command, timeout_ns)).get(number)
        if not isinstance(answer, Completed):
            raise OperationFailed(
                answer.reason if isinstance(answer, Failed) else "the executors were not ready in time"
            )
