"""Runs that this node coordinates scale their own stages: once per interval their hosts are asked, and all is decided at once.

    reports of the hosts → measures of each stage → the controller → one request for all that shall change → what became of it

What a controller remembers dies with it: who takes over begins to watch anew, which costs patience and nothing else. What a user
has set by hand is in the application's record, since that must not be forgotten.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from agiledart_dataflow.plan.stage_plan import Stage
from agiledart_kernel.errors import TopologyError
from agiledart_kernel.instants import Duration, Instant
from agiledart_kernel.machine import SetTimer
from agiledart_kernel.peer import Peer
from agiledart_node.asking.scaling_advice import stage_states
from agiledart_node.desk.desk import CommandRefused, Desk
from agiledart_node.hosting.hosted import report_copy
from agiledart_node.records.application import RUNNING
from agiledart_node.records.records import Records
from agiledart_node.recovering.change_plans import NoRoom, stage_plan_of
from agiledart_node.recovering.founding import copy_of
from agiledart_node.recovering.recovering import Recovering
from agiledart_node.wire.change_messages import MOVE, SCALE, Wish
from agiledart_node.wire.formation_messages import AskReports, Load
from agiledart_node.wire.formation_messages import Reports as ReportsOf
from agiledart_recovery.lives.coordinator import Coordinator
from agiledart_recovery.wire.names import Run
from agiledart_recovery.wire.value import Change, Fate, Value
from agiledart_scaling.asking import ask
from agiledart_scaling.controller import Controller, Interval
from agiledart_scaling.one_pass import Kind, Proposal
from agiledart_scaling.registry import policy_named

TIMER: Final = ("node", "scaling")

LONGEST_REASON: Final = 200

Reports = dict[tuple[int, int], dict[str, Any]]


class Requests(Protocol):
    """Whom changes are asked of: see `recovering.change_requests`."""

    async def request(self, run: Run, wishes: Sequence[Wish], reason: str) -> tuple[Change, ...]:
        """Have stages changed, all in one barrier; empty: all is so already. Raises CommandRefused, TopologyError."""
        ...

    async def settled(self, run: Run, changes: Sequence[Change]) -> tuple[Change, ...]:
        """The same when it is known what became of them."""
        ...

    def under_way(self, run: Run) -> tuple[Change, ...]:
        """What changes now."""
        ...


Loads = Callable[[list[Peer], int], Any]


@dataclass(slots=True)
class Steered:
    """One run that scales itself.

    Attributes:
        is_asked: its hosts are being asked, or a change of it is under way that was asked for here.
    """

    controller: Controller
    is_asked: bool = False


class SelfScaling:
    """The controllers of the runs that this node coordinates.

    Args:
        loads: asks nodes how much they run.

    Attributes:
        clock: instants by which a policy is found late; a driver with a real clock sets it.
    """

    def __init__(self, desk: Desk, records: Records, recovering: Recovering, requests: Requests, loads: Loads) -> None:
        self._desk, self._records, self._recovering = desk, records, recovering
        self._requests, self._loads = requests, loads
        self._steered: dict[Run, Steered] = {}
        self._is_looking = False
        self._policy = policy_named(desk.config.scaling_policy)
        self.clock: Callable[[], int] = lambda: 0

    def look(self) -> None:
        """Does this node coordinate something that scales itself? Then it is decided on, from now on once per interval."""
        if not self._is_looking and self._led():
            self._begin()

    def _led(self) -> dict[Run, Coordinator]:
        """Runs with limits that this node coordinates."""
        coordinators = self._recovering.machine.coordinators
        led = {run: one for run, one in coordinators.items() if _leads(one)}
        return {run: one for run, one in led.items() if any(stage.scales for stage in self._stages(one.value))}

    def _begin(self) -> None:
        self._is_looking = True
        self._desk.emit(SetTimer(TIMER, Instant(self._desk.now + self._desk.config.scaling_interval_ns)))

    def on_timer(self) -> None:
        """An interval has ended."""
        led, self._is_looking = self._led(), False
        for run in tuple(self._steered):
            if run not in led:
                del self._steered[run]
        for run in led:
            steered = self._steered.setdefault(run, Steered(Controller(self._ask)))
            if not steered.is_asked and not self._desk.talks.is_full:
                steered.is_asked = True
                self._desk.talks.begin(self._interval(run, steered))
        if led:
            self._begin()

    def standings(self, run: Run) -> tuple[dict[str, object], ...]:
        """What the controller of a run says of each stage, as `RecoveryIs` carries it; empty where there is none."""
        steered = self._steered.get(run)
        if steered is None:
            return ()
        return tuple(
            {
                "stage": name,
                "wanted": one.proposal.wanted,
                "why": one.proposal.why[:LONGEST_REASON],
                "waits_for": one.waits_for[:LONGEST_REASON],
                "f": one.proposal.terms.get("f"),
            }
            for name, one in steered.controller.standings.items()
        )

    def scores(self) -> tuple[tuple[str, str, float], ...]:
        """(application, stage, health score) of what is known, for metrics."""
        return tuple(
            (run.app, name, score)
            for run, steered in self._steered.items()
            for name, one in steered.controller.standings.items()
            if (score := one.proposal.terms.get("f")) is not None
        )

    def instances(self) -> tuple[tuple[str, str, int], ...]:
        """(application, stage, instances) of all stages with limits, for metrics."""
        return tuple(
            (run.app, stage.name, stage.parallelism)
            for run, one in self._led().items()
            for stage in self._stages(one.value)
            if stage.scales
        )

    @staticmethod
    def _stages(value: Value) -> tuple[Stage, ...]:
        """None of a run that a version founded which did not keep them."""
        try:
            return stage_plan_of(value).stages
        except CommandRefused:
            return ()

    def _ask(self, measures: Any, limits: Any, memory: object) -> Any:
        return ask(self._desk.config.scaling_policy, self._policy, measures, limits, memory, self.clock)

    async def _interval(self, run: Run, steered: Steered) -> None:
        try:
            await self._decided(run, steered)
        finally:
            steered.is_asked = False

    async def _decided(self, run: Run, steered: Steered) -> None:
        try:
            _, record = await self._records.application(run.app)
        except CommandRefused:
            return  # the ring is away; the next interval finds it again
        coordinator = self._recovering.machine.coordinators.get(run)
        if record is None or record.version != run.version or record.state != RUNNING or record.stopping:
            return
        if coordinator is None or not _leads(coordinator):
            return
        reports = await self._reports(run, coordinator.value)
        if not _leads(coordinator):
            return
        plan = stage_plan_of(coordinator.value)
        interval = Interval(
            stage_states(plan, reports, record.held),
            {stage.name: stage.parallelism for stage in plan.stages},
            self._under_way(run, coordinator),
            self._quota(),
        )
        orders = steered.controller.ended(interval)
        if orders:
            await self._request(run, steered.controller, orders)

    async def _request(self, run: Run, controller: Controller, orders: tuple[Proposal, ...]) -> None:
        while orders:
            reason = f"{self._desk.config.scaling_policy}: " + "; ".join(dict.fromkeys(one.why for one in orders))
            try:
                changes = await self._requests.request(run, await self._wishes(run, orders), reason[:LONGEST_REASON])
            except NoRoom as refusal:
                orders = controller.refused(refusal.text, for_room=True)
            except CommandRefused as refusal:
                orders = controller.refused(refusal.text)
            except TopologyError as error:
                orders = controller.refused(str(error))
            else:
                controller.taken()
                await self._settle(run, controller, changes)
                return

    async def _settle(self, run: Run, controller: Controller, changes: tuple[Change, ...]) -> None:
        try:
            fates = await self._requests.settled(run, changes) if changes else ()
        except CommandRefused as refusal:
            controller.settled(refusal.text)
            return
        failed = [one for one in fates if one.fate is not Fate.DONE]
        controller.settled(f"{failed[0].fate.value}: {failed[0].why}" if failed else "")

    async def _wishes(self, run: Run, orders: Sequence[Proposal]) -> list[Wish]:
        """What is asked for, as requests say it."""
        wishes = []
        for one in orders:
            if one.kind is Kind.STRAGGLER:
                name = f"{one.stage}.{one.slow_instance}"
                wishes.append(Wish(MOVE, name, node=(await self._other_place(run, one)).node))
            elif one.kind in (Kind.GROW, Kind.SHRINK):
                wishes.append(Wish(SCALE, one.stage, one.instances))
        if not wishes:
            raise CommandRefused(f"{orders[0].kind.value}: agents do not do that yet")
        return wishes

    async def _other_place(self, run: Run, one: Proposal) -> Peer:
        """Where a slow instance goes: the node with the most room that is not its own. Raises CommandRefused."""
        value = self._recovering.machine.coordinators[run].value
        stage = stage_plan_of(value).stage_named(one.stage)
        here = value.plan.stage(str(stage.index))[one.slow_instance or 0].host.node
        loads = await self._loads(list(self._desk.known()), self._desk.config.report_timeout_ns)
        free: list[tuple[int, Peer]] = []
        for node, (peer, load) in loads.items():
            room = _room_of(load)
            if node != here and room > 0:
                free.append((room, peer))
        if not free:
            raise CommandRefused(f"No other node has room for instance {one.slow_instance} of {one.stage}.")
        return max(free, key=lambda pair: (pair[0], -int(pair[1].node)))[1]

    def _under_way(self, run: Run, coordinator: Coordinator) -> str:
        if coordinator.progress.since is not None:
            return "it is being brought back"
        changes = self._requests.under_way(run)
        return f"a {changes[0].kind} is under way" if changes else ""

    def _quota(self) -> int | None:
        """Instances that one application may have: so many on each node."""
        most = self._desk.config.max_instances
        return most * len(self._desk.known()) if most else None

    async def _reports(self, run: Run, value: Value) -> Reports:
        """Figures of all instances of the committed plan, as far as their hosts answer."""
        hosts: dict[Any, Peer] = value.plan.hosts
        held = {node: {copy_of(each.party) for each in value.plan.at(node)} for node in hosts}
        answers = await self._desk.talks.ask_all(
            list(hosts.values()),
            lambda number, _: AskReports(number, run.app, run.version),
            ReportsOf,
            Duration(self._desk.config.report_timeout_ns),
        )
        reports: Reports = {}
        for peer, answer in answers:
            for key, report in answer.reports.items() if answer is not None else ():
                copy = report_copy(key)
                if copy is not None and copy in held.get(peer.node, ()) and isinstance(report, dict):
                    reports[copy] = report
        return reports


def _leads(coordinator: Coordinator) -> bool:
    return coordinator.is_at_work and coordinator.proposer.value is not None and not coordinator.is_over


def _room_of(load: Load) -> int:
    return 0 if load.is_draining else max(0, load.capacity - load.operators)
