"""Requests to the coordinator of a run: other numbers, other places, a node left. One change of a run at a time.

Whoever wants something (a user's verb, a policy, a re-placement) asks with wishes; all wishes of one request take place in one
barrier, or none does. The register decides what becomes of it, so the answer only says that it is under way; `settled` waits.

    room is asked for → the plan is made of the newest value → recovery is asked (`lives/changing.py`)
"""

from collections.abc import Awaitable, Callable, Sequence
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
from agiledart_node.records.permission_checks import check
from agiledart_node.records.records import Records
from agiledart_node.recovery.change_plans import NodeCapacity, drained, moved, scaled, stage_plan_of
from agiledart_node.recovery.recovery_service import RecoveryService
from agiledart_node.wire.change_messages import MOVE, SCALE, ChangeAccepted, ChangeRequest, RequestChange
from agiledart_node.wire.commands import VERB_BY_COMMAND, MoveStage, ScaleStage
from agiledart_node.wire.formation_messages import NodeLoad
from agiledart_recovery.attempts.coordinator import Coordinator
from agiledart_recovery.attempts.generation_change import running
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import ChangeOutcome, Plan, RegisterValue, StageChange

MAX_ASKED: Final = 32
"""Nodes that are asked for room, hosts of the run before all."""


_POLL_INTERVAL: Final = Duration(100 * MILLISECOND)

Loads = Callable[[list[Peer], int], Awaitable[dict[NodeId, tuple[Peer, NodeLoad]]]]


class NotCoordinated(CommandRefused):
    """Another node coordinates the run, or nobody does now."""


class ChangeRequests:
    """What is wanted of runs that this node coordinates.

    Args:
        loads: asks nodes how much they run; the silent ones are missing.
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

    # ---- for whoever is at the coordinator's node

    async def request(self, run: RunId, wishes: Sequence[ChangeRequest], reason: str) -> tuple[StageChange, ...]:
        """Have stages changed, all in one barrier. What is under way then; empty: all is so already.

        Args:
            reason: who wants it, or why, as `explain scaling` shows it.

        Raises:
            NotCoordinated: this node does not coordinate the run.
            TopologyError: a stage or a number that there is not.
            CommandRefused: another change is under way, no room, or whatever else stands in its way.
        """
        value = self._coordinator_of(run).value
        capacities = await self._capacities(value, wishes)
        value = self._coordinator_of(run).value  # the newest: others may have changed it meanwhile
        self._refuse_second(run)
        plan = plan_for(value, wishes, capacities, reason)
        if plan is None:
            return ()
        why = self._recovery_service.change(run, plan)
        if why:
            raise CommandRefused(f"{run.app} can't be changed now: {why}. Try again when that is over.")
        return plan.changes

    async def finalised(self, run: RunId, changes: Sequence[StageChange]) -> tuple[StageChange, ...]:
        """The same changes when it is decided what became of them.

        Raises:
            NotCoordinated: another node coordinates the run now; that one knows.
        """
        names = [change.name for change in changes]
        while True:
            found = [one for one in self._coordinator_of(run).value.changes if one.name in names]
            if len(found) == len(names) and all(one.fate is not ChangeOutcome.RUNNING for one in found):
                return tuple(found)
            await self._context.requests.pause(_POLL_INTERVAL)

    def running_changes(self, run: RunId) -> tuple[StageChange, ...]:
        """What changes now; empty: nothing, or this node does not coordinate the run."""
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
            what = " and ".join(f"{one.kind} of {names.get(one.stage, one.stage)}" for one in changes)
            by = f" ({changes[0].reason})" if changes[0].reason else ""
            age = coordinator.commit_protocol.generation_change.age_ns
            since = f" since {age / SECOND:.0f} s" if age else ""
            raise CommandRefused(
                f"{run.app} changes now: {what}{by} is under way{since}. Try again when it is done; look at"
                f" agiledart explain scaling {run.app}."
            )

    async def _capacities(self, value: RegisterValue, wishes: Sequence[ChangeRequest]) -> list[NodeCapacity]:
        """Nodes with what room they have: hosts first, then the nearest; those that are wished for among them."""
        known = {peer.node: peer for peer in self._context.known()}
        asked = {node: known.get(node, peer) for node, peer in value.plan.hosts.items()}
        for wish in wishes:
            if wish.node in known:
                asked[wish.node] = known[wish.node]
        for peer in self._context.nearest_of(self._context.known()):
            if len(asked) < MAX_ASKED:
                asked.setdefault(peer.node, peer)
        loads = await self._loads(list(asked.values()), self._context.config.report_timeout_ns)
        return [
            NodeCapacity(
                peer,
                0 if load.is_draining else max(0, load.capacity - load.operators),
                load.is_draining,
                load.max_executors,
            )
            for peer, load in (loads[node] for node in asked if node in loads)
        ]

    # ---- for other nodes

    async def asked(self, sender: Peer, message: RequestChange) -> None:
        """A user's wish, brought by the agent that was asked."""
        if self._once.is_new(sender, message.request):
            await self._once.send_reply(sender, message.request, self._answer(message))

    async def _answer(self, message: RequestChange) -> ChangeAccepted:
        run, number = RunId(message.application, message.version), message.request
        try:
            self._coordinator_of(run)
            by = await self._requester(message)
            wish = self._wish(message.command)
            changes = await self.request(run, [wish], f"asked by {by}" if by else "asked by a user")
        except NotCoordinated as refusal:
            return ChangeAccepted(number, (), refusal.text, is_not_coordinator=True)
        except CommandRefused as refusal:
            if isinstance(refusal, NotAllowed):
                self._context.drop(f"order: {refusal.reason}")
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
        """Who gave the order, for people. Raises NotAllowed: the agent that brings it is not believed."""
        command = message.command
        principal, by = self._verifier.given(message.signed_command, command, Principal(), message.submitter)
        _, record = await self._records.application(message.application)
        if self._verifier.requires_signatures:
            check(principal, VERB_BY_COMMAND[type(command)], message.application, record)
        if command.name != message.application:
            raise NotAllowed("order", f"The order is for {command.name}, not for {message.application}.")
        return by


def plan_for(
    value: RegisterValue, wishes: Sequence[ChangeRequest], capacities: Sequence[NodeCapacity], reason: str
) -> Plan | None:
    """The plan in which all wishes are fulfilled, in one barrier; None when they are.

    Raises:
        TopologyError, CommandRefused: as of `change_plans`.
    """
    now = value
    changes: list[StageChange] = []
    left = list(capacities)
    for wish in wishes:
        plan = _one(now, wish, left, reason)
        if plan is not None:
            left = [_with_plan(each, now.plan, plan) for each in left]
            changes += plan.changes
            now = msgspec.structs.replace(now, plan=plan)
    return msgspec.structs.replace(now.plan, changes=tuple(changes)) if changes else None


def _with_plan(capacities: NodeCapacity, before: Plan, after: Plan) -> NodeCapacity:
    """The room of a node when a plan follows another one."""
    node = capacities.peer.node
    free = 0 if capacities.is_closed else max(0, capacities.free + len(before.at(node)) - len(after.at(node)))
    return NodeCapacity(capacities.peer, free, capacities.is_closed, capacities.executors)


def _one(value: RegisterValue, wish: ChangeRequest, capacities: Sequence[NodeCapacity], reason: str) -> Plan | None:
    if wish.kind == SCALE:
        return scaled(value, wish.stage, wish.number, capacities, reason)
    there = next((each for each in capacities if each.peer.node == wish.node), None)
    if wish.kind == MOVE:
        if there is None:
            raise CommandRefused(f"Node {wish.node.short} does not answer. Look at agiledart nodes.")
        return moved(value, wish.stage, there, reason)
    return drained(value, wish.node, capacities, reason)
