"""`Bed`: a ring under admission that is watched for owners. Messages take 5 to 100 ms, so that a join is long enough to be hit."""

from collections.abc import Sequence

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.events import JoinRing
from agiledart_simulation.checkers.owners import Owners, ring_violations
from agiledart_simulation.checkers.ring import leaf_violations
from agiledart_simulation.world.network import NetworkConfig
from agiledart_simulation.world.ring import Ring

LINKS = NetworkConfig(base_ns=5 * MILLISECOND, span_ns=70 * MILLISECOND, jitter_ns=25 * MILLISECOND)
"""5 to 100 ms a message."""


def links(loss: float) -> NetworkConfig:
    """The same links with losses."""
    return NetworkConfig(LINKS.base_ns, LINKS.span_ns, LINKS.jitter_ns, loss)


class Bed:
    """A ring that is watched for owners.

    Args:
        seed: of the world.
        loss: of messages.
        config: of all machines.
        network: other links than the usual ones.
    """

    def __init__(
        self, seed: int, loss: float = 0.0, config: OverlayConfig | None = None, network: NetworkConfig | None = None
    ) -> None:
        self.config = config or OverlayConfig.lan()
        self.ring = Ring(seed, self.config, network or links(loss))
        self.world = self.ring.world
        self.owners = Owners(self.world, self.config.id_bits)

    def start(self, node: NodeId, seeds: Sequence[NodeId], rate_ppb: int | None = None) -> None:
        """Start a node, or its next life, with a clock of its own."""
        self.world.start(Peer(node, 1), rate_ppb=rate_ppb)
        handles = tuple(self.world.nodes[seed].peer for seed in seeds if seed != node)
        self.world.inject(node, JoinRing(handles))

    @property
    def in_ring(self) -> list[NodeId]:
        """Members that are up, sorted."""
        return self.ring.members

    def bury_the_left(self) -> None:
        """A node that has left ends its process."""
        for peer in self.ring.left:
            life = self.world.nodes[peer.node]
            if life.is_up and life.peer.life == peer.life:
                self.world.crash(peer.node)
        self.ring.left.clear()

    @property
    def is_right(self) -> bool:
        """Everybody is in, agreed neighbours and leaf sets are the true ones, and every key has exactly one owner."""
        machines = self.ring.machines
        self.owners.look_at_all()
        return (
            bool(machines)
            and not ring_violations(machines, self.world.now)
            and not leaf_violations(machines, self.config.leaf_count)
            and self.owners.is_complete
        )

    def settle(self, limit_ns: int, every_ns: int = SECOND // 2) -> float | None:
        """Seconds until everything was right; None: not within the limit."""
        began = self.world.now
        while self.world.now - began < limit_ns:
            self.world.run_for(every_ns)
            self.bury_the_left()
            if self.is_right:
                return (self.world.now - began) / SECOND
        return None

    def wrong(self) -> list[str]:
        """What is not right, in words."""
        machines = self.ring.machines
        found = [*self.owners.violations, *ring_violations(machines, self.world.now)]
        found.extend(leaf_violations(machines, self.config.leaf_count))
        return found[:10] or ["owners: not every key has one"]
