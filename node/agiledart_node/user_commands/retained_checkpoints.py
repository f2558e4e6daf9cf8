"""User commands about checkpoints that outlive their runs: `stop --checkpoint`, `checkpoint export`, `checkpoint remove`.

The asked agent finds the coordinator of the run, which makes the file, and the nodes that keep a checkpoint. The ring has no
list of
checkpoints, only the files exist, so all agents are asked.
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
from agiledart_node.context.node_context import CommandRefused, NotAllowed
from agiledart_node.context.pending_requests import PeerRequest
from agiledart_node.records.application import DEPLOYING, RUNNING, ApplicationRecord
from agiledart_node.records.permission_checks import check_unseen, why_not
from agiledart_node.records.signed_entries import with_stop
from agiledart_node.user_commands.all_agents import MAX_AGENTS, ask_all_agents
from agiledart_node.user_commands.command_service import CommandService
from agiledart_node.wire.application_responses import StopResponse
from agiledart_node.wire.checkpoint_commands import ExportCheckpoint, RemoveCheckpoint
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
from agiledart_node.wire.commands import Stop
from agiledart_node.wire.effects import Progressed
from agiledart_node.wire.recovery_responses import TAKEOVER

NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
"""Valid names of a checkpoint, which are also names of files."""

LONGEST_NS: Final = Duration(1_800 * SECOND)
"""Timeout for one attempt to make or fetch a checkpoint."""

RESEND_INTERVALS: Final = 20
COORDINATOR_SEARCHES: Final = 5
_SEARCH_PAUSE: Final = Duration(SECOND)
_MIN_TIMEOUT_NS: Final = 30 * SECOND
_END_NS: Final = Duration(60 * SECOND)
_POLL_INTERVAL: Final = Duration(SECOND // 40)

RetainedCheckpoint = tuple[CheckpointInfo, list[Peer]]


class RetainedCheckpoints(CommandService):
    """Forwards users' requests about checkpoints to the nodes that have them."""

    # ---- which nodes keep which checkpoints

    async def retained(self, name: str = "", application: str = "") -> list[RetainedCheckpoint]:
        """Return the checkpoints of this name or hash, or of this application; all without either.

        Each comes with the nodes that keep it.
        """
        answers = await ask_all_agents(
            self._context, lambda number, peer, count: QueryRetained(number), RetainedCheckpointList
        )
        by_digest: dict[bytes, RetainedCheckpoint] = {}
        for peer, answer in answers:
            for checkpoint in answer.retained if answer is not None else ():
                if (not name or _is_called(checkpoint, name)) and application in ("", checkpoint.run.app):
                    by_digest.setdefault(checkpoint.digest, (checkpoint, []))[1].append(peer)
        return sorted(by_digest.values(), key=lambda retained: (retained[0].name, retained[0].taken_ms))

    async def answer_agent(self, sender: Peer, message: QueryRetained) -> None:
        """Answer another agent with the checkpoints kept here."""
        context, number = self._context, self._context.requests.number()
        answer = (await context.ask_driver(number, ReadCheckpoints(number), context.config.report_timeout_ns)).get(
            number
        )
        if isinstance(answer, Completed) and isinstance(answer.result, tuple):
            retained = tuple(checkpoint for checkpoint in answer.result if isinstance(checkpoint, CheckpointInfo))
            context.send(sender, RetainedCheckpointList(message.request, retained, context.known()[:MAX_AGENTS]))

    async def rows(self, retained: Iterable[RetainedCheckpoint]) -> list[RetainedCheckpointRow]:
        """Return the rows that users see."""
        names = self._context.names()
        return [
            RetainedCheckpointRow(
                checkpoint.name,
                checkpoint.run.app,
                checkpoint.run.version,
                checkpoint.attempt,
                checkpoint.epoch,
                checkpoint.taken_ms,
                checkpoint.size,
                checkpoint.digest.hex(),
                [names.get(peer.node, peer.name or peer.node.short) for peer in peers],
            )
            for checkpoint, peers in retained
        ]

    def check(self, principal: Principal, verb: str, retained: CheckpointInfo) -> None:
        """Raise NotAllowed unless the user may do that with a checkpoint, which belongs to the owner of its application."""
        if reason := refusal(principal, verb, _as_application(retained)):
            raise NotAllowed(reason, why_not(principal, verb, reason, retained.run.app, retained.owner))

    def allowed(
        self, retained: Iterable[RetainedCheckpoint], principal: Principal, verb: str
    ) -> list[RetainedCheckpoint]:
        """Return the checkpoints with which the user may do that."""
        return [checkpoint for checkpoint in retained if not refusal(principal, verb, _as_application(checkpoint[0]))]

    # ---- stop --checkpoint

    async def stop(self, request: int, command: Stop, record: ApplicationRecord, submitter: str, signed: bytes) -> None:
        """Stop a run and keep its state as a checkpoint. Raises CommandRefused."""
        name = command.checkpoint
        self._refuse_stop(command, record)
        if await self.retained(name):
            raise CommandRefused(
                f"There is a checkpoint {name} already; choose another name, or:  agiledart checkpoint remove {name}"
            )
        _, taken = await self._records.application(name)
        if taken is not None and not taken.is_forgotten:
            raise CommandRefused(f"{name} is an application's name; choose another one for the checkpoint.")
        self._context.emit(Progressed(request, f"{record.name}: sources stop reading; a last epoch is taken and kept"))
        # Readers of the record verify the end of the run by this signed command.
        await self._records.change(record.name, record.version, lambda current: with_stop(current, signed))
        done, _ = await self._asked(record, command, submitter, signed)
        assert done.checkpoint is not None
        last = await self._final(record)
        rows = await self.rows([(done.checkpoint, list(done.nodes))])
        self._context.reply(request, StopResponse(record.name, record.version, last.state, last.summary, rows[0]))

    def _refuse_stop(self, command: Stop, record: ApplicationRecord) -> None:
        name = record.name
        if command.now:
            raise CommandRefused(
                "--now cuts an application: no last epoch is taken. Leave out --now or --checkpoint.", 2
            )
        if NAME.fullmatch(command.checkpoint) is None:
            raise CommandRefused(
                f"invalid checkpoint name {command.checkpoint!r}: use up to 64 letters, digits, `_`, `.` or `-`.", 2
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
        """Return the answer of the run's coordinator, and that node. Raises CommandRefused."""
        await self._refuse_recovering(record)
        for search in range(COORDINATOR_SEARCHES):
            if search:
                await self._context.requests.pause(_SEARCH_PAUSE)
            for peer in {peer.node: peer for peer in (*record.guards, *record.hosts())}.values():
                number = self._context.requests.number()
                message = RequestCheckpoint(number, record.name, record.version, command, signed, submitter)
                answers = await self._context.requests.answers(
                    {number: PeerRequest(peer, message, CheckpointReply, RESEND_INTERVALS)}, LONGEST_NS
                )
                answer = answers.get(number)
                if not isinstance(answer, CheckpointReply) or answer.is_not_coordinator:
                    continue
                if answer.refusal or answer.checkpoint is None:
                    raise CommandRefused(answer.refusal, answer.exit_code)
                return answer, peer
        raise CommandRefused(
            f"No node coordinates {record.name} just now, so no checkpoint was made. Look at agiledart status {record.name}."
        )

    async def _refuse_recovering(self, record: ApplicationRecord) -> None:
        status = (await self._status_queries.statuses([record])).get(record.name)
        recovery = status.recovery if status is not None else {}
        if recovery and recovery.get("phase") not in ("replay", TAKEOVER):
            waits = ", ".join(str(node_name) for node_name in recovery.get("waits_for", ()))
            raise CommandRefused(
                f"{record.name} is being restarted ({recovery.get('phase')}: {recovery.get('reason')})"
                f"{f'; it waits for {waits}' if waits else ''}. Try again when it runs: agiledart status {record.name}"
            )

    async def _final(self, record: ApplicationRecord) -> ApplicationRecord:
        """Return the record once it has the end of the run; it follows the register."""
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
        """Answer `checkpoint export` or `checkpoint remove`. Raises CommandRefused."""
        if isinstance(command, ExportCheckpoint):
            await self.export(request, command, submitter, principal, signed)
        else:
            await self.remove(request, command, principal, signed)

    async def export(
        self, request: int, command: ExportCheckpoint, submitter: str, principal: Principal, signed: bytes
    ) -> None:
        """Fetch the file of a checkpoint to this agent. Raises CommandRefused."""
        principal, submitter = self._verifier.identify_requester(signed, command, principal, submitter)
        _, record = await self._records.application(command.name)
        if record is not None and record.state == RUNNING:
            record = await self._watching.refresher.refreshed(
                await self._status_queries.record(command.name, principal, "export")
            )
        if record is not None and record.state == RUNNING:
            self._refuse(record)
            self._context.emit(Progressed(request, f"{record.name}: its newest committed epoch is put into one file"))
            made, coordinator = await self._asked(record, command, submitter, signed)
            assert made.checkpoint is not None
            checkpoint, copy_nodes = made.checkpoint, [coordinator]
        else:
            checkpoint, copy_nodes = await self._one(command.name, principal, "export")
            await self._request_transfer(command, copy_nodes, signed)
        await self._fetch(checkpoint, copy_nodes)
        self._context.reply(request, ExportResponse(checkpoint.name, *_about(checkpoint)))

    async def _one(self, name: str, principal: Principal, verb: str) -> RetainedCheckpoint:
        """Return the checkpoint that is kept under a name. Raises CommandRefused."""
        candidates = await self.retained(name)
        if not candidates:
            check_unseen(principal, verb, name)
            raise CommandRefused(
                f"There is no checkpoint {name}, and no application of that name runs. To list those of an application:"
                "  agiledart checkpoint list APP"
            )
        mine = self.allowed(candidates, principal, verb)
        if not mine:
            self.check(principal, verb, candidates[0][0])
        if len(mine) > 1:
            which = "; ".join(
                f"{row.digest} of {row.application} v{row.version}, epoch {row.epoch}, on {', '.join(row.nodes)}"
                for row in await self.rows(mine)
            )
            raise CommandRefused(
                f"There are {len(mine)} checkpoints {name}: {which}. Give the hash of one in place of the name."
            )
        return mine[0]

    async def _request_transfer(self, command: ExportCheckpoint, copy_nodes: list[Peer], signed: bytes) -> None:
        """Have the nodes with a copy allow its transfer to this agent. Raises CommandRefused: one of them refuses the user."""
        if any(peer.node == self._context.me.node for peer in copy_nodes):
            return  # it is on this agent's disk
        timeout = Duration(self._context.config.report_timeout_ns)
        answers = await self._context.requests.ask_all(
            copy_nodes, lambda number, _: RequestDownload(number, command, signed), CopyReply, timeout
        )
        for _, answer in answers:
            if answer is not None and answer.refusal:
                raise CommandRefused(answer.refusal)

    async def _fetch(self, checkpoint: CheckpointInfo, copy_nodes: list[Peer]) -> None:
        """Fetch the file to this agent's disk from any node with a copy. Raises CommandRefused."""
        context, reasons = self._context, []
        mine = [peer for peer in copy_nodes if peer.node == context.me.node]
        for peer in mine or copy_nodes:
            number = context.requests.number()
            fetch = FetchCheckpoint(number, peer, checkpoint, is_temporary=True)
            timeout_ns = _MIN_TIMEOUT_NS + 1_000 * checkpoint.size
            answer = (await context.ask_driver(number, fetch, timeout_ns)).get(number)
            if isinstance(answer, Completed):
                return
            reason = answer.reason if isinstance(answer, Failed) else "it took too long"
            reasons.append(f"{peer.name or peer.node.short}: {reason}")
        raise CommandRefused(f"The checkpoint could not be fetched ({'; '.join(reasons)}). Try again.")

    async def remove(self, request: int, command: RemoveCheckpoint, principal: Principal, signed: bytes) -> None:
        """Remove a checkpoint from all nodes. Raises CommandRefused."""
        principal, _ = self._verifier.identify_requester(signed, command, principal, "")
        checkpoint, copy_nodes = await self._one(command.name, principal, "checkpoint")
        answers = await self._context.requests.ask_all(
            copy_nodes,
            lambda number, _: RequestRemoval(number, command, signed),
            CopyReply,
            Duration(self._context.config.report_timeout_ns),
        )
        known_names = self._context.names()
        names: dict[NodeId, str] = {peer.node: known_names.get(peer.node, peer.name) for peer, _ in answers}
        faults = [
            f"{names[peer.node]}: {answer.refusal if answer is not None else 'no answer'}"
            for peer, answer in answers
            if answer is None or answer.refusal
        ]
        if faults:
            raise CommandRefused(f"{command.name} is still kept ({'; '.join(faults)}). Try again.")
        self._context.reply(request, RemovalResponse(checkpoint.name, checkpoint.run.app, list(names.values())))

    async def remove_or_transfer(self, sender: Peer, message: RequestRemoval | RequestDownload) -> None:
        """Carry out a user's command that another agent forwards; it is verified here again."""
        context, command, refusal_text = self._context, message.command, ""
        verb = "export" if isinstance(message, RequestDownload) else "checkpoint"
        number = context.requests.number()
        answer = (await context.ask_driver(number, ReadCheckpoints(number), context.config.report_timeout_ns)).get(
            number
        )
        stored = answer.result if isinstance(answer, Completed) and isinstance(answer.result, tuple) else ()
        try:
            principal, _ = self._verifier.identify_requester(message.signed_command, command, Principal(), "")
            for checkpoint in stored:
                if isinstance(checkpoint, CheckpointInfo) and _is_called(checkpoint, command.name):
                    if self._verifier.requires_signatures:
                        self.check(principal, verb, checkpoint)
                    if isinstance(message, RequestDownload):
                        context.emit(AllowCheckpointFetch(checkpoint.digest, sender.node))
                        continue
                    number = context.requests.number()
                    await context.ask_driver(
                        number,
                        DropCheckpoint(number, checkpoint.name, checkpoint.digest, checkpoint.run),
                        _MIN_TIMEOUT_NS,
                    )
        except NotAllowed as refusal_:
            context.drop(f"command: {refusal_.reason}")
            refusal_text = refusal_.text
        context.send(sender, CopyReply(message.request, refusal_text))


def _is_called(checkpoint: CheckpointInfo, name: str) -> bool:
    return name in (checkpoint.name, checkpoint.digest.hex())


def _as_application(checkpoint: CheckpointInfo) -> ApplicationOwnership:
    return ApplicationOwnership(checkpoint.run.app, checkpoint.owner, shared=checkpoint.shared)


def _about(checkpoint: CheckpointInfo) -> tuple[str, int, int, int, int, int, str]:
    return (
        checkpoint.run.app,
        checkpoint.run.version,
        checkpoint.attempt,
        checkpoint.epoch,
        checkpoint.taken_ms,
        checkpoint.size,
        checkpoint.digest.hex(),
    )
