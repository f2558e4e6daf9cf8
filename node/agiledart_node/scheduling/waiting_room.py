"""Applications for which no node has room: they wait at their scheduler, which raises an alarm and looks again now and then.

The first in line looks every `room_interval_ns`; when it still finds no room, the next one tries at once, and so on down the
line. So a large application does not keep small ones from what there is, and nobody is passed over who would fit. What waits
is `deploying` with the reason, in `list` and `status`; `stop` ends it.

Source: the project's dataflow specification §4 rule 3 ("queue the deployment and raise an alarm"). Departs: the line is
bounded, and so is the time in it; beyond, the submission is refused.
"""

from agiledart_kernel.instants import SECOND, Duration
from agiledart_node.desk.desk import CommandRefused, Desk
from agiledart_node.forming.submission import Progress
from agiledart_node.records.application import DEPLOYING, ApplicationRecord, waiting_for_room
from agiledart_node.records.records import Records
from agiledart_node.scheduling.observations import ApplicationWaits
from agiledart_node.scheduling.turns import Turns
from agiledart_node.wire.commands import WAITS_FOR_ROOM

_TURN = Duration(60 * SECOND)

Key = tuple[str, int]


class WaitingRoom:
    """The line of one scheduler."""

    def __init__(self, desk: Desk, records: Records, turns: Turns) -> None:
        self._desk, self._records, self._turns = desk, records, turns
        self._line: dict[Key, tuple[int, int]] = {}

    @property
    def waiting(self) -> tuple[str, ...]:
        """Applications in the line, first come first."""
        return tuple(name for name, _ in self._line)

    async def wait(self, record: ApplicationRecord, reason: str, progress: Progress) -> None:
        """Give the turn back, wait, take a turn again; the caller then tries once more.

        Raises:
            CommandRefused: the line is full, the time is over, or the application was stopped meanwhile.
        """
        key, config = (record.name, record.version), self._desk.config
        if key not in self._line:
            await self._enter(record, reason, progress)
        _, deadline = self._line[key]
        self._wake_next(key)
        rest = deadline - self._desk.now
        if rest <= 0:
            seconds = config.room_timeout_ns // SECOND
            raise CommandRefused(f"{reason} {record.name} has waited for {seconds} s, which is the limit.")
        number = self._desk.talks.number()
        self._line[key] = (number, deadline)
        self._turns.give_back()
        is_first = next(iter(self._line)) == key
        await self._desk.talks.answers(
            {number: None}, Duration(min(rest, config.room_interval_ns) if is_first else rest)
        )
        self._line[key] = (0, deadline)
        while not await self._turns.take(_TURN):
            pass
        await self._check(record)

    def leave(self, key: Key) -> None:
        """It runs, or never will."""
        if key in self._line:
            self._wake_next(key)
            del self._line[key]

    async def _enter(self, record: ApplicationRecord, reason: str, progress: Progress) -> None:
        config = self._desk.config
        if len(self._line) >= config.max_waiting:
            others = f" {len(self._line)} others wait for room already." if self._line else ""
            raise CommandRefused(f"{reason}{others}")
        key = (record.name, record.version)
        self._line[key] = (0, self._desk.now + config.room_timeout_ns)
        self._desk.observe(ApplicationWaits(record.name, reason, len(self._line)))
        give_up = f"It starts by itself when there is room. Give up: agiledart stop {record.name}"
        progress(f"{record.name} {WAITS_FOR_ROOM}: {reason} {give_up}")

        def note(current: ApplicationRecord) -> ApplicationRecord | None:
            return waiting_for_room(current, reason, self._desk.wall_ms) if current.ticket == record.ticket else None

        await self._records.change(*key, note)
        await self._check(record)

    async def _check(self, record: ApplicationRecord) -> None:
        """Is it still wanted?"""
        _, current = await self._records.application(record.name)
        if current is not None and (current.ticket != record.ticket or current.state != DEPLOYING):
            raise CommandRefused(current.reason or f"{record.name} was {current.state} while it waited for room.")

    def _wake_next(self, key: Key) -> None:
        """Whoever waits behind this one may try; passes over those that are trying."""
        behind = False
        for other, (number, _) in self._line.items():
            if behind and number:
                self._desk.talks.answered(number, None)
                return
            behind = behind or other == key

    def violations(self) -> list[str]:
        """The line is bounded."""
        most = self._desk.config.max_waiting
        return (
            [f"bound: {len(self._line)} applications wait for room, at most {most}"] if len(self._line) > most else []
        )
