"""What a scheduler leaves behind: its list of applications on the leaves nearest to it.

The specifications and plans themselves lie in the applications' records, on five nodes each. When a scheduler is gone, each
holder of its list tells the coordinators to look for another scheduler at once, and closes what was still being deployed.
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
"""Schedulers whose lists one node keeps."""

BATCH = Duration(200 * MILLISECOND)
"""Changes come in bursts; one copy stands for all of them."""


class SchedulerState:
    """Lists of applications, given to leaves and kept for others."""

    def __init__(
        self, context: NodeContext, records: Records, role: SchedulerRole, watching: ApplicationWatcher
    ) -> None:
        self._context, self._records, self._role, self._watching = context, records, role, watching
        self._kept: dict[NodeId, tuple[Peer, SchedulerStateCopy]] = {}
        self._given: dict[NodeId, int] = {}
        self._is_due = False
        role.on_change = self.touch

    @property
    def kept(self) -> dict[NodeId, SchedulerStateCopy]:
        """Lists kept here, by scheduler."""
        return {node: copy for node, (_, copy) in self._kept.items()}

    def touch(self) -> None:
        """Something changed, here or in the leaf set: the copies are made new soon."""
        if self._role.scheduler_slot is not None and not self._is_due:
            self._is_due = True
            self._context.emit(SetTimer(TIMER, Instant(self._context.now + BATCH)))

    def on_timer(self) -> None:
        """Give the list to those nearest leaves that do not have it."""
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
        """The nearest leaves, on machines of their own if the ring has them."""
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
        """A scheduler leaves its list here."""
        kept = self._kept.get(sender.node)
        if kept is None and len(self._kept) >= MAX_SCHEDULER_STATES:
            del self._kept[next(iter(self._kept))]
        if kept is None or kept[0].incarnation < sender.incarnation or kept[1].version < message.version:
            self._kept[sender.node] = (sender, message)
        self._context.send(sender, Acknowledged(message.request))

    def peer_gone(self, peer: Peer) -> None:
        """A peer is dead or left: if it was a scheduler, its applications must know."""
        kept = self._kept.get(peer.node)
        if kept is None or kept[0].incarnation > peer.incarnation:
            return
        del self._kept[peer.node]
        orphans: dict[NodeId, tuple[Peer, list[Registration]]] = {}
        for line in kept[1].registrations:
            if line.coordinator is not None:
                orphans.setdefault(line.coordinator.node, (line.coordinator, []))[1].append(line)
            elif not self._context.requests.is_full:
                self._context.requests.begin(self._close(line))
        for coordinator, registrations in orphans.values():
            self._context.send(coordinator, FindNewScheduler(kept[0], tuple(registrations)))

    async def _close(self, line: Registration) -> None:
        """It was being deployed by a scheduler that is gone: its record says so as soon as somebody looks."""
        try:
            _, record = await self._records.application(line.application)
        except CommandRefused:
            return
        if record is not None and record.version == line.version and not record.is_final:
            await self._watching.refreshed(record)

    def violations(self) -> list[str]:
        """Lists kept for others are bounded."""
        return (
            [f"bound: {len(self._kept)} lists, at most {MAX_SCHEDULER_STATES}"]
            if len(self._kept) > MAX_SCHEDULER_STATES
            else []
        )
