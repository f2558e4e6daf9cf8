"""A ring that a test drives step by step, with slow links, and whose keys are watched for owners."""

from collections.abc import Sequence

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.events import JoinRing
from agiledart_simulation.checkers.leaf_sets import leaf_violations
from agiledart_simulation.checkers.ownership_checker import OwnershipChecker, ring_violations
from agiledart_simulation.world.network import NetworkConfig
from agiledart_simulation.world.overlay_ring import OverlayRing
from tests.machine_checks import look_at

LINKS = NetworkConfig(base_ns=5 * MILLISECOND, span_ns=70 * MILLISECOND, jitter_ns=25 * MILLISECOND)
"""5 to 100 ms a message."""


class Bed:
    """Args:
    seed: of the world.
    config: of all machines.
    network: other links than the usual ones.
    is_judged: machines are asked now and then what does not hold of them; not where a mistake was planted in them.
    """

    def __init__(
        self,
        seed: int,
        config: OverlayConfig | None = None,
        network: NetworkConfig | None = None,
        *,
        is_judged: bool = True,
    ) -> None:
        self.config = config or OverlayConfig.lan()
        self.ring = OverlayRing(seed, self.config, network or LINKS)
        self.world = self.ring.world
        self.owners = OwnershipChecker(self.world, self.config.id_bits)
        if is_judged:
            look_at(self.world, every=31)

    def start(self, node: NodeId, seeds: Sequence[NodeId], rate_ppb: int | None = None) -> None:
        """Start a node, or its next incarnation, with a clock of its own."""
        self.world.start(Peer(node, 1), rate_ppb=rate_ppb)
        handles = tuple(self.world.nodes[seed].peer for seed in seeds if seed != node)
        self.world.inject(node, JoinRing(handles))

    def bury_the_left(self) -> None:
        """A node that has left ends its process."""
        for peer in self.ring.left:
            life = self.world.nodes[peer.node]
            if life.is_up and life.peer.incarnation_key == peer.incarnation_key:
                self.world.crash(peer.node)
        self.ring.left.clear()

    @property
    def is_right(self) -> bool:
        """Everybody is in, agreed neighbours and leaf sets are the true ones, and every key has exactly one owner."""
        self.owners.check_all()
        return bool(self.ring.machines) and not self._faults() and self.owners.is_complete

    def _faults(self) -> list[str]:
        machines = self.ring.machines
        return [*ring_violations(machines, self.world.now), *leaf_violations(machines, self.config.leaf_count)]

    def settle(self, limit_ns: int) -> float | None:
        """Seconds until everything was right; None: not within the limit."""
        began = self.world.now
        while self.world.now - began < limit_ns:
            self.world.run_for(SECOND // 2)
            self.bury_the_left()
            if self.is_right:
                return (self.world.now - began) / SECOND
        return None

    def wrong(self) -> list[str]:
        """Faults, in words."""
        return [*self.owners.violations, *self._faults()][:10] or ["owners: not every key has one"]
