"""Autoscaling of the runs that this node coordinates. Once per interval it asks their hosts and decides for all stages at once.

    reports of the hosts → measures of each stage → the controller → one request with all changes → their outcome

A controller's memory is lost with it: the next coordinator watches anew, which only costs time. A number set by a user is in the
application's record, because it must not be lost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from agiledart_dataflow.plan.stage_plan import Stage
from agiledart_kernel.errors import TopologyError
from agiledart_kernel.instants import Duration, Instant
from agiledart_kernel.machine import SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.hosting.hosted_application import report_copy
from agiledart_node.records.application import RUNNING
from agiledart_node.records.measured_delays import measured_delays_ms
from agiledart_node.records.records import Records
from agiledart_node.records.stage_rules import broken_rule
from agiledart_node.recovery.change_plans import (
    InsufficientNodeCapacity,
    NodeCapacity,
    best_place,
    occupied_nodes,
    stage_plan_of,
)
from agiledart_node.recovery.recovery_service import RecoveryService
from agiledart_node.recovery.register_bootstrap import copy_of
from agiledart_node.user_commands.scaling_advice import stage_states
from agiledart_node.wire.change_messages import MOVE, SCALE, ChangeRequest
from agiledart_node.wire.formation_messages import NodeLoad, QueryReports
from agiledart_node.wire.formation_messages import Reports as ReportsOf
from agiledart_recovery.attempts.coordinator import Coordinator
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import ChangeOutcome, RegisterValue, StageChange
from agiledart_scaling.ask_policy import ask
from agiledart_scaling.controller import Controller, Interval
from agiledart_scaling.one_pass import ChangeKind, Proposal
from agiledart_scaling.registry import policy_named

TIMER: Final = ("node", "scaling")

LONGEST_REASON: Final = 200

Reports = dict[tuple[int, int], dict[str, Any]]


class ChangeRequester(Protocol):
    """Interface of `recovery.change_requests`, which starts the changes."""

    async def request(self, run: RunId, wishes: Sequence[ChangeRequest], reason: str) -> tuple[StageChange, ...]:
        """Start changes of stages, all in one barrier. Return them; empty: nothing is to change.

        Raises:
            CommandRefused, TopologyError: they cannot start.
        """
        ...

    async def finalised(self, run: RunId, changes: Sequence[StageChange]) -> tuple[StageChange, ...]:
        """Return the same changes once their outcome is known."""
        ...

    def running_changes(self, run: RunId) -> tuple[StageChange, ...]:
        """Return the changes under way."""
        ...


Loads = Callable[[list[Peer], int], Any]


@dataclass(slots=True)
class AutoscaledRun:
    """One autoscaled run.

    Attributes:
        is_busy: whether its hosts are being asked, or a change that the autoscaler requested is under way.
    """

    controller: Controller
    is_busy: bool = False


class Autoscaler:
    """Controllers of the runs that this node coordinates.

    Args:
        loads: asks nodes for their load.

    Attributes:
        clock: returns instants that show whether a policy is late; a driver with a real clock sets it.
    """

    def __init__(
        self,
        context: NodeContext,
        records: Records,
        recovery_service: RecoveryService,
        requests: ChangeRequester,
        loads: Loads,
    ) -> None:
        self._context, self._records, self._recovery_service = context, records, recovery_service
        self._requests, self._loads = requests, loads
        self._autoscaled_runs: dict[RunId, AutoscaledRun] = {}
        self._is_looking = False
        self._policy = policy_named(context.config.scaling_policy)
        self.clock: Callable[[], int] = lambda: 0

    def look(self) -> None:
        """Start the interval timer if this node coordinates a run with autoscaled stages."""
        if not self._is_looking and self._coordinated_runs():
            self._begin()

    def _coordinated_runs(self) -> dict[RunId, Coordinator]:
        """Return the runs with scaling limits that this node coordinates."""
        coordinators = self._recovery_service.machine.coordinators
        coordinated = {run: coordinator for run, coordinator in coordinators.items() if coordinates(coordinator)}
        return {
            run: coordinator
            for run, coordinator in coordinated.items()
            if any(stage.scales for stage in self._stages(coordinator.value))
        }

    def _begin(self) -> None:
        self._is_looking = True
        self._context.emit(SetTimer(TIMER, Instant(self._context.now + self._context.config.scaling_interval_ns)))

    def on_timer(self) -> None:
        """Begin a decision for each coordinated run at the end of an interval."""
        coordinated, self._is_looking = self._coordinated_runs(), False
        for run in tuple(self._autoscaled_runs):
            if run not in coordinated:
                del self._autoscaled_runs[run]
        for run in coordinated:
            autoscaled_run = self._autoscaled_runs.setdefault(run, AutoscaledRun(Controller(self._ask)))
            if not autoscaled_run.is_busy and not self._context.requests.is_full:
                autoscaled_run.is_busy = True
                self._context.requests.begin(self._run_interval(run, autoscaled_run))
        if coordinated:
            self._begin()

    def statuses(self, run: RunId) -> tuple[dict[str, object], ...]:
        """Return the controller's status of each stage, as `RecoveryStatus` carries it; empty without a controller."""
        autoscaled_run = self._autoscaled_runs.get(run)
        if autoscaled_run is None:
            return ()
        return tuple(
            {
                "stage": name,
                "wanted": status.proposal.wanted,
                "why": status.proposal.why[:LONGEST_REASON],
                "waits_for": status.waits_for[:LONGEST_REASON],
                "f": status.proposal.terms.get("f"),
                "terms": dict(status.proposal.terms),
            }
            for name, status in autoscaled_run.controller.statuses.items()
        )

    def scores(self) -> tuple[tuple[str, str, float], ...]:
        """Return (application, stage, health score) of all known stages, for metrics."""
        return tuple(
            (run.app, name, score)
            for run, autoscaled_run in self._autoscaled_runs.items()
            for name, status in autoscaled_run.controller.statuses.items()
            if (score := status.proposal.terms.get("f")) is not None
        )

    def instances(self) -> tuple[tuple[str, str, int], ...]:
        """Return (application, stage, instances) of all stages with limits, for metrics."""
        return tuple(
            (run.app, stage.name, stage.parallelism)
            for run, coordinator in self._coordinated_runs().items()
            for stage in self._stages(coordinator.value)
            if stage.scales
        )

    @staticmethod
    def _stages(value: RegisterValue) -> tuple[Stage, ...]:
        """Return the stages; none of a run whose register an older version bootstrapped, which did not store them."""
        try:
            return stage_plan_of(value).stages
        except CommandRefused:
            return ()

    def _ask(self, measures: Any, limits: Any, memory: object) -> Any:
        return ask(self._context.config.scaling_policy, self._policy, measures, limits, memory, self.clock)

    async def _run_interval(self, run: RunId, autoscaled_run: AutoscaledRun) -> None:
        try:
            await self._decide(run, autoscaled_run)
        finally:
            autoscaled_run.is_busy = False

    async def _decide(self, run: RunId, autoscaled_run: AutoscaledRun) -> None:
        try:
            _, record = await self._records.application(run.app)
        except CommandRefused:
            return  # the ring did not answer; the next interval tries again
        coordinator = self._recovery_service.machine.coordinators.get(run)
        if record is None or record.version != run.version or record.state != RUNNING or record.stopping:
            return
        if coordinator is None or not coordinates(coordinator):
            return
        config = self._context.config
        # A host behind a full link answers late, and it is the one that matters.
        timeout_ns = max(config.report_timeout_ns, config.scaling_interval_ns // 2)
        reports = await hosts_reports(self._context, run, coordinator.value, timeout_ns)
        if not coordinates(coordinator):
            return
        plan = stage_plan_of(coordinator.value)
        interval = Interval(
            stage_states(plan, reports, record.held),
            {stage.name: stage.parallelism for stage in plan.stages},
            self._obstacle(run, coordinator),
            self._quota(),
        )
        proposals = autoscaled_run.controller.ended(interval)
        if proposals:
            await self._request(run, autoscaled_run.controller, proposals)

    async def _request(self, run: RunId, controller: Controller, proposals: tuple[Proposal, ...]) -> None:
        while proposals:
            reason = f"{self._context.config.scaling_policy}: " + "; ".join(
                dict.fromkeys(proposal.why for proposal in proposals)
            )
            try:
                changes = await self._requests.request(
                    run, await self._change_wishes(run, proposals), reason[:LONGEST_REASON]
                )
            except InsufficientNodeCapacity as refusal:
                proposals = controller.refused(refusal.text, for_capacity=True)
            except CommandRefused as refusal:
                proposals = controller.refused(refusal.text)
            except TopologyError as error:
                proposals = controller.refused(str(error))
            else:
                controller.taken()
                await self._await_outcome(run, controller, changes)
                return

    async def _await_outcome(self, run: RunId, controller: Controller, changes: tuple[StageChange, ...]) -> None:
        try:
            outcomes = await self._requests.finalised(run, changes) if changes else ()
        except CommandRefused as refusal:
            controller.finalised(refusal.text)
            return
        failed = [outcome for outcome in outcomes if outcome.fate is not ChangeOutcome.DONE]
        controller.finalised(f"{failed[0].fate.value}: {failed[0].why}" if failed else "")

    async def _change_wishes(self, run: RunId, proposals: Sequence[Proposal]) -> list[ChangeRequest]:
        """Return the proposals as change requests."""
        wishes = []
        for proposal in proposals:
            if proposal.kind in (ChangeKind.STRAGGLER, ChangeKind.MOVE):
                name = f"{proposal.stage}.{proposal.slow_instance}"
                wishes.append(ChangeRequest(MOVE, name, node=(await self._other_place(run, proposal)).node))
            elif proposal.kind in (ChangeKind.GROW, ChangeKind.SHRINK):
                behind = self._host_behind_full_link(run, proposal)
                wishes.append(ChangeRequest(SCALE, proposal.stage, proposal.instances, behind))
        if not wishes:
            raise CommandRefused(f"{proposals[0].kind.value}: this version cannot carry it out")
        return wishes

    def _host_behind_full_link(self, run: RunId, proposal: Proposal) -> NodeId:
        """Return the node that gets no further instance because its link is full; 0: there is none."""
        if proposal.kind is not ChangeKind.GROW or proposal.slow_instance is None:
            return NodeId(0)
        value = self._recovery_service.machine.coordinators[run].value
        stage = stage_plan_of(value).stage_named(proposal.stage)
        return value.plan.stage(str(stage.index))[proposal.slow_instance].host.node

    async def _other_place(self, run: RunId, proposal: Proposal) -> Peer:
        """Return the node for an instance that is slow, or behind a full link.

        It is the best one that rules allow, and not its host; see `best_place`.

        Raises:
            CommandRefused: there is none.
        """
        value = self._recovery_service.machine.coordinators[run].value
        plan, index = stage_plan_of(value), proposal.slow_instance or 0
        stage = plan.stage_named(proposal.stage)
        here = value.plan.stage(str(stage.index))[index].host.node
        loads = await self._loads(list(self._context.known()), self._context.config.report_timeout_ns)
        delays = measured_delays_ms(loads)
        nodes = [
            NodeCapacity(
                peer,
                _free_capacity(load),
                load.is_draining,
                labels=load.labels,
                delays_ms={other: delay for (one_end, other), delay in delays.items() if one_end == peer.node},
            )
            for peer, load in loads.values()
        ]
        occupied = occupied_nodes(value, plan, nodes)
        free = [
            node
            for node in nodes
            if node.peer.node != here and node.free > 0 and not broken_rule(plan, stage, index, node.traits, occupied)
        ]
        if not free:
            raise CommandRefused(f"No other node has room for instance {proposal.slow_instance} of {proposal.stage}.")
        return best_place(plan, stage, index, sorted(free, key=lambda node: node.peer.node), occupied).peer

    def _obstacle(self, run: RunId, coordinator: Coordinator) -> str:
        if coordinator.progress.since is not None:
            return "it is being restarted"
        changes = self._requests.running_changes(run)
        return f"a {changes[0].kind} is under way" if changes else ""

    def _quota(self) -> int | None:
        """Return the number of instances that one application may have: the limit per node times the known nodes."""
        most = self._context.config.max_instances
        return most * len(self._context.known()) if most else None


async def hosts_reports(context: NodeContext, run: RunId, value: RegisterValue, timeout_ns: int = 0) -> Reports:
    """Return the reports of all instances of the committed plan whose hosts answer within a time; 0: the usual one."""
    hosts: dict[Any, Peer] = value.plan.hosts
    held = {node: {copy_of(assignment.instance) for assignment in value.plan.at(node)} for node in hosts}
    answers = await context.requests.ask_all(
        list(hosts.values()),
        lambda number, _: QueryReports(number, run.app, run.version),
        ReportsOf,
        Duration(timeout_ns or context.config.report_timeout_ns),
    )
    reports: Reports = {}
    for peer, answer in answers:
        for key, report in answer.reports.items() if answer is not None else ():
            copy = report_copy(key)
            if copy is not None and copy in held.get(peer.node, ()) and isinstance(report, dict):
                reports[copy] = report
    return reports


def coordinates(coordinator: Coordinator) -> bool:
    """Return whether a coordinator of this node is the one in charge of its run."""
    return coordinator.is_coordinating and coordinator.proposer.value is not None and not coordinator.is_over


def _free_capacity(load: NodeLoad) -> int:
    return 0 if load.is_draining else max(0, load.capacity - load.operators)
