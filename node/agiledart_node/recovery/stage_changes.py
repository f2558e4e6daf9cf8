"""One host's part in a change of stages.

It makes new instances ready, announces their addresses to all hosts, fetches snapshots, and drops what is no longer needed.

| recovery asks | what is done here |
|---|---|
| `MakeGenerationReady` | capacity, code, `PrepareLocalGeneration`, announce addresses, await all, `ConnectLocalGeneration` |
| `PreloadState` | fetch committed snapshots of old instances, then `PreloadFromDisk` to the executors |
| `TakeOver` | fetch the snapshot of an old instance, then `HandOverState` to the executors |
| `DiscardGeneration` | `DropLocalGeneration` to the executors; forget what was ready here |

Each host starts its instances by itself and announces where they listen, as when it enters an attempt (`hosted_run`).
"""

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import msgspec

from agiledart_dataflow.plan.deployment import (
    DeploymentPart,
    InstanceAddress,
    InstancePlace,
    PlacedInstance,
    SnapshotChain,
)
from agiledart_dataflow.plan.predecessors import predecessors_of
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.instants import Duration
from agiledart_kernel.machine import Completed, Effect, Event, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.hosting.hosted_application import HostedApplication, Key
from agiledart_node.records.summary import measures_of
from agiledart_node.recovery.hosted_run import HostedRun
from agiledart_node.recovery.register_bootstrap import copy_of
from agiledart_node.recovery.state_fetcher import ReportProgress
from agiledart_node.wire.effects import (
    ConnectLocalGeneration,
    DropLocalGeneration,
    DropSnapshots,
    HandOverState,
    InjectBarriers,
    PreloadFromDisk,
    PrepareLocalGeneration,
)
from agiledart_node.wire.formation_messages import Acknowledged
from agiledart_node.wire.recovery_messages import GenerationListening
from agiledart_recovery.wire import effects as asked
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import InstanceSnapshot, Plan, RegisterValue, SavedState

_PLAN: Codec[StagePlan] = Codec(StagePlan)

LEAST_BUSY = 0.05
"""Share of time that an instance counts as busy at least, because an idle one may become busy."""

MAX_PLANS = 8
"""Pending plans whose addresses this host remembers before the coordinator has sent it the plan."""


@dataclass(slots=True)
class PendingPlan:
    """A plan that may be committed: the known addresses of its instances, and what waits for it on this host.

    Attributes:
        known_addresses: (stage, index) → address, as far as this host has received them; `awaited`: those that it needs.
        number: the request that is resolved once all awaited addresses are known; 0: there is none.
        added: instances that this host did not have before; `slots`: executors of the instances that wait.
        known: digests of snapshots to take over that are on this disk; `fetched`: those that were fetched for this plan.
    """

    known_addresses: dict[tuple[int, int], str] = field(default_factory=dict)
    awaited: frozenset[tuple[int, int]] = frozenset()
    number: int = 0
    added: tuple[tuple[int, int], ...] = ()
    slots: dict[tuple[int, int], int] = field(default_factory=dict)
    known: dict[bytes, None] = field(default_factory=dict)
    fetched: dict[bytes, None] = field(default_factory=dict)

    @property
    def has_all(self) -> bool:
        """Return whether all awaited addresses are known."""
        return self.awaited <= self.known_addresses.keys()


class HostedRunTable(Protocol):
    """Runs that this node hosts, as a change sees them."""

    def adopt(self, part: DeploymentPart, plan: Plan) -> HostedApplication:
        """Return the hosted run, after adding it under the current plan if it is missing."""
        ...

    def hosted(self, key: Key) -> HostedApplication | None:
        """Return a run that this node hosts; None when it does not."""
        ...

    def empty(self, hosted: HostedApplication) -> None:
        """Close a run that has no instances here."""
        ...


class StageChanges:
    """Changes of runs on this host.

    Args:
        step: passes an outcome to the recovery machine.
        obtain_run: returns the code of a run, from this node or from another host of this plan.
        ensure_local: fetches the snapshots of an old instance to this disk, except those known to be here, and reports its
            progress; returns those that it fetched. Raises OperationFailed.
        progress: receives the progress of a state preload: bytes that are here, and total bytes.
        check_capacity: raises OperationFailed when this node has no capacity for so many more instances.
        run_table: runs that are hosted here.
    """

    def __init__(
        self,
        context: NodeContext,
        step: Callable[[Event], None],
        obtain_run: Callable[[RunId, int, Plan], Awaitable[HostedRun]],
        ensure_local: Callable[
            [RunId, SavedState, Container[bytes], ReportProgress, Peer | None], Awaitable[list[InstanceSnapshot]]
        ],
        progress: Callable[[RunId, bytes, int, int], None],
        check_capacity: Callable[[Key, int], None],
        run_table: HostedRunTable,
    ) -> None:
        self._context, self._step, self._run_table = context, step, run_table
        self._obtain_run, self._ensure_local, self._check_capacity = obtain_run, ensure_local, check_capacity
        self._progress = progress
        self._pending_plans: dict[tuple[RunId, bytes], PendingPlan] = {}

    def carry_out(
        self, effect: asked.MakeGenerationReady | asked.PreloadState | asked.TakeOver | asked.DiscardGeneration
    ) -> None:
        """Carry out an effect of the recovery machine."""
        if isinstance(effect, asked.MakeGenerationReady):
            self.make_ready(effect)
        elif isinstance(effect, asked.PreloadState):
            self._context.requests.begin(self._answered(effect.request, self._preload_state(effect)))
        elif isinstance(effect, asked.TakeOver):
            self.take_over(effect)
        else:
            self.drop(effect)

    # ---- before the barrier

    def make_ready(self, effect: asked.MakeGenerationReady) -> None:
        """Prepare for a plan that may come with a barrier."""
        self._context.requests.begin(self._answered(effect.request, self._make_generation_ready(effect)))

    async def _answered(self, request: int, work: Awaitable[None]) -> None:
        outcome: Event = Completed(request, None)
        try:
            await work
        except OperationFailed as error:
            outcome = Failed(request, str(error))
        self._step(outcome)

    async def _make_generation_ready(self, effect: asked.MakeGenerationReady) -> None:
        run, after, digest = effect.run, effect.after, effect.after.digest
        key = (run.app, run.version)
        self._check_capacity(key, len(effect.assignments) - len(self._leaving(effect)))
        pending_plan = self._of(run, digest)
        known = await self._obtain_run(run, effect.attempt, effect.before)
        if self._pending_plans.get((run, digest)) is not pending_plan:
            # The plan was discarded while the code came. No second discard would stop what is started from here on.
            raise OperationFailed("the change was dropped")
        hosted = self._run_table.adopt(known.part, effect.before)
        most = self._most_executors(known.part)
        part = part_of_generation(known, hosted.instances, effect, most, busy_of(hosted.reports))
        pending_plan.awaited = awaited_copies(after)
        pending_plan.slots = {placed.copy: placed.executor for placed in part.instances}
        for placed in part.instances:  # from here on a crash of their executor is a crash of local instances
            pending_plan.added += () if placed.copy in hosted.instances else (placed.copy,)
            hosted.instances.setdefault(placed.copy, placed.executor)
        number = self._context.requests.number()
        result = await self._driven(number, PrepareLocalGeneration(number, part, digest))
        changing = [int(change.stage) for change in after.changes]
        mine = tuple(
            InstanceAddress(*copy, str(address))
            for copy, address in sorted(result.items())
            if copy in pending_plan.slots
            or copy[0] not in changing  # in a changing stage an instance of the previous generation has the same number
        )
        self._note(pending_plan, mine)
        hosts = effect.before.hosts | after.hosts
        others = [peer for node, peer in hosts.items() if node != self._context.me.node]
        self._context.requests.begin(self._announce_addresses(others, (run, effect.attempt, digest), mine))
        await self._await_addresses(pending_plan)
        number = self._context.requests.number()
        addresses = tuple(
            InstanceAddress(*copy, pending_plan.known_addresses[copy]) for copy in sorted(pending_plan.awaited)
        )
        await self._driven(number, ConnectLocalGeneration(number, part, digest, addresses))

    def _leaving(self, effect: asked.MakeGenerationReady) -> list[object]:
        stages = [change.stage for change in effect.after.changes]
        return [
            assignment for assignment in effect.before.at(self._context.me.node) if assignment.instance.stage in stages
        ]

    async def _driven(self, number: int, effect: Effect, timeout_ns: int = 0) -> dict[tuple[int, int], str]:
        answers = await self._context.ask_driver(number, effect, timeout_ns or self._context.config.start_timeout_ns)
        answer = answers.get(number)
        if isinstance(answer, Completed):
            return answer.result if isinstance(answer.result, dict) else {}
        raise OperationFailed(
            answer.reason if isinstance(answer, Failed) else f"{self._context.me.name} did not get ready in time"
        )

    async def _await_addresses(self, pending_plan: PendingPlan) -> None:
        if not pending_plan.has_all:
            pending_plan.number = self._context.requests.number()
            await self._context.requests.answers(
                {pending_plan.number: None}, Duration(self._context.config.start_timeout_ns)
            )
        if not pending_plan.has_all:
            raise OperationFailed(f"{self._context.me.name} did not receive the addresses of all new instances in time")

    async def _announce_addresses(
        self, others: list[Peer], about: tuple[RunId, int, bytes], addresses: tuple[InstanceAddress, ...]
    ) -> None:
        run, attempt, digest = about
        await self._context.requests.ask_all(
            others,
            lambda number, _: GenerationListening(number, run.app, run.version, attempt, digest, addresses),
            Acknowledged,
            Duration(self._context.config.start_timeout_ns),
        )

    def listening(self, sender: Peer, message: GenerationListening) -> None:
        """Note where another host's instances of a new generation listen, and acknowledge it."""
        self._note(self._of(RunId(message.application, message.version), message.digest), message.addresses)
        self._context.send(sender, Acknowledged(message.request))

    def _note(self, pending_plan: PendingPlan, addresses: tuple[InstanceAddress, ...]) -> None:
        pending_plan.known_addresses |= {(address.stage, address.index): address.address for address in addresses}
        if pending_plan.has_all and pending_plan.number:
            self._context.requests.resolve(pending_plan.number, True)

    def _of(self, run: RunId, digest: bytes) -> PendingPlan:
        if (run, digest) not in self._pending_plans and len(self._pending_plans) >= MAX_PLANS:
            oldest = next(iter(self._pending_plans))
            self._drop_fetched(oldest[0], self._pending_plans.pop(oldest))
        return self._pending_plans.setdefault((run, digest), PendingPlan())

    # ---- preload of committed state

    async def _preload_state(self, effect: asked.PreloadState) -> None:
        run, digest = effect.run, effect.after.digest
        pending_plan = self._of(run, digest)
        chains = self._to_preload(effect)
        of, got = sum(snapshot.length for saved in chains for snapshot in saved.chain), 0
        for saved in chains:
            self._progress(run, digest, got, of)
            if effect.before.is_at(saved.instance, self._context.me.node):
                pending_plan.known |= {snapshot.digest: None for snapshot in saved.chain if not snapshot.content}
            origin = next(
                (assignment.host for assignment in effect.before.assignments if assignment.instance == saved.instance),
                None,
            )
            await self._bring(pending_plan, run, saved, partial(self._report_more, (run, digest), got, of), origin)
            if self._pending_plans.get((run, digest)) is not pending_plan:
                self._drop_fetched(run, pending_plan)
                raise OperationFailed("the change was dropped")
            # A larger state may take longer to build, so the timeout grows with it.
            length = sum(snapshot.length for snapshot in saved.chain)
            timeout_ns = self._context.config.start_timeout_ns + length * self._context.config.recovery.slowest_ns
            *others, last = [snapshot.digest for snapshot in saved.chain]
            snapshots = (SnapshotChain(*copy_of(saved.instance), last, tuple(others)),)
            number = self._context.requests.number()
            await self._driven(
                number, PreloadFromDisk(number, run.app, run.version, digest, snapshots, timeout_ns), timeout_ns
            )
            got += length

    def _report_more(self, about: tuple[RunId, bytes], before: int, of: int, got: int, _: int) -> None:
        self._progress(*about, min(before + got, of), of)

    async def _bring(
        self,
        pending_plan: PendingPlan,
        run: RunId,
        saved: SavedState,
        report_progress: ReportProgress,
        origin: Peer | None,
    ) -> None:
        fetched = await self._ensure_local(run, saved, pending_plan.known, report_progress, origin)
        pending_plan.fetched |= {snapshot.digest: None for snapshot in fetched}
        pending_plan.known = {snapshot.digest: None for snapshot in saved.chain} | pending_plan.known

    def _to_preload(self, effect: asked.PreloadState) -> list[SavedState]:
        """Return the saved state of those old instances from which new local instances take key groups."""
        hosted = self._run_table.hosted((effect.run.app, effect.run.version))
        if hosted is None:
            return []
        before, after = _PLAN.decode(effect.before.body or hosted.part.plan), _PLAN.decode(effect.after.body)
        needed: dict[tuple[int, int], None] = {}
        for assignment in effect.after.at(self._context.me.node):
            stage, index = copy_of(assignment.instance)
            old = predecessors_of(before.stages[stage], after.stages[stage], index)
            needed |= {(stage, old_index): None for old_index in old}
        return [saved for saved in effect.saved if copy_of(saved.instance) in needed]

    def _drop_fetched(self, run: RunId, pending_plan: PendingPlan, keep: Container[bytes] = ()) -> None:
        """Drop fetched snapshots from which no local instance will be built."""
        gone = tuple(digest for digest in pending_plan.fetched if digest not in keep)
        pending_plan.fetched, pending_plan.known = {}, {}
        if gone:
            self._context.emit(DropSnapshots(run.app, run.version, gone))

    def entered(self, run: RunId, saved: Iterable[SavedState]) -> None:
        """Drop the snapshots fetched for plans that were not committed, because an attempt begins with other ones.

        Args:
            saved: state with which the attempt begins; its snapshots stay.
        """
        keep = {snapshot.digest: None for state in saved for snapshot in state.chain}
        for (plan_run, _), pending_plan in self._pending_plans.items():
            if plan_run == run:
                self._drop_fetched(run, pending_plan, keep)

    # ---- behind the barrier

    def take_over(self, effect: asked.TakeOver) -> None:
        """Fetch the state of an old instance that has handed over, and give it to the executors."""
        self._context.requests.begin(self._answered(effect.request, self._taken_over(effect)))

    async def _taken_over(self, effect: asked.TakeOver) -> None:
        instance, run = effect.saved.instance, effect.run
        await self._bring(self._of(run, effect.digest), run, effect.saved, lambda got, of: None, effect.origin)
        *before, last = [snapshot.digest for snapshot in effect.saved.chain]
        about = (run.app, run.version, effect.epoch, *copy_of(instance), instance.generation)
        self._context.emit(HandOverState(*about, effect.digest, last, tuple(before)))

    def drop(self, effect: asked.DiscardGeneration) -> None:
        """Discard a pending plan that will not be committed."""
        pending_plan = self._pending_plans.pop((effect.run, effect.digest), None)
        self._context.emit(DropLocalGeneration(effect.run.app, effect.run.version, effect.digest))
        if pending_plan is not None:
            self._drop_fetched(effect.run, pending_plan)
        self._empty_of(effect.run, pending_plan.added if pending_plan is not None else ())

    def _empty_of(self, run: RunId, added: tuple[tuple[int, int], ...]) -> None:
        """Remove instances that waited for a discarded plan; close the run if it had no others here."""
        hosted = self._run_table.hosted((run.app, run.version))
        if hosted is not None:
            for copy in added:
                hosted.instances.pop(copy, None)
            if not hosted.instances:
                self._run_table.empty(hosted)

    def waits(self, run: RunId) -> bool:
        """Return whether instances wait here for a pending plan of a run."""
        return any(
            plan_run == run and pending_plan.added for (plan_run, _), pending_plan in self._pending_plans.items()
        )

    def plan_committed(self, run: RunId, plan: Plan) -> None:
        """Note that a plan is committed, so its instances no longer wait."""
        if plan.changes and (pending_plan := self._pending_plans.get((run, plan.digest))) is not None:
            pending_plan.added = ()

    def slots_of(self, run: RunId, plan: Plan) -> dict[tuple[int, int], int]:
        """Return the executors of the instances that waited here for a plan."""
        pending_plan = self._pending_plans.get((run, plan.digest)) if plan.changes else None
        return {} if pending_plan is None else pending_plan.slots

    def _most_executors(self, part: DeploymentPart) -> int:
        """Return how many executor processes a run may grow to here: at least as many as its user requested."""
        return max(part.executors, self._context.config.max_executors)


def barrier_of(effect: asked.EmitBarrier, value: RegisterValue | None) -> InjectBarriers:
    """Return the barrier as executors know it. They have no name for the plan with which the run began, so that plan is empty."""
    is_first = value is not None and value.plan.digest == effect.before and not value.plan.changes
    after = effect.after.digest if effect.after is not None else b""
    before = b"" if is_first else effect.before
    return InjectBarriers(effect.run.app, effect.run.version, effect.epoch, before, after, effect.holds)


def awaited_copies(after: Plan) -> frozenset[tuple[int, int]]:
    """Return the (stage, index) pairs whose addresses a host needs: of changing stages, and of the stages that these send to."""
    stages = {change.stage: None for change in after.changes}
    stages |= {target: None for source, target in after.edges if source in stages}
    return frozenset(
        copy_of(assignment.instance) for assignment in after.assignments if assignment.instance.stage in stages
    )


def busy_of(reports: Mapping[tuple[int, int], Mapping[str, Any]]) -> dict[tuple[int, int], float]:
    """Return for each reporting instance the share of the last interval in which it was busy."""
    measures = {copy: measures_of(report) for copy, report in reports.items()}
    return {copy: measured.busy_ns / measured.span_ns for copy, measured in measures.items() if measured is not None}


def part_of_generation(
    run: HostedRun,
    slots: Mapping[tuple[int, int], int],
    effect: asked.MakeGenerationReady,
    most: int,
    busy: Mapping[tuple[int, int], float],
) -> DeploymentPart:
    """Return this node's part under a pending plan, for its executors; `instances` holds those of the new generations.

    An instance that already has an executor keeps it. Another one goes to the least busy executor, which may have to be started.

    Args:
        slots: executors of the instances that this node has.
        most: number of executors that there may be.
        busy: share of time that each of these instances works, as far as it is known.
    """
    nodes: dict[NodeId, Peer] = {peer.node: peer for peer in run.part.nodes}
    nodes.update(effect.after.hosts)
    position = {node: number for number, node in enumerate(nodes)}
    places = tuple(
        InstancePlace(*copy_of(assignment.instance), position[assignment.host.node])
        for assignment in effect.after.assignments
    )
    changing = {int(change.stage): None for change in effect.after.changes}
    # Load of each executor under the pending plan: instances that leave with it do not count, those that stay do.
    load = [0.0] * max(1, most, *(slot + 1 for slot in slots.values()))
    new = [copy_of(assignment.instance) for assignment in effect.assignments]
    for copy, slot in slots.items():
        if copy[0] not in changing or copy in new:
            load[slot] += LEAST_BUSY + busy.get(copy, 0.0)
    mine = []
    for assignment in effect.assignments:
        copy = copy_of(assignment.instance)
        slot = slots.get(copy, load.index(min(load)))
        if copy not in slots:  # estimate its load by the mean of the instances that do its work now
            shares = [share for other, share in busy.items() if other[0] == copy[0]]
            load[slot] += LEAST_BUSY + (sum(shares) / len(shares) if shares else 0.0)
        mine.append(PlacedInstance(*copy, slot))
    return msgspec.structs.replace(
        run.part,
        attempt=run.base + effect.attempt,
        plan=effect.after.body,
        nodes=tuple(nodes.values()),
        assignment=places,
        instances=tuple(mine),
        addresses=(),
        executors=len(load),
    )
