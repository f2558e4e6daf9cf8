"""The scheduler's side of registrations: it takes its slot as the record says, registers, renews, cleans up, and steps down.

A node learns that it was elected from the first request for its new slot; it trusts only the slot's record.
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
"""Registrations that may wait until the slot's record was read."""

SILENT_RENEWALS = 4
"""Renewals that may be missing before the scheduler checks whether an application still runs."""


def served_key_of(application: str, version: int, ticket: int) -> ServedKey:
    """Return the key under which a scheduler stores an application."""
    return (application, version) if version else ("", ticket)


class SchedulerEndpoint:
    """Answers requests of applications to this node as their scheduler."""

    def __init__(
        self, context: NodeContext, records: Records, role: SchedulerRole, known: Advertisements, claims: Claims
    ) -> None:
        self._context, self._records, self._role, self._known, self._claims = context, records, role, known, claims
        self._waiting: list[tuple[Peer, RegisterApplication]] = []
        self._is_looking = self._is_kept_up = False

    def on_ask_candidate(self, sender: Peer, message: AskCandidate, load: int) -> None:
        """Tell an elector whether this node could become a scheduler."""
        is_taken = self._role.scheduler_slot is not None or self._context.is_leaving or not self._context.overlay.joined
        self._context.send(sender, Candidate(message.request, self._context.config.capacity, load, is_taken))

    def on_register(self, sender: Peer, message: RegisterApplication) -> None:
        """Register an application under a scheduler slot."""
        scheduler_slot = self._role.scheduler_slot
        if scheduler_slot is not None and scheduler_slot.domain == message.scheduler_slot.domain:
            self._answer(sender, message)
        elif len(self._waiting) < MAX_WAITING:
            self._waiting.append((sender, message))
            if not self._is_looking:
                self._is_looking = True
                self._context.requests.begin(self._look(message.scheduler_slot))

    async def _look(self, scheduler_slot: SchedulerSlot) -> None:
        """Take the slot if its record says that this node was elected."""
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
        """Answer the registrations that waited until this node's role was known."""
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
        """Release an application that has ended, or did not start."""
        self._role.release(served_key_of(message.application, message.version, message.ticket))
        self._context.send(sender, Acknowledged(message.request))

    def on_renew(self, sender: Peer, message: RenewRegistrations) -> None:
        """Renew the applications of a coordinator."""
        unknown: list[Registration] = []
        for registration in message.registrations:
            served = self._role.served.get((registration.application, registration.version))
            if served is None:
                unknown.append(registration)
            else:
                served.last_seen = self._context.now
                if served.coordinator != sender:
                    self._role.set_coordinator((registration.application, registration.version), sender)
        self._context.send(sender, RegistrationsRenewed(message.request, tuple(unknown)))

    # ---- upkeep of the slot

    def _start_upkeep(self) -> None:
        if not self._is_kept_up:
            self._is_kept_up = True
            self._set_timer()

    def _set_timer(self) -> None:
        self._context.emit(SetTimer(TIMER, Instant(self._context.now + self._context.config.renew_interval_ns)))

    def on_timer(self) -> None:
        """Check the slot's record from time to time, while this node holds a slot."""
        self._is_kept_up = self._role.scheduler_slot is not None
        if self._is_kept_up:
            self._set_timer()
            if not self._is_looking and not self._context.requests.is_full:
                self._is_looking = True
                self._context.requests.begin(self._check_slot_record())

    async def _check_slot_record(self) -> None:
        """Check whether this node still holds its slot, forget ended applications, and resign when idle for long."""
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
        """Compare with the record: after a partition two nodes hold a slot, and the one in the record keeps it."""
        seen = await self._claims.read(scheduler_slot.domain, scheduler_slot.index)
        if seen is None or self._role.scheduler_slot != scheduler_slot:
            return seen is None and self._role.scheduler_slot == scheduler_slot
        claim = seen[1]
        if claim is None or claim.winner is None:  # the record was lost with all its replicas, or was never stored
            await self._claims.claim(scheduler_slot.domain, scheduler_slot.index, self._context.me, seen)
            return True
        if claim.winner.incarnation_key == self._context.me.incarnation_key:
            self._role.scheduler_slot = claim.scheduler_slot
            return True
        successor = self._known.get(claim.winner.node)
        self.step_down("superseded", successor if successor is not None and not successor.resigned else None)
        return False

    def step_down(self, reason: str, successor: Advertisement | None = None) -> None:
        """Give up the slot, and tell the applications to look for another scheduler."""
        registrations = self._role.registrations()
        self._role.leave_scheduler_slot(reason)
        by_node: dict[NodeId, tuple[Peer, list[Registration]]] = {}
        for registration in registrations:
            if registration.coordinator is not None:
                by_node.setdefault(registration.coordinator.node, (registration.coordinator, []))[1].append(
                    registration
                )
        for peer, lines in by_node.values():
            self._context.send(peer, FindNewScheduler(self._context.me, tuple(lines), successor))

    async def _forget_ended(self) -> None:
        """Release applications that are not renewed, if they ended or have another scheduler now; running ones stay."""
        now = self._context.now
        timeout = SILENT_RENEWALS * self._context.config.renew_interval_ns
        for served_key, served in list(self._role.served.items()):
            if now - served.last_seen <= timeout or (served.coordinator is None and served_key[0]):
                continue
            if not served_key[0]:
                self._role.release(served_key)
                continue
            try:
                _, record = await self._records.application(served_key[0])
            except CommandRefused:
                continue
            is_over = record is None or record.version != served_key[1] or record.is_final
            # An application that found another scheduler while this node was suspended is renewed there. So is one that registered
            # here and did not receive the answer.
            if is_over or (record is not None and record.scheduler.incarnation_key != self._context.me.incarnation_key):
                self._role.release(served_key)
            else:
                served.last_seen = self._context.now

    async def leave(self) -> None:
        """Give up this node's slot, because the node leaves."""
        scheduler_slot = self._role.scheduler_slot
        if scheduler_slot is not None:
            self.step_down("leaving")
            await self._claims.give_up(scheduler_slot, self._context.me)

    def violations(self) -> list[str]:
        """Return violated invariants: waiting registrations have a look under way, and a slot that is held has a timer."""
        lines = []
        if self._waiting and not self._is_looking:
            lines.append("scheduler slot: registrations wait, and the record is not being read")
        if self._role.scheduler_slot is not None and not self._is_kept_up:
            lines.append("scheduler slot: it is held, and no timer is set")
        if len(self._waiting) > MAX_WAITING:
            lines.append(f"bound: {len(self._waiting)} registrations wait, at most {MAX_WAITING}")
        return lines
