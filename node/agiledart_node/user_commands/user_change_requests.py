"""The commands `scale` and `move`: the asked agent finds the run's coordinator, forwards the request, and waits for the outcome.

Any voter may coordinate, and another one may take over while the change is under way. So all voters are asked until one confirms
that it coordinates. Afterwards the register tells the outcome, whichever voter leads then.
"""

from typing import Final

import msgspec

from agiledart_dataflow.plan.delivery import SAVING
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.errors import TopologyError
from agiledart_kernel.instants import MILLISECOND, SECOND, Duration
from agiledart_kernel.permissions import Principal
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.records.application import DEPLOYING, RUNNING, SPECIFICATION_CODEC, ApplicationRecord
from agiledart_node.user_commands.command_service import CommandService
from agiledart_node.user_commands.non_parallel_stages import refuse_non_parallel
from agiledart_node.wire.change_messages import ChangeAccepted, RequestChange
from agiledart_node.wire.change_responses import ChangeResponse, ChangeRow
from agiledart_node.wire.commands import VERB_BY_COMMAND, MoveStage, ScaleStage
from agiledart_node.wire.effects import Progressed
from agiledart_recovery.wire.register_value import ChangeOutcome

POLL_INTERVAL_NS: Final = Duration(200 * MILLISECOND)

MAX_POLLS: Final = 600
"""Polls for the outcome of a change: longer than one may take, with a recovery behind it."""

COORDINATOR_SEARCHES: Final = 5
"""Searches for the coordinator; repeated because another voter may be about to take over."""

_SEARCH_PAUSE: Final = Duration(SECOND)

StageGenerations = tuple[tuple[str, int], ...]


class UserChangeRequests(CommandService):
    """Forwards users' change requests to coordinators."""

    async def change(
        self, request: int, command: ScaleStage | MoveStage, submitter: str, principal: Principal, signed: bytes
    ) -> None:
        """Answer `scale` or `move`. Raises CommandRefused, also when the change was dropped or rolled back."""
        principal, submitter = self._verifier.identify_requester(signed, command, principal, submitter)
        record = await self._status_queries.record(command.name, principal, VERB_BY_COMMAND[type(command)])
        record = await self._watching.refresher.refreshed(record)
        if isinstance(command, MoveStage) and command.is_auto:
            await self._note_place(record, command)
            self._context.reply(request, ChangeResponse(record.name, record.version, False, []))
            return
        if isinstance(command, MoveStage):
            self._context.node_named(command.node)
        else:
            self._refuse_state(record)
            plan = msgspec.msgpack.decode(record.plan, type=StagePlan)
            refuse_non_parallel(plan, SPECIFICATION_CODEC.decode(record.specification), command)
        if isinstance(command, ScaleStage) and command.is_auto:
            await self._hold(record, command)
            self._context.reply(request, ChangeResponse(record.name, record.version, False, []))
            return
        generations = await self.asked(record, command, submitter, signed)
        # A number set by a user also ends autoscaling of that stage, whether or not it changes anything now.
        if isinstance(command, ScaleStage):
            await self._hold(record, command)
        else:
            await self._note_place(record, command)
        rows: list[ChangeRow] = []
        if generations and command.wait:
            self._context.emit(Progressed(request, f"{record.name}: the change is prepared while rows flow"))
            rows = await self.finalised(record, generations)
        elif generations:
            rows = await self._rows(record, generations)
        self._context.reply(request, ChangeResponse(record.name, record.version, not generations, rows))

    async def _hold(self, record: ApplicationRecord, command: ScaleStage) -> None:
        """Record whether a stage scales by itself from now on. Raises CommandRefused."""
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

    async def _note_place(self, record: ApplicationRecord, command: MoveStage) -> None:
        """Record whether a stage stays where a user has moved it. Raises CommandRefused."""
        self._refuse_state(record)
        plan = msgspec.msgpack.decode(record.plan, type=StagePlan)
        base, dot, number = command.stage.rpartition(".")
        try:
            name = plan.stage_named(base if dot and number.isdecimal() else command.stage).name
        except TopologyError as error:
            raise CommandRefused(str(error), 2) from None

        def note(current: ApplicationRecord) -> ApplicationRecord | None:
            others = tuple(other for other in current.placed_by_user if other != name)
            placed = others if command.is_auto else (*others, name)
            if current.is_final or placed == current.placed_by_user:
                return None
            return msgspec.structs.replace(current, placed_by_user=placed)

        await self._records.change(record.name, record.version, note, record.number)

    async def asked(
        self, record: ApplicationRecord, command: ScaleStage | MoveStage, submitter: str, signed: bytes
    ) -> StageGenerations:
        """Return the stages that change, with their new generations; empty: nothing is to change. Raises CommandRefused."""
        self._refuse_state(record)
        for search in range(COORDINATOR_SEARCHES):
            if search:
                await self._context.requests.pause(_SEARCH_PAUSE)
            for peer in {peer.node: peer for peer in (*record.guards, *record.hosts())}.values():
                number = self._context.requests.number()
                message = RequestChange(number, record.name, record.version, command, signed, submitter)
                timeout = Duration(self._context.config.report_timeout_ns)
                answer = await self._context.requests.ask(peer, message, number, ChangeAccepted, timeout)
                if answer is None or answer.is_not_coordinator:
                    continue
                if answer.refusal:
                    raise CommandRefused(answer.refusal, answer.exit_code)
                return answer.generations
        raise CommandRefused(
            f"No node coordinates {record.name} just now, so nothing was changed. Look at agiledart status {record.name}."
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

    async def finalised(self, record: ApplicationRecord, generations: StageGenerations) -> list[ChangeRow]:
        """Return the outcome of a change. Raises CommandRefused: it was dropped or rolled back, or its outcome is unknown."""
        for _ in range(MAX_POLLS):
            rows = await self._rows(record, generations)
            over = [row for row in rows if row.state != ChangeOutcome.RUNNING.value]
            if len(over) == len(generations):
                failed = [row for row in over if row.state != ChangeOutcome.DONE.value]
                if failed:
                    raise CommandRefused(_why(record.name, failed[0]))
                return rows
            await self._context.requests.pause(POLL_INTERVAL_NS)
        raise CommandRefused(
            f"The outcome of the change of {record.name} is not known after {MAX_POLLS * POLL_INTERVAL_NS // SECOND} s."
            f" Look at agiledart explain scaling {record.name}."
        )

    async def _rows(self, record: ApplicationRecord, generations: StageGenerations) -> list[ChangeRow]:
        rows = await self._status_queries.changes(record)
        return [row for row in rows if (row.number, row.generation) in generations]


def _why(name: str, row: ChangeRow) -> str:
    subject = f"The {row.kind} of {row.stage}" if row.kind else f"The change of {row.stage}"
    if row.state == ChangeOutcome.DROPPED.value:
        return f"{subject} of {name} was dropped, and nothing has changed: {row.why}."
    return f"{subject} of {name} was rolled back, so nothing has changed: {row.why}."
