"""What a scheduler leaves behind: its list of applications on the leaves nearest to it.

The specifications and plans themselves lie in the applications' records, on five nodes each. When a scheduler is gone, each
holder of its list tells the coordinators to look for another scheduler at once, and closes what was still being deployed.
"""

from agiledart_kernel.instants import MILLISECOND, Duration, Instant
from agiledart_kernel.machine import SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.desk.desk import CommandRefused, Desk
from agiledart_node.hosting.watching import Watching
from agiledart_node.records.records import Records
from agiledart_node.scheduling.messages import MAX_LINES, FindAnother, Line, Office, SchedulerCopy
from agiledart_node.scheduling.role import Role
from agiledart_node.wire.formation_messages import Acknowledged

TIMER = ("node", "estate")

MAX_ESTATES = 256
"""Schedulers whose lists one node keeps."""

BATCH = Duration(200 * MILLISECOND)
"""Changes come in bursts; one copy stands for all of them."""


class Estate:
    """Lists of applications, given to leaves and kept for others."""

    def __init__(self, desk: Desk, records: Records, role: Role, watching: Watching) -> None:
        self._desk, self._records, self._role, self._watching = desk, records, role, watching
        self._kept: dict[NodeId, tuple[Peer, SchedulerCopy]] = {}
        self._given: dict[NodeId, int] = {}
        self._is_due = False
        role.on_change = self.touch

    @property
    def kept(self) -> dict[NodeId, SchedulerCopy]:
        """Lists kept here, by scheduler."""
        return {node: copy for node, (_, copy) in self._kept.items()}

    def touch(self) -> None:
        """Something changed, here or in the leaf set: the copies are made new soon."""
        if self._role.office is not None and not self._is_due:
            self._is_due = True
            self._desk.emit(SetTimer(TIMER, Instant(self._desk.now + BATCH)))

    def on_timer(self) -> None:
        """Give the list to those nearest leaves that do not have it."""
        self._is_due = False
        office, version = self._role.office, self._role.state_version
        if office is None:
            return
        heirs = self._heirs()
        self._given = {peer.node: self._given.get(peer.node, -1) for peer in heirs}
        lacking = [peer for peer in heirs if self._given[peer.node] < version]
        if lacking and not self._desk.talks.is_full:
            self._desk.talks.begin(self._give(lacking, office, version))

    def _heirs(self) -> list[Peer]:
        """The nearest leaves, on machines of their own if the ring has them."""
        leaves = self._desk.overlay.leaf_set.nearest_to(self._desk.me.node, len(self._desk.overlay.leaf_set))
        hosts = {self._desk.me.host: True} if self._desk.me.host else {}
        chosen = []
        for peer in leaves:
            if not peer.host or peer.host not in hosts:
                chosen.append(peer)
                hosts[peer.host] = True
        wanted = self._desk.config.scheduler_copies
        chosen += [peer for peer in leaves if peer not in chosen]
        return chosen[:wanted]

    async def _give(self, heirs: list[Peer], office: Office, version: int) -> None:
        lines, timeout = self._role.lines()[:MAX_LINES], Duration(self._desk.config.ask_timeout_ns)
        answers = await self._desk.talks.ask_all(
            heirs, lambda number, _: SchedulerCopy(number, office, version, lines), Acknowledged, timeout
        )
        for peer, answer in answers:
            if answer is not None and peer.node in self._given:
                self._given[peer.node] = max(version, self._given[peer.node])

    def on_copy(self, sender: Peer, message: SchedulerCopy) -> None:
        """A scheduler leaves its list here."""
        kept = self._kept.get(sender.node)
        if kept is None and len(self._kept) >= MAX_ESTATES:
            del self._kept[next(iter(self._kept))]
        if kept is None or kept[0].incarnation < sender.incarnation or kept[1].version < message.version:
            self._kept[sender.node] = (sender, message)
        self._desk.send(sender, Acknowledged(message.request))

    def peer_gone(self, peer: Peer) -> None:
        """A peer is dead or left: if it was a scheduler, its applications must know."""
        kept = self._kept.get(peer.node)
        if kept is None or kept[0].incarnation > peer.incarnation:
            return
        del self._kept[peer.node]
        orphans: dict[NodeId, tuple[Peer, list[Line]]] = {}
        for line in kept[1].lines:
            if line.coordinator is not None:
                orphans.setdefault(line.coordinator.node, (line.coordinator, []))[1].append(line)
            elif not self._desk.talks.is_full:
                self._desk.talks.begin(self._close(line))
        for coordinator, lines in orphans.values():
            self._desk.send(coordinator, FindAnother(kept[0], tuple(lines)))

    async def _close(self, line: Line) -> None:
        """It was being deployed by a scheduler that is gone: its record says so as soon as somebody looks."""
        try:
            _, record = await self._records.application(line.application)
        except CommandRefused:
            return
        if record is not None and record.version == line.version and not record.is_final:
            await self._watching.freshened(record)

    def violations(self) -> list[str]:
        """Lists kept for others are bounded."""
        return [f"bound: {len(self._kept)} lists, at most {MAX_ESTATES}"] if len(self._kept) > MAX_ESTATES else []
