"""The scheduler's side of registrations: takes office when its record says so, registers, renews, tidies, steps down.

A node learns that it was elected by being asked to serve under its new office; it believes the record of the office only.
"""

from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.desk.desk import CommandRefused, Desk
from agiledart_node.records.records import Records
from agiledart_node.scheduling.advertisements import Advertisements
from agiledart_node.scheduling.claims import Claims
from agiledart_node.scheduling.messages import (
    Advertisement,
    Candidate,
    Canvass,
    FindAnother,
    Line,
    Office,
    Register,
    Registered,
    Release,
    Renew,
    Renewed,
)
from agiledart_node.scheduling.role import Role, Slot
from agiledart_node.wire.formation_messages import Acknowledged

TIMER = ("node", "duty")

MAX_WAITING = 4_096
"""Registrations that wait for the look at the office's record."""

SILENT_RENEWALS = 4
"""Renewals that may be missing before the scheduler looks whether an application still runs."""


def slot_of(application: str, version: int, ticket: int) -> Slot:
    """Under which name a scheduler keeps an application."""
    return (application, version) if version else ("", ticket)


class Serving:
    """Answers applications, as scheduler."""

    def __init__(self, desk: Desk, records: Records, role: Role, known: Advertisements, claims: Claims) -> None:
        self._desk, self._records, self._role, self._known, self._claims = desk, records, role, known, claims
        self._waiting: list[tuple[Peer, Register]] = []
        self._is_looking = self._is_on_duty = False

    def on_canvass(self, sender: Peer, message: Canvass, load: int) -> None:
        """Somebody looks for a scheduler-to-be."""
        is_taken = self._role.office is not None or self._desk.is_leaving or not self._desk.overlay.joined
        self._desk.send(sender, Candidate(message.request, self._desk.config.capacity, load, is_taken))

    def on_register(self, sender: Peer, message: Register) -> None:
        """An application wants to be served under an office."""
        office = self._role.office
        if office is not None and office.domain == message.office.domain:
            self._answer(sender, message)
        elif len(self._waiting) < MAX_WAITING:
            self._waiting.append((sender, message))
            if not self._is_looking:
                self._is_looking = True
                self._desk.talks.begin(self._look(message.office))

    async def _look(self, office: Office) -> None:
        """Was this node elected? Its office's record says so, or not."""
        seen = await self._claims.read(office.domain, office.index)
        claim = seen[1] if seen is not None else None
        is_mine = claim is not None and claim.winner is not None and claim.winner.life == self._desk.me.life
        if claim is not None and is_mine and self._role.office is None and not self._desk.is_leaving:
            self._role.take_office(claim.office)
            self._go_on_duty()
        self._looked()

    def _looked(self) -> None:
        """It is known what this node is: answer those who waited for that."""
        self._is_looking = False
        waiting, self._waiting = self._waiting, []
        for sender, message in waiting:
            self._answer(sender, message)

    def _answer(self, sender: Peer, message: Register) -> None:
        office, role = self._role.office, self._role
        accepted = False
        if office is not None and office.domain == message.office.domain:
            coordinator = sender if message.version else None
            accepted = role.register(slot_of(message.application, message.version, message.ticket), coordinator)
        other = None if accepted else self._known.best(message.office.domain, (self._desk.me.node,))
        self._desk.send(sender, Registered(message.request, accepted, role.advertisement(), other))

    def on_release(self, sender: Peer, message: Release) -> None:
        """An application has ended, or did not come to run."""
        self._role.release(slot_of(message.application, message.version, message.ticket))
        self._desk.send(sender, Acknowledged(message.request))

    def on_renew(self, sender: Peer, message: Renew) -> None:
        """A coordinator says that its applications run."""
        unknown: list[Line] = []
        for line in message.lines:
            served = self._role.served.get((line.application, line.version))
            if served is None:
                unknown.append(line)
            else:
                served.heard_at = self._desk.now
                if served.coordinator != sender:
                    self._role.settle((line.application, line.version), sender)
        self._desk.send(sender, Renewed(message.request, tuple(unknown)))

    # ---- duty

    def _go_on_duty(self) -> None:
        if not self._is_on_duty:
            self._is_on_duty = True
            self._set_timer()

    def _set_timer(self) -> None:
        self._desk.emit(SetTimer(TIMER, Instant(self._desk.now + self._desk.config.renew_interval_ns)))

    def on_timer(self) -> None:
        """Look after the office now and then."""
        self._is_on_duty = self._role.office is not None
        if self._is_on_duty:
            self._set_timer()
            if not self._is_looking and not self._desk.talks.is_full:
                self._is_looking = True
                self._desk.talks.begin(self._attend())

    async def _attend(self) -> None:
        """Is the office still ours? Do all that we serve still run? Is there anything to do at all?"""
        try:
            office = self._role.office
            if office is None or not await self._holds(office):
                return
            await self._forget_ended()
            idle = self._role.idle_since
            if idle is not None and self._desk.now - idle >= self._desk.config.resign_ns:
                self._role.leave_office("idle")
                await self._claims.give_up(office, self._desk.me)
        finally:
            self._looked()

    async def _holds(self, office: Office) -> bool:
        """Compare with the record: after a partition two nodes hold an office, and the one in the record stays."""
        seen = await self._claims.read(office.domain, office.index)
        if seen is None or self._role.office != office:
            return seen is None and self._role.office == office
        claim = seen[1]
        if claim is None or claim.winner is None:  # the record was lost with all its holders, or never came through
            await self._claims.claim(office.domain, office.index, self._desk.me, seen)
            return True
        if claim.winner.life == self._desk.me.life:
            self._role.office = claim.office
            return True
        successor = self._known.get(claim.winner.node)
        self.step_down("superseded", successor if successor is not None and not successor.resigned else None)
        return False

    def step_down(self, reason: str, successor: Advertisement | None = None) -> None:
        """Give the office up, and tell the applications to look for another scheduler."""
        lines = self._role.lines()
        self._role.leave_office(reason)
        by_node: dict[NodeId, tuple[Peer, list[Line]]] = {}
        for line in lines:
            if line.coordinator is not None:
                by_node.setdefault(line.coordinator.node, (line.coordinator, []))[1].append(line)
        for peer, theirs in by_node.values():
            self._desk.send(peer, FindAnother(self._desk.me, tuple(theirs), successor))

    async def _forget_ended(self) -> None:
        """Applications that nobody renews: those that ended or have another scheduler by now go, running ones stay."""
        now = self._desk.now
        patience = SILENT_RENEWALS * self._desk.config.renew_interval_ns
        for slot, served in list(self._role.served.items()):
            if now - served.heard_at <= patience or (served.coordinator is None and slot[0]):
                continue
            if not slot[0]:
                self._role.release(slot)
                continue
            try:
                _, record = await self._records.application(slot[0])
            except CommandRefused:
                continue
            is_over = record is None or record.version != slot[1] or record.is_final
            # One that moved on while this node slept, or registered here in vain, is renewed elsewhere.
            if is_over or (record is not None and record.scheduler.life != self._desk.me.life):
                self._role.release(slot)
            else:
                served.heard_at = self._desk.now

    async def leave(self) -> None:
        """This node goes: its office is free from now on."""
        office = self._role.office
        if office is not None:
            self.step_down("leaving")
            await self._claims.give_up(office, self._desk.me)

    def violations(self) -> list[str]:
        """Who waits for a look at the office's record is looked after, and so is an office that is held."""
        found = []
        if self._waiting and not self._is_looking:
            found.append("office: registrations wait, and nobody looks at the record")
        if self._role.office is not None and not self._is_on_duty:
            found.append("office: held, and nobody looks after it")
        if len(self._waiting) > MAX_WAITING:
            found.append(f"bound: {len(self._waiting)} registrations wait, at most {MAX_WAITING}")
        return found
