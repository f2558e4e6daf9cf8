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
from agiledart_kernel.permissions import Asker
from agiledart_node.desk.answering_once import AnsweringOnce
from agiledart_node.desk.desk import CommandRefused, Desk, NotAllowed
from agiledart_node.records.allowing import check
from agiledart_node.records.order_checks import Orders
from agiledart_node.records.records import Records
from agiledart_node.recovering.change_plans import Room, drained, moved, scaled, stage_plan_of
from agiledart_node.recovering.recovering import Recovering
from agiledart_node.wire.change_messages import MOVE, SCALE, AskChange, ChangeTaken, Wish
from agiledart_node.wire.commands import VERB_BY_COMMAND, Move, Scale
from agiledart_node.wire.formation_messages import Load
from agiledart_recovery.lives.changing import running
from agiledart_recovery.lives.coordinator import Coordinator
from agiledart_recovery.wire.names import Run
from agiledart_recovery.wire.value import Change, Fate, Plan, Value

MAX_ASKED: Final = 32
"""Nodes that are asked for room, hosts of the run before all."""


_LOOK: Final = Duration(100 * MILLISECOND)

Loads = Callable[[list[Peer], int], Awaitable[dict[NodeId, tuple[Peer, Load]]]]


class NotCoordinated(CommandRefused):
    """Another node coordinates the run, or nobody does now."""


class ChangeRequests:
    """What is wanted of runs that this node coordinates.

    Args:
        loads: asks nodes how much they run; the silent ones are missing.
    """

    def __init__(self, desk: Desk, records: Records, recovering: Recovering, orders: Orders, loads: Loads) -> None:
        self._desk, self._records, self._recovering = desk, records, recovering
        self._orders, self._loads = orders, loads
        self._once = AnsweringOnce(desk)

    # ---- for whoever is at the coordinator's node

    async def request(self, run: Run, wishes: Sequence[Wish], reason: str) -> tuple[Change, ...]:
        """Have stages changed, all in one barrier. What is under way then; empty: all is so already.

        Args:
            reason: who wants it, or why, as `explain scaling` shows it.

        Raises:
            NotCoordinated: this node does not coordinate the run.
            TopologyError: a stage or a number that there is not.
            CommandRefused: another change is under way, no room, or whatever else stands in its way.
        """
        value = self._leading(run).value
        room = await self._room(value, wishes)
        value = self._leading(run).value  # the newest: others may have changed it meanwhile
        self._refuse_second(run)
        plan = plan_for(value, wishes, room, reason)
        if plan is None:
            return ()
        why = self._recovering.change(run, plan)
        if why:
            raise CommandRefused(f"{run.app} can't be changed now: {why}. Try again when that is over.")
        return plan.changes

    async def settled(self, run: Run, changes: Sequence[Change]) -> tuple[Change, ...]:
        """The same changes when it is decided what became of them.

        Raises:
            NotCoordinated: another node coordinates the run now; that one knows.
        """
        names = [change.name for change in changes]
        while True:
            found = [one for one in self._leading(run).value.changes if one.name in names]
            if len(found) == len(names) and all(one.fate is not Fate.RUNNING for one in found):
                return tuple(found)
            await self._desk.talks.pause(_LOOK)

    def under_way(self, run: Run) -> tuple[Change, ...]:
        """What changes now; empty: nothing, or this node does not coordinate the run."""
        coordinator = self._recovering.machine.coordinators.get(run)
        if coordinator is None or not coordinator.is_at_work or coordinator.proposer.value is None:
            return ()
        return coordinator.committing.changing.plan.changes or running(coordinator.value)

    def _leading(self, run: Run) -> Coordinator:
        coordinator = self._recovering.machine.coordinators.get(run)
        if coordinator is None or not coordinator.is_at_work or coordinator.proposer.value is None:
            raise NotCoordinated(f"{run.app} is not coordinated by {self._desk.me.name}.")
        return coordinator

    def _refuse_second(self, run: Run) -> None:
        changes = self.under_way(run)
        if changes:
            coordinator = self._leading(run)
            names = {str(stage.index): stage.name for stage in stage_plan_of(coordinator.value).stages}
            what = " and ".join(f"{one.kind} of {names.get(one.stage, one.stage)}" for one in changes)
            by = f" ({changes[0].reason})" if changes[0].reason else ""
            age = coordinator.committing.changing.age_ns
            since = f" since {age / SECOND:.0f} s" if age else ""
            raise CommandRefused(
                f"{run.app} changes now: {what}{by} is under way{since}. Try again when it is done; look at"
                f" agiledart explain scaling {run.app}."
            )

    async def _room(self, value: Value, wishes: Sequence[Wish]) -> list[Room]:
        """Nodes with what room they have: hosts first, then the nearest; those that are wished for among them."""
        known = {peer.node: peer for peer in self._desk.known()}
        asked = {node: known.get(node, peer) for node, peer in value.plan.hosts.items()}
        for wish in wishes:
            if wish.node in known:
                asked[wish.node] = known[wish.node]
        for peer in self._desk.nearest_of(self._desk.known()):
            if len(asked) < MAX_ASKED:
                asked.setdefault(peer.node, peer)
        loads = await self._loads(list(asked.values()), self._desk.config.report_timeout_ns)
        return [
            Room(
                peer, 0 if load.is_draining else max(0, load.capacity - load.operators), load.is_draining, load.grows_to
            )
            for peer, load in (loads[node] for node in asked if node in loads)
        ]

    # ---- for other nodes

    async def asked(self, sender: Peer, message: AskChange) -> None:
        """A user's wish, brought by the agent that was asked."""
        if self._once.is_new(sender, message.request):
            await self._once.say(sender, message.request, self._answer(message))

    async def _answer(self, message: AskChange) -> ChangeTaken:
        run, number = Run(message.application, message.version), message.request
        try:
            self._leading(run)
            by = await self._who(message)
            wish = self._wish(message.command)
            changes = await self.request(run, [wish], f"asked by {by}" if by else "asked by a user")
        except NotCoordinated as refusal:
            return ChangeTaken(number, (), refusal.text, is_elsewhere=True)
        except CommandRefused as refusal:
            if isinstance(refusal, NotAllowed):
                self._desk.drop(f"order: {refusal.reason}")
            return ChangeTaken(number, (), refusal.text, refusal.exit_code)
        except TopologyError as error:
            return ChangeTaken(number, (), str(error), 2)
        return ChangeTaken(number, tuple(change.name for change in changes))

    def _wish(self, command: Scale | Move) -> Wish:
        if isinstance(command, Scale):
            return Wish(SCALE, command.stage, command.number)
        node = self._desk.node_named(command.node).node
        return Wish(MOVE, command.stage, node=node)

    async def _who(self, message: AskChange) -> str:
        """Who gave the order, for people. Raises NotAllowed: the agent that brings it is not believed."""
        command = message.command
        asker, by = self._orders.given(message.order, command, Asker(), message.submitter)
        _, record = await self._records.application(message.application)
        if self._orders.are_signed:
            check(asker, VERB_BY_COMMAND[type(command)], message.application, record)
        if command.name != message.application:
            raise NotAllowed("order", f"The order is for {command.name}, not for {message.application}.")
        return by


def plan_for(value: Value, wishes: Sequence[Wish], room: Sequence[Room], reason: str) -> Plan | None:
    """The plan in which all wishes are fulfilled, in one barrier; None when they are.

    Raises:
        TopologyError, CommandRefused: as of `change_plans`.
    """
    now = value
    changes: list[Change] = []
    left = list(room)
    for wish in wishes:
        plan = _one(now, wish, left, reason)
        if plan is not None:
            left = [_with_plan(each, now.plan, plan) for each in left]
            changes += plan.changes
            now = msgspec.structs.replace(now, plan=plan)
    return msgspec.structs.replace(now.plan, changes=tuple(changes)) if changes else None


def _with_plan(room: Room, before: Plan, after: Plan) -> Room:
    """The room of a node when a plan follows another one."""
    node = room.peer.node
    free = 0 if room.is_closed else max(0, room.free + len(before.at(node)) - len(after.at(node)))
    return Room(room.peer, free, room.is_closed, room.executors)


def _one(value: Value, wish: Wish, room: Sequence[Room], reason: str) -> Plan | None:
    if wish.kind == SCALE:
        return scaled(value, wish.stage, wish.number, room, reason)
    there = next((each for each in room if each.peer.node == wish.node), None)
    if wish.kind == MOVE:
        if there is None:
            raise CommandRefused(f"Node {wish.node.short} does not answer. Look at agiledart nodes.")
        return moved(value, wish.stage, there, reason)
    return drained(value, wish.node, room, reason)
