"""From the agent that a user asked to the scheduler that deploys, and back.

The asked agent checks the submission, looks up where its pinned stages run, finds a scheduler of its domain and hands the
submission over; progress and answer come back through it. When the scheduler is lost on the way, the asked agent, which still
has the code, closes what was begun and submits it once more through another scheduler.
"""

from dataclasses import dataclass, field

import msgspec

from agiledart_dataflow.plan.delivery import SAVING, Delivery
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.instants import MILLISECOND, SECOND, Duration, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Asker
from agiledart_kernel.randomness import RandomStream
from agiledart_node.desk.conversations import Question
from agiledart_node.desk.desk import CommandRefused, Desk
from agiledart_node.forming.blueprint import blueprint_of
from agiledart_node.forming.deploying import PATIENCE
from agiledart_node.forming.pinning import pinned_nodes
from agiledart_node.forming.planning import MAX_EXECUTORS, Order
from agiledart_node.forming.submission import Progress, Submissions, running_body
from agiledart_node.records.allowing import check, check_unseen
from agiledart_node.records.application import (
    DEPLOYING,
    FAILED,
    RUNNING,
    STOPPED,
    ApplicationRecord,
    advanced,
)
from agiledart_node.records.log_owners import check_logs
from agiledart_node.records.order_checks import Orders
from agiledart_node.records.quotas_of_owners import check_applications
from agiledart_node.records.records import Records
from agiledart_node.scheduling.finding import Finding
from agiledart_node.scheduling.gossip import Gossip
from agiledart_node.scheduling.messages import (
    AskOutcome,
    HandOver,
    HandOverProgress,
    HandOverTaken,
    Office,
    Outcome,
)
from agiledart_node.scheduling.role import Role, Slot
from agiledart_node.scheduling.turns import Turns
from agiledart_node.scheduling.waiting_room import WaitingRoom
from agiledart_node.wire.bodies import SubmitBody
from agiledart_node.wire.commands import Submit
from agiledart_node.wire.effects import Progressed

MAX_WORKS = 512
"""Submissions taken from others that a scheduler remembers: finished ones go for new ones. Unfinished ones stay; there
are at most as many as it serves applications."""

TRIES = 3
"""Schedulers through which one submission is tried."""

_LOOK = Duration(30 * SECOND)
_LONGEST = Duration(1_800 * SECOND)
"""Longest time for which the asked agent waits for a deployment; `status` tells the rest."""


@dataclass(slots=True)
class _Work:
    """A submission that another agent handed over; `waiting` are numbers of its questions about the outcome."""

    asker: Peer
    outcome: Outcome | None = None
    waiting: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _User:
    """Who reads the progress of a submission handed over: a local request, by way of a scheduler."""

    request: int
    scheduler: NodeId


class Dispatching:
    """Takes submissions of users, and of other agents.

    Attributes:
        room: applications that wait for room.
    """

    def __init__(
        self,
        desk: Desk,
        records: Records,
        submissions: Submissions,
        gossip: Gossip,
        finding: Finding,
        role: Role,
        orders: Orders,
        random: RandomStream,
    ) -> None:
        self._desk, self._records, self._submissions, self._orders = desk, records, submissions, orders
        self._gossip, self._finding, self._role, self._random = gossip, finding, role, random
        self._turns = Turns(desk.talks, desk.config.planning_at_once)
        self.room = WaitingRoom(desk, records, self._turns)
        self._works: dict[tuple[NodeId, int], _Work] = {}
        self._users: dict[int, _User] = {}

    # ---- the asked agent

    async def submit(self, request: int, command: Submit, submitter: str, asker: Asker, signed: bytes) -> None:
        """Take a user's submission; answers the user. Raises CommandRefused."""
        desk = self._desk
        if desk.is_leaving:
            raise CommandRefused(f"{desk.me.name} is leaving; submit to another agent.")
        began = desk.now
        blueprint = blueprint_of(command, desk)
        check_unseen(asker, "submit", blueprint.name)
        asker, submitter = self._orders.given(signed, command, asker, submitter)
        _, last = await self._records.application(blueprint.name)
        check(asker, "submit", blueprint.name, last)
        await check_logs(self._records, asker, blueprint.name, last, blueprint.specification)
        await check_applications(self._records, asker, blueprint.name, desk.config.most_applications)
        if command.executors < 0 or command.executors > MAX_EXECUTORS:
            raise CommandRefused(
                f"{command.executors} executors are not possible: 0 (the node's own) to {MAX_EXECUTORS}.", 2
            )
        delivery = _delivery_of(command, blueprint.name)
        pinned = await pinned_nodes(desk, self._records, blueprint)
        if command.dry_run:
            desk.reply(request, await self._submissions.dry_run(blueprint, command.bundle, signed, pinned))
            return
        for _ in range(TRIES):
            ticket = 1 + self._random.bits(62)
            scheduler, office = await self._finding.find(self._gossip.domain, "", 0, ticket)
            order = Order(
                blueprint,
                command.bundle,
                command.executors,
                submitter,
                desk.me,
                pinned,
                office.domain,
                ticket,
                began,
                asker,
                delivery,
                signed,
                command.origin,
            )
            body: SubmitBody | None
            if scheduler.node == desk.me.node:
                body = await self._serve(order, lambda text: desk.emit(Progressed(request, text)))
            else:
                desk.watch(scheduler)
                try:
                    body = await self._through(request, scheduler, office, order, command)
                finally:
                    desk.unwatch(scheduler)
            if body is not None:
                desk.reply(request, body)
                return
            name = scheduler.name or scheduler.node.short
            desk.emit(Progressed(request, f"{blueprint.name}: {name}, which was to deploy it, is gone; trying another"))
        raise CommandRefused(f"{blueprint.name} was not deployed: {TRIES} schedulers went away meanwhile. Try again.")

    async def _through(
        self, request: int, scheduler: Peer, office: Office, order: Order, command: Submit
    ) -> SubmitBody | None:
        """Have a scheduler deploy it; None when the scheduler was lost and nothing of it is left."""
        talks, config = self._desk.talks, self._desk.config
        number = talks.number()
        message = HandOver(
            number,
            office,
            order.ticket,
            order.blueprint.name,
            command.specification,
            command.bundle,
            command.parallelism,
            command.executors,
            order.submitter,
            tuple(sorted(order.pinned.items())),
            max(0, self._desk.now - order.began),
            order.delivery.is_saved,
            order.asker,
            order.signed,
            order.origin,
            order.delivery.repeats,
        )
        self._users[number] = _User(request, scheduler.node)
        try:
            question = Question(scheduler, message, HandOverTaken, PATIENCE)
            answers = await talks.answers({number: question}, Duration(config.start_timeout_ns))
            taken = answers.get(number)
            if taken is None or taken.reason:
                return await self._after_loss(order, scheduler) if taken is None else None
            deadline = self._desk.now + _LONGEST
            while self._desk.now < deadline:
                asked = talks.number()
                ask = Question(scheduler, AskOutcome(asked, number), Outcome, PATIENCE)
                answers = await talks.answers({asked: ask}, _LOOK)
                outcome = answers.get(asked)
                if isinstance(outcome, Outcome) and not outcome.unknown:
                    if outcome.refusal:
                        raise CommandRefused(outcome.refusal, outcome.exit_code)
                    return relayed(outcome.body, scheduler, order.blueprint.name)
                if outcome is not None or talks.is_gone(scheduler):
                    return await self._after_loss(order, scheduler)
        finally:
            del self._users[number]
        name = order.blueprint.name
        raise CommandRefused(f"{name} is still being deployed. Look at: agiledart status {name}")

    async def _after_loss(self, order: Order, scheduler: Peer) -> SubmitBody | None:
        """The scheduler is gone: its work may be done (then that is the answer), or is closed as failed (then None)."""
        name = order.blueprint.name
        who = scheduler.name or scheduler.node.short
        _, record = await self._records.application(name)
        if record is None or record.ticket != order.ticket:
            return None

        def close(current: ApplicationRecord) -> ApplicationRecord | None:
            text = f"{who} is gone and was still deploying it"
            return advanced(current, FAILED, text, self._desk.wall_ms) if current.state == DEPLOYING else None

        closed = await self._records.change(name, record.version, close)
        if closed is not None and closed.state == RUNNING and closed.ticket == order.ticket:
            return running_body(closed, (), self._desk.config.placement)
        if closed is not None and closed.state == STOPPED:
            raise CommandRefused(closed.reason or f"{name} was stopped while it was being deployed.")
        return None

    def on_progress(self, sender: Peer, message: HandOverProgress) -> None:
        """The scheduler has something to tell the user."""
        user = self._users.get(message.of)
        if user is not None and user.scheduler == sender.node:
            self._desk.emit(Progressed(user.request, message.text))

    # ---- the scheduler

    def on_hand_over(self, sender: Peer, message: HandOver) -> None:
        """Another agent hands a submission over; it was registered before."""
        key = (sender.node, message.request)
        reason = ""
        if key not in self._works:
            reason = self._objection(message)
            if not reason:
                self._make_room()
                self._works[key] = _Work(sender)
                self._desk.talks.begin(self._work(key, sender, message))
        self._desk.send(sender, HandOverTaken(message.request, reason))

    def _objection(self, message: HandOver) -> str:
        if self._role.office is None or ("", message.ticket) not in self._role.served:
            return "not registered"
        return "busy" if self._desk.talks.is_full else ""

    def _make_room(self) -> None:
        if len(self._works) >= MAX_WORKS:
            done = next((key for key, work in self._works.items() if work.outcome is not None), None)
            if done is not None:
                del self._works[done]

    async def _work(self, key: tuple[NodeId, int], sender: Peer, message: HandOver) -> None:
        delivery = Delivery.of(is_saved=message.by_epoch, repeats=message.repeats)
        command = Submit(
            message.name,
            message.specification,
            message.bundle,
            message.parallelism,
            message.executors,
            delivery=delivery,
            origin=message.origin,
        )
        try:
            blueprint = blueprint_of(command, self._desk)
            began = Instant(self._desk.now - message.elapsed_ns)
            waited = min(message.elapsed_ns, _LONGEST) // MILLISECOND
            asker, submitter = self._orders.given(message.order, command, message.asker, message.submitter, waited)
            order = Order(
                blueprint,
                message.bundle,
                message.executors,
                submitter,
                sender,
                {stage: peer for stage, peer in message.pinned if 0 <= stage < len(blueprint.stages)},
                message.office.domain,
                message.ticket,
                began,
                asker,
                delivery,
                message.order,
                message.origin,
            )
            body = await self._serve(
                order, lambda text: self._desk.send(sender, HandOverProgress(message.request, text))
            )
            outcome = Outcome(0, body=msgspec.msgpack.encode(body))
        except CommandRefused as refusal:
            outcome = Outcome(0, refusal=refusal.text, exit_code=refusal.exit_code)
        except OperationFailed as failure:
            outcome = Outcome(0, refusal=str(failure) or "failed")
        work = self._works.get(key)
        if work is not None:
            work.outcome = outcome
            waiting, work.waiting = work.waiting, []
            for number in waiting:
                self._desk.send(sender, msgspec.structs.replace(outcome, request=number))

    def on_ask_outcome(self, sender: Peer, message: AskOutcome) -> None:
        """What became of it?"""
        work = self._works.get((sender.node, message.of))
        if work is None:
            self._desk.send(sender, Outcome(message.request, unknown=True))
        elif work.outcome is not None:
            self._desk.send(sender, msgspec.structs.replace(work.outcome, request=message.request))
        elif message.request not in work.waiting:
            work.waiting = [*work.waiting[-7:], message.request]

    async def _serve(self, order: Order, progress: Progress) -> SubmitBody:
        """Deploy, as scheduler, when it is this submission's turn."""
        slot: Slot = ("", order.ticket)
        arrived = self._desk.now
        try:
            if self._turns.waiting:
                progress(f"{order.blueprint.name}: {self._turns.waiting} others are deployed before it")
            if not await self._turns.take(_LONGEST):
                raise CommandRefused(f"{self._desk.me.name} has too many applications to deploy. Try again later.")
            queued = self._desk.now - arrived
            try:
                if self._desk.config.planning_ns:
                    await self._desk.talks.pause(Duration(self._desk.config.planning_ns))

                def claimed(record: ApplicationRecord) -> None:
                    nonlocal slot
                    self._role.rename(slot, (record.name, record.version))
                    slot = (record.name, record.version)

                running, body = await self._submissions.deploy(order, progress, claimed, self.room.wait)
            finally:
                self.room.leave(slot)
                self._turns.give_back()
        except OperationFailed:
            self._role.release(slot)
            raise
        if running.coordinator is not None:
            self._role.settle(slot, running.coordinator)
        return msgspec.structs.replace(body, queued_seconds=round(queued / SECOND, 6))

    def violations(self) -> list[str]:
        """Of the turns and the line of those that wait for room."""
        return [*self._turns.violations(), *self.room.violations()]


def _delivery_of(command: Submit, name: str) -> Delivery:
    """What is asked for. Raises CommandRefused for another word, and for a checkpoint of which nothing would be saved."""
    try:
        delivery = Delivery.named(command.delivery)
    except ValueError as error:
        raise CommandRefused(f"{error}.", 2) from None
    if command.origin is not None and not delivery.is_saved:
        raise CommandRefused(
            f"{name} is not saved by epochs, so it cannot begin with a checkpoint: give it {SAVING}.", 2
        )
    return delivery


class _Relayed(SubmitBody, frozen=True, forbid_unknown_fields=False):
    """The answer of another node, which may be of a newer version and say more."""


_RELAYED: Codec[_Relayed] = Codec(_Relayed)


def relayed(answer: bytes, scheduler: Peer, name: str) -> SubmitBody:
    """What a scheduler answers about an application that it deployed; raises CommandRefused when that makes no sense."""
    try:
        return _RELAYED.decode(answer)
    except RemoteProtocolError:
        who = scheduler.name or scheduler.node.short
        text = f"{who} deployed {name}, but its answer makes no sense. Look at: agiledart status {name}"
        raise CommandRefused(text) from None
