"""Export of a run's state as a file that outlives the run: its coordinator makes it, and other nodes of the run keep copies.

    stop with a checkpoint:   held (nothing is read behind an epoch) → gathered → copied → the register says that the run has
        ended
    export of a running run:  gathered

The awkward case: a node dies meanwhile, and the run rolls back to its last epoch. Then the gathered file counts only if the
register
is still at that epoch in that attempt when the end is written; otherwise the export starts over. When it fails the run goes on.

An end that was proposed may be chosen whenever voters are back, also under another coordinator. From then on the file is dropped
only if the register is seen to have gone on; otherwise it stays, and the outcome is unknown.
"""

from collections.abc import Sequence
from typing import Final

from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.instants import MILLISECOND, SECOND, Duration
from agiledart_kernel.machine import Completed, Failed
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_node.context.idempotent_replies import MAX_REMEMBERED, IdempotentReplies
from agiledart_node.context.node_context import CommandRefused, NodeContext, NotAllowed
from agiledart_node.context.pending_requests import PeerRequest
from agiledart_node.records.application import ApplicationRecord
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.permission_checks import check
from agiledart_node.records.records import Records
from agiledart_node.recovery.recovery_service import RecoveryService
from agiledart_node.recovery.register_bootstrap import copy_of
from agiledart_node.wire.checkpoint_effects import (
    AllowCheckpointFetch,
    DropCheckpoint,
    FetchCheckpoint,
    GatherCheckpoint,
    SnapshotLocation,
)
from agiledart_node.wire.checkpoint_messages import (
    CheckpointInfo,
    CheckpointReply,
    CopyReply,
    RequestCheckpoint,
    RequestCopy,
)
from agiledart_node.wire.commands import VERB_BY_COMMAND, Stop
from agiledart_recovery.attempts.coordinator import Coordinator
from agiledart_recovery.fragments.placement import host_of
from agiledart_recovery.wire.names import CheckpointId, RunId
from agiledart_recovery.wire.register_value import RegisterValue, RunState

COPIES: Final = 3
"""Number of nodes that keep a checkpoint, including the one that made it."""

TRIES: Final = 3
"""Attempts to hold a run, which fail when the run rolls back to its last epoch meanwhile."""


HELD_NS: Final = 150 * SECOND
"""Timeout for the commit of an epoch behind which nothing is read; it allows for a recovery before that epoch."""

END_NS: Final = 60 * SECOND
"""Timeout for the register to accept the end."""

RESEND_INTERVALS: Final = 20
"""Resend intervals before a node that copies is asked again; it answers when it is done."""

SLOWEST_NS_PER_BYTE: Final = 1_000
"""Time allowed for each byte; a transfer slower than 1 MB/s is given up."""

MIN_TIMEOUT_NS: Final = 30 * SECOND

_POLL_INTERVAL: Final = Duration(20 * MILLISECOND)


class CoordinatedElsewhere(CommandRefused):
    """Refusal because another node coordinates the run, or no node does now."""


class OutcomeUnknown(OperationFailed):
    """Failure after the end of a run was proposed: its register may still accept it."""


class CheckpointExporter:
    """Checkpoints of runs that this node coordinates, and copies of other nodes' checkpoints."""

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
        self._copying: dict[bytes, None] = {}
        self._stopping: dict[RunId, None] = {}
        # ends that were proposed and whose outcome is not known yet
        self._proposed: dict[RunId, tuple[int, CheckpointId]] = {}

    # ---- requests of agents for their users

    async def asked(self, sender: Peer, message: RequestCheckpoint) -> None:
        """Carry out the request that an agent brings for its user, and answer when it is done."""
        if self._once.is_new(sender, message.request):
            while len(self._proposed) >= MAX_REMEMBERED:
                del self._proposed[next(iter(self._proposed))]
            await self._once.send_reply(sender, message.request, self._answer(message))

    async def _answer(self, message: RequestCheckpoint) -> CheckpointReply:
        run, number = RunId(message.application, message.version), message.request
        try:
            self._coordinator_of(run)
            record, by = await self._requester(message)
            if isinstance(message.command, Stop):
                checkpoint, nodes = await self._stop_with_checkpoint(run, record, message.command.checkpoint, by)
            else:
                checkpoint, nodes = (
                    await self._gather(run, self._coordinator_of(run).value, record, ""),
                    (self._context.me,),
                )
        except CoordinatedElsewhere as refusal:
            return CheckpointReply(number, refusal=refusal.text, is_not_coordinator=True)
        except CommandRefused as refusal:
            if isinstance(refusal, NotAllowed):
                self._context.drop(f"command: {refusal.reason}")
            return CheckpointReply(number, refusal=refusal.text, exit_code=refusal.exit_code)
        except OperationFailed as failure:
            return CheckpointReply(number, refusal=f"No checkpoint of {run.app} was made: {failure}.")
        return CheckpointReply(number, checkpoint, tuple(nodes))

    async def _requester(self, message: RequestCheckpoint) -> tuple[ApplicationRecord, str]:
        """Return the record and the requester's name for people. Raises CommandRefused."""
        command = message.command
        principal, by = self._verifier.identify_requester(
            message.signed_command, command, Principal(), message.submitter
        )
        _, record = await self._records.application(message.application)
        if record is None or record.version != message.version:
            raise CommandRefused(f"{message.application} v{message.version} is not the version that runs. Try again.")
        if self._verifier.requires_signatures and isinstance(command, Stop):
            self._verifier.check_stop(message.signed_command, principal, record)
        elif self._verifier.requires_signatures:
            check(principal, VERB_BY_COMMAND[type(command)], message.application, record)
        if command.name != message.application:
            raise NotAllowed("command", f"The signed command is for {command.name}, not for {message.application}.")
        return record, by

    def _coordinator_of(self, run: RunId) -> Coordinator:
        coordinator = self._recovery_service.machine.coordinators.get(run)
        if coordinator is None or not coordinator.leads or coordinator.proposer.value is None:
            raise CoordinatedElsewhere(f"{run.app} is not coordinated by {self._context.me.name}.")
        return coordinator

    # ---- stop with a checkpoint

    async def _stop_with_checkpoint(
        self, run: RunId, record: ApplicationRecord, name: str, by: str
    ) -> tuple[CheckpointInfo, Sequence[Peer]]:
        if run in self._stopping:
            raise CommandRefused(f"{run.app} is being stopped with a checkpoint already.")
        self._stopping[run] = None
        try:
            for _ in range(TRIES):
                done = await self._try_to_stop(run, record, name, by)
                if done is not None:
                    return done
        finally:
            del self._stopping[run]
        raise CommandRefused(
            f"{run.app} rolled back to its last epoch {TRIES} times meanwhile, so it was not stopped."
            f" Look at agiledart status {run.app}."
        )

    async def _try_to_stop(
        self, run: RunId, record: ApplicationRecord, name: str, by: str
    ) -> tuple[CheckpointInfo, Sequence[Peer]] | None:
        """Return the checkpoint and its nodes; None when the run rolled back to its last epoch meanwhile.

        Raises:
            CommandRefused: it could not be kept; the run goes on.
        """
        value = await self._await_held_epoch(run)
        at, nodes = value.committed, [self._context.me]
        checkpoint: CheckpointInfo | None = None
        try:
            checkpoint = await self._gather(run, value, record, name)
            nodes += await self._copy_to_others(value, checkpoint)
            requester = f"stopped by {by}" if by else "stopped by a user"
            is_ended = await self._end_run(run, value, f"{requester}; its state is kept as checkpoint {name}")
        except OutcomeUnknown:
            raise CommandRefused(_unknown(run.app, name)) from None
        except CoordinatedElsewhere:
            await self._abort_checkpoint(checkpoint, nodes)
            raise
        except OperationFailed as failure:
            await self._abort_checkpoint(checkpoint, nodes)
            self._release(run, "its stop with a checkpoint failed, because the checkpoint could not be kept")
            raise CommandRefused(f"{run.app} was not stopped, and goes on from epoch {at.epoch}: {failure}.") from None
        # The run has rolled back meanwhile, so this file does not hold its last epoch; the caller tries again.
        if not is_ended:
            await self._abort_checkpoint(checkpoint, nodes)
            return None
        return checkpoint, nodes

    async def _await_held_epoch(self, run: RunId) -> RegisterValue:
        """Return the register's value once it has an epoch behind which no source has read."""
        context = self._context
        until, refusal = context.now + HELD_NS, ""
        while context.now < until:
            coordinator = self._coordinator_of(run)
            value = coordinator.value
            if value.state is not RunState.RUNNING:
                ended = "finished" if value.state is RunState.FINISHED else "failed"
                raise CommandRefused(f"{run.app} has {ended} by itself meanwhile, so there is no state to keep.")
            if coordinator.commit_protocol.held is not None and coordinator.commit_protocol.held == value.committed:
                return value
            refusal = self._recovery_service.flush_request(self._recovery_service.machine.request_hold(run))
            await context.requests.pause(_POLL_INTERVAL)
        self._release(run, "its stop with a checkpoint failed, because no epoch was committed")
        raise CommandRefused(
            f"No epoch of {run.app} was committed within {HELD_NS // SECOND} s{': ' + refusal if refusal else ''},"
            f" so it was not stopped. Look at agiledart status {run.app}."
        )

    async def _end_run(self, run: RunId, before: RegisterValue, reason: str) -> bool:
        """Return whether the register says that the run has ended at this epoch; False when the run has gone on.

        Raises:
            CoordinatedElsewhere: another node coordinates the run, and no end was proposed.
            OutcomeUnknown: an end was proposed, and its outcome is unknown.
            OperationFailed: no end could be proposed.
        """
        context, machine = self._context, self._recovery_service.machine
        until, expected = context.now + END_NS, (before.attempt, before.committed)
        while context.now < until:
            value = self._newest(run, before)
            if value.state is not RunState.RUNNING or (value.attempt, value.committed) != expected:
                self._proposed.pop(run, None)
                return value.state is not RunState.RUNNING and value.committed == before.committed
            if self._proposed.get(run) != expected:
                self._coordinator_of(run)
            if not self._recovery_service.flush_request(machine.request_end_held(run, before.committed, reason)):
                self._proposed[run] = expected
            await context.requests.pause(_POLL_INTERVAL)
        if self._proposed.get(run) == expected:
            raise OutcomeUnknown(f"whether {run.app} has ended")
        raise OperationFailed("the register did not take its end")

    def _newest(self, run: RunId, before: RegisterValue) -> RegisterValue:
        """Return the newest register value known here: read or written by this node, or received by it as a host."""
        coordinator = self._recovery_service.machine.coordinators.get(run)
        part = self._recovery_service.machine.participants.get(run)
        known_values = (
            coordinator.proposer.value if coordinator is not None else None,
            part.value if part is not None else None,
        )
        return max((before, *(value for value in known_values if value is not None)), key=_age)

    def _release(self, run: RunId, reason: str) -> None:
        self._recovery_service.machine.request_release(run, reason)
        self._recovery_service.flush_request("")

    # ---- the checkpoint file

    async def _gather(self, run: RunId, value: RegisterValue, record: ApplicationRecord, name: str) -> CheckpointInfo:
        """Gather the snapshots of the committed epoch into one file.

        Raises:
            OperationFailed: a host did not send its snapshots, or the disk is full.
        """
        if not value.committed.epoch:
            raise CommandRefused(f"No epoch of {run.app} is committed yet. Try again in a few seconds.")
        snapshots = snapshots_to_gather(value)
        about = CheckpointInfo(
            name,
            run,
            value.at.attempt,
            value.at.epoch,
            self._context.wall_ms,
            record.owner_key,
            record.shared_keys,
            b"\0" * 32,
            0,
        )
        number = self._context.requests.number()
        plan = value.plan.body or record.plan
        gather = GatherCheckpoint(number, about, record.specification, plan, snapshots)
        return await self._driven(number, gather, sum(snapshot.most for snapshot in snapshots))

    async def _driven(
        self, number: int, signed_command: GatherCheckpoint | FetchCheckpoint, size: int
    ) -> CheckpointInfo:
        timeout_ns = MIN_TIMEOUT_NS + SLOWEST_NS_PER_BYTE * size
        answer = (await self._context.ask_driver(number, signed_command, timeout_ns)).get(number)
        if isinstance(answer, Completed) and isinstance(answer.result, CheckpointInfo):
            return answer.result
        raise OperationFailed(answer.reason if isinstance(answer, Failed) else "it took too long")

    async def _copy_to_others(self, value: RegisterValue, checkpoint: CheckpointInfo) -> list[Peer]:
        """Have other nodes copy the checkpoint, and return those that did.

        Voters and hosts are asked, because they may know the state in any case; nodes on other machines are preferred.
        """
        context = self._context
        known = {peer.node: peer for peer in context.known()}
        others = [voter.peer for voter in value.voters] + list(value.plan.hosts.values())
        reachable = {peer.node: known.get(peer.node, peer) for peer in others if not context.requests.is_gone(peer)}
        reachable.pop(context.me.node, None)
        # A copy on this machine would be lost with it.
        candidates = [peer for peer in reachable.values() if host_of(peer) != host_of(context.me)] or list(
            reachable.values()
        )
        copy_nodes: list[Peer] = []
        refusals: list[str] = []
        for peer in candidates:
            if len(copy_nodes) >= COPIES - 1:
                break
            if host_of(peer) != host_of(context.me) and any(
                host_of(peer) == host_of(copy_node) for copy_node in copy_nodes
            ):
                continue
            context.emit(AllowCheckpointFetch(checkpoint.digest, peer.node))
            number = context.requests.number()
            question = PeerRequest(peer, RequestCopy(number, checkpoint), CopyReply, RESEND_INTERVALS)
            timeout_ns = Duration(MIN_TIMEOUT_NS + SLOWEST_NS_PER_BYTE * checkpoint.size)
            answer = (await context.requests.answers({number: question}, timeout_ns)).get(number)
            if isinstance(answer, CopyReply) and not answer.refusal:
                copy_nodes.append(peer)
            else:
                refusal = answer.refusal if isinstance(answer, CopyReply) else "no answer"
                refusals.append(f"{peer.name or peer.node.short}: {refusal}")
        if refusals and not copy_nodes:
            raise OperationFailed(f"no other node keeps a copy of it ({'; '.join(refusals)})")
        return copy_nodes

    async def _abort_checkpoint(self, checkpoint: CheckpointInfo | None, nodes: Sequence[Peer]) -> None:
        """Withdraw a checkpoint everywhere, because the run has gone on from it."""
        if checkpoint is None:
            return
        context = self._context
        number = context.requests.number()
        await context.ask_driver(
            number, DropCheckpoint(number, checkpoint.name, checkpoint.digest, checkpoint.run), MIN_TIMEOUT_NS
        )
        others = [peer for peer in nodes if peer.node != context.me.node]
        await context.requests.ask_all(
            others,
            lambda number, _: RequestCopy(number, checkpoint, is_withdrawn=True),
            CopyReply,
            Duration(context.config.ask_timeout_ns),
        )

    # ---- on the node that keeps a copy

    async def copy(self, sender: Peer, message: RequestCopy) -> None:
        """Keep or withdraw a copy of a checkpoint for the coordinator of a run that this node takes part in.

        Only voters of that run may ask, and they may withdraw only its own checkpoint. A user's command comes as
        `RequestRemoval`.
        """
        checkpoint, context = message.checkpoint, self._context
        refusal = ""
        if checkpoint.digest in self._copying:
            return  # the copy that is under way will answer when it is complete
        if not self._may_coordinate(sender, checkpoint.run):
            context.drop("copy of a checkpoint")
            refusal = f"{context.me.name} knows of no {checkpoint.run.app} that {sender.name or sender.node.short} coordinates"
            context.send(sender, CopyReply(message.request, refusal[:4_096]))
            return
        self._copying[checkpoint.digest] = None
        try:
            if message.is_withdrawn:
                number = context.requests.number()
                await context.ask_driver(
                    number, DropCheckpoint(number, checkpoint.name, checkpoint.digest, checkpoint.run), MIN_TIMEOUT_NS
                )
            else:
                number = context.requests.number()
                await self._driven(number, FetchCheckpoint(number, sender, checkpoint), checkpoint.size)
        except OperationFailed as failure:
            refusal = str(failure)
        finally:
            del self._copying[checkpoint.digest]
        context.send(sender, CopyReply(message.request, refusal[:4_096]))

    def _may_coordinate(self, sender: Peer, run: RunId) -> bool:
        """Return whether a node votes on a run, as far as this node knows as a host or voter of the run."""
        machine = self._recovery_service.machine
        part, voter_slot = machine.participants.get(run), machine.voter_slots.get(run)
        known = part.value if part is not None else None, voter_slot.value if voter_slot is not None else None
        return any(value is not None and value.may_be_sent_by(sender.node) for value in known)


def _age(value: RegisterValue) -> tuple[int, CheckpointId, bool]:
    return value.attempt, value.committed, value.state is not RunState.RUNNING


def _unknown(application: str, name: str) -> str:
    return (
        f"Whether {application} was stopped is not known: too few voters of its register answered within {END_NS // SECOND} s."
        f" Its state is kept as checkpoint {name}, which is valid only if it was stopped. Look at agiledart status {application}."
        f" If it has ended, nothing is to do; if it still runs, remove the checkpoint: agiledart checkpoint remove {name}."
        f" To see its files: agiledart checkpoint list {name}"
    )


def snapshots_to_gather(value: RegisterValue) -> tuple[SnapshotLocation, ...]:
    """Return the locations of the committed epoch's snapshots: each host has on its disk what its instances saved, except for what
    the register holds.
    """
    assigned = {assignment.instance: assignment for assignment in value.plan.assignments}
    locations: list[SnapshotLocation] = []
    for saved in value.saved:
        assignment = assigned.get(saved.instance)
        if assignment is None:
            raise OperationFailed(f"the state of {saved.instance} is on its way to another node; try again")
        stage, index = copy_of(saved.instance)
        locations += (
            SnapshotLocation(
                assignment.host,
                stage,
                saved.instance.generation,
                index,
                assignment.role.value,
                snapshot.digest,
                snapshot.length,
                snapshot.content,
            )
            for snapshot in saved.chain
        )
    return tuple(locations)
