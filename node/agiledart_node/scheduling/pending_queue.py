"""Queue of applications for which no node has capacity. Their scheduler raises an alarm and checks the capacity again regularly.

The first application checks every `capacity_check_interval_ns`. When it still finds no capacity, the next one tries at once, and
so
on through the queue. So a large application does not keep small ones from free capacity, and every application that fits is
deployed. A pending application is `deploying` with the reason in `list` and `status`; `stop` ends it.

Source: the project's dataflow specification §4 rule 3 ("queue the deployment and raise an alarm"). Departs: the queue and
the time in it are bounded; beyond these limits the submission is refused.
"""

from agiledart_kernel.instants import SECOND, Duration
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.forming.submission_runner import Progress
from agiledart_node.records.application import DEPLOYING, ApplicationRecord, waiting_for_capacity
from agiledart_node.records.records import Records
from agiledart_node.scheduling.observations import ApplicationWaits
from agiledart_node.scheduling.planning_slots import PlanningSlots
from agiledart_node.wire.commands import WAITING_FOR_CAPACITY

_SLOT_TIMEOUT = Duration(60 * SECOND)

Key = tuple[str, int]


class PendingQueue:
    """Pending queue of one scheduler."""

    def __init__(self, context: NodeContext, records: Records, planning_slots: PlanningSlots) -> None:
        self._context, self._records, self._planning_slots = context, records, planning_slots
        self._queue: dict[Key, tuple[int, int]] = {}

    @property
    def waiting(self) -> tuple[str, ...]:
        """Return the pending applications, first come first."""
        return tuple(name for name, _ in self._queue)

    async def wait(self, record: ApplicationRecord, reason: str, progress: Progress) -> None:
        """Release the planning slot, wait, and take a slot again; the caller then tries once more.

        Raises:
            CommandRefused: the queue is full, the time is over, or the application was stopped meanwhile.
        """
        key, config = (record.name, record.version), self._context.config
        if key not in self._queue:
            await self._enter(record, reason, progress)
        _, deadline = self._queue[key]
        self._wake_next(key)
        rest = deadline - self._context.now
        if rest <= 0:
            seconds = config.pending_timeout_ns // SECOND
            raise CommandRefused(f"{reason} {record.name} has waited for {seconds} s, which is the limit.")
        number = self._context.requests.number()
        self._queue[key] = (number, deadline)
        self._planning_slots.release_slot()
        is_first = next(iter(self._queue)) == key
        await self._context.requests.answers(
            {number: None}, Duration(min(rest, config.capacity_check_interval_ns) if is_first else rest)
        )
        self._queue[key] = (0, deadline)
        while not await self._planning_slots.acquire(_SLOT_TIMEOUT):
            pass
        await self._check(record)

    def leave(self, key: Key) -> None:
        """Remove an application that runs now, or never will."""
        if key in self._queue:
            self._wake_next(key)
            del self._queue[key]

    async def _enter(self, record: ApplicationRecord, reason: str, progress: Progress) -> None:
        config = self._context.config
        if len(self._queue) >= config.max_pending:
            others = f" {len(self._queue)} others wait for room already." if self._queue else ""
            raise CommandRefused(f"{reason}{others}")
        key = (record.name, record.version)
        self._queue[key] = (0, self._context.now + config.pending_timeout_ns)
        self._context.observe(ApplicationWaits(record.name, reason, len(self._queue)))
        give_up = f"It starts by itself when there is room. Give up: agiledart stop {record.name}"
        progress(f"{record.name} {WAITING_FOR_CAPACITY}: {reason} {give_up}")

        def note(current: ApplicationRecord) -> ApplicationRecord | None:
            return (
                waiting_for_capacity(current, reason, self._context.wall_ms)
                if current.ticket == record.ticket
                else None
            )

        await self._records.change(*key, note)
        await self._check(record)

    async def _check(self, record: ApplicationRecord) -> None:
        """Raise CommandRefused when the application was stopped or replaced meanwhile."""
        _, current = await self._records.application(record.name)
        if current is not None and (current.ticket != record.ticket or current.state != DEPLOYING):
            raise CommandRefused(current.reason or f"{record.name} was {current.state} while it waited for room.")

    def _wake_next(self, key: Key) -> None:
        """Let the next waiting application behind this one try; skip those that are trying already."""
        behind = False
        for other, (number, _) in self._queue.items():
            if behind and number:
                self._context.requests.resolve(number, None)
                return
            behind = behind or other == key

    def violations(self) -> list[str]:
        """Return violated invariants: the queue is bounded."""
        most = self._context.config.max_pending
        return (
            [f"bound: {len(self._queue)} applications wait for room, at most {most}"] if len(self._queue) > most else []
        )
