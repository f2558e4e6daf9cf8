"""The `stop` command: the asked agent forwards it to the coordinator and waits for the end.

A drain takes as long as rows move: a spool may hold hours of work. When a run is cut during a drain, its record gets the last
seen
figures, so its users see what was lost.
"""

from typing import Any

import msgspec

from agiledart_kernel.instants import MILLISECOND, Duration
from agiledart_kernel.permissions import Principal
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.hosting.stop_coordinator import NOT_COORDINATOR
from agiledart_node.records.application import DEPLOYING, STOPPED, ApplicationRecord, advanced
from agiledart_node.records.signed_entries import with_stop, with_stop_request
from agiledart_node.user_commands.command_service import CommandParts, CommandService
from agiledart_node.user_commands.retained_checkpoints import RetainedCheckpoints
from agiledart_node.wire.application_responses import StopResponse
from agiledart_node.wire.commands import Stop
from agiledart_node.wire.effects import Progressed
from agiledart_node.wire.formation_messages import Acknowledged, RequestStop

_POLL_INTERVAL = Duration(100 * MILLISECOND)
_TRIES = 3
"""Look-ups of a run's coordinator before the run is stopped without it."""

_POLLS_PER_SURVEY = 10
"""Polls of the record for one request for figures."""


class StopRequests(CommandService):
    """Stops applications at users' requests."""

    def __init__(self, parts: CommandParts, retained_checkpoints: RetainedCheckpoints) -> None:
        super().__init__(parts)
        self._retained_checkpoints = retained_checkpoints

    async def stop(self, request: int, command: Stop, submitter: str, principal: Principal, signed: bytes) -> None:
        """Drain an application, or cut it, and answer when it has ended. Raises CommandRefused."""
        name, now = command.name, command.now
        principal, submitter = self._verifier.identify_requester(signed, command, principal, submitter)
        record = await self._watching.refresher.refreshed(await self._status_queries.record(name, principal, "stop"))
        self._verifier.check_stop(signed, principal, record)
        if record.is_final:
            reason = f": {record.reason}" if record.reason else ""
            raise CommandRefused(f"{name} does not run: it is {record.state}{reason}")
        if command.checkpoint:
            await self._retained_checkpoints.stop(request, command, record, submitter, signed)
            return
        if record.state == DEPLOYING or record.coordinator is None:
            record = await self._stop_now(record, submitter, signed)
        else:
            seen: dict[str, Any] = await self._status_queries.summary(record) if now else {}
            message = RequestStop(0, record.name, record.version, now, submitter, signed)
            record = await self._through_coordinator(request, record, message, seen)
            if (
                record.state == STOPPED and record.is_unverified
            ):  # an older agent coordinates it, and has not kept the order
                signed_record = await self._records.change(
                    record.name, record.version, lambda current: with_stop(current, signed)
                )
                record = signed_record or record
            if seen and not record.summary:
                record = await self._with_summary(record, seen)
        if record.state != STOPPED and record.state != "finished":
            raise CommandRefused(f"{name} {record.state} while it was being stopped: {record.reason}")
        self._context.reply(request, StopResponse(name, record.version, record.state, record.summary))

    async def _with_summary(self, record: ApplicationRecord, seen: dict[str, Any]) -> ApplicationRecord:
        """Store the last seen figures in the record of an application that was cut."""

        def add(current: ApplicationRecord) -> ApplicationRecord | None:
            return None if current.summary else msgspec.structs.replace(current, summary=seen)

        return await self._records.change(record.name, record.version, add) or record

    async def _stop_now(self, record: ApplicationRecord, submitter: str, signed: bytes) -> ApplicationRecord:
        """Stop an application without its coordinator: close the record, and halt all nodes."""
        by = f"stopped by {submitter}" if submitter else "stopped by a user"

        def close(current: ApplicationRecord) -> ApplicationRecord | None:
            return with_stop(advanced(current, STOPPED, by, self._context.wall_ms), signed)

        closed = await self._records.change(record.name, record.version, close)
        if closed is None:
            raise CommandRefused(f"{record.name} cannot be stopped: the ring did not answer. Try again.")
        await self._watching.halt((*closed.nodes, *closed.guards), (record.name, record.version), by, closed.number)
        return closed

    async def _bring_stop(self, record: ApplicationRecord, message: RequestStop) -> bool:
        """Forward the stop to the current coordinator. Return False when none accepts it.

        A run that is being restarted has no coordinator for a while. Then its record holds the request, and its next attempt
        drains.
        """
        requests, timeout = self._context.requests, Duration(self._context.config.ask_timeout_ns)
        for try_number in range(_TRIES):
            if try_number:
                await requests.pause(_POLL_INTERVAL)
                _, known = await self._records.application(record.name)
                if known is None or known.version != record.version or known.is_final:
                    return True  # the caller polls the record and sees how it ended
                record = known
            if record.coordinator is None:
                continue
            number = requests.number()
            message = msgspec.structs.replace(message, request=number)
            answer = await requests.ask(record.coordinator, message, number, Acknowledged, timeout)
            if answer is not None and not answer.reason:
                return True
            if answer is not None and answer.reason != NOT_COORDINATOR:
                raise CommandRefused(answer.reason)
            if answer is None and message.now:
                return False
            if record.by_epoch and not message.now and await self._note_stop(record, message.signed_command):
                return True
        return False

    async def _note_stop(self, record: ApplicationRecord, signed: bytes) -> bool:
        """Record the request to stop once the sources have ended."""

        def wished(current: ApplicationRecord) -> ApplicationRecord | None:
            return None if current.is_final else with_stop_request(current, signed)

        return await self._records.change(record.name, record.version, wished) is not None

    async def _through_coordinator(
        self, request: int, record: ApplicationRecord, message: RequestStop, seen: dict[str, Any]
    ) -> ApplicationRecord:
        """Have the coordinator stop the run, and wait for the end; `seen` receives the last figures of a drain."""
        requests, config = self._context.requests, self._context.config
        now, submitter = message.now, message.submitter
        if not await self._bring_stop(record, message) and now:
            return await self._stop_now(record, submitter, message.signed_command)
        if not now:
            self._context.emit(Progressed(request, f"{record.name}: sources stopped; draining the rest"))
        deadline, looks = self._context.now + config.drain_timeout_ns, 0
        while self._context.now < deadline:
            _, current = await self._records.application(record.name)
            if current is None or current.version != record.version:
                raise CommandRefused(f"{record.name} was submitted again while it was being stopped.")
            if current.is_final:
                return current
            looks += 1
            if not now and looks % _POLLS_PER_SURVEY == 0 and (figures := await self._status_queries.summary(current)):
                if _moved(figures) != _moved(seen):
                    deadline = self._context.now + config.drain_timeout_ns
                seen.update(figures)
            await requests.pause(_POLL_INTERVAL)
        seconds, left = config.drain_timeout_ns // 1_000_000_000, seen.get("waiting", 0) + seen.get("spooled", 0)
        lost = f"; {left:,} records that waited at its sources are lost" if left else ""
        self._context.emit(
            Progressed(request, f"{record.name}: no record has moved for {seconds} s, so it is cut{lost}")
        )
        return await self._stop_now(record, submitter, message.signed_command)


def _moved(figures: dict[str, Any]) -> Any:
    """Return the figures that change while an application makes progress."""
    return figures.get("steps"), figures.get("results"), figures.get("waiting"), figures.get("spooled")
