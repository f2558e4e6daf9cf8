"""Nemesis of a ring: it applies faults, and records which nodes are up or cut off and which complaints are excused until when."""

from collections.abc import Callable, Sequence
from functools import partial

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_simulation.checkers.death_ledger import DeathLedger
from agiledart_simulation.runs.scenario import Scenario
from agiledart_simulation.world.faults import Fault, apply
from agiledart_simulation.world.overlay_ring import OverlayRing

_CALM_NS = 4 * SECOND
"""Time after a disturbance in which false alarms are forgiven."""


class Nemesis:
    """Nemesis of one ring: applies faults and remembers them.

    Args:
        ring: the ring under test.
        scenario: its options.
        on_split: called when nodes are cut off, so that there may be two rings.

    Attributes:
        cut: nodes that are cut off by a partition.
        faults: all that happened, with the instant.
        calms: how often all faults were undone; periodic faults stop then.
        clogged: until when a closed link ends at a node.
    """

    def __init__(self, ring: OverlayRing, scenario: Scenario, on_split: Callable[[], None]) -> None:
        self.ring, self.scenario, self.on_split = ring, scenario, on_split
        self.random = RandomStream(scenario.seed, "hostile")
        self.cut: dict[NodeId, None] = {}
        self.faults: list[tuple[int, Fault]] = []
        self.calms = 0
        self.clogged: dict[NodeId, int] = {}
        self._disturbed: dict[NodeId, int] = {}
        self._network_until = 0
        self.deaths = DeathLedger(ring.world, self.is_calm)
        ring.listeners.append(self.deaths.on_effect)

    def do(self, fault: Fault) -> None:
        """Apply a fault, and note it."""
        self.faults.append((self.ring.world.now, fault))
        apply(self.ring.world, fault)
        self._look_for_parts()

    def _look_for_parts(self) -> None:
        """Note a partition when links that are cut or held one by one leave no chain of open ones for as long as a lease."""
        world = self.ring.world
        until = world.now + self.ring.config.lease_ns
        awake = [node.peer.node for node in world.live if node.machine.joined and node.paused_until <= until]
        if not is_connected(awake, partial(world.network.is_open, until=until)):
            self.on_split()

    # ---- the truth

    def up(self) -> list[NodeId]:
        """Return the members that are up and not cut off."""
        return [
            node.peer.node for node in self.ring.world.live if node.machine.joined and node.peer.node not in self.cut
        ]

    def down(self) -> list[NodeId]:
        """Return the nodes that are down."""
        return [node for node, node_state in sorted(self.ring.world.nodes.items()) if not node_state.is_up]

    def is_calm(self, a: NodeId, b: NodeId) -> bool:
        """Return whether no fault excuses that one of them takes the other for dead."""
        now, config = self.ring.world.now, self.ring.world.network.config
        is_wild = (
            config.loss > 0.05
            or config.burst_start
            or config.host_rate
            or (config.spike and config.spike_ns > 150_000_000)
        )
        if is_wild or now < self._network_until:
            return False
        together = self._network_until + self.ring.config.heal_interval_ns + self.ring.config.merge_after_ns
        if (
            self._network_until
            and now < together
            and any(now < self.clogged.get(end, -_CALM_NS) + _CALM_NS for end in (a, b))
        ):
            return False  # the helper that could tell better may still be in another ring
        return now >= self._disturbed.get(a, 0) and now >= self._disturbed.get(b, 0)

    def disturb(self, node: NodeId, duration_ns: int) -> None:
        """Excuse, for a while and a little more, that others take this node for dead, and it them."""
        until = self.ring.world.now + duration_ns + _CALM_NS
        self._disturbed[node] = max(until, self._disturbed.get(node, 0))

    def disturb_network(self, duration_ns: int) -> None:
        """Excuse, for a while and a little more, that any node takes any other for dead."""
        self._network_until = max(self._network_until, self.ring.world.now + duration_ns + _CALM_NS)

    def may_lose(self, count: int = 1) -> bool:
        """Return whether so many more nodes may go down."""
        return len(self.down()) + len(self.cut) + count <= self.scenario.max_down and len(self.up()) > count + 1


def is_connected(nodes: Sequence[NodeId], is_open: Callable[[NodeId, NodeId], bool]) -> bool:
    """Return whether links that are open in both directions lead from each of these nodes to all others.

    Safety is promised of a network in which any two members reach each other, if need be through others (decision 0010). Faults
    of single links may partition the members all the same. Then each part continues alone, as in a partition, and must be
    allowed to.
    """
    if not nodes:
        return True
    connected, unseen = [nodes[0]], dict.fromkeys(nodes[1:])
    for node in connected:
        near = [other for other in unseen if is_open(node, other)]
        for other in near:
            del unseen[other]
        connected.extend(near)
    return not unseen
