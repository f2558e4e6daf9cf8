"""`drain` at the node that is emptied.

| state | what happens |
|---|---|
| serving | as ever |
| emptying | it takes nothing; coordinators are asked to have others run what runs here, one run after the other |
| drained | nothing runs here, and it takes nothing, until it is told to or starts anew |
| leaving | as drained, its votes in registers were given to others, and the process ends |

A node that leaves in any case gives away what it can in some seconds (`before_leaving`), in the same way: what it runs, then votes.

A run is asked for again while others want something of it, while it is deployed or brought back, and after a change that came to
nothing. Where there is no room, or nothing gets any farther, the node takes work again, and what has left stays away.
"""

from dataclasses import dataclass
from typing import Final

from agiledart_kernel.instants import MILLISECOND, SECOND, Duration, Instant
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Asker, refused_unseen
from agiledart_node.desk.desk import CommandRefused, Desk, NotAllowed
from agiledart_node.draining.giving_seats import LOOK, GivingSeats
from agiledart_node.draining.obstacles import obstacles, refusal, stranded
from agiledart_node.hosting.hosted import Key
from agiledart_node.hosting.hosting import Hosting
from agiledart_node.records.allowing import why_not
from agiledart_node.records.order_checks import Orders
from agiledart_node.records.records import Records
from agiledart_node.recovering.recovering import Recovering
from agiledart_node.wire.drain_messages import (
    EMPTIED,
    EMPTYING,
    LEAVING,
    MAX_LEFT,
    MAX_LINES,
    SERVING,
    AskDrain,
    DrainIs,
    LeftRun,
    LookAtDrain,
)
from agiledart_node.wire.effects import EndAgent
from agiledart_recovery.wire.names import Run
from agiledart_recovery.wire.value import Value

PATIENCE: Final = Duration(120 * SECOND)
"""Without one run less here a drain is given up: longer than one change may take, with a recovery behind it."""

SEATS: Final = Duration(30 * SECOND)
"""For others to take this node's votes before it leaves."""

LAST_SECONDS, SEATS_LAST = Duration(8 * SECOND), Duration(3 * SECOND)
"""For a node that leaves in any case to give away what it can; of that, what is left for its votes."""

MAX_TRIES: Final = 5
"""Reliefs of one run that are begun and come to nothing."""

_LAST_WORDS: Final = Duration(2 * SECOND)
"""For who looks on to hear that the node leaves."""


@dataclass(slots=True)
class _Leaving:
    """A run that leaves, or `stays`. `value`: what its register said last; `last`: what has stood in its way last."""

    key: Key
    instances: int = 0
    at: Instant | None = None
    value: Value | None = None
    tries: int = 0
    last: str = ""
    is_away: bool = False
    stays: bool = False

    @property
    def name(self) -> str:
        """For people."""
        return self.key[0]


class Draining:
    """One node's own drain.

    Attributes:
        state: see the module.
    """

    def __init__(self, desk: Desk, records: Records, hosting: Hosting, recovering: Recovering, orders: Orders) -> None:
        self._records, self._seats = records, GivingSeats(desk, recovering)
        self._desk, self._hosting, self._recovering, self._orders = desk, hosting, recovering, orders
        self.state = SERVING
        self._stays = False
        self._number = 0
        self._refusal = ""
        self._lines: list[str] = []
        self._left: list[LeftRun] = []
        self._taken: dict[bytes, bool] = {}

    # ---- orders and questions

    async def asked(self, sender: Peer, message: AskDrain) -> None:
        """An agent brings a user's order."""
        name = message.order or message.request.to_bytes(8)
        if name not in self._taken:
            try:
                self._check(message)
                self._taken = {name: self._take(message)}
            except NotAllowed as error:
                self._desk.drop(f"order: {error.reason}")
                answer = DrainIs(message.request, self.state, error.text, error.reason)
                self._desk.send(sender, answer)
                return
            except CommandRefused as error:
                self._desk.send(sender, DrainIs(message.request, self.state, error.text))
                return
        self._desk.send(sender, self._told(message.request, 0, already=self._taken[name]))

    def look(self, sender: Peer, message: LookAtDrain) -> None:
        """Somebody waits for it."""
        self._desk.send(sender, self._told(message.request, message.after))

    def _told(self, request: int, after: int, *, already: bool = False) -> DrainIs:
        return DrainIs(
            request,
            self.state,
            self._refusal,
            already=already,
            lines=tuple(self._lines[after : after + MAX_LINES]),
            left=tuple(self._left[:MAX_LEFT]),
        )

    def _check(self, message: AskDrain) -> None:
        if not self._orders.are_signed:
            return
        asker, _ = self._orders.given(message.order, message.command, Asker(), message.submitter)
        if why := refused_unseen(asker, "drain"):
            raise NotAllowed(why, why_not(asker, "drain", why))

    def _take(self, message: AskDrain) -> bool:
        """Begin what an order says; whether it was so already. Raises CommandRefused."""
        desk, command = self._desk, message.command
        if desk.is_leaving or self.state == LEAVING:
            raise CommandRefused(f"{desk.me.name} is leaving the ring.")
        if command.undo:
            was, self.state, desk.is_draining = self.state, SERVING, False
            self._number += 1
            self._hosting.on_room()
            return was == SERVING
        if self.state in (EMPTYING, EMPTIED) and self._stays == command.stay:
            return self.state == EMPTIED
        if self.state in (SERVING, EMPTIED):
            found = obstacles(self._hosting.table.values(), self._value, desk.me.node)
            found += [] if command.stay else stranded(self._seats.led(), desk.me.node, desk.overlay.is_alive)
            if found:
                raise CommandRefused(refusal(desk.me.name, found))
        self._stays = command.stay  # before it begins: where nothing runs it is over at once
        if self.state == SERVING:
            self._lines, self._left, self._refusal = [], [], ""
            self.state, desk.is_draining = EMPTYING, True
            self._number += 1
            desk.talks.begin(self._empty(self._number))
        if self.state == EMPTIED and not command.stay:
            desk.talks.begin(self._leave(self._number))
        return False

    # ---- the work

    async def _empty(self, number: int) -> None:
        had: dict[Key, _Leaving] = {}
        since = self._desk.now
        while self._number == number and (open_ := self._open(had)):
            leaving = open_[0]
            if leaving.at is None:
                leaving.at = since = self._desk.now
                self._say(f"{leaving.name}: {_instances(leaving.instances)} to leave")
            why = await self._relieve(leaving, Instant(self._desk.now + PATIENCE))
            if not why and not leaving.is_away:
                await self._desk.talks.pause(LOOK)
                late = self._desk.now - since > PATIENCE
                why = f"{leaving.name} has not left in {PATIENCE // SECOND} s{leaving.last}" if late else ""
            if self._number != number:
                return
            if why:
                self._give_up(why)
                return
            if leaving.is_away:
                took = (self._desk.now - leaving.at) // MILLISECOND
                self._left.append(LeftRun(*leaving.key, leaving.instances, took))
                self._say(f"{leaving.name} has left in {took / 1_000:.1f} s")
        if self._number == number and self._stays:
            self.state = EMPTIED
        elif self._number == number:
            await self._leave(number)

    async def before_leaving(self) -> None:
        """As much of a drain as comes in time, at a node that leaves in any case, and may come back.

        What cannot move, or not in time, or is being brought back just now, others bring back, or it waits for this node.
        """
        self._number += 1
        number, self.state = self._number, LEAVING
        until = Instant(self._desk.now + LAST_SECONDS)
        had: dict[Key, _Leaving] = {}
        while self._desk.now < until - SEATS_LAST and (leaving := self._open(had)):
            for one in leaving:
                hosted = self._hosting.table.get(one.key)
                may_move = hosted is None or (hosted.is_flowing and hosted.has_register)
                one.stays = not may_move or bool(await self._relieve(one, Instant(until - SEATS_LAST)))
            if self._open(had):
                await self._desk.talks.pause(LOOK)
        await self._seats.give(until, lambda: self._number == number, self._say)

    def _open(self, had: dict[Key, _Leaving]) -> list[_Leaving]:
        """Runs that have something here, or had, and are not away yet."""
        for key, hosted in self._hosting.table.items():
            if hosted.reserved:
                known = had.setdefault(key, _Leaving(key))
                known.instances = max(known.instances, hosted.reserved)
                known.is_away = False
        return [one for one in had.values() if not (one.is_away or one.stays)]

    async def _relieve(self, leaving: _Leaving, until: Instant) -> str:
        """Have others run what runs here of one run. Why it is in vain; empty: go on."""
        hosted, value = self._hosting.table.get(leaving.key), self._value(leaving.key)
        leaving.value = value or leaving.value
        if hosted is not None and not (hosted.is_flowing and hosted.has_register):
            return ""  # it is being deployed
        if leaving.value is None:
            leaving.is_away = hosted is None
            return ""
        found = obstacles([hosted], self._value, self._desk.me.node) if hosted is not None else []
        if found:  # it was being deployed when this began
            return "; ".join(found)
        answer = await self._seats.ask(leaving.value, until)
        if answer is None:
            leaving.last = ": nobody coordinates it"
            leaving.is_away = hosted is None and await self._is_over(leaving.key)
            return ""
        leaving.last = f": {answer.refusal or answer.last}" if answer.refusal or answer.last else leaving.last
        if answer.refusal and not answer.passes:
            return answer.refusal
        leaving.tries += answer.is_begun
        if leaving.tries > MAX_TRIES:
            return f"{leaving.name} did not leave in {MAX_TRIES} tries{leaving.last}"
        leaving.is_away = answer.is_safe and leaving.key not in self._hosting.table
        return ""

    async def _is_over(self, key: Key) -> bool:
        """Has a run ended meanwhile, so that nobody coordinates it any more?"""
        try:
            _, record = await self._records.application(key[0])
        except CommandRefused:
            return False
        return record is None or record.is_final or record.version != key[1]

    def _value(self, key: Key) -> Value | None:
        """What the register says of a run, as this host has heard."""
        part = self._recovering.machine.participants.get(Run(*key))
        return part.value if part is not None else None

    def _say(self, text: str) -> None:
        if len(self._lines) < MAX_LINES:
            self._lines.append(text)

    def _give_up(self, why: str) -> None:
        away = f"; {', '.join(run.name for run in self._left)} left, and stays away" if self._left else ""
        self.state, self._desk.is_draining = SERVING, False
        self._refusal = f"{self._desk.me.name} was not emptied, and takes work again: {why.rstrip('.')}{away}."
        self._hosting.on_room()

    async def _leave(self, number: int) -> None:
        self.state = EMPTYING
        until = Instant(self._desk.now + SEATS)
        await self._seats.give(until, lambda: self._number == number, self._say)
        if self._number != number:
            return
        if self._stays:  # it was told so meanwhile
            self.state = EMPTIED
            return
        self.state = LEAVING
        self._say("it is empty, and leaves the ring")
        await self._desk.talks.pause(_LAST_WORDS)
        if self._number == number:
            self._desk.emit(EndAgent())


def _instances(count: int) -> str:
    return "1 instance" if count == 1 else f"{count} instances"
