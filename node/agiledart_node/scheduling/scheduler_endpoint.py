"""The scheduler's side of registrations: takes office when its record says so, registers, renews, tidies, steps down.

A node learns that it was elected by being asked to serve under its new office; it believes the record of the office only.
"""

from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.records.records import Records
from agiledart_node.scheduling.advertisements import Advertisements
from agiledart_node.scheduling.claims import Claims
from agiledart_node.scheduling.messages import (
    Advertisement,
    ApplicationRegistered,
    AskCandidate,
    Candidate,
    FindNewScheduler,
    RegisterApplication,
    Registration,
    RegistrationsRenewed,
    ReleaseApplication,
    RenewRegistrations,
    SchedulerSlot,
)
from agiledart_node.scheduling.scheduler_role import SchedulerRole, ServedKey
from agiledart_node.wire.formation_messages import Acknowledged

TIMER = ("node", "duty")

MAX_WAITING = 4_096
"""Registrations that wait for the look at the office's record."""

SILENT_RENEWALS = 4
"""Renewals that may be missing before the scheduler looks whether an application still runs."""


def served_key_of(application: str, version: int, ticket: int) -> ServedKey:
    """Under which name a scheduler keeps an application."""
    return (application, version) if version else ("", ticket)


class SchedulerEndpoint:
    """Answers applications, as scheduler."""

    def __init__(
        self, context: NodeContext, records: Records, role: SchedulerRole, known: Advertisements, claims: Claims
    ) -> None:
        self._context, self._records, self._role, self._known, self._claims = context, records, role, known, claims
        self._waiting: list[tuple[Peer, RegisterApplication]] = []
        self._is_looking = self._is_kept_up = False

    def on_ask_candidate(self, sender: Peer, message: AskCandidate, load: int) -> None:
        """Somebody looks for a scheduler-to-be."""
        is_taken = self._role.scheduler_slot is not None or self._context.is_leaving or not self._context.overlay.joined
        self._context.send(sender, Candidate(message.request, self._context.config.capacity, load, is_taken))

    def on_register(self, sender: Peer, message: RegisterApplication) -> None:
        """An application wants to be served under an office."""
        scheduler_slot = self._role.scheduler_slot
        if scheduler_slot is not None and scheduler_slot.domain == message.scheduler_slot.domain:
            self._answer(sender, message)
        elif len(self._waiting) < MAX_WAITING:
            self._waiting.append((sender, message))
            if not self._is_looking:
                self._is_looking = True
                self._context.requests.begin(self._look(message.scheduler_slot))

    async def _look(self, scheduler_slot: SchedulerSlot) -> None:
        """Was this node elected? Its office's record says so, or not."""
        seen = await self._claims.read(scheduler_slot.domain, scheduler_slot.index)
        claim = seen[1] if seen is not None else None
        is_mine = (
            claim is not None
            and claim.winner is not None
            and claim.winner.incarnation_key == self._context.me.incarnation_key
        )
        if claim is not None and is_mine and self._role.scheduler_slot is None and not self._context.is_leaving:
            self._role.take_scheduler_slot(claim.scheduler_slot)
            self._start_upkeep()
        self._answer_waiting()

    def _answer_waiting(self) -> None:
        """It is known what this node is: answer those who waited for that."""
        self._is_looking = False
        waiting, self._waiting = self._waiting, []
        for sender, message in waiting:
            self._answer(sender, message)

    def _answer(self, sender: Peer, message: RegisterApplication) -> None:
        scheduler_slot, role = self._role.scheduler_slot, self._role
        accepted = False
        if scheduler_slot is not None and scheduler_slot.domain == message.scheduler_slot.domain:
            coordinator = sender if message.version else None
            accepted = role.register(served_key_of(message.application, message.version, message.ticket), coordinator)
        other = None if accepted else self._known.best(message.scheduler_slot.domain, (self._context.me.node,))
        self._context.send(sender, ApplicationRegistered(message.request, accepted, role.advertisement(), other))

    def on_release(self, sender: Peer, message: ReleaseApplication) -> None:
        """An application has ended, or did not come to run."""
        self._role.release(served_key_of(message.application, message.version, message.ticket))
        self._context.send(sender, Acknowledged(message.request))

    def on_renew(self, sender: Peer, message: RenewRegistrations) -> None:
        """A coordinator says that its applications run."""
        unknown: list[Registration] = []
        for line in message.registrations:
            served = self._role.served.get((line.application, line.version))
            if served is None:
                unknown.append(line)
            else:
                served.last_seen = self._context.now
                if served.coordinator != sender:
                    self._role.set_coordinator((line.application, line.version), sender)
        self._context.send(sender, RegistrationsRenewed(message.request, tuple(unknown)))

    # ---- duty

    def _start_upkeep(self) -> None:
        if not self._is_kept_up:
            self._is_kept_up = True
            self._set_timer()

    def _set_timer(self) -> None:
        self._context.emit(SetTimer(TIMER, Instant(self._context.now + self._context.config.renew_interval_ns)))

    def on_timer(self) -> None:
        """Look after the office now and then."""
        self._is_kept_up = self._role.scheduler_slot is not None
        if self._is_kept_up:
            self._set_timer()
            if not self._is_looking and not self._context.requests.is_full:
                self._is_looking = True
                self._context.requests.begin(self._check_slot_record())

    async def _check_slot_record(self) -> None:
        """Is the office still ours? Do all that we serve still run? Is there anything to do at all?"""
        try:
            scheduler_slot = self._role.scheduler_slot
            if scheduler_slot is None or not await self._holds(scheduler_slot):
                return
            await self._forget_ended()
            idle = self._role.idle_since
            if idle is not None and self._context.now - idle >= self._context.config.resign_ns:
                self._role.leave_scheduler_slot("idle")
                await self._claims.give_up(scheduler_slot, self._context.me)
        finally:
            self._answer_waiting()

    async def _holds(self, scheduler_slot: SchedulerSlot) -> bool:
        """Compare with the record: after a partition two nodes hold an office, and the one in the record stays."""
        seen = await self._claims.read(scheduler_slot.domain, scheduler_slot.index)
        if seen is None or self._role.scheduler_slot != scheduler_slot:
            return seen is None and self._role.scheduler_slot == scheduler_slot
        claim = seen[1]
        if claim is None or claim.winner is None:  # the record was lost with all its holders, or never came through
            await self._claims.claim(scheduler_slot.domain, scheduler_slot.index, self._context.me, seen)
            return True
        if claim.winner.incarnation_key == self._context.me.incarnation_key:
            self._role.scheduler_slot = claim.scheduler_slot
            return True
        successor = self._known.get(claim.winner.node)
        self.step_down("superseded", successor if successor is not None and not successor.resigned else None)
        return False

    def step_down(self, reason: str, successor: Advertisement | None = None) -> None:
        """Give the office up, and tell the applications to look for another scheduler."""
        registrations = self._role.registrations()
        self._role.leave_scheduler_slot(reason)
        by_node: dict[NodeId, tuple[Peer, list[Registration]]] = {}
        for line in registrations:
            if line.coordinator is not None:
                by_node.setdefault(line.coordinator.node, (line.coordinator, []))[1].append(line)
        for peer, theirs in by_node.values():
            self._context.send(peer, FindNewScheduler(self._context.me, tuple(theirs), successor))

    async def _forget_ended(self) -> None:
        """Applications that nobody renews: those that ended or have another scheduler by now go, running ones stay."""
        now = self._context.now
        patience = SILENT_RENEWALS * self._context.config.renew_interval_ns
        for served_key, served in list(self._role.served.items()):
            if now - served.last_seen <= patience or (served.coordinator is None and served_key[0]):
                continue
            if not served_key[0]:
                self._role.release(served_key)
                continue
            try:
                _, record = await self._records.application(served_key[0])
            except CommandRefused:
                continue
            is_over = record is None or record.version != served_key[1] or record.is_final
            # One that moved on while this node slept, or registered here in vain, is renewed elsewhere.
            if is_over or (record is not None and record.scheduler.incarnation_key != self._context.me.incarnation_key):
                self._role.release(served_key)
            else:
                served.last_seen = self._context.now

    async def leave(self) -> None:
        """This node goes: its office is free from now on."""
        scheduler_slot = self._role.scheduler_slot
        if scheduler_slot is not None:
            self.step_down("leaving")
            await self._claims.give_up(scheduler_slot, self._context.me)

    def violations(self) -> list[str]:
        """Who waits for a look at the office's record is looked after, and so is an office that is held."""
        found = []
        if self._waiting and not self._is_looking:
            found.append("office: registrations wait, and nobody looks at the record")
        if self._role.scheduler_slot is not None and not self._is_kept_up:
            found.append("office: held, and nobody looks after it")
        if len(self._waiting) > MAX_WAITING:
            found.append(f"bound: {len(self._waiting)} registrations wait, at most {MAX_WAITING}")
        return found
