"""`stop`: the agent that a user asked brings the wish to the coordinator and waits for the end."""

from agiledart_dataflow.application import DEPLOYING, STOPPED, ApplicationRecord, advanced
from agiledart_dataflow.formation_messages import Acknowledged, AskStop
from agiledart_kernel.instants import MILLISECOND, Duration
from agiledart_node.desk import CommandRefused, Desk
from agiledart_node.effects import Progressed, Replied
from agiledart_node.questions import Questions
from agiledart_node.records import Records
from agiledart_node.watching import Watching

_LOOK = Duration(100 * MILLISECOND)


class Stopping:
    """Ends applications at a user's wish."""

    def __init__(self, desk: Desk, records: Records, questions: Questions, watching: Watching) -> None:
        self._desk, self._records, self._questions, self._watching = desk, records, questions, watching

    async def stop(self, request: int, name: str, submitter: str, *, now: bool) -> None:
        """Drain an application, or cut it; answers when it has ended. Raises CommandRefused."""
        record = await self._watching.freshened(await self._questions.record(name))
        if record.is_final:
            reason = f": {record.reason}" if record.reason else ""
            raise CommandRefused(f"{name} does not run: it is {record.state}{reason}")
        if record.state == DEPLOYING or record.coordinator is None:
            record = await self._cut(record, submitter)
        else:
            record = await self._through_coordinator(request, record, submitter, now=now)
        if record.state != STOPPED and record.state != "finished":
            raise CommandRefused(f"{name} {record.state} while it was being stopped: {record.reason}")
        self._desk.emit(
            Replied(
                request,
                {"name": name, "version": record.version, "state": record.state, "summary": dict(record.summary)},
            )
        )

    async def _cut(self, record: ApplicationRecord, submitter: str) -> ApplicationRecord:
        """End it without its coordinator: close the record, halt everybody."""
        by = f"stopped by {submitter}" if submitter else "stopped by a user"
        closed = await self._records.change(
            record.name, record.version, lambda current: advanced(current, STOPPED, by, self._desk.wall_ms)
        )
        if closed is None:
            raise CommandRefused(f"{record.name} cannot be stopped: the ring did not answer. Try again.")
        await self._watching.halt((*closed.nodes, *closed.guards), (record.name, record.version), by)
        return closed

    async def _through_coordinator(
        self, request: int, record: ApplicationRecord, submitter: str, *, now: bool
    ) -> ApplicationRecord:
        talks, config = self._desk.talks, self._desk.config
        assert record.coordinator is not None
        number = talks.number()
        message = AskStop(number, record.name, record.version, now, submitter)
        timeout = Duration(config.ask_timeout_ns)
        answer = await talks.ask(record.coordinator, message, number, Acknowledged, timeout)
        if answer is None and now:
            return await self._cut(record, submitter)
        if not now:
            self._desk.emit(Progressed(request, f"{record.name}: sources end, the rest is drained"))
        deadline = self._desk.now + config.drain_timeout_ns
        while self._desk.now < deadline:
            _, current = await self._records.application(record.name)
            if current is None or current.version != record.version:
                raise CommandRefused(f"{record.name} was submitted again while it was being stopped.")
            if current.is_final:
                return current
            await talks.pause(_LOOK)
        seconds = config.drain_timeout_ns // 1_000_000_000
        self._desk.emit(Progressed(request, f"{record.name} was not drained within {seconds} s and is cut"))
        return await self._cut(record, submitter)
