"""Ledger of nodes declared dead, checked against the truth: false alarms in calm weather, and dead nodes that come back.

Source: the project's reliability notes, section 4 (bounds) and section 7 (planted bugs M3 and M4 that other repair hides).
"""

from collections.abc import Callable

from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.overlay_machine import OverlayMachine
from agiledart_overlay.wire.effects import LeaveCompleted, PeerFailed
from agiledart_simulation.world.world import World

Incarnation = tuple[NodeId, int]


class DeathLedger:
    """Every declared failure, checked against the truth.

    Args:
        world: the truth.
        is_calm: whether two nodes, and the network between them and others, have had no fault for a while.
        stale_ns: time within which all nodes have forgotten a dead node in calm weather.
    """

    def __init__(
        self, world: World[OverlayMachine], is_calm: Callable[[NodeId, NodeId], bool], stale_ns: int = 30 * SECOND
    ) -> None:
        self._world, self._is_calm, self._stale_ns = world, is_calm, stale_ns
        self._buried: dict[tuple[Incarnation, Incarnation], None] = {}
        self._died: dict[Incarnation, int] = {}
        self.declared = self.false_alarms = 0
        self.violations: list[str] = []

    def on_death(self, incarnation: Incarnation) -> None:
        """Note that an incarnation has really ended."""
        self._died.setdefault(incarnation, self._world.now)

    def on_return(self, incarnation: Incarnation) -> None:
        """Note that the same incarnation runs again, from an old image of its disk. No earlier declaration counts as wrong then."""
        self._died.pop(incarnation, None)
        self._buried = {key: None for key in self._buried if incarnation not in key}

    def on_effect(self, peer: Peer, effect: Effect) -> None:
        """Check an effect: a declared failure, or a good-bye. A node that has left is dead to nodes that missed its good-bye."""
        if isinstance(effect, LeaveCompleted):
            self.on_death(peer.incarnation_key)
        if not isinstance(effect, PeerFailed):
            return
        self.declared += 1
        victim = effect.peer
        if victim.incarnation_key in self._died:
            key = (peer.incarnation_key, victim.incarnation_key)
            # A link that held messages back delivers the dead node's last messages, so it seems to live again.
            if key in self._buried and self._is_calm(peer.node, victim.node):
                self.violations.append(
                    f"dead_2: {peer.node.short} buried {victim.node.short}/{victim.incarnation_key} twice: it had come back"
                )
            self._buried[key] = None
            return
        incarnation = self._world.nodes.get(victim.node)
        if incarnation is None or incarnation.peer.incarnation_key != victim.incarnation_key:
            return
        self.false_alarms += 1
        if self._is_calm(peer.node, victim.node):
            self.violations.append(
                f"dead_1: {peer.node.short} declared {victim.node.short} dead ({effect.reason}) although it lives"
            )

    def stale_violations(self) -> list[str]:
        """Return violations of dead_3: in calm weather no node keeps a dead leaf for long."""
        now = self._world.now
        late = {incarnation: at for incarnation, at in self._died.items() if now - at > self._stale_ns}
        if not late:
            return []
        violations = []
        for node in self._world.live:
            if not node.machine.joined:
                continue
            for peer in node.machine.leaf_set.members:
                if peer.incarnation_key in late and self._is_calm(node.peer.node, node.peer.node):
                    seconds = (now - late[peer.incarnation_key]) // SECOND
                    violations.append(
                        f"dead_3: {node.peer.node.short} still has {peer.node.short}, dead for {seconds} s"
                    )
        return violations
