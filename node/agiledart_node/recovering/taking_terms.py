"""One host's part in a change: new instances are made ready, everybody is told the way to them, elements come, the rest is dropped.

| recovery asks | what is done here |
|---|---|
| `MakeTermReady` | room, code, `ReadyTerm`; where the new instances listen is told to all hosts; who has heard of all: `OpenTerm` |
| `BuildAhead` | committed elements of old instances are fetched, then `BuildAhead` to the executors |
| `TakeOver` | the element of an old instance is fetched, then `HandOver` to the executors |
| `DropTerm` | `LetTermGo` to the executors, and what was ready here is forgotten |

Each host starts its instances by itself and tells the others where they listen, as when a life is entered (`bringing_back`).
"""

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import msgspec

from agiledart_dataflow.plan.deployment import DeploymentPart, InstanceAddress, InstancePlace, PlacedInstance, SavedAt
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_dataflow.plan.successions import owners_before
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.instants import Duration
from agiledart_kernel.machine import Completed, Effect, Event, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.desk.desk import Desk
from agiledart_node.hosting.hosted import Hosted, Key
from agiledart_node.records.summary import measures_of
from agiledart_node.recovering.bringing_back import HostedRun
from agiledart_node.recovering.fetching import Told
from agiledart_node.recovering.founding import copy_of
from agiledart_node.wire.effects import BuildAhead, DropElements, HandOver, LetTermGo, OpenTerm, PassBarrier, ReadyTerm
from agiledart_node.wire.formation_messages import Acknowledged
from agiledart_node.wire.recovery_messages import TermListening
from agiledart_recovery.wire import effects as asked
from agiledart_recovery.wire.names import Run
from agiledart_recovery.wire.value import Element, Plan, Saved, Value

_PLAN: Codec[StagePlan] = Codec(StagePlan)

LEAST_BUSY = 0.05
"""How busy an instance counts as at the least: it may become so."""

MAX_PLANS = 8
"""Plans of which addresses are remembered before this host was told of them."""


@dataclass(slots=True)
class Ahead:
    """A plan that may come: where instances listen, as far as this host has heard, and what waits here for it.

    Attributes:
        added: copies that this host did not have before; `slots`: executors of those that wait.
        known: elements that lie here of what is taken over; `brought`: those that were brought for it.
    """

    heard: dict[tuple[int, int], str] = field(default_factory=dict)
    wanted: frozenset[tuple[int, int]] = frozenset()
    number: int = 0
    added: tuple[tuple[int, int], ...] = ()
    slots: dict[tuple[int, int], int] = field(default_factory=dict)
    known: dict[bytes, None] = field(default_factory=dict)
    brought: dict[bytes, None] = field(default_factory=dict)

    @property
    def has_all(self) -> bool:
        """Is everything known that is waited for?"""
        return self.wanted <= self.heard.keys()


class Keeping(Protocol):
    """What there is of runs at this node."""

    def adopt(self, part: DeploymentPart, plan: Plan) -> Hosted:
        """Take a run up here under the plan that holds, or find it."""
        ...

    def hosted(self, key: Key) -> Hosted | None:
        """One that is taken up."""
        ...

    def empty(self, hosted: Hosted) -> None:
        """Let one go that has nothing here."""
        ...


class TakingTerms:
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
        desk: Desk,
        step: Callable[[Event], None],
        known_run: Callable[[Run, int, Plan], Awaitable[HostedRun]],
        have: Callable[[Run, Saved, Container[bytes], Told, Peer | None], Awaitable[list[Element]]],
        progress: Callable[[Run, bytes, int, int], None],
        check_room: Callable[[Key, int], None],
        keeping: Keeping,
    ) -> None:
        self._desk, self._step, self._keeping = desk, step, keeping
        self._known_run, self._have, self._check_room = known_run, have, check_room
        self._progress = progress
        self._ahead: dict[tuple[Run, bytes], Ahead] = {}

    def carry_out(self, effect: asked.MakeTermReady | asked.BuildAhead | asked.TakeOver | asked.DropTerm) -> None:
        """What the machine asks for."""
        if isinstance(effect, asked.MakeTermReady):
            self.make_ready(effect)
        elif isinstance(effect, asked.BuildAhead):
            self._desk.talks.begin(self._answered(effect.request, self._built_ahead(effect)))
        elif isinstance(effect, asked.TakeOver):
            self.take_over(effect)
        else:
            self.drop(effect)

    # ---- before the barrier

    def make_ready(self, effect: asked.MakeTermReady) -> None:
        """A plan may come with a barrier."""
        self._desk.talks.begin(self._answered(effect.request, self._made_ready(effect)))

    async def _answered(self, request: int, work: Awaitable[None]) -> None:
        outcome: Event = Completed(request, None)
        try:
            await work
        except OperationFailed as error:
            outcome = Failed(request, str(error))
        self._step(outcome)

    async def _made_ready(self, effect: asked.MakeTermReady) -> None:
        run, after, digest = effect.run, effect.after, effect.after.digest
        key = (run.app, run.version)
        self._check_room(key, len(effect.assignments) - len(self._leaving(effect)))
        ahead = self._of(run, digest)
        known = await self._known_run(run, effect.life, effect.before)
        if self._ahead.get((run, digest)) is not ahead:
            raise OperationFailed(
                "it was let go"
            )  # while the code came: nobody would let go once more of what is started now
        hosted = self._keeping.adopt(known.part, effect.before)
        most = self._most_executors(known.part)
        part = part_of_term(known, hosted.instances, effect, most, busy_of(hosted.reports))
        ahead.wanted = wanted_for(after)
        ahead.slots = {placed.copy: placed.executor for placed in part.instances}
        for placed in part.instances:  # from now on a crash of their executor is a crash of instances here
            ahead.added += () if placed.copy in hosted.instances else (placed.copy,)
            hosted.instances.setdefault(placed.copy, placed.executor)
        number = self._desk.talks.number()
        result = await self._driven(number, ReadyTerm(number, part, digest))
        changing = [int(change.stage) for change in after.changes]
        mine = tuple(
            InstanceAddress(*copy, str(address))
            for copy, address in sorted(result.items())
            if copy in ahead.slots
            or copy[0] not in changing  # an instance of the term before listens under the same number
        )
        self._note(ahead, mine)
        hosts = effect.before.hosts | after.hosts
        others = [peer for node, peer in hosts.items() if node != self._desk.me.node]
        self._desk.talks.begin(self._tell(others, (run, effect.life, digest), mine))
        await self._heard_all(ahead)
        number = self._desk.talks.number()
        addresses = tuple(InstanceAddress(*copy, ahead.heard[copy]) for copy in sorted(ahead.wanted))
        await self._driven(number, OpenTerm(number, part, digest, addresses))

    def _leaving(self, effect: asked.MakeTermReady) -> list[object]:
        stages = [change.stage for change in effect.after.changes]
        return [each for each in effect.before.at(self._desk.me.node) if each.party.stage in stages]

    async def _driven(self, number: int, effect: Effect, patience_ns: int = 0) -> dict[tuple[int, int], str]:
        answers = await self._desk.driven(number, effect, patience_ns or self._desk.config.start_timeout_ns)
        answer = answers.get(number)
        if isinstance(answer, Completed):
            return answer.result if isinstance(answer.result, dict) else {}
        raise OperationFailed(
            answer.reason if isinstance(answer, Failed) else f"{self._desk.me.name} did not get ready in time"
        )

    async def _heard_all(self, ahead: Ahead) -> None:
        if not ahead.has_all:
            ahead.number = self._desk.talks.number()
            await self._desk.talks.answers({ahead.number: None}, Duration(self._desk.config.start_timeout_ns))
        if not ahead.has_all:
            raise OperationFailed(f"{self._desk.me.name} did not hear where new instances listen")

    async def _tell(
        self, others: list[Peer], about: tuple[Run, int, bytes], addresses: tuple[InstanceAddress, ...]
    ) -> None:
        run, life, digest = about
        await self._desk.talks.ask_all(
            others,
            lambda number, _: TermListening(number, run.app, run.version, life, digest, addresses),
            Acknowledged,
            Duration(self._desk.config.start_timeout_ns),
        )

    def listening(self, sender: Peer, message: TermListening) -> None:
        """Another host's new instances listen."""
        self._note(self._of(Run(message.application, message.version), message.digest), message.addresses)
        self._desk.send(sender, Acknowledged(message.request))

    def _note(self, ahead: Ahead, addresses: tuple[InstanceAddress, ...]) -> None:
        ahead.heard |= {(one.stage, one.index): one.address for one in addresses}
        if ahead.has_all and ahead.number:
            self._desk.talks.answered(ahead.number, True)

    def _of(self, run: Run, digest: bytes) -> Ahead:
        if (run, digest) not in self._ahead and len(self._ahead) >= MAX_PLANS:
            oldest = next(iter(self._ahead))
            self._drop_brought(oldest[0], self._ahead.pop(oldest))
        return self._ahead.setdefault((run, digest), Ahead())

    # ---- what is committed is built ahead

    async def _built_ahead(self, effect: asked.BuildAhead) -> None:
        run, digest = effect.run, effect.after.digest
        ahead = self._of(run, digest)
        chains = self._to_build(effect)
        of, got = sum(element.length for saved in chains for element in saved.chain), 0
        for saved in chains:
            self._progress(run, digest, got, of)
            if effect.before.is_at(saved.party, self._desk.me.node):
                ahead.known |= {element.digest: None for element in saved.chain}
            origin = next((each.host for each in effect.before.assignments if each.party == saved.party), None)
            await self._bring(ahead, run, saved, partial(self._tell_more, (run, digest), got, of), origin)
            if self._ahead.get((run, digest)) is not ahead:
                self._drop_brought(run, ahead)
                raise OperationFailed("it was let go")
            length = sum(element.length for element in saved.chain)
            patience = self._desk.config.start_timeout_ns + length * self._desk.config.recovery.slowest_ns
            *others, last = [element.digest for element in saved.chain]
            elements = (SavedAt(*copy_of(saved.party), last, tuple(others)),)
            number = self._desk.talks.number()
            await self._driven(number, BuildAhead(number, run.app, run.version, digest, elements, patience), patience)
            got += length

    def _tell_more(self, about: tuple[Run, bytes], before: int, of: int, got: int, _: int) -> None:
        self._progress(*about, min(before + got, of), of)

    async def _bring(self, ahead: Ahead, run: Run, saved: Saved, told: Told, origin: Peer | None) -> None:
        brought = await self._have(run, saved, ahead.known, told, origin)
        ahead.brought |= {element.digest: None for element in brought}
        ahead.known = {element.digest: None for element in saved.chain} | ahead.known

    def _to_build(self, effect: asked.BuildAhead) -> list[Saved]:
        """What old instances saved of which something goes to new ones here."""
        hosted = self._keeping.hosted((effect.run.app, effect.run.version))
        if hosted is None:
            return []
        before, after = _PLAN.decode(effect.before.body or hosted.part.plan), _PLAN.decode(effect.after.body)
        needed: dict[tuple[int, int], None] = {}
        for each in effect.after.at(self._desk.me.node):
            stage, index = copy_of(each.party)
            old = owners_before(before.stages[stage], after.stages[stage], index)
            needed |= {(stage, one): None for one in old}
        return [saved for saved in effect.saved if copy_of(saved.party) in needed]

    def _drop_brought(self, run: Run, ahead: Ahead, keep: Container[bytes] = ()) -> None:
        """Copies that nobody here will build from."""
        gone = tuple(digest for digest in ahead.brought if digest not in keep)
        ahead.brought, ahead.known = {}, {}
        if gone:
            self._desk.emit(DropElements(run.app, run.version, gone))

    def entered(self, run: Run, saved: Iterable[Saved]) -> None:
        """A life is entered with these elements: what was brought for plans that did not come goes."""
        keep = {element.digest: None for one in saved for element in one.chain}
        for (whose, _), ahead in self._ahead.items():
            if whose == run:
                self._drop_brought(run, ahead, keep)

    # ---- behind the barrier

    def take_over(self, effect: asked.TakeOver) -> None:
        """An old instance has handed over."""
        self._desk.talks.begin(self._answered(effect.request, self._taken_over(effect)))

    async def _taken_over(self, effect: asked.TakeOver) -> None:
        party, run = effect.saved.party, effect.run
        await self._bring(self._of(run, effect.digest), run, effect.saved, lambda got, of: None, effect.origin)
        *before, last = [element.digest for element in effect.saved.chain]
        about = (run.app, run.version, effect.epoch, *copy_of(party), party.term)
        self._desk.emit(HandOver(*about, effect.digest, last, tuple(before)))

    def drop(self, effect: asked.DropTerm) -> None:
        """It will not come."""
        ahead = self._ahead.pop((effect.run, effect.digest), None)
        self._desk.emit(LetTermGo(effect.run.app, effect.run.version, effect.digest))
        if ahead is not None:
            self._drop_brought(effect.run, ahead)
        self._empty_of(effect.run, ahead.added if ahead is not None else ())

    def _empty_of(self, run: Run, added: tuple[tuple[int, int], ...]) -> None:
        """Instances that waited here are gone; so is the run, when they were all that it had here."""
        hosted = self._keeping.hosted((run.app, run.version))
        if hosted is not None:
            for copy in added:
                hosted.instances.pop(copy, None)
            if not hosted.instances:
                self._keeping.empty(hosted)

    def waits(self, run: Run) -> bool:
        """Whether something waits here for a plan that may come."""
        return any(whose == run and ahead.added for (whose, _), ahead in self._ahead.items())

    def came(self, run: Run, plan: Plan) -> None:
        """A plan is committed: what waited for it waits no more."""
        if plan.changes and (ahead := self._ahead.get((run, plan.digest))) is not None:
            ahead.added = ()

    def slots_of(self, run: Run, plan: Plan) -> dict[tuple[int, int], int]:
        """Executors of the copies that waited here for a plan."""
        ahead = self._ahead.get((run, plan.digest)) if plan.changes else None
        return {} if ahead is None else ahead.slots

    def _most_executors(self, part: DeploymentPart) -> int:
        """Processes that a run may grow to here: as many as were asked for, and while there are cores and memory."""
        return max(part.executors, self._desk.config.grows_to)


def barrier_of(effect: asked.PassBarrier, value: Value | None) -> PassBarrier:
    """As executors are told; they were given no name for the plan with which the run began."""
    is_first = value is not None and value.plan.digest == effect.before and not value.plan.changes
    after = effect.after.digest if effect.after is not None else b""
    before = b"" if is_first else effect.before
    return PassBarrier(effect.run.app, effect.run.version, effect.epoch, before, after, effect.holds)


def wanted_for(after: Plan) -> frozenset[tuple[int, int]]:
    """Copies of which one must know where they listen: those of stages that change, and of those that they send to."""
    stages = {change.stage: None for change in after.changes}
    stages |= {target: None for source, target in after.edges if source in stages}
    return frozenset(copy_of(each.party) for each in after.assignments if each.party.stage in stages)


def busy_of(reports: Mapping[tuple[int, int], Mapping[str, Any]]) -> dict[tuple[int, int], float]:
    """Share of the last interval in which each copy was at work; of those that have told."""
    told = {copy: measures_of(report) for copy, report in reports.items()}
    return {copy: one.busy_ns / one.span_ns for copy, one in told.items() if one is not None}


def part_of_term(
    run: HostedRun,
    slots: Mapping[tuple[int, int], int],
    effect: asked.MakeTermReady,
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
    places = tuple(InstancePlace(*copy_of(one.party), position[one.host.node]) for one in effect.after.assignments)
    changing = {int(change.stage): None for change in effect.after.changes}
    load = [0.0] * max(1, most, *(slot + 1 for slot in slots.values()))
    new = [copy_of(one.party) for one in effect.assignments]
    for copy, slot in slots.items():
        if copy[0] not in changing or copy in new:
            load[slot] += LEAST_BUSY + busy.get(copy, 0.0)
    mine = []
    for one in effect.assignments:
        copy = copy_of(one.party)
        slot = slots.get(copy, load.index(min(load)))
        if copy not in slots:  # it will do about as much as those that have its work now
            shares = [share for other, share in busy.items() if other[0] == copy[0]]
            load[slot] += LEAST_BUSY + (sum(shares) / len(shares) if shares else 0.0)
        mine.append(PlacedInstance(*copy, slot))
    return msgspec.structs.replace(
        run.part,
        life=run.base + effect.life,
        plan=effect.after.body,
        nodes=tuple(nodes.values()),
        assignment=places,
        instances=tuple(mine),
        addresses=(),
        executors=len(load),
    )
