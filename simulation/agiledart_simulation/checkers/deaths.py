"""Who was declared dead, and whether it was: false alarms in calm weather, and the dead that come back.

Source: the project's reliability notes, section 4 (bounds) and section 7 (planted bugs M3 and M4 that other repair hides).
"""

from collections.abc import Callable

from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.machine import OverlayMachine
from agiledart_overlay.wire.effects import Left, PeerFailed
from agiledart_simulation.world.world import World

Life = tuple[NodeId, int]


class DeathLedger:
    """Every declared failure, judged by the truth.

    Args:
        world: the truth.
        is_calm: whether two nodes and the network between them and others had nothing to complain about for a while.
        stale_ns: time within which everybody has forgotten a dead node in calm weather.
    """

    def __init__(
        self, world: World[OverlayMachine], is_calm: Callable[[NodeId, NodeId], bool], stale_ns: int = 30 * SECOND
    ) -> None:
        self._world, self._is_calm, self._stale_ns = world, is_calm, stale_ns
        self._buried: dict[tuple[Life, Life], None] = {}
        self._died: dict[Life, int] = {}
        self.declared = self.false_alarms = 0
        self.wrong: list[str] = []

    def on_death(self, life: Life) -> None:
        """A life is over, in truth."""
        self._died.setdefault(life, self._world.now)

    def on_return(self, life: Life) -> None:
        """The same life again: a node came back from an old image of its disk. Nothing is held against anybody for it."""
        self._died.pop(life, None)
        self._buried = {key: None for key in self._buried if life not in key}

    def on_effect(self, peer: Peer, effect: Effect) -> None:
        """Told of all effects; hears declared failures, and good-byes: who has left is dead to those that did not hear its word."""
        if isinstance(effect, Left):
            self.on_death(peer.life)
        if not isinstance(effect, PeerFailed):
            return
        self.declared += 1
        victim = effect.peer
        if victim.life in self._died:
            key = (peer.life, victim.life)
            # A link that held messages back lets the last words of the dead through, so that it seems to live once more.
            if key in self._buried and self._is_calm(peer.node, victim.node):
                self.wrong.append(
                    f"dead_2: {peer.node.short} buried {victim.node.short}/{victim.incarnation} twice: it had come back"
                )
            self._buried[key] = None
            return
        life = self._world.nodes.get(victim.node)
        if life is None or life.peer.life != victim.life:
            return
        self.false_alarms += 1
        if self._is_calm(peer.node, victim.node):
            self.wrong.append(
                f"dead_1: {peer.node.short} declared {victim.node.short} dead ({effect.reason}) although it lives"
            )

    def stale_violations(self) -> list[str]:
        """dead_3: nobody keeps a dead node for a leaf for long, in calm weather."""
        now = self._world.now
        late = {life: at for life, at in self._died.items() if now - at > self._stale_ns}
        if not late:
            return []
        found = []
        for node in self._world.live:
            if not node.machine.joined:
                continue
            for peer in node.machine.leaf_set.members:
                if peer.life in late and self._is_calm(node.peer.node, node.peer.node):
                    seconds = (now - late[peer.life]) // SECOND
                    found.append(f"dead_3: {node.peer.node.short} still has {peer.node.short}, dead for {seconds} s")
        return found
