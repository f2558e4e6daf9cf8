"""Model of a network with nodes of its own and leased hosts: work that comes and goes, hosts that join and drain."""

from dataclasses import dataclass

from agiledart_kernel.instants import SECOND
from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.gate.gate_messages import NodeSeen

SELF_END_NS = 900 * SECOND
"""A host ends itself one unit and this time after the last renewal."""


@dataclass(slots=True)
class ModelNode:
    """A node.

    Attributes:
        side: of a network partition.
        lease_id, host_id, gate: of a leased host. renewed_ns: last renewal by its gate.
        is_accepted: a leased host takes no work before its gate has renewed it.
        shows: lease that it shows; another one than that of its token on a stolen token.
    """

    name: str
    side: int
    capacity: int = 4
    instances: int = 0
    lease_id: str = ""
    host_id: str = ""
    gate: str = ""
    renewed_ns: int = 0
    is_draining: bool = False
    is_banned: bool = False
    is_accepted: bool = True
    shows: str = ""


class LeasedNetwork:
    """Nodes and their work. `demand` instances are wanted in all."""

    def __init__(self, random: RandomStream, own_nodes: int) -> None:
        self._random = random
        self.nodes = {f"pi{number}": ModelNode(f"pi{number}", number % 2) for number in range(1, own_nodes + 1)}
        self.demand = 2
        self.is_parted = False

    def side_of(self, side: int) -> list[ModelNode]:
        """Return the nodes that a side of the partition reaches; all of them without one."""
        return [node for node in self.nodes.values() if not self.is_parted or node.side == side]

    def waiting(self) -> int:
        """Return the instances that wait for capacity."""
        return max(0, self.demand - sum(node.instances for node in self.nodes.values()))

    def seen(self, side: int) -> tuple[NodeSeen, ...]:
        """Return the nodes as a gate on a side sees them."""
        return tuple(
            NodeSeen(
                node.name, node.instances, node.capacity, node.shows, node.lease_id, node.gate, node.renewed_ns,
                is_empty=node.is_draining and not node.instances, host_id=node.host_id,
            )
            for node in self.side_of(side)
            if not node.is_banned
        )  # fmt: skip

    def place(self) -> None:
        """Start waiting instances, move those of draining nodes, and end those beyond the demand."""
        beyond = sum(node.instances for node in self.nodes.values()) - self.demand
        while beyond > 0:
            node = self._random.choice([node for node in self.nodes.values() if node.instances])
            node.instances -= 1
            beyond -= 1
        for node in self.nodes.values():
            if node.is_draining and node.instances and (target := self._target(node.side)) is not None:
                node.instances -= 1
                target.instances += 1
        for _ in range(self.waiting()):
            target = self._target(None)
            if target is None:
                return
            target.instances += 1

    def _target(self, side: int | None) -> ModelNode | None:
        free = [
            node
            for node in self.nodes.values()
            if node.instances < node.capacity
            and node.is_accepted
            and not (node.is_draining or node.is_banned)
            and (side is None or not self.is_parted or node.side == side)
        ]
        return min(free, key=lambda node: (bool(node.lease_id), node.instances), default=None)

    def join(self, node: ModelNode) -> None:
        """Add a leased node."""
        self.nodes[node.name] = node

    def by_host(self, host_id: str) -> ModelNode | None:
        """Return the node on a host."""
        return next((node for node in self.nodes.values() if node.host_id == host_id), None)
