"""Checkpoints that outlive their runs, for users: `stop --checkpoint`, `checkpoint export`, `checkpoint remove`.

The agent that is asked finds who coordinates the run, which makes the file, and who keeps what. Nothing on the ring says which
checkpoints there are: their files do, so all agents are asked.
"""

import re
from collections.abc import Iterable
from typing import Final

from agiledart_dataflow.plan.delivery import SAVING
from agiledart_kernel.instants import SECOND, Duration
from agiledart_kernel.machine import Completed, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import ApplicationOwnership, Principal, refusal
from agiledart_node.context.node_context import CommandRefused, NodeContext, NotAllowed
from agiledart_node.context.pending_requests import PeerRequest
from agiledart_node.hosting.application_watcher import ApplicationWatcher
from agiledart_node.records.application import DEPLOYING, RUNNING, ApplicationRecord
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.permission_checks import check_unseen, why_not
from agiledart_node.records.records import Records
from agiledart_node.records.signed_entries import with_stop
from agiledart_node.user_commands.all_agents import MAX_AGENTS, ask_all_agents
from agiledart_node.user_commands.status_queries import StatusQueries
from agiledart_node.wire.checkpoint_effects import (
    AllowCheckpointFetch,
    DropCheckpoint,
    FetchCheckpoint,
    ReadCheckpoints,
)
from agiledart_node.wire.checkpoint_messages import (
    CheckpointInfo,
    CheckpointReply,
    CopyReply,
    QueryRetained,
    RequestCheckpoint,
    RequestDownload,
    RequestRemoval,
    RetainedCheckpointList,
)
from agiledart_node.wire.checkpoint_responses import ExportResponse, RemovalResponse, RetainedCheckpointRow
from agiledart_node.wire.commands import ExportCheckpoint, RemoveCheckpoint, Stop
from agiledart_node.wire.effects import Progressed
from agiledart_node.wire.responses import StopResponse

NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
"""What a checkpoint may be called: it is the name of a file."""

LONGEST_NS: Final = Duration(1_800 * SECOND)
"""For a checkpoint to be made, or fetched, at one try."""

RESEND_INTERVALS: Final = 20
COORDINATOR_SEARCHES: Final = 5
_SEARCH_PAUSE: Final = Duration(SECOND)
_MIN_TIMEOUT_NS: Final = 30 * SECOND
_END_NS: Final = Duration(60 * SECOND)
_POLL_INTERVAL: Final = Duration(SECOND // 5)

RetainedCheckpoint = tuple[CheckpointInfo, list[Peer]]


class RetainedCheckpoints:
    """Brings users' wishes about checkpoints to who has them."""

    def __init__(
        self,
        context: NodeContext,
        records: Records,
        status_queries: StatusQueries,
        watching: ApplicationWatcher,
        verifier: CommandVerifier,
    ) -> None:
        self._context, self._records, self._verifier = context, records, verifier
        self._status_queries, self._watching = status_queries, watching

    # ---- who keeps what

    async def retained(self, name: str = "", application: str = "") -> list[RetainedCheckpoint]:
        """Checkpoints of this name or hash, or of this application; all without either. Each with the nodes that keep it."""
        answers = await ask_all_agents(
            self._context, lambda number, peer, count: QueryRetained(number), RetainedCheckpointList
        )
        found: dict[bytes, RetainedCheckpoint] = {}
        for peer, answer in answers:
            for one in answer.retained if answer is not None else ():
                if (not name or _is_called(one, name)) and application in ("", one.run.app):
                    found.setdefault(one.digest, (one, []))[1].append(peer)
        return sorted(found.values(), key=lambda each: (each[0].name, each[0].taken_ms))

    async def answer_agent(self, sender: Peer, message: QueryRetained) -> None:
        """Another agent wants to know what is kept here."""
        context, number = self._context, self._context.requests.number()
        answer = (await context.ask_driver(number, ReadCheckpoints(number), context.config.report_timeout_ns)).get(
            number
        )
        if isinstance(answer, Completed) and isinstance(answer.result, tuple):
            retained = tuple(one for one in answer.result if isinstance(one, CheckpointInfo))
            context.send(sender, RetainedCheckpointList(message.request, retained, context.known()[:MAX_AGENTS]))

    async def rows(self, retained: Iterable[RetainedCheckpoint]) -> list[RetainedCheckpointRow]:
        """As users are told."""
        shown = self._context.names()
        return [
            RetainedCheckpointRow(
                one.name,
                one.run.app,
                one.run.version,
                one.attempt,
                one.epoch,
                one.taken_ms,
                one.size,
                one.digest.hex(),
                [shown.get(peer.node, peer.name or peer.node.short) for peer in peers],
            )
            for one, peers in retained
        ]

    def check(self, principal: Principal, verb: str, retained: CheckpointInfo) -> None:
        """Raise NotAllowed unless who asks may do that with a checkpoint: it belongs to whom its application belonged to."""
        if why := refusal(principal, verb, _as_application(retained)):
            raise NotAllowed(why, why_not(principal, verb, why, retained.run.app, retained.owner))

    def allowed(
        self, retained: Iterable[RetainedCheckpoint], principal: Principal, verb: str
    ) -> list[RetainedCheckpoint]:
        """Those with which who asks may do that."""
        return [each for each in retained if not refusal(principal, verb, _as_application(each[0]))]

    # ---- stop --checkpoint

    async def stop(self, request: int, command: Stop, record: ApplicationRecord, submitter: str, signed: bytes) -> None:
        """Have a run ended with its state kept. Raises CommandRefused."""
        name = command.checkpoint
        self._refuse_stop(command, record)
        if await self.retained(name):
            raise CommandRefused(
                f"There is a checkpoint {name} already; choose another name, or:  agiledart checkpoint remove {name}"
            )
        _, taken = await self._records.application(name)
        if taken is not None and not taken.is_forgotten:
            raise CommandRefused(f"{name} is an application's name; choose another one for the checkpoint.")
        self._context.emit(Progressed(request, f"{record.name}: sources read no more, a last epoch is taken and kept"))
        # Whoever reads that it was stopped asks for this order.
        await self._records.change(record.name, record.version, lambda current: with_stop(current, signed))
        done, _ = await self._asked(record, command, submitter, signed)
        assert done.checkpoint is not None
        last = await self._final(record)
        rows = await self.rows([(done.checkpoint, list(done.nodes))])
        self._context.reply(request, StopResponse(record.name, record.version, last.state, last.summary, rows[0]))

    def _refuse_stop(self, command: Stop, record: ApplicationRecord) -> None:
        name = record.name
        if command.now:
            raise CommandRefused("--now cuts an application: no last epoch is taken. Leave out one of both.", 2)
        if NAME.fullmatch(command.checkpoint) is None:
            raise CommandRefused(
                f"{command.checkpoint!r} is no name of a checkpoint: up to 64 letters, digits and _ . - are.", 2
            )
        self._refuse(record)
        if record.stopping:
            raise CommandRefused(f"{name} is being drained already: its windows close, so there is no state to keep.")

    @staticmethod
    def _refuse(record: ApplicationRecord) -> None:
        name = record.name
        if not record.by_epoch:
            raise CommandRefused(
                f"{name} is not saved by epochs, so there is no state to keep. Submit it with {SAVING}."
            )
        if record.state == DEPLOYING:
            raise CommandRefused(f"{name} is deploying: try again when it runs.")
        if record.state != RUNNING:
            raise CommandRefused(f"{name} is {record.state}: nothing of its state is left.")

    async def _asked(
        self, record: ApplicationRecord, command: Stop | ExportCheckpoint, submitter: str, signed: bytes
    ) -> tuple[CheckpointReply, Peer]:
        """What its coordinator made. Raises CommandRefused."""
        await self._refuse_recovering(record)
        for search in range(COORDINATOR_SEARCHES):
            if search:
                await self._context.requests.pause(_SEARCH_PAUSE)
            for peer in {peer.node: peer for peer in (*record.guards, *record.hosts())}.values():
                number = self._context.requests.number()
                message = RequestCheckpoint(number, record.name, record.version, command, signed, submitter)
                found = await self._context.requests.answers(
                    {number: PeerRequest(peer, message, CheckpointReply, RESEND_INTERVALS)}, LONGEST_NS
                )
                answer = found.get(number)
                if not isinstance(answer, CheckpointReply) or answer.is_not_coordinator:
                    continue
                if answer.refusal or answer.checkpoint is None:
                    raise CommandRefused(answer.refusal, answer.exit_code)
                return answer, peer
        raise CommandRefused(
            f"Nobody coordinates {record.name} just now, so no checkpoint was made. Look at agiledart status {record.name}."
        )

    async def _refuse_recovering(self, record: ApplicationRecord) -> None:
        status = (await self._status_queries.statuses([record])).get(record.name)
        recovery = status.recovery if status is not None else {}
        if recovery and recovery.get("phase") != "replay":
            waits = ", ".join(str(one) for one in recovery.get("waits_for", ()))
            raise CommandRefused(
                f"{record.name} is being brought back ({recovery.get('phase')}: {recovery.get('reason')})"
                f"{f'; it waits for {waits}' if waits else ''}. Try again when it runs: agiledart status {record.name}"
            )

    async def _final(self, record: ApplicationRecord) -> ApplicationRecord:
        """The record when it says that the run has ended; it follows the register."""
        until = self._context.now + _END_NS
        while True:
            _, current = await self._records.application(record.name)
            if current is None or current.version != record.version or current.is_final or self._context.now > until:
                return current or record
            await self._context.requests.pause(_POLL_INTERVAL)

    # ---- export, remove

    async def export_or_remove(
        self,
        request: int,
        command: ExportCheckpoint | RemoveCheckpoint,
        submitter: str,
        principal: Principal,
        signed: bytes,
    ) -> None:
        """Answer one of both. Raises CommandRefused."""
        if isinstance(command, ExportCheckpoint):
            await self.export(request, command, submitter, principal, signed)
        else:
            await self.remove(request, command, principal, signed)

    async def export(
        self, request: int, command: ExportCheckpoint, submitter: str, principal: Principal, signed: bytes
    ) -> None:
        """Have the file of a checkpoint on this agent. Raises CommandRefused."""
        principal, submitter = self._verifier.given(signed, command, principal, submitter)
        _, record = await self._records.application(command.name)
        if record is not None and record.state == RUNNING:
            record = await self._watching.refreshed(
                await self._status_queries.record(command.name, principal, "export")
            )
        if record is not None and record.state == RUNNING:
            self._refuse(record)
            self._context.emit(Progressed(request, f"{record.name}: its newest committed epoch is put into one file"))
            made, holder = await self._asked(record, command, submitter, signed)
            assert made.checkpoint is not None
            checkpoint, holders = made.checkpoint, [holder]
        else:
            checkpoint, holders = await self._one(command.name, principal, "export")
            await self._request_transfer(command, holders, signed)
        await self._fetch(checkpoint, holders)
        self._context.reply(request, ExportResponse(checkpoint.name, *_about(checkpoint)))

    async def _one(self, name: str, principal: Principal, verb: str) -> RetainedCheckpoint:
        """The checkpoint that is kept under a name. Raises CommandRefused."""
        found = await self.retained(name)
        if not found:
            check_unseen(principal, verb, name)
            raise CommandRefused(
                f"There is no checkpoint {name}, and no application of that name runs. What is kept of an application:"
                "  agiledart checkpoint list APP"
            )
        mine = self.allowed(found, principal, verb)
        if not mine:
            self.check(principal, verb, found[0][0])
        if len(mine) > 1:
            which = "; ".join(
                f"{row.digest} of {row.application} v{row.version}, epoch {row.epoch}, on {', '.join(row.nodes)}"
                for row in await self.rows(mine)
            )
            raise CommandRefused(
                f"There are {len(mine)} checkpoints {name}: {which}. Give the hash of one in place of the name."
            )
        return mine[0]

    async def _request_transfer(self, command: ExportCheckpoint, holders: list[Peer], signed: bytes) -> None:
        """Others give it to this agent now. Raises CommandRefused: one of them does not find that its user may have it."""
        if any(peer.node == self._context.me.node for peer in holders):
            return  # it lies here
        timeout = Duration(self._context.config.report_timeout_ns)
        answers = await self._context.requests.ask_all(
            holders, lambda number, _: RequestDownload(number, command, signed), CopyReply, timeout
        )
        for _, answer in answers:
            if answer is not None and answer.refusal:
                raise CommandRefused(answer.refusal)

    async def _fetch(self, checkpoint: CheckpointInfo, holders: list[Peer]) -> None:
        """Its file on this agent's disk, from whoever gives it. Raises CommandRefused."""
        context, reasons = self._context, []
        mine = [peer for peer in holders if peer.node == context.me.node]
        for peer in mine or holders:
            number = context.requests.number()
            fetch = FetchCheckpoint(number, peer, checkpoint, is_temporary=True)
            patience = _MIN_TIMEOUT_NS + 1_000 * checkpoint.size
            answer = (await context.ask_driver(number, fetch, patience)).get(number)
            if isinstance(answer, Completed):
                return
            why = answer.reason if isinstance(answer, Failed) else "it took too long"
            reasons.append(f"{peer.name or peer.node.short}: {why}")
        raise CommandRefused(f"The checkpoint could not be fetched ({'; '.join(reasons)}). Try again.")

    async def remove(self, request: int, command: RemoveCheckpoint, principal: Principal, signed: bytes) -> None:
        """Keep a checkpoint no longer, on any node. Raises CommandRefused."""
        principal, _ = self._verifier.given(signed, command, principal, "")
        checkpoint, holders = await self._one(command.name, principal, "checkpoint")
        answers = await self._context.requests.ask_all(
            holders,
            lambda number, _: RequestRemoval(number, command, signed),
            CopyReply,
            Duration(self._context.config.report_timeout_ns),
        )
        shown = self._context.names()
        names: dict[NodeId, str] = {peer.node: shown.get(peer.node, peer.name) for peer, _ in answers}
        faults = [
            f"{names[peer.node]}: {answer.refusal if answer is not None else 'no answer'}"
            for peer, answer in answers
            if answer is None or answer.refusal
        ]
        if faults:
            raise CommandRefused(f"{command.name} is still kept ({'; '.join(faults)}). Try again.")
        self._context.reply(request, RemovalResponse(checkpoint.name, checkpoint.run.app, list(names.values())))

    async def remove_or_transfer(self, sender: Peer, message: RequestRemoval | RequestDownload) -> None:
        """Another agent brings its user's order, which is checked here again."""
        context, command, why = self._context, message.command, ""
        verb = "export" if isinstance(message, RequestDownload) else "checkpoint"
        number = context.requests.number()
        answer = (await context.ask_driver(number, ReadCheckpoints(number), context.config.report_timeout_ns)).get(
            number
        )
        here = answer.result if isinstance(answer, Completed) and isinstance(answer.result, tuple) else ()
        try:
            principal, _ = self._verifier.given(message.signed_command, command, Principal(), "")
            for one in here:
                if isinstance(one, CheckpointInfo) and _is_called(one, command.name):
                    if self._verifier.requires_signatures:
                        self.check(principal, verb, one)
                    if isinstance(message, RequestDownload):
                        context.emit(AllowCheckpointFetch(one.digest, sender.node))
                        continue
                    number = context.requests.number()
                    await context.ask_driver(
                        number, DropCheckpoint(number, one.name, one.digest, one.run), _MIN_TIMEOUT_NS
                    )
        except NotAllowed as refusal_:
            context.drop(f"command: {refusal_.reason}")
            why = refusal_.text
        context.send(sender, CopyReply(message.request, why))


def _is_called(one: CheckpointInfo, name: str) -> bool:
    return name in (one.name, one.digest.hex())


def _as_application(one: CheckpointInfo) -> ApplicationOwnership:
    return ApplicationOwnership(one.run.app, one.owner, shared=one.shared)


def _about(one: CheckpointInfo) -> tuple[str, int, int, int, int, int, str]:
    return one.run.app, one.run.version, one.attempt, one.epoch, one.taken_ms, one.size, one.digest.hex()
