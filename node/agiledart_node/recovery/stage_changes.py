"""One host's part in a change: new instances are made ready, everybody is told the way to them, elements come, the rest is dropped.

| recovery asks | what is done here |
|---|---|
| `MakeGenerationReady` | room, code, `PrepareLocalGeneration`; where the new instances listen is told to all hosts; who has heard of all: `ConnectLocalGeneration` |
| `PreloadFromDisk` | committed elements of old instances are fetched, then `PreloadFromDisk` to the executors |
| `TakeOver` | the element of an old instance is fetched, then `HandOverState` to the executors |
| `DiscardGeneration` | `DropLocalGeneration` to the executors, and what was ready here is forgotten |

Each host starts its instances by itself and tells the others where they listen, as when a life is entered (`bringing_back`).
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
"""How busy an instance counts as at the least: it may become so."""

MAX_PLANS = 8
"""Plans of which addresses are remembered before this host was told of them."""


@dataclass(slots=True)
class PendingPlan:
    """A plan that may come: where instances listen, as far as this host has heard, and what waits here for it.

    Attributes:
        added: copies that this host did not have before; `slots`: executors of those that wait.
        known: elements that lie here of what is taken over; `brought`: those that were brought for it.
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
        """Is everything known that is waited for?"""
        return self.awaited <= self.known_addresses.keys()


class HostedRunTable(Protocol):
    """What there is of runs at this node."""

    def adopt(self, part: DeploymentPart, plan: Plan) -> HostedApplication:
        """Take a run up here under the plan that holds, or find it."""
        ...

    def hosted(self, key: Key) -> HostedApplication | None:
        """One that is taken up."""
        ...

    def empty(self, hosted: HostedApplication) -> None:
        """Let one go that has nothing here."""
        ...


class StageChanges:
    """Changes of runs at this host.

    Args:
        step: hands an outcome to the recovery machine.
        known_run: the code of a run, of this node or borrowed from a host of this plan.
        keeping: runs that are hosted here.
        have: brings the elements of an old instance to this disk, but those that are known to be here, and tells how far it is;
            those that were not here. Raises OperationFailed.
        progress: told of what is to be built ahead: bytes that are here, of how many.
        check_room: raises OperationFailed where so many more instances have no room.
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
        """What the machine asks for."""
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
        """A plan may come with a barrier."""
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
            raise OperationFailed(
                "it was let go"
            )  # while the code came: nobody would let go once more of what is started now
        hosted = self._run_table.adopt(known.part, effect.before)
        most = self._most_executors(known.part)
        part = part_of_generation(known, hosted.instances, effect, most, busy_of(hosted.reports))
        pending_plan.awaited = awaited_copies(after)
        pending_plan.slots = {placed.copy: placed.executor for placed in part.instances}
        for placed in part.instances:  # from now on a crash of their executor is a crash of instances here
            pending_plan.added += () if placed.copy in hosted.instances else (placed.copy,)
            hosted.instances.setdefault(placed.copy, placed.executor)
        number = self._context.requests.number()
        result = await self._driven(number, PrepareLocalGeneration(number, part, digest))
        changing = [int(change.stage) for change in after.changes]
        mine = tuple(
            InstanceAddress(*copy, str(address))
            for copy, address in sorted(result.items())
            if copy in pending_plan.slots
            or copy[0] not in changing  # an instance of the term before listens under the same number
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
        return [each for each in effect.before.at(self._context.me.node) if each.instance.stage in stages]

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
            raise OperationFailed(f"{self._context.me.name} did not hear where new instances listen")

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
        """Another host's new instances listen."""
        self._note(self._of(RunId(message.application, message.version), message.digest), message.addresses)
        self._context.send(sender, Acknowledged(message.request))

    def _note(self, pending_plan: PendingPlan, addresses: tuple[InstanceAddress, ...]) -> None:
        pending_plan.known_addresses |= {(one.stage, one.index): one.address for one in addresses}
        if pending_plan.has_all and pending_plan.number:
            self._context.requests.answered(pending_plan.number, True)

    def _of(self, run: RunId, digest: bytes) -> PendingPlan:
        if (run, digest) not in self._pending_plans and len(self._pending_plans) >= MAX_PLANS:
            oldest = next(iter(self._pending_plans))
            self._drop_fetched(oldest[0], self._pending_plans.pop(oldest))
        return self._pending_plans.setdefault((run, digest), PendingPlan())

    # ---- what is committed is built ahead

    async def _preload_state(self, effect: asked.PreloadState) -> None:
        run, digest = effect.run, effect.after.digest
        pending_plan = self._of(run, digest)
        chains = self._to_preload(effect)
        of, got = sum(snapshot.length for saved in chains for snapshot in saved.chain), 0
        for saved in chains:
            self._progress(run, digest, got, of)
            if effect.before.is_at(saved.instance, self._context.me.node):
                pending_plan.known |= {snapshot.digest: None for snapshot in saved.chain}
            origin = next((each.host for each in effect.before.assignments if each.instance == saved.instance), None)
            await self._bring(pending_plan, run, saved, partial(self._report_more, (run, digest), got, of), origin)
            if self._pending_plans.get((run, digest)) is not pending_plan:
                self._drop_fetched(run, pending_plan)
                raise OperationFailed("it was let go")
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
        """What old instances saved of which something goes to new ones here."""
        hosted = self._run_table.hosted((effect.run.app, effect.run.version))
        if hosted is None:
            return []
        before, after = _PLAN.decode(effect.before.body or hosted.part.plan), _PLAN.decode(effect.after.body)
        needed: dict[tuple[int, int], None] = {}
        for each in effect.after.at(self._context.me.node):
            stage, index = copy_of(each.instance)
            old = predecessors_of(before.stages[stage], after.stages[stage], index)
            needed |= {(stage, one): None for one in old}
        return [saved for saved in effect.saved if copy_of(saved.instance) in needed]

    def _drop_fetched(self, run: RunId, pending_plan: PendingPlan, keep: Container[bytes] = ()) -> None:
        """Copies that nobody here will build from."""
        gone = tuple(digest for digest in pending_plan.fetched if digest not in keep)
        pending_plan.fetched, pending_plan.known = {}, {}
        if gone:
            self._context.emit(DropSnapshots(run.app, run.version, gone))

    def entered(self, run: RunId, saved: Iterable[SavedState]) -> None:
        """A life is entered with these elements: what was brought for plans that did not come goes."""
        keep = {snapshot.digest: None for one in saved for snapshot in one.chain}
        for (whose, _), pending_plan in self._pending_plans.items():
            if whose == run:
                self._drop_fetched(run, pending_plan, keep)

    # ---- behind the barrier

    def take_over(self, effect: asked.TakeOver) -> None:
        """An old instance has handed over."""
        self._context.requests.begin(self._answered(effect.request, self._taken_over(effect)))

    async def _taken_over(self, effect: asked.TakeOver) -> None:
        instance, run = effect.saved.instance, effect.run
        await self._bring(self._of(run, effect.digest), run, effect.saved, lambda got, of: None, effect.origin)
        *before, last = [snapshot.digest for snapshot in effect.saved.chain]
        about = (run.app, run.version, effect.epoch, *copy_of(instance), instance.generation)
        self._context.emit(HandOverState(*about, effect.digest, last, tuple(before)))

    def drop(self, effect: asked.DiscardGeneration) -> None:
        """It will not come."""
        pending_plan = self._pending_plans.pop((effect.run, effect.digest), None)
        self._context.emit(DropLocalGeneration(effect.run.app, effect.run.version, effect.digest))
        if pending_plan is not None:
            self._drop_fetched(effect.run, pending_plan)
        self._empty_of(effect.run, pending_plan.added if pending_plan is not None else ())

    def _empty_of(self, run: RunId, added: tuple[tuple[int, int], ...]) -> None:
        """Instances that waited here are gone; so is the run, when they were all that it had here."""
        hosted = self._run_table.hosted((run.app, run.version))
        if hosted is not None:
            for copy in added:
                hosted.instances.pop(copy, None)
            if not hosted.instances:
                self._run_table.empty(hosted)

    def waits(self, run: RunId) -> bool:
        """Whether something waits here for a plan that may come."""
        return any(whose == run and pending_plan.added for (whose, _), pending_plan in self._pending_plans.items())

    def plan_committed(self, run: RunId, plan: Plan) -> None:
        """A plan is committed: what waited for it waits no more."""
        if plan.changes and (pending_plan := self._pending_plans.get((run, plan.digest))) is not None:
            pending_plan.added = ()

    def slots_of(self, run: RunId, plan: Plan) -> dict[tuple[int, int], int]:
        """Executors of the copies that waited here for a plan."""
        pending_plan = self._pending_plans.get((run, plan.digest)) if plan.changes else None
        return {} if pending_plan is None else pending_plan.slots

    def _most_executors(self, part: DeploymentPart) -> int:
        """Processes that a run may grow to here: as many as were asked for, and while there are cores and memory."""
        return max(part.executors, self._context.config.max_executors)


def barrier_of(effect: asked.EmitBarrier, value: RegisterValue | None) -> InjectBarriers:
    """As executors are told; they were given no name for the plan with which the run began."""
    is_first = value is not None and value.plan.digest == effect.before and not value.plan.changes
    after = effect.after.digest if effect.after is not None else b""
    before = b"" if is_first else effect.before
    return InjectBarriers(effect.run.app, effect.run.version, effect.epoch, before, after, effect.holds)


def awaited_copies(after: Plan) -> frozenset[tuple[int, int]]:
    """Copies of which one must know where they listen: those of stages that change, and of those that they send to."""
    stages = {change.stage: None for change in after.changes}
    stages |= {target: None for source, target in after.edges if source in stages}
    return frozenset(copy_of(each.instance) for each in after.assignments if each.instance.stage in stages)


def busy_of(reports: Mapping[tuple[int, int], Mapping[str, Any]]) -> dict[tuple[int, int], float]:
    """Share of the last interval in which each copy was at work; of those that have told."""
    report_progress = {copy: measures_of(report) for copy, report in reports.items()}
    return {copy: one.busy_ns / one.span_ns for copy, one in report_progress.items() if one is not None}


def part_of_generation(
    run: HostedRun,
    slots: Mapping[tuple[int, int], int],
    effect: asked.MakeGenerationReady,
    most: int,
    busy: Mapping[tuple[int, int], float],
) -> DeploymentPart:
    """The part of this node in a plan that may come, as its executors are told: `instances` are those of the new terms.

    One that has a place keeps it, another one goes to the executor that is least busy, also to one that is still to be started.

    Args:
        slots: executors of the copies that this node has; most: executors that there may be.
        busy: how much of the time each of these copies works, as far as it is known.
    """
    nodes: dict[NodeId, Peer] = {peer.node: peer for peer in run.part.nodes}
    nodes.update(effect.after.hosts)
    position = {node: number for number, node in enumerate(nodes)}
    places = tuple(InstancePlace(*copy_of(one.instance), position[one.host.node]) for one in effect.after.assignments)
    changing = {int(change.stage): None for change in effect.after.changes}
    load = [0.0] * max(1, most, *(slot + 1 for slot in slots.values()))
    new = [copy_of(one.instance) for one in effect.assignments]
    for copy, slot in slots.items():
        if copy[0] not in changing or copy in new:
            load[slot] += LEAST_BUSY + busy.get(copy, 0.0)
    mine = []
    for one in effect.assignments:
        copy = copy_of(one.instance)
        slot = slots.get(copy, load.index(min(load)))
        if copy not in slots:  # it will do about as much as those that have its work now
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
