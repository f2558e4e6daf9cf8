"""The `checkpoint recover` command: a run continues without the majority of its voters, at an admin's request.

the asked agent:   survey what is left → describe it (`quorum_loss_report`) → delegate to the executing node
executing node:    survey again → make voter slots → write the register's first value of the next configuration → answer
"""

from collections.abc import Sequence
from typing import Final

from agiledart_dataflow.plan.delivery import SAVING
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.instants import MILLISECOND, SECOND, Duration
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_node.context.idempotent_replies import IdempotentReplies
from agiledart_node.context.node_context import CommandRefused, NodeContext, NotAllowed
from agiledart_node.context.pending_requests import PeerRequest
from agiledart_node.records.application import RUNNING, ApplicationRecord
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.permission_checks import check
from agiledart_node.records.records import Records
from agiledart_node.recovery.quorum_loss_report import missing_reports, recovery_notes, voters_named
from agiledart_node.recovery.recovery_service import RecoveryService
from agiledart_node.user_commands.all_agents import MAX_AGENTS, ask_all_agents
from agiledart_node.wire.checkpoint_commands import RecoverRun
from agiledart_node.wire.checkpoint_responses import QuorumRecoveryResponse
from agiledart_node.wire.effects import Progressed
from agiledart_node.wire.quorum_recovery_messages import (
    QueryRegister,
    QuorumRecoveryReply,
    RegisterReply,
    RequestQuorumRecovery,
)
from agiledart_node.wire.recovery_messages import CreateVoter, VoterCreated
from agiledart_recovery.register.proposer import electors_of
from agiledart_recovery.register.quorum_recovery import (
    QuorumRecoveryCheck,
    check_quorum_recovery,
    choose_new_voters,
    leader_of,
    newest_of,
    recovered_value,
)
from agiledart_recovery.wire.events import RecoverQuorum
from agiledart_recovery.wire.names import RunId, Voter
from agiledart_recovery.wire.register_status import RegisterStatus
from agiledart_recovery.wire.register_value import RegisterValue

END_NS: Final = Duration(60 * SECOND)
"""Timeout for the new voters to accept the first value."""

_RESEND_INTERVALS: Final = 20
_POLL_INTERVAL: Final = Duration(100 * MILLISECOND)

RemainingStatuses = list[tuple[Peer, RegisterStatus]]


class QuorumRecovery:
    """Recovery of runs that have lost the majority of their voters."""

    def __init__(
        self, context: NodeContext, records: Records, recovery_service: RecoveryService, verifier: CommandVerifier
    ) -> None:
        self._context, self._records, self._recovery_service, self._verifier = (
            context,
            records,
            recovery_service,
            verifier,
        )
        self._once = IdempotentReplies(context)
        self._recovering_runs: dict[RunId, None] = {}

    # ---- on the asked agent

    async def recover(
        self, request: int, command: RecoverRun, submitter: str, principal: Principal, signed: bytes
    ) -> None:
        """Answer `checkpoint recover`. Raises CommandRefused."""
        principal, submitter = self._verifier.identify_requester(signed, command, principal, submitter)
        record = await self._record(command, principal)
        run = RunId(record.name, record.version)
        survey, remaining_voters, names = await self._survey(run, command, signed)
        reachable = {peer.node: None for peer, _ in remaining_voters}
        warnings = recovery_notes(survey, reachable, lambda node: names.get(node, node.short))
        assert survey.value is not None
        quorum_generation, voters = survey.value.quorum_generation + 1, tuple[Peer, ...]()
        leader = leader_of(run, survey, remaining_voters)
        # With --check the admin only sees the survey; nothing is changed.
        if not command.check and leader is not None:
            lost_names = ", ".join(names.get(voter.peer.node, voter.peer.node.short) for voter in survey.silent)
            self._context.emit(Progressed(request, f"{run.app}: new voters are made, it goes on without {lost_names}"))
            done = await self._delegate(leader, RequestQuorumRecovery(0, *_named(run), command, signed, submitter))
            quorum_generation, voters = done.quorum_generation, done.voters
        voter_names = [names.get(peer.node, peer.name or peer.node.short) for peer in voters]
        body = QuorumRecoveryResponse(
            record.name,
            record.version,
            quorum_generation,
            survey.value.committed.epoch,
            survey.value.committed.attempt,
            [names.get(voter.peer.node, voter.peer.node.short) for voter in survey.silent],
            [names.get(voter.peer.node, voter.peer.node.short) for voter in survey.there],
            voter_names,
            warnings,
            done=bool(voters),
        )
        self._context.reply(request, body)

    async def _record(self, command: RecoverRun, principal: Principal) -> ApplicationRecord:
        _, record = await self._records.application(command.name)
        if self._verifier.requires_signatures:
            check(principal, "recover", command.name, record)
        if record is None or record.is_forgotten:
            raise CommandRefused(f"No application {command.name!r}. Look at agiledart list.")
        if not record.by_epoch:
            raise CommandRefused(
                f"{record.name} is not saved by epochs, so it has no register. Submit it with {SAVING}."
            )
        if record.state != RUNNING:
            raise CommandRefused(f"{record.name} is {record.state}: there is nothing to recover.")
        return record

    async def _delegate(self, leader: Peer, message: RequestQuorumRecovery) -> QuorumRecoveryReply:
        number = self._context.requests.number()
        asked = RequestQuorumRecovery(
            number, message.application, message.version, message.command, message.signed_command, message.submitter
        )
        timeout = Duration(2 * END_NS)
        answers = await self._context.requests.answers(
            {number: PeerRequest(leader, asked, QuorumRecoveryReply, _RESEND_INTERVALS)}, timeout
        )
        answer = answers.get(number)
        if not isinstance(answer, QuorumRecoveryReply):
            raise CommandRefused(
                f"{leader.name or leader.node.short} should carry out the recovery, but did not answer."
                f" Look at agiledart status {message.application}, and try again if it still waits."
            )
        if answer.refusal:
            raise CommandRefused(answer.refusal)
        return answer

    # ---- survey of what is left

    async def _survey(
        self, run: RunId, command: RecoverRun, signed: bytes
    ) -> tuple[QuorumRecoveryCheck, RemainingStatuses, dict[NodeId, str]]:
        """Ask all agents what is left of a run's register. Raises CommandRefused: it must not continue without these voters."""
        answers = await ask_all_agents(
            self._context,
            lambda number, peer, count: QueryRegister(number, run.version, command, signed),
            RegisterReply,
        )
        refusals = {peer.node: answer.refusal for peer, answer in answers if answer is not None and answer.refusal}
        remaining_voters = [
            (peer, answer.status) for peer, answer in answers if answer is not None and not answer.refusal
        ]
        value, _ = newest_of(remaining_voters)
        names = self._names(value)
        if refusal := missing_reports(run.app, value, refusals, lambda node: names.get(node, node.short)):
            raise CommandRefused(refusal)
        lost_voters = voters_named(value, command.lost_voters, lambda node: names.get(node, node.short))
        survey = check_quorum_recovery(run, remaining_voters, lost_voters, lambda node: names.get(node, node.short))
        if survey.refusal:
            raise CommandRefused(f"{run.app} was not recovered: {survey.refusal}. Look at agiledart status {run.app}.")
        return survey, remaining_voters, names

    def _names(self, value: RegisterValue | None) -> dict[NodeId, str]:
        """Return names for people, also of nodes that are no longer known."""
        names: dict[NodeId, str] = {}
        if value is not None:
            gone = (*(voter.peer for voter in electors_of(value)), *value.plan.hosts.values())
            names |= {peer.node: peer.name or peer.node.short for peer in gone}
        return names | self._context.names()

    async def status(self, sender: Peer, message: QueryRegister) -> None:
        """Report to an admin's agent what is left here of a run's register."""
        refusal, status = "", RegisterStatus()
        try:
            self._admin(message.command, message.signed_command)
            status = self._recovery_service.machine.register_status(RunId(message.command.name, message.version))
        except NotAllowed as error:
            self._context.drop(f"command: {error.reason}")
            refusal = error.text
        self._context.send(
            sender, RegisterReply(message.request, status, self._context.known()[:MAX_AGENTS], refusal[:4_096])
        )

    def _admin(self, command: RecoverRun, signed_command: bytes) -> str:
        """Return the admin's name for people. Raises NotAllowed: the command is not signed by an admin."""
        principal, by = self._verifier.identify_requester(signed_command, command, Principal(), "")
        if self._verifier.requires_signatures:
            check(principal, "recover", command.name, None)
        return by

    # ---- on the executing node

    async def asked(self, sender: Peer, message: RequestQuorumRecovery) -> None:
        """Carry out an admin's command that an agent forwards, and answer when it is done."""
        if self._once.is_new(sender, message.request):
            await self._once.send_reply(sender, message.request, self._answer(message))

    async def _answer(self, message: RequestQuorumRecovery) -> QuorumRecoveryReply:
        run, number = RunId(message.application, message.version), message.request
        if run in self._recovering_runs:
            return QuorumRecoveryReply(number, refusal=f"{run.app} is being recovered already.")
        self._recovering_runs[run] = None
        try:
            by = self._admin(message.command, message.signed_command) or message.submitter
            if message.command.name != run.app or message.command.check:
                raise NotAllowed("command", f"The signed command is not to recover {run.app}.")
            value = await self._recover_register(run, message, by)
        except CommandRefused as refusal:
            if isinstance(refusal, NotAllowed):
                self._context.drop(f"command: {refusal.reason}")
            return QuorumRecoveryReply(number, refusal=refusal.text[:4_096])
        except OperationFailed as failure:
            return QuorumRecoveryReply(number, refusal=f"{run.app} was not recovered: {failure}.")
        finally:
            del self._recovering_runs[run]
        return QuorumRecoveryReply(number, value.quorum_generation, tuple(voter.peer for voter in value.voters))

    async def _recover_register(self, run: RunId, message: RequestQuorumRecovery, by: str) -> RegisterValue:
        survey, remaining_voters, names = await self._survey(run, message.command, message.signed_command)
        voters = await self._make_voter_slots(run, choose_new_voters(survey, remaining_voters, self._context.me))
        lost = ", ".join(names.get(voter.peer.node, voter.peer.node.short) for voter in survey.silent)
        reason = f"{by or 'an admin'} had it go on without {lost}; rows that they committed since may appear twice"
        first, below = recovered_value(survey, remaining_voters, voters, reason, message.signed_command)
        self._recovery_service.step(RecoverQuorum(first, below))
        until = self._context.now + END_NS
        while self._context.now < until:
            coordinator = self._recovery_service.machine.coordinators.get(run)
            value = coordinator.proposer.value if coordinator is not None else None
            if value is not None and value.quorum_generation >= first.quorum_generation:
                return value
            await self._context.requests.pause(_POLL_INTERVAL)
        raise OperationFailed("its new voters did not accept the first value; try again")

    async def _make_voter_slots(self, run: RunId, chosen: Sequence[Peer]) -> tuple[Voter, ...]:
        """Make the voter slots. Raises OperationFailed: a chosen node makes none."""
        answers = await self._context.requests.ask_all(
            list(chosen),
            lambda number, _: CreateVoter(number, run.app, run.version),
            VoterCreated,
            Duration(self._context.config.ask_timeout_ns),
        )
        silent = [peer.name or peer.node.short for peer, answer in answers if answer is None]
        if silent:
            raise OperationFailed(f"{', '.join(silent)} did not become a voter of its register; try again")
        return tuple(Voter(peer, answer.voter_slot) for peer, answer in answers if answer is not None)


def _named(run: RunId) -> tuple[str, int]:
    return run.app, run.version
