"""Replicated state of a scheduler: its list of applications, copied to the leaves nearest to it.

The specifications and plans are in the applications' records, on five nodes each. When a scheduler is gone, each leaf with a copy
tells the coordinators to look for another scheduler at once, and closes applications that were still being deployed.
"""

from agiledart_kernel.instants import MILLISECOND, Duration, Instant
from agiledart_kernel.machine import SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.hosting.application_watcher import ApplicationWatcher
from agiledart_node.records.records import Records
from agiledart_node.scheduling.messages import (
    MAX_REGISTRATIONS,
    FindNewScheduler,
    Registration,
    SchedulerSlot,
    SchedulerStateCopy,
)
from agiledart_node.scheduling.scheduler_role import SchedulerRole
from agiledart_node.wire.formation_messages import Acknowledged

TIMER = ("node", "estate")

MAX_SCHEDULER_STATES = 256
"""Schedulers whose lists one node stores."""

BATCH = Duration(200 * MILLISECOND)
"""Delay after a change, because changes come in bursts; one copy covers all of them."""


class SchedulerState:
    """Lists of applications: those that this scheduler copies to leaves, and those stored for other schedulers."""

    def __init__(
        self, context: NodeContext, records: Records, role: SchedulerRole, watching: ApplicationWatcher
    ) -> None:
        self._context, self._records, self._role, self._watching = context, records, role, watching
        self._copies: dict[NodeId, tuple[Peer, SchedulerStateCopy]] = {}
        self._given: dict[NodeId, int] = {}
        self._is_due = False
        role.on_change = self.touch

    @property
    def copies(self) -> dict[NodeId, SchedulerStateCopy]:
        """Return the lists stored here, by scheduler."""
        return {node: copy for node, (_, copy) in self._copies.items()}

    def touch(self) -> None:
        """Renew the copies soon, because the list or the leaf set has changed."""
        if self._role.scheduler_slot is not None and not self._is_due:
            self._is_due = True
            self._context.emit(SetTimer(TIMER, Instant(self._context.now + BATCH)))

    def on_timer(self) -> None:
        """Send the list to those nearest leaves that do not have it."""
        self._is_due = False
        scheduler_slot, version = self._role.scheduler_slot, self._role.state_version
        if scheduler_slot is None:
            return
        successors = self._successors()
        self._given = {peer.node: self._given.get(peer.node, -1) for peer in successors}
        lacking = [peer for peer in successors if self._given[peer.node] < version]
        if lacking and not self._context.requests.is_full:
            self._context.requests.begin(self._give(lacking, scheduler_slot, version))

    def _successors(self) -> list[Peer]:
        """Return the nearest leaves, on distinct machines if the ring has enough."""
        leaves = self._context.overlay.leaf_set.nearest_to(self._context.me.node, len(self._context.overlay.leaf_set))
        hosts = {self._context.me.host: True} if self._context.me.host else {}
        chosen = []
        for peer in leaves:
            if not peer.host or peer.host not in hosts:
                chosen.append(peer)
                hosts[peer.host] = True
        wanted = self._context.config.scheduler_copies
        chosen += [peer for peer in leaves if peer not in chosen]
        return chosen[:wanted]

    async def _give(self, successors: list[Peer], scheduler_slot: SchedulerSlot, version: int) -> None:
        registrations, timeout = (
            self._role.registrations()[:MAX_REGISTRATIONS],
            Duration(self._context.config.ask_timeout_ns),
        )
        answers = await self._context.requests.ask_all(
            successors,
            lambda number, _: SchedulerStateCopy(number, scheduler_slot, version, registrations),
            Acknowledged,
            timeout,
        )
        for peer, answer in answers:
            if answer is not None and peer.node in self._given:
                self._given[peer.node] = max(version, self._given[peer.node])

    def on_copy(self, sender: Peer, message: SchedulerStateCopy) -> None:
        """Store the list of another scheduler."""
        stored = self._copies.get(sender.node)
        if stored is None and len(self._copies) >= MAX_SCHEDULER_STATES:
            del self._copies[next(iter(self._copies))]
        if stored is None or stored[0].incarnation < sender.incarnation or stored[1].version < message.version:
            self._copies[sender.node] = (sender, message)
        self._context.send(sender, Acknowledged(message.request))

    def peer_gone(self, peer: Peer) -> None:
        """Notify the coordinators of a scheduler that is dead or left, if its list is stored here."""
        stored = self._copies.get(peer.node)
        if stored is None or stored[0].incarnation > peer.incarnation:
            return
        del self._copies[peer.node]
        orphans: dict[NodeId, tuple[Peer, list[Registration]]] = {}
        for registration in stored[1].registrations:
            if registration.coordinator is not None:
                orphans.setdefault(registration.coordinator.node, (registration.coordinator, []))[1].append(
                    registration
                )
            elif not self._context.requests.is_full:
                self._context.requests.begin(self._close(registration))
        for coordinator, registrations in orphans.values():
            self._context.send(coordinator, FindNewScheduler(stored[0], tuple(registrations)))

    async def _close(self, line: Registration) -> None:
        """Close an application that a lost scheduler was deploying: reading its record does that."""
        try:
            _, record = await self._records.application(line.application)
        except CommandRefused:
            return
        if record is not None and record.version == line.version and not record.is_final:
            await self._watching.refresher.refreshed(record)

    def violations(self) -> list[str]:
        """Return violated invariants: the stored lists are bounded."""
        return (
            [f"bound: {len(self._copies)} lists, at most {MAX_SCHEDULER_STATES}"]
            if len(self._copies) > MAX_SCHEDULER_STATES
            else []
        )
