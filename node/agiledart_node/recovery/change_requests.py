"""Requests to change a run's stages, at its coordinator: another number of instances, other hosts, a node drained.

A run has one change at a time. The requester (a user's command, a policy, a re-placement) sends change requests; all of them take
effect in one barrier, or none does. The register decides the outcome, so the answer only says that the change has started;
`finalised` waits for the outcome.

    ask nodes for capacity → make the plan from the newest value → request the change from recovery
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from agiledart_kernel.errors import TopologyError
from agiledart_kernel.instants import MILLISECOND, SECOND, Duration
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_node.context.idempotent_replies import IdempotentReplies
from agiledart_node.context.node_context import CommandRefused, NodeContext, NotAllowed
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.measured_delays import measured_delays_ms
from agiledart_node.records.permission_checks import check
from agiledart_node.records.records import Records
from agiledart_node.recovery.change_plans import (
    NodeCapacity,
    drained,
    move_targets,
    moved,
    relocated,
    scaled,
    stage_plan_of,
)
from agiledart_node.recovery.recovery_service import RecoveryService
from agiledart_node.wire.change_messages import MOVE, SCALE, ChangeAccepted, ChangeRequest, RequestChange
from agiledart_node.wire.commands import VERB_BY_COMMAND, MoveStage, ScaleStage
from agiledart_node.wire.formation_messages import NodeLoad
from agiledart_recovery.attempts.coordinator import Coordinator
from agiledart_recovery.attempts.generation_change import running
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import ChangeOutcome, Plan, RegisterValue, StageChange

MAX_ASKED: Final = 32
"""Nodes that are asked for capacity; the hosts of the run come first."""


_POLL_INTERVAL: Final = Duration(100 * MILLISECOND)

Loads = Callable[[list[Peer], int], Awaitable[dict[NodeId, tuple[Peer, NodeLoad]]]]


class NotCoordinated(CommandRefused):
    """Refusal because another node coordinates the run, or no node does now."""


class ChangeRequests:
    """Requests to change runs that this node coordinates.

    Args:
        loads: asks nodes for their load; nodes that do not answer are missing from the result.
    """

    def __init__(
        self,
        context: NodeContext,
        records: Records,
        recovery_service: RecoveryService,
        verifier: CommandVerifier,
        loads: Loads,
    ) -> None:
        self._context, self._records, self._recovery_service = context, records, recovery_service
        self._verifier, self._loads = verifier, loads
        self._once = IdempotentReplies(context)

    # ---- for callers on the coordinator's node

    async def request(self, run: RunId, wishes: Sequence[ChangeRequest], reason: str) -> tuple[StageChange, ...]:
        """Start changes of stages, all in one barrier. Return the changes that have started; empty: nothing is to change.

        Args:
            reason: requester or cause of the change, as `explain scaling` shows it.

        Raises:
            NotCoordinated: this node does not coordinate the run.
            TopologyError: there is no such stage, or it cannot have that number.
            CommandRefused: another change is under way, a node lacks capacity, or something else prevents it.
        """
        value = self._coordinator_of(run).value
        capacities = await self._capacities(value, wishes)
        value = self._coordinator_of(run).value  # the newest: others may have changed it meanwhile
        self._refuse_second(run)
        plan = plan_for(value, wishes, capacities, reason)
        if plan is None:
            return ()
        refusal = self._recovery_service.change(run, plan)
        if refusal:
            raise CommandRefused(f"{run.app} can't be changed now: {refusal}. Try again when that is over.")
        return plan.changes

    async def finalised(self, run: RunId, changes: Sequence[StageChange]) -> tuple[StageChange, ...]:
        """Return the same changes once their outcome is decided.

        Raises:
            NotCoordinated: another node coordinates the run now, and knows the outcome.
        """
        names = [change.name for change in changes]
        while True:
            current = [change for change in self._coordinator_of(run).value.changes if change.name in names]
            if len(current) == len(names) and all(change.fate is not ChangeOutcome.RUNNING for change in current):
                return tuple(current)
            await self._context.requests.pause(_POLL_INTERVAL)

    def running_changes(self, run: RunId) -> tuple[StageChange, ...]:
        """Return the changes under way; empty when there are none, or this node does not coordinate the run."""
        coordinator = self._recovery_service.machine.coordinators.get(run)
        if coordinator is None or not coordinator.is_coordinating or coordinator.proposer.value is None:
            return ()
        return coordinator.commit_protocol.generation_change.plan.changes or running(coordinator.value)

    def _coordinator_of(self, run: RunId) -> Coordinator:
        coordinator = self._recovery_service.machine.coordinators.get(run)
        if coordinator is None or not coordinator.is_coordinating or coordinator.proposer.value is None:
            raise NotCoordinated(f"{run.app} is not coordinated by {self._context.me.name}.")
        return coordinator

    def _refuse_second(self, run: RunId) -> None:
        changes = self.running_changes(run)
        if changes:
            coordinator = self._coordinator_of(run)
            names = {str(stage.index): stage.name for stage in stage_plan_of(coordinator.value).stages}
            description = " and ".join(
                f"{change.kind} of {names.get(change.stage, change.stage)}" for change in changes
            )
            by = f" ({changes[0].reason})" if changes[0].reason else ""
            age = coordinator.commit_protocol.generation_change.age_ns
            since = f" since {age / SECOND:.0f} s" if age else ""
            raise CommandRefused(
                f"{run.app} changes now: {description}{by} is under way{since}. Try again when it is done; see"
                f" agiledart explain scaling {run.app}."
            )

    async def _capacities(self, value: RegisterValue, wishes: Sequence[ChangeRequest]) -> list[NodeCapacity]:
        """Return nodes with their free capacity: hosts first, then the nearest, always including the requested ones."""
        known = {peer.node: peer for peer in self._context.known()}
        asked = {node: known.get(node, peer) for node, peer in value.plan.hosts.items()}
        for request in wishes:
            if request.node in known:
                asked[request.node] = known[request.node]
        for peer in self._context.nearest_of(self._context.known()):
            if len(asked) < MAX_ASKED:
                asked.setdefault(peer.node, peer)
        loads = await self._loads(list(asked.values()), self._context.config.report_timeout_ns)
        delays = measured_delays_ms(loads)
        return [
            NodeCapacity(
                peer,
                0 if load.is_draining else max(0, load.capacity - load.operators),
                load.is_draining,
                load.max_executors,
                load.labels,
                {other: delay for (here, other), delay in delays.items() if here == peer.node},
            )
            for peer, load in (loads[node] for node in asked if node in loads)
        ]

    # ---- requests of other nodes

    async def asked(self, sender: Peer, message: RequestChange) -> None:
        """Carry out a user's change request that the user's agent forwards."""
        if self._once.is_new(sender, message.request):
            await self._once.send_reply(sender, message.request, self._answer(message))

    async def _answer(self, message: RequestChange) -> ChangeAccepted:
        run, number = RunId(message.application, message.version), message.request
        try:
            self._coordinator_of(run)
            by = await self._requester(message)
            request = self._wish(message.command)
            changes = await self.request(run, [request], f"asked by {by}" if by else "asked by a user")
        except NotCoordinated as refusal:
            return ChangeAccepted(number, (), refusal.text, is_not_coordinator=True)
        except CommandRefused as refusal:
            if isinstance(refusal, NotAllowed):
                self._context.drop(f"command: {refusal.reason}")
            return ChangeAccepted(number, (), refusal.text, refusal.exit_code)
        except TopologyError as error:
            return ChangeAccepted(number, (), str(error), 2)
        return ChangeAccepted(number, tuple(change.name for change in changes))

    def _wish(self, command: ScaleStage | MoveStage) -> ChangeRequest:
        if isinstance(command, ScaleStage):
            return ChangeRequest(SCALE, command.stage, command.number)
        node = self._context.node_named(command.node).node
        return ChangeRequest(MOVE, command.stage, node=node)

    async def _requester(self, message: RequestChange) -> str:
        """Return the requester's name for people. Raises NotAllowed: the forwarding agent could not prove the command."""
        command = message.command
        principal, by = self._verifier.identify_requester(
            message.signed_command, command, Principal(), message.submitter
        )
        _, record = await self._records.application(message.application)
        if self._verifier.requires_signatures:
            check(principal, VERB_BY_COMMAND[type(command)], message.application, record)
        if command.name != message.application:
            raise NotAllowed("command", f"The signed command is for {command.name}, not for {message.application}.")
        return by


def plan_for(
    value: RegisterValue, wishes: Sequence[ChangeRequest], capacities: Sequence[NodeCapacity], reason: str
) -> Plan | None:
    """Return the plan that fulfils all requests in one barrier; None when they are fulfilled already.

    Raises:
        TopologyError, CommandRefused: as the functions of `change_plans`.
    """
    if len(wishes) > 1 and all(wish.kind == MOVE for wish in wishes):
        # Together, so that a stage gets one new generation, and rules judge the whole.
        targets: dict[tuple[int, int], NodeCapacity] = {}
        for wish in wishes:
            targets.update(move_targets(value, wish.stage, _target(wish, capacities)))
        return relocated(value, targets, value.run.app, reason, capacities)
    current = value
    changes: list[StageChange] = []
    remaining = list(capacities)
    for request in wishes:
        plan = _one(current, request, remaining, reason)
        if plan is not None:
            remaining = [_with_plan(capacity, current.plan, plan) for capacity in remaining]
            changes += plan.changes
            current = msgspec.structs.replace(current, plan=plan)
    return msgspec.structs.replace(current.plan, changes=tuple(changes)) if changes else None


def _with_plan(capacity: NodeCapacity, before: Plan, after: Plan) -> NodeCapacity:
    """Return the free capacity of a node after a plan replaces another one."""
    node = capacity.peer.node
    free = 0 if capacity.is_closed else max(0, capacity.free + len(before.at(node)) - len(after.at(node)))
    return replace(capacity, free=free)


def _one(value: RegisterValue, request: ChangeRequest, capacities: Sequence[NodeCapacity], reason: str) -> Plan | None:
    if request.kind == SCALE:
        open_to_more = [
            replace(capacity, free=0) if capacity.peer.node == request.node else capacity for capacity in capacities
        ]
        return scaled(value, request.stage, request.number, open_to_more, reason)
    if request.kind == MOVE:
        return moved(value, request.stage, _target(request, capacities), reason, capacities)
    return drained(value, request.node, capacities, reason)


def _target(request: ChangeRequest, capacities: Sequence[NodeCapacity]) -> NodeCapacity:
    target = next((capacity for capacity in capacities if capacity.peer.node == request.node), None)
    if target is None:
        raise CommandRefused(f"Node {request.node.short} does not answer. Look at agiledart nodes.")
    return target
