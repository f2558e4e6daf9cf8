"""Dispatch of a submission, from the agent that a user asked to the scheduler that deploys it, and back.

The asked agent checks the submission, looks up the nodes of pinned stages, finds a scheduler of its domain and hands the
submission over. Progress and answer come back through it. When the scheduler is lost meanwhile, the asked agent, which still
has the code, closes what was begun and submits it again through another scheduler.
"""

from dataclasses import dataclass, field

import msgspec

from agiledart_dataflow.plan.delivery import SAVING, Delivery
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import ConfigurationError, OperationFailed, RemoteProtocolError
from agiledart_kernel.instants import MILLISECOND, SECOND, Duration, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.config import LIVE_OBJECTIVES, MOVES
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.context.pending_requests import PeerRequest
from agiledart_node.forming.blueprint import blueprint_of
from agiledart_node.forming.deployer import DEPLOY_RESEND_INTERVALS
from agiledart_node.forming.planner import MAX_EXECUTORS, Submission
from agiledart_node.forming.submission_runner import Progress, SubmissionRunner, running_response
from agiledart_node.records.application import (
    DEPLOYING,
    FAILED,
    RUNNING,
    STOPPED,
    ApplicationRecord,
    advanced,
)
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.log_permissions import check_logs
from agiledart_node.records.owner_quotas import check_applications
from agiledart_node.records.permission_checks import check, check_unseen
from agiledart_node.records.records import Records
from agiledart_node.scheduling.gossip import Gossip
from agiledart_node.scheduling.messages import (
    AskSubmissionOutcome,
    HandOverSubmission,
    SchedulerSlot,
    SubmissionHandedOver,
    SubmissionOutcome,
    SubmissionProgress,
)
from agiledart_node.scheduling.pending_queue import PendingQueue
from agiledart_node.scheduling.planning_slots import PlanningSlots
from agiledart_node.scheduling.scheduler_lookup import SchedulerLookup
from agiledart_node.scheduling.scheduler_role import SchedulerRole, ServedKey
from agiledart_node.wire.commands import Submit
from agiledart_node.wire.effects import Progressed
from agiledart_node.wire.submission_responses import SubmitResponse
from agiledart_placement.registry import parse_choice

MAX_HANDED_OVER = 512
"""Submissions of other agents that a scheduler remembers. Finished ones make way for new ones.

Unfinished ones stay; there are at most as many as applications that it serves.
"""

TRIES = 3
"""Schedulers through which one submission is tried."""

_OUTCOME_TIMEOUT = Duration(30 * SECOND)
_DEPLOYMENT_TIMEOUT = Duration(1_800 * SECOND)
"""Longest time for which the asked agent waits for a deployment; `status` shows what follows."""


@dataclass(slots=True)
class _HandedOverSubmission:
    """A submission that another agent handed over; `waiting` are request numbers of its questions about the outcome."""

    sender: Peer
    outcome: SubmissionOutcome | None = None
    waiting: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _WaitingUser:
    """Reader of the progress of a submission handed over: a local request, and the scheduler."""

    request: int
    scheduler: NodeId


class SubmissionDispatcher:
    """Accepts submissions of users, and of other agents.

    Attributes:
        pending_queue: applications that wait for capacity.
    """

    def __init__(
        self,
        context: NodeContext,
        records: Records,
        submissions: SubmissionRunner,
        gossip: Gossip,
        scheduler_lookup: SchedulerLookup,
        role: SchedulerRole,
        verifier: CommandVerifier,
        random: RandomStream,
    ) -> None:
        self._context, self._records, self._submissions, self._verifier = context, records, submissions, verifier
        self._gossip, self._scheduler_lookup, self._role, self._random = gossip, scheduler_lookup, role, random
        self._planning_slots = PlanningSlots(context.requests, context.config.planning_slots)
        self.pending_queue = PendingQueue(context, records, self._planning_slots)
        self._handed_over: dict[tuple[NodeId, int], _HandedOverSubmission] = {}
        self._waiting_users: dict[int, _WaitingUser] = {}

    # ---- on the asked agent

    async def submit(self, request: int, command: Submit, submitter: str, principal: Principal, signed: bytes) -> None:
        """Submit a user's application, and answer the user. Raises CommandRefused."""
        context = self._context
        if context.is_leaving:
            raise CommandRefused(f"{context.me.name} is leaving; submit to another agent.")
        began = context.now
        blueprint = blueprint_of(command, context)
        check_unseen(principal, "submit", blueprint.name)
        principal, submitter = self._verifier.identify_requester(signed, command, principal, submitter)
        _, last = await self._records.application(blueprint.name)
        check(principal, "submit", blueprint.name, last)
        await check_logs(self._records, principal, blueprint.name, last, blueprint.specification)
        await check_applications(self._records, principal, blueprint.name, context.config.max_applications_per_owner)
        if command.executors < 0 or command.executors > MAX_EXECUTORS:
            raise CommandRefused(
                f"{command.executors} executors are not possible: 0 (the node's own) to {MAX_EXECUTORS}.", 2
            )
        if command.moves not in ("", *MOVES):
            raise CommandRefused(f"moves = {command.moves!r}: use one of {', '.join(MOVES)}.", 2)
        _check_placement(command.placement)
        delivery = _delivery_of(command, blueprint.name)
        pinned = await self._submissions.pinned_nodes(blueprint)
        if command.dry_run:
            context.reply(request, await self._submissions.dry_run(blueprint, command.bundle, signed, pinned))
            return
        # The ticket identifies one try of this submission: `_after_loss` compares it with the record's ticket.
        for _ in range(TRIES):
            ticket = 1 + self._random.bits(62)
            scheduler, scheduler_slot = await self._scheduler_lookup.find(self._gossip.domain, "", 0, ticket)
            submission = Submission(
                blueprint,
                command.bundle,
                command.executors,
                submitter,
                context.me,
                pinned,
                scheduler_slot.domain,
                ticket,
                began,
                principal,
                delivery,
                signed,
                command.origin,
            )
            body: SubmitResponse | None
            if scheduler.node == context.me.node:
                body = await self._serve(submission, lambda text: context.emit(Progressed(request, text)))
            else:
                context.watch(scheduler)
                try:
                    body = await self._deploy_through(request, scheduler, scheduler_slot, submission, command)
                finally:
                    context.unwatch(scheduler)
            if body is not None:
                context.reply(request, body)
                return
            name = scheduler.name or scheduler.node.short
            context.emit(
                Progressed(request, f"{blueprint.name}: {name}, which was to deploy it, is gone; trying another")
            )
        raise CommandRefused(f"{blueprint.name} was not deployed: {TRIES} schedulers went away meanwhile. Try again.")

    async def _deploy_through(
        self, request: int, scheduler: Peer, scheduler_slot: SchedulerSlot, submission: Submission, command: Submit
    ) -> SubmitResponse | None:
        """Have a scheduler deploy it. Return None when the scheduler was lost and nothing is left of the deployment."""
        requests, config = self._context.requests, self._context.config
        number = requests.number()
        message = HandOverSubmission(
            number,
            scheduler_slot,
            submission.ticket,
            submission.blueprint.name,
            command.specification,
            command.bundle,
            command.parallelism,
            command.executors,
            submission.submitter,
            tuple(sorted(submission.pinned.items())),
            max(0, self._context.now - submission.began),
            submission.delivery.is_saved,
            submission.principal,
            submission.signed,
            submission.origin,
            submission.delivery.duplicates,
            submission.delivery.saves_less,
            command.moves,
            command.placement,
        )
        self._waiting_users[number] = _WaitingUser(request, scheduler.node)
        try:
            question = PeerRequest(scheduler, message, SubmissionHandedOver, DEPLOY_RESEND_INTERVALS)
            answers = await requests.answers({number: question}, Duration(config.start_timeout_ns))
            # A refusal means that nothing was begun. Without an answer the scheduler may have begun to deploy.
            taken = answers.get(number)
            if taken is None or taken.reason:
                return await self._after_loss(submission, scheduler) if taken is None else None
            deadline = self._context.now + _DEPLOYMENT_TIMEOUT
            while self._context.now < deadline:
                asked = requests.number()
                ask = PeerRequest(
                    scheduler, AskSubmissionOutcome(asked, number), SubmissionOutcome, DEPLOY_RESEND_INTERVALS
                )
                answers = await requests.answers({asked: ask}, _OUTCOME_TIMEOUT)
                outcome = answers.get(asked)
                if isinstance(outcome, SubmissionOutcome) and not outcome.unknown:
                    if outcome.refusal:
                        raise CommandRefused(outcome.refusal, outcome.exit_code)
                    return parse_forwarded_response(outcome.body, scheduler, submission.blueprint.name)
                if outcome is not None or requests.is_gone(scheduler):
                    return await self._after_loss(submission, scheduler)
        finally:
            del self._waiting_users[number]
        name = submission.blueprint.name
        raise CommandRefused(f"{name} is still being deployed. Look at: agiledart status {name}")

    async def _after_loss(self, submission: Submission, scheduler: Peer) -> SubmitResponse | None:
        """Return the result of a lost scheduler that had finished; otherwise close its work as failed and return None."""
        name = submission.blueprint.name
        scheduler_name = scheduler.name or scheduler.node.short
        _, record = await self._records.application(name)
        if record is None or record.ticket != submission.ticket:
            return None

        def close(current: ApplicationRecord) -> ApplicationRecord | None:
            text = f"{scheduler_name} is gone and was still deploying it"
            return advanced(current, FAILED, text, self._context.wall_ms) if current.state == DEPLOYING else None

        closed = await self._records.change(name, record.version, close)
        if closed is not None and closed.state == RUNNING and closed.ticket == submission.ticket:
            return running_response(closed, (), self._submissions.strategy_of(submission.signed))
        if closed is not None and closed.state == STOPPED:
            raise CommandRefused(closed.reason or f"{name} was stopped while it was being deployed.")
        return None

    def on_progress(self, sender: Peer, message: SubmissionProgress) -> None:
        """Show the user a progress text of the scheduler."""
        user = self._waiting_users.get(message.of)
        if user is not None and user.scheduler == sender.node:
            self._context.emit(Progressed(user.request, message.text))

    # ---- on the scheduler

    def on_submission(self, sender: Peer, message: HandOverSubmission) -> None:
        """Accept a submission that another agent hands over after it was registered."""
        key = (sender.node, message.request)
        reason = ""
        if key not in self._handed_over:
            reason = self._reason_to_refuse(message)
            if not reason:
                self._evict_finished()
                self._handed_over[key] = _HandedOverSubmission(sender)
                self._context.requests.begin(self._work(key, sender, message))
        self._context.send(sender, SubmissionHandedOver(message.request, reason))

    def _reason_to_refuse(self, message: HandOverSubmission) -> str:
        if self._role.scheduler_slot is None or ("", message.ticket) not in self._role.served:
            return "not registered"
        return "busy" if self._context.requests.is_full else ""

    def _evict_finished(self) -> None:
        if len(self._handed_over) >= MAX_HANDED_OVER:
            done = next((key for key, work in self._handed_over.items() if work.outcome is not None), None)
            if done is not None:
                del self._handed_over[done]

    async def _work(self, key: tuple[NodeId, int], sender: Peer, message: HandOverSubmission) -> None:
        delivery = Delivery.of(is_saved=message.by_epoch, duplicates=message.duplicates, saves_less=message.saves_less)
        command = Submit(
            message.name,
            message.specification,
            message.bundle,
            message.parallelism,
            message.executors,
            delivery=delivery,
            origin=message.origin,
            moves=message.moves,
            placement=message.placement,
        )
        try:
            blueprint = blueprint_of(command, self._context)
            began = Instant(self._context.now - message.elapsed_ns)
            waited = min(message.elapsed_ns, _DEPLOYMENT_TIMEOUT) // MILLISECOND
            principal, submitter = self._verifier.identify_requester(
                message.signed_command, command, message.principal, message.submitter, waited
            )
            submission = Submission(
                blueprint,
                message.bundle,
                message.executors,
                submitter,
                sender,
                {stage: peer for stage, peer in message.pinned if 0 <= stage < len(blueprint.stages)},
                message.scheduler_slot.domain,
                message.ticket,
                began,
                principal,
                delivery,
                message.signed_command,
                message.origin,
            )
            body = await self._serve(
                submission, lambda text: self._context.send(sender, SubmissionProgress(message.request, text))
            )
            outcome = SubmissionOutcome(0, body=msgspec.msgpack.encode(body))
        except CommandRefused as refusal:
            outcome = SubmissionOutcome(0, refusal=refusal.text, exit_code=refusal.exit_code)
        except OperationFailed as failure:
            outcome = SubmissionOutcome(0, refusal=str(failure) or "failed")
        work = self._handed_over.get(key)
        if work is not None:
            work.outcome = outcome
            waiting, work.waiting = work.waiting, []
            for number in waiting:
                self._context.send(sender, msgspec.structs.replace(outcome, request=number))

    def on_ask_outcome(self, sender: Peer, message: AskSubmissionOutcome) -> None:
        """Answer with the outcome of a submission, as soon as it is known."""
        work = self._handed_over.get((sender.node, message.of))
        if work is None:
            self._context.send(sender, SubmissionOutcome(message.request, unknown=True))
        elif work.outcome is not None:
            self._context.send(sender, msgspec.structs.replace(work.outcome, request=message.request))
        elif message.request not in work.waiting:
            work.waiting = [*work.waiting[-7:], message.request]

    async def _serve(self, submission: Submission, progress: Progress) -> SubmitResponse:
        """Deploy as scheduler, once a planning slot is free for this submission."""
        served_key: ServedKey = ("", submission.ticket)
        arrived = self._context.now
        try:
            if self._planning_slots.waiting:
                progress(f"{submission.blueprint.name}: {self._planning_slots.waiting} others are deployed before it")
            if not await self._planning_slots.acquire(_DEPLOYMENT_TIMEOUT):
                raise CommandRefused(f"{self._context.me.name} has too many applications to deploy. Try again later.")
            queued = self._context.now - arrived
            try:
                if self._context.config.planning_ns:
                    await self._context.requests.pause(Duration(self._context.config.planning_ns))

                def claimed(record: ApplicationRecord) -> None:
                    nonlocal served_key
                    self._role.rename(served_key, (record.name, record.version))
                    served_key = (record.name, record.version)

                running, body = await self._submissions.deploy(submission, progress, claimed, self.pending_queue.wait)
            finally:
                self.pending_queue.leave(served_key)
                self._planning_slots.release_slot()
        except OperationFailed:
            self._role.release(served_key)
            raise
        if running.coordinator is not None:
            self._role.set_coordinator(served_key, running.coordinator)
        return msgspec.structs.replace(body, queued_seconds=round(queued / SECOND, 6))

    def violations(self) -> list[str]:
        """Return violated invariants of the planning slots and the pending queue."""
        return [*self._planning_slots.violations(), *self.pending_queue.violations()]


def _delivery_of(command: Submit, name: str) -> Delivery:
    """Return the requested delivery.

    Raises:
        CommandRefused: an unknown delivery, or an initial checkpoint for a run that saves none.
    """
    try:
        delivery = Delivery.named(command.delivery)
    except ValueError as error:
        raise CommandRefused(f"{error}.", 2) from None
    if command.origin is not None and not delivery.is_saved:
        raise CommandRefused(
            f"{name} is not saved by epochs, so it cannot begin with a checkpoint: give it {SAVING}.", 2
        )
    return delivery


class _ForwardedResponse(SubmitResponse, frozen=True, forbid_unknown_fields=False):
    """Answer of another node, which may be of a newer version and have more fields."""


_FORWARDED_RESPONSE: Codec[_ForwardedResponse] = Codec(_ForwardedResponse)


def parse_forwarded_response(answer: bytes, scheduler: Peer, name: str) -> SubmitResponse:
    """Return a scheduler's answer about an application that it deployed. Raises CommandRefused: the answer is malformed."""
    try:
        return _FORWARDED_RESPONSE.decode(answer)
    except RemoteProtocolError:
        scheduler_name = scheduler.name or scheduler.node.short
        text = f"{scheduler_name} deployed {name}, but its answer is malformed. Look at: agiledart status {name}"
        raise CommandRefused(text) from None


def _check_placement(text: str) -> None:
    """Raise CommandRefused for a strategy or objective that does not exist; a package may be on other nodes only."""
    try:
        parse_choice(text, LIVE_OBJECTIVES, allows_any_package=True)
    except ConfigurationError as error:
        raise CommandRefused(str(error), 2) from None
