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
from agiledart_kernel.permissions import Application, Asker, refusal
from agiledart_node.asking.everybody import MAX_AGENTS, ask_everybody
from agiledart_node.asking.questions import Questions
from agiledart_node.desk.conversations import Question
from agiledart_node.desk.desk import CommandRefused, Desk, NotAllowed
from agiledart_node.hosting.watching import Watching
from agiledart_node.records.allowing import check_unseen, why_not
from agiledart_node.records.application import DEPLOYING, RUNNING, ApplicationRecord
from agiledart_node.records.deeds import with_stop
from agiledart_node.records.order_checks import Orders
from agiledart_node.records.records import Records
from agiledart_node.wire.bodies import StopBody
from agiledart_node.wire.checkpoint_bodies import ExportBody, KeptRow, RemovedBody
from agiledart_node.wire.checkpoint_effects import DropCheckpoint, FetchCheckpoint, LendCheckpoint, ReadCheckpoints
from agiledart_node.wire.checkpoint_messages import (
    AskCheckpoint,
    AskKept,
    AskLoan,
    AskRemoval,
    CheckpointIs,
    CopyIs,
    KeptAre,
    KnownCheckpoint,
)
from agiledart_node.wire.commands import ExportCheckpoint, RemoveCheckpoint, Stop
from agiledart_node.wire.effects import Progressed

NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
"""What a checkpoint may be called: it is the name of a file."""

LONGEST_NS: Final = Duration(1_800 * SECOND)
"""For a checkpoint to be made, or fetched, at one try."""

PATIENCE: Final = 20
TURNS: Final = 5
_NEITHER: Final = Duration(SECOND)
_LEAST_NS: Final = 30 * SECOND
_END_NS: Final = Duration(60 * SECOND)
_LOOK: Final = Duration(SECOND // 5)

Kept = tuple[KnownCheckpoint, list[Peer]]


class KeptCheckpoints:
    """Brings users' wishes about checkpoints to who has them."""

    def __init__(self, desk: Desk, records: Records, questions: Questions, watching: Watching, orders: Orders) -> None:
        self._desk, self._records, self._orders = desk, records, orders
        self._questions, self._watching = questions, watching

    # ---- who keeps what

    async def kept(self, name: str = "", application: str = "") -> list[Kept]:
        """Checkpoints of this name or hash, or of this application; all without either. Each with the nodes that keep it."""
        answers = await ask_everybody(self._desk, lambda number, peer, count: AskKept(number), KeptAre)
        found: dict[bytes, Kept] = {}
        for peer, answer in answers:
            for one in answer.kept if answer is not None else ():
                if (not name or _is_called(one, name)) and application in ("", one.run.app):
                    found.setdefault(one.digest, (one, []))[1].append(peer)
        return sorted(found.values(), key=lambda each: (each[0].name, each[0].taken_ms))

    async def local(self, sender: Peer, message: AskKept) -> None:
        """Another agent wants to know what is kept here."""
        desk, number = self._desk, self._desk.talks.number()
        answer = (await desk.driven(number, ReadCheckpoints(number), desk.config.report_timeout_ns)).get(number)
        if isinstance(answer, Completed) and isinstance(answer.result, tuple):
            kept = tuple(one for one in answer.result if isinstance(one, KnownCheckpoint))
            desk.send(sender, KeptAre(message.request, kept, desk.known()[:MAX_AGENTS]))

    async def rows(self, kept: Iterable[Kept]) -> list[KeptRow]:
        """As users are told."""
        shown = self._desk.names()
        return [
            KeptRow(
                one.name,
                one.run.app,
                one.run.version,
                one.life,
                one.epoch,
                one.taken_ms,
                one.size,
                one.digest.hex(),
                [shown.get(peer.node, peer.name or peer.node.short) for peer in peers],
            )
            for one, peers in kept
        ]

    def check(self, asker: Asker, verb: str, kept: KnownCheckpoint) -> None:
        """Raise NotAllowed unless who asks may do that with a checkpoint: it belongs to whom its application belonged to."""
        if why := refusal(asker, verb, _as_application(kept)):
            raise NotAllowed(why, why_not(asker, verb, why, kept.run.app, kept.owner))

    def allowed(self, kept: Iterable[Kept], asker: Asker, verb: str) -> list[Kept]:
        """Those with which who asks may do that."""
        return [each for each in kept if not refusal(asker, verb, _as_application(each[0]))]

    # ---- stop --checkpoint

    async def stop(self, request: int, command: Stop, record: ApplicationRecord, submitter: str, signed: bytes) -> None:
        """Have a run ended with its state kept. Raises CommandRefused."""
        name = command.checkpoint
        self._refuse_stop(command, record)
        if await self.kept(name):
            raise CommandRefused(
                f"There is a checkpoint {name} already; choose another name, or:  agiledart checkpoint remove {name}"
            )
        _, taken = await self._records.application(name)
        if taken is not None and not taken.is_forgotten:
            raise CommandRefused(f"{name} is an application's name; choose another one for the checkpoint.")
        self._desk.emit(Progressed(request, f"{record.name}: sources read no more, a last epoch is taken and kept"))
        # Whoever reads that it was stopped asks for this order.
        await self._records.change(record.name, record.version, lambda current: with_stop(current, signed))
        done, _ = await self._asked(record, command, submitter, signed)
        assert done.checkpoint is not None
        last = await self._final(record)
        rows = await self.rows([(done.checkpoint, list(done.nodes))])
        self._desk.reply(request, StopBody(record.name, record.version, last.state, last.summary, rows[0]))

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
    ) -> tuple[CheckpointIs, Peer]:
        """What its coordinator made. Raises CommandRefused."""
        await self._refuse_recovering(record)
        for turn in range(TURNS):
            if turn:
                await self._desk.talks.pause(_NEITHER)
            for peer in {peer.node: peer for peer in (*record.guards, *record.hosts())}.values():
                number = self._desk.talks.number()
                message = AskCheckpoint(number, record.name, record.version, command, signed, submitter)
                found = await self._desk.talks.answers(
                    {number: Question(peer, message, CheckpointIs, PATIENCE)}, LONGEST_NS
                )
                answer = found.get(number)
                if not isinstance(answer, CheckpointIs) or answer.is_elsewhere:
                    continue
                if answer.refusal or answer.checkpoint is None:
                    raise CommandRefused(answer.refusal, answer.exit_code)
                return answer, peer
        raise CommandRefused(
            f"Nobody coordinates {record.name} just now, so no checkpoint was made. Look at agiledart status {record.name}."
        )

    async def _refuse_recovering(self, record: ApplicationRecord) -> None:
        told = (await self._questions.standings([record])).get(record.name)
        recovery = told.recovery if told is not None else {}
        if recovery and recovery.get("phase") != "replay":
            waits = ", ".join(str(one) for one in recovery.get("waits_for", ()))
            raise CommandRefused(
                f"{record.name} is being brought back ({recovery.get('phase')}: {recovery.get('reason')})"
                f"{f'; it waits for {waits}' if waits else ''}. Try again when it runs: agiledart status {record.name}"
            )

    async def _final(self, record: ApplicationRecord) -> ApplicationRecord:
        """The record when it says that the run has ended; it follows the register."""
        until = self._desk.now + _END_NS
        while True:
            _, current = await self._records.application(record.name)
            if current is None or current.version != record.version or current.is_final or self._desk.now > until:
                return current or record
            await self._desk.talks.pause(_LOOK)

    # ---- export, remove

    async def wanted(
        self,
        request: int,
        command: ExportCheckpoint | RemoveCheckpoint,
        submitter: str,
        asker: Asker,
        signed: bytes,
    ) -> None:
        """Answer one of both. Raises CommandRefused."""
        if isinstance(command, ExportCheckpoint):
            await self.export(request, command, submitter, asker, signed)
        else:
            await self.remove(request, command, asker, signed)

    async def export(
        self, request: int, command: ExportCheckpoint, submitter: str, asker: Asker, signed: bytes
    ) -> None:
        """Have the file of a checkpoint on this agent. Raises CommandRefused."""
        asker, submitter = self._orders.given(signed, command, asker, submitter)
        _, record = await self._records.application(command.name)
        if record is not None and record.state == RUNNING:
            record = await self._watching.freshened(await self._questions.record(command.name, asker, "export"))
        if record is not None and record.state == RUNNING:
            self._refuse(record)
            self._desk.emit(Progressed(request, f"{record.name}: its newest committed epoch is put into one file"))
            made, holder = await self._asked(record, command, submitter, signed)
            assert made.checkpoint is not None
            checkpoint, holders = made.checkpoint, [holder]
        else:
            checkpoint, holders = await self._one(command.name, asker, "export")
            await self._lent(command, holders, signed)
        await self._fetched(checkpoint, holders)
        self._desk.reply(request, ExportBody(checkpoint.name, *_about(checkpoint)))

    async def _one(self, name: str, asker: Asker, verb: str) -> Kept:
        """The checkpoint that is kept under a name. Raises CommandRefused."""
        found = await self.kept(name)
        if not found:
            check_unseen(asker, verb, name)
            raise CommandRefused(
                f"There is no checkpoint {name}, and no application of that name runs. What is kept of an application:"
                "  agiledart checkpoint list APP"
            )
        mine = self.allowed(found, asker, verb)
        if not mine:
            self.check(asker, verb, found[0][0])
        if len(mine) > 1:
            which = "; ".join(
                f"{row.digest} of {row.application} v{row.version}, epoch {row.epoch}, on {', '.join(row.nodes)}"
                for row in await self.rows(mine)
            )
            raise CommandRefused(
                f"There are {len(mine)} checkpoints {name}: {which}. Give the hash of one in place of the name."
            )
        return mine[0]

    async def _lent(self, command: ExportCheckpoint, holders: list[Peer], signed: bytes) -> None:
        """Others give it to this agent now. Raises CommandRefused: one of them does not find that its user may have it."""
        if any(peer.node == self._desk.me.node for peer in holders):
            return  # it lies here
        timeout = Duration(self._desk.config.report_timeout_ns)
        answers = await self._desk.talks.ask_all(
            holders, lambda number, _: AskLoan(number, command, signed), CopyIs, timeout
        )
        for _, answer in answers:
            if answer is not None and answer.refusal:
                raise CommandRefused(answer.refusal)

    async def _fetched(self, checkpoint: KnownCheckpoint, holders: list[Peer]) -> None:
        """Its file on this agent's disk, from whoever gives it. Raises CommandRefused."""
        desk, reasons = self._desk, []
        mine = [peer for peer in holders if peer.node == desk.me.node]
        for peer in mine or holders:
            number = desk.talks.number()
            order = FetchCheckpoint(number, peer, checkpoint, passes=True)
            patience = _LEAST_NS + 1_000 * checkpoint.size
            answer = (await desk.driven(number, order, patience)).get(number)
            if isinstance(answer, Completed):
                return
            why = answer.reason if isinstance(answer, Failed) else "it took too long"
            reasons.append(f"{peer.name or peer.node.short}: {why}")
        raise CommandRefused(f"The checkpoint could not be fetched ({'; '.join(reasons)}). Try again.")

    async def remove(self, request: int, command: RemoveCheckpoint, asker: Asker, signed: bytes) -> None:
        """Keep a checkpoint no longer, on any node. Raises CommandRefused."""
        asker, _ = self._orders.given(signed, command, asker, "")
        checkpoint, holders = await self._one(command.name, asker, "checkpoint")
        answers = await self._desk.talks.ask_all(
            holders,
            lambda number, _: AskRemoval(number, command, signed),
            CopyIs,
            Duration(self._desk.config.report_timeout_ns),
        )
        shown = self._desk.names()
        names: dict[NodeId, str] = {peer.node: shown.get(peer.node, peer.name) for peer, _ in answers}
        faults = [
            f"{names[peer.node]}: {answer.refusal if answer is not None else 'no answer'}"
            for peer, answer in answers
            if answer is None or answer.refusal
        ]
        if faults:
            raise CommandRefused(f"{command.name} is still kept ({'; '.join(faults)}). Try again.")
        self._desk.reply(request, RemovedBody(checkpoint.name, checkpoint.run.app, list(names.values())))

    async def ordered(self, sender: Peer, message: AskRemoval | AskLoan) -> None:
        """Another agent brings its user's order, which is checked here again."""
        desk, command, why = self._desk, message.command, ""
        verb = "export" if isinstance(message, AskLoan) else "checkpoint"
        number = desk.talks.number()
        answer = (await desk.driven(number, ReadCheckpoints(number), desk.config.report_timeout_ns)).get(number)
        here = answer.result if isinstance(answer, Completed) and isinstance(answer.result, tuple) else ()
        try:
            asker, _ = self._orders.given(message.order, command, Asker(), "")
            for one in here:
                if isinstance(one, KnownCheckpoint) and _is_called(one, command.name):
                    if self._orders.are_signed:
                        self.check(asker, verb, one)
                    if isinstance(message, AskLoan):
                        desk.emit(LendCheckpoint(one.digest, sender.node))
                        continue
                    number = desk.talks.number()
                    await desk.driven(number, DropCheckpoint(number, one.name, one.digest, one.run), _LEAST_NS)
        except NotAllowed as refusal_:
            desk.drop(f"order: {refusal_.reason}")
            why = refusal_.text
        desk.send(sender, CopyIs(message.request, why))


def _is_called(one: KnownCheckpoint, name: str) -> bool:
    return name in (one.name, one.digest.hex())


def _as_application(one: KnownCheckpoint) -> Application:
    return Application(one.run.app, one.owner, shared=one.shared)


def _about(one: KnownCheckpoint) -> tuple[str, int, int, int, int, int, str]:
    return one.run.app, one.run.version, one.life, one.epoch, one.taken_ms, one.size, one.digest.hex()
