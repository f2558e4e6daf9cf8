"""A run's state as a file that outlives it: made where the run is coordinated, and kept there and on others that take part in it.

    stop with a checkpoint:  held (nothing more is read behind an epoch) → gathered → copied → the register says that it has ended
    export of what runs:     gathered

The awkward case: somebody dies meanwhile, and the run goes back to its last epoch. Then what was gathered counts only if the
register still is at that epoch in that life when its end is written; else all of it is done again. Where it comes to nothing the
run goes on. An end that was proposed may be chosen whenever voters are back, also by who coordinates next: from then on what was
gathered is given up only where the register is seen to have gone on, and else stays, with the outcome unknown.
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
"""Nodes that keep a checkpoint, the one that made it among them."""

TRIES: Final = 3
"""So often a run is held again when it has gone back to its last epoch meanwhile."""


HELD_NS: Final = 150 * SECOND
"""For an epoch to be committed behind which nothing is read: longer than one may take, with a recovery before it."""

END_NS: Final = 60 * SECOND
"""For the register to take the end."""

RESEND_INTERVALS: Final = 20
"""Intervals after which a node that copies is asked again: it answers when it is done."""

SLOWEST_NS_PER_BYTE: Final = 1_000
"""A byte on its way: one that moves less than 1 MB/s is given up."""

MIN_TIMEOUT_NS: Final = 30 * SECOND

_POLL_INTERVAL: Final = Duration(100 * MILLISECOND)


class CoordinatedElsewhere(CommandRefused):
    """Another node coordinates the run, or nobody does now."""


class OutcomeUnknown(OperationFailed):
    """The end of a run was proposed to its register, which may take it yet."""


class CheckpointExporter:
    """Checkpoints of runs that this node coordinates; copies of others'."""

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
        self._proposed: dict[
            RunId, tuple[int, CheckpointId]
        ] = {}  # ends of which nobody has said yet what became of them

    # ---- asked for by an agent for its user

    async def asked(self, sender: Peer, message: RequestCheckpoint) -> None:
        """An agent brings its user's wish; it is answered when it is fulfilled."""
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
                kept, nodes = await self._stop_with_checkpoint(run, record, message.command.checkpoint, by)
            else:
                kept, nodes = await self._gather(run, self._coordinator_of(run).value, record, ""), (self._context.me,)
        except CoordinatedElsewhere as refusal:
            return CheckpointReply(number, refusal=refusal.text, is_not_coordinator=True)
        except CommandRefused as refusal:
            if isinstance(refusal, NotAllowed):
                self._context.drop(f"order: {refusal.reason}")
            return CheckpointReply(number, refusal=refusal.text, exit_code=refusal.exit_code)
        except OperationFailed as failure:
            return CheckpointReply(number, refusal=f"No checkpoint of {run.app} was made: {failure}.")
        return CheckpointReply(number, kept, tuple(nodes))

    async def _requester(self, message: RequestCheckpoint) -> tuple[ApplicationRecord, str]:
        """The record, and who gave the order, for people. Raises CommandRefused."""
        command = message.command
        principal, by = self._verifier.given(message.signed_command, command, Principal(), message.submitter)
        _, record = await self._records.application(message.application)
        if record is None or record.version != message.version:
            raise CommandRefused(f"{message.application} v{message.version} is not the one that runs.")
        if self._verifier.requires_signatures and isinstance(command, Stop):
            self._verifier.check_stop(message.signed_command, principal, record)
        elif self._verifier.requires_signatures:
            check(principal, VERB_BY_COMMAND[type(command)], message.application, record)
        if command.name != message.application:
            raise NotAllowed("order", f"The order is for {command.name}, not for {message.application}.")
        return record, by

    def _coordinator_of(self, run: RunId) -> Coordinator:
        coordinator = self._recovery_service.machine.coordinators.get(run)
        if coordinator is None or not coordinator.leads or coordinator.proposer.value is None:
            raise CoordinatedElsewhere(f"{run.app} is not coordinated by {self._context.me.name}.")
        return coordinator

    # ---- ending with the state kept

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
            f"{run.app} went back to its last epoch {TRIES} times meanwhile, so it was not stopped."
            f" Look at agiledart status {run.app}."
        )

    async def _try_to_stop(
        self, run: RunId, record: ApplicationRecord, name: str, by: str
    ) -> tuple[CheckpointInfo, Sequence[Peer]] | None:
        """None: it has gone back to its last epoch meanwhile. Raises CommandRefused; the run goes on then."""
        value = await self._await_held_epoch(run)
        at, nodes = value.committed, [self._context.me]
        kept: CheckpointInfo | None = None
        try:
            kept = await self._gather(run, value, record, name)
            nodes += await self._copy_to_others(value, kept)
            who = f"stopped by {by}" if by else "stopped by a user"
            is_ended = await self._end_run(run, value, f"{who}; its state is kept as checkpoint {name}")
        except OutcomeUnknown:
            raise CommandRefused(_unknown(run.app, name)) from None
        except CoordinatedElsewhere:
            await self._abort_checkpoint(kept, nodes)
            raise
        except OperationFailed as failure:
            await self._abort_checkpoint(kept, nodes)
            self._release(run, "it was to be stopped with a checkpoint, which could not be kept")
            raise CommandRefused(f"{run.app} was not stopped, and goes on from epoch {at.epoch}: {failure}.") from None
        if not is_ended:
            await self._abort_checkpoint(kept, nodes)
            return None
        return kept, nodes

    async def _await_held_epoch(self, run: RunId) -> RegisterValue:
        """The value of the register that has an epoch behind which nothing was read."""
        context = self._context
        until, why = context.now + HELD_NS, ""
        while context.now < until:
            coordinator = self._coordinator_of(run)
            value = coordinator.value
            if value.state is not RunState.RUNNING:
                ended = "come to its end" if value.state is RunState.FINISHED else "failed"
                raise CommandRefused(f"{run.app} has {ended} by itself meanwhile: there is no state to keep.")
            if coordinator.commit_protocol.held is not None and coordinator.commit_protocol.held == value.committed:
                return value
            why = self._recovery_service.flush_request(self._recovery_service.machine.request_hold(run))
            await context.requests.pause(_POLL_INTERVAL)
        self._release(run, "it was to be stopped with a checkpoint, and no epoch was committed")
        raise CommandRefused(
            f"No epoch of {run.app} was committed within {HELD_NS // SECOND} s{': ' + why if why else ''}, so it was not stopped."
            f" Look at agiledart status {run.app}."
        )

    async def _end_run(self, run: RunId, before: RegisterValue, reason: str) -> bool:
        """Whether the register says that the run has ended there; it does not where it has gone on.

        Raises:
            NotHere: another coordinates it, and no end was proposed.
            OutcomeUnknown: one was, and nobody says what became of it.
            OperationFailed: none could be proposed.
        """
        context, machine = self._context, self._recovery_service.machine
        until, mark = context.now + END_NS, (before.attempt, before.committed)
        while context.now < until:
            value = self._newest(run, before)
            if value.state is not RunState.RUNNING or (value.attempt, value.committed) != mark:
                self._proposed.pop(run, None)
                return value.state is not RunState.RUNNING and value.committed == before.committed
            if self._proposed.get(run) != mark:
                self._coordinator_of(run)
            if not self._recovery_service.flush_request(machine.request_end_held(run, before.committed, reason)):
                self._proposed[run] = mark
            await context.requests.pause(_POLL_INTERVAL)
        if self._proposed.get(run) == mark:
            raise OutcomeUnknown(f"whether {run.app} has ended")
        raise OperationFailed("the register did not take its end")

    def _newest(self, run: RunId, before: RegisterValue) -> RegisterValue:
        """The newest value that is known here to be in the register: read or written by this node, or told to it as a host."""
        coordinator = self._recovery_service.machine.coordinators.get(run)
        part = self._recovery_service.machine.participants.get(run)
        known_values = (
            coordinator.proposer.value if coordinator is not None else None,
            part.value if part is not None else None,
        )
        return max((before, *(one for one in known_values if one is not None)), key=_age)

    def _release(self, run: RunId, reason: str) -> None:
        self._recovery_service.machine.request_release(run, reason)
        self._recovery_service.flush_request("")

    # ---- one file

    async def _gather(self, run: RunId, value: RegisterValue, record: ApplicationRecord, name: str) -> CheckpointInfo:
        """Raises OperationFailed: somebody did not give what it saved, or there is no room."""
        if not value.committed.epoch:
            raise CommandRefused(f"No epoch of {run.app} is committed yet. Try again in some seconds.")
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
        signed_command = GatherCheckpoint(number, about, record.specification, plan, snapshots)
        return await self._driven(number, signed_command, sum(snapshot.most for snapshot in snapshots))

    async def _driven(
        self, number: int, signed_command: GatherCheckpoint | FetchCheckpoint, size: int
    ) -> CheckpointInfo:
        timeout_ns = MIN_TIMEOUT_NS + SLOWEST_NS_PER_BYTE * size
        answer = (await self._context.ask_driver(number, signed_command, timeout_ns)).get(number)
        if isinstance(answer, Completed) and isinstance(answer.result, CheckpointInfo):
            return answer.result
        raise OperationFailed(answer.reason if isinstance(answer, Failed) else "it took too long")

    async def _copy_to_others(self, value: RegisterValue, kept: CheckpointInfo) -> list[Peer]:
        """Others that keep it, too: voters and hosts, which may know the state in any case, on machines of their own."""
        context = self._context
        known = {peer.node: peer for peer in context.known()}
        others = [voter.peer for voter in value.voters] + list(value.plan.hosts.values())
        there = {peer.node: known.get(peer.node, peer) for peer in others if not context.requests.is_gone(peer)}
        there.pop(context.me.node, None)
        apart = [peer for peer in there.values() if host_of(peer) != host_of(context.me)] or list(there.values())
        took: list[Peer] = []
        refusals: list[str] = []
        for peer in apart:
            if len(took) >= COPIES - 1:
                break
            if host_of(peer) != host_of(context.me) and any(host_of(peer) == host_of(one) for one in took):
                continue
            context.emit(AllowCheckpointFetch(kept.digest, peer.node))
            number = context.requests.number()
            question = PeerRequest(peer, RequestCopy(number, kept), CopyReply, RESEND_INTERVALS)
            timeout_ns = Duration(MIN_TIMEOUT_NS + SLOWEST_NS_PER_BYTE * kept.size)
            answer = (await context.requests.answers({number: question}, timeout_ns)).get(number)
            if isinstance(answer, CopyReply) and not answer.refusal:
                took.append(peer)
            else:
                why = answer.refusal if isinstance(answer, CopyReply) else "no answer"
                refusals.append(f"{peer.name or peer.node.short}: {why}")
        if refusals and not took:
            raise OperationFailed(f"no other node keeps a copy of it ({'; '.join(refusals)})")
        return took

    async def _abort_checkpoint(self, kept: CheckpointInfo | None, nodes: Sequence[Peer]) -> None:
        """It does not count: a run that goes on has gone on from there."""
        if kept is None:
            return
        context = self._context
        number = context.requests.number()
        await context.ask_driver(number, DropCheckpoint(number, kept.name, kept.digest, kept.run), MIN_TIMEOUT_NS)
        others = [peer for peer in nodes if peer.node != context.me.node]
        await context.requests.ask_all(
            others,
            lambda number, _: RequestCopy(number, kept, is_withdrawn=True),
            CopyReply,
            Duration(context.config.ask_timeout_ns),
        )

    # ---- the node that keeps a copy

    async def copy(self, sender: Peer, message: RequestCopy) -> None:
        """Who coordinates a run that this node takes part in wants a checkpoint of it to be kept here, or no more.

        Only voters of that run are heard, and only a checkpoint of that run goes: others bring a user's order (`RequestRemoval`).
        """
        kept, context = message.checkpoint, self._context
        refusal = ""
        if kept.digest in self._copying:
            return  # it is answered when it is here
        if not self._may_coordinate(sender, kept.run):
            context.drop("copy of a checkpoint")
            why = f"{context.me.name} knows of no {kept.run.app} that {sender.name or sender.node.short} coordinates"
            context.send(sender, CopyReply(message.request, why[:4_096]))
            return
        self._copying[kept.digest] = None
        try:
            if message.is_withdrawn:
                number = context.requests.number()
                await context.ask_driver(
                    number, DropCheckpoint(number, kept.name, kept.digest, kept.run), MIN_TIMEOUT_NS
                )
            else:
                number = context.requests.number()
                await self._driven(number, FetchCheckpoint(number, sender, kept), kept.size)
        except OperationFailed as failure:
            refusal = str(failure)
        finally:
            del self._copying[kept.digest]
        context.send(sender, CopyReply(message.request, refusal[:4_096]))

    def _may_coordinate(self, sender: Peer, run: RunId) -> bool:
        """Whether a node votes on a run, as far as this one knows from hosting something of it or voting on it."""
        machine = self._recovery_service.machine
        part, voter_slot = machine.participants.get(run), machine.voter_slots.get(run)
        known = part.value if part is not None else None, voter_slot.value if voter_slot is not None else None
        return any(value is not None and value.may_be_sent_by(sender.node) for value in known)


def _age(value: RegisterValue) -> tuple[int, CheckpointId, bool]:
    return value.attempt, value.committed, value.state is not RunState.RUNNING


def _unknown(application: str, name: str) -> str:
    return (
        f"Whether {application} was stopped is not known: too few voters of its register answered within {END_NS // SECOND} s."
        f" Its state is kept as checkpoint {name}, which counts if it was. Look at agiledart status {application}: where it has"
        f" ended, all is well; where it goes on, agiledart checkpoint remove {name}. What is kept: agiledart checkpoint list {name}"
    )


def snapshots_to_gather(value: RegisterValue) -> tuple[SnapshotLocation, ...]:
    """Where the elements of the committed epoch lie: each host has on its disk what its instances saved."""
    assigned = {each.instance: each for each in value.plan.assignments}
    found: list[SnapshotLocation] = []
    for saved in value.saved:
        each = assigned.get(saved.instance)
        if each is None:
            raise OperationFailed(f"the state of {saved.instance} is on its way to another node; try again")
        stage, index = copy_of(saved.instance)
        found += (
            SnapshotLocation(
                each.host, stage, saved.instance.generation, index, each.role.value, snapshot.digest, snapshot.length
            )
            for snapshot in saved.chain
        )
    return tuple(found)
