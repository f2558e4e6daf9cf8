"""`scale` and `move`: the agent that a user asked finds who coordinates the run, brings the wish, and waits for what becomes of it.

Any voter may coordinate, and another one may take over while the change is under way, so all of them are asked until one says
that it does; afterwards the register's own notes say how it ended, whoever leads then.
"""

from typing import Final

import msgspec

from agiledart_dataflow.plan.delivery import SAVING
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.errors import TopologyError
from agiledart_kernel.instants import MILLISECOND, SECOND, Duration
from agiledart_kernel.permissions import Asker
from agiledart_node.asking.questions import Questions
from agiledart_node.asking.running_once import refuse_once
from agiledart_node.desk.desk import CommandRefused, Desk
from agiledart_node.hosting.watching import Watching
from agiledart_node.records.application import DEPLOYING, RUNNING, SPECIFICATION_CODEC, ApplicationRecord
from agiledart_node.records.order_checks import Orders
from agiledart_node.records.records import Records
from agiledart_node.wire.change_bodies import ChangedBody, ChangeRow
from agiledart_node.wire.change_messages import AskChange, ChangeTaken
from agiledart_node.wire.commands import VERB_BY_COMMAND, Move, Scale
from agiledart_node.wire.effects import Progressed
from agiledart_recovery.wire.value import Fate

LOOK_NS: Final = Duration(200 * MILLISECOND)

LOOKS: Final = 600
"""So often somebody looks what became of a change: longer than one may take, with a recovery behind it."""

TURNS: Final = 5
"""So often somebody is looked for who coordinates: another voter may be about to."""

_NEITHER: Final = Duration(SECOND)

Terms = tuple[tuple[str, int], ...]


class WantingChanges:
    """Brings users' wishes to coordinators."""

    def __init__(self, desk: Desk, records: Records, questions: Questions, watching: Watching, orders: Orders) -> None:
        self._desk, self._records, self._orders = desk, records, orders
        self._questions, self._watching = questions, watching

    async def change(self, request: int, command: Scale | Move, submitter: str, asker: Asker, signed: bytes) -> None:
        """Answer `scale` or `move`. Raises CommandRefused, also when it was let go or rolled back."""
        asker, submitter = self._orders.given(signed, command, asker, submitter)
        record = await self._questions.record(command.name, asker, VERB_BY_COMMAND[type(command)])
        record = await self._watching.freshened(record)
        if isinstance(command, Move):
            self._desk.node_named(command.node)
        else:
            self._refuse_state(record)
            plan = msgspec.msgpack.decode(record.plan, type=StagePlan)
            refuse_once(plan, SPECIFICATION_CODEC.decode(record.specification), command)
        if isinstance(command, Scale) and command.is_auto:
            await self._hold(record, command)
            self._desk.reply(request, ChangedBody(record.name, record.version, False, []))
            return
        terms = await self.asked(record, command, submitter, signed)
        if isinstance(command, Scale):
            await self._hold(record, command)
        rows: list[ChangeRow] = []
        if terms and command.wait:
            self._desk.emit(Progressed(request, f"{record.name}: it is made ready while rows flow"))
            rows = await self.settled(record, terms)
        elif terms:
            rows = await self._rows(record, terms)
        self._desk.reply(request, ChangedBody(record.name, record.version, not terms, rows))

    async def _hold(self, record: ApplicationRecord, command: Scale) -> None:
        """Note whether a stage scales by itself from now on. Raises CommandRefused."""
        self._refuse_state(record)
        try:
            stage = msgspec.msgpack.decode(record.plan, type=StagePlan).stage_named(command.stage)
        except TopologyError as error:
            raise CommandRefused(str(error), 2) from None
        if command.is_auto and not stage.scales:
            raise CommandRefused(
                f"{stage.name} has no limits to scale within: submit it with --parallelism {stage.name.split('+')[0]}=1..8.",
                2,
            )

        def note(current: ApplicationRecord) -> ApplicationRecord | None:
            others = tuple(name for name in current.held if name != stage.name)
            held = others if command.is_auto or not stage.scales else (*others, stage.name)
            if current.is_final or held == current.held:
                return None
            return msgspec.structs.replace(current, held=held)

        await self._records.change(record.name, record.version, note, record.number)

    async def asked(self, record: ApplicationRecord, command: Scale | Move, submitter: str, signed: bytes) -> Terms:
        """Which stages take which terms; none: all is so already. Raises CommandRefused."""
        self._refuse_state(record)
        for turn in range(TURNS):
            if turn:
                await self._desk.talks.pause(_NEITHER)
            for peer in {peer.node: peer for peer in (*record.guards, *record.hosts())}.values():
                number = self._desk.talks.number()
                message = AskChange(number, record.name, record.version, command, signed, submitter)
                timeout = Duration(self._desk.config.report_timeout_ns)
                answer = await self._desk.talks.ask(peer, message, number, ChangeTaken, timeout)
                if answer is None or answer.is_elsewhere:
                    continue
                if answer.refusal:
                    raise CommandRefused(answer.refusal, answer.exit_code)
                return answer.terms
        raise CommandRefused(
            f"Nobody coordinates {record.name} just now, so nothing was changed. Look at agiledart status {record.name}."
        )

    @staticmethod
    def _refuse_state(record: ApplicationRecord) -> None:
        name = record.name
        if record.state == DEPLOYING:
            raise CommandRefused(f"{name} is deploying: try again when it runs.")
        if record.state != RUNNING:
            raise CommandRefused(f"{name} is {record.state}: only what runs can be changed.")
        if record.stopping:
            raise CommandRefused(f"{name} is being stopped: only what runs on can be changed.")
        if not record.by_epoch:
            raise CommandRefused(
                f"{name} is not saved by epochs, so it keeps its instances until it ends. Submit it with {SAVING}."
            )

    async def settled(self, record: ApplicationRecord, terms: Terms) -> list[ChangeRow]:
        """What became of it. Raises CommandRefused when it was let go or rolled back, or nobody knows."""
        for _ in range(LOOKS):
            rows = await self._rows(record, terms)
            over = [row for row in rows if row.state != Fate.RUNNING.value]
            if len(over) == len(terms):
                failed = [row for row in over if row.state != Fate.DONE.value]
                if failed:
                    raise CommandRefused(_why(record.name, failed[0]))
                return rows
            await self._desk.talks.pause(LOOK_NS)
        raise CommandRefused(
            f"Nobody has said within {LOOKS * LOOK_NS // SECOND} s what became of the change of {record.name}."
            f" Look at agiledart explain scaling {record.name}."
        )

    async def _rows(self, record: ApplicationRecord, terms: Terms) -> list[ChangeRow]:
        rows = await self._questions.changes(record)
        return [row for row in rows if (row.number, row.term) in terms]


def _why(name: str, row: ChangeRow) -> str:
    what = f"The {row.kind} of {row.stage}" if row.kind else f"The change of {row.stage}"
    if row.state == Fate.LET_GO.value:
        return f"{what} of {name} was let go, and nothing has changed: {row.why}."
    return f"{what} of {name} was rolled back, and what it had is as it was: {row.why}."
