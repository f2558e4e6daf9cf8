"""World of overlay machines: the test bench for rings.

It collects what the machines report to the node above (joined, failures, deliveries, answers), for tests and checkers.
"""

from collections.abc import Callable, Sequence
from typing import Any

from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import ID_BITS, NodeId, node_id_of_key
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.overlay_machine import OverlayMachine
from agiledart_overlay.protocol import OverlayMessage
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.effects import (
    Delivered,
    JoinCompleted,
    JoinFailed,
    LeaveCompleted,
    PeerFailed,
    RecordAnswer,
)
from agiledart_overlay.wire.events import JoinRing, ReadRecord, RouteMessage, StoreRecord
from agiledart_simulation.world.latency_models import Latency
from agiledart_simulation.world.network import NetworkConfig
from agiledart_simulation.world.trace import Trace
from agiledart_simulation.world.world import World


def simulated_ids(seed: int, count: int, bits: int = ID_BITS) -> list[NodeId]:
    """Return different ids of so many nodes, each derived from seeded bytes in place of a public key; short ones are drawn."""
    random = RandomStream(seed, "ids")
    if bits == ID_BITS:
        return [node_id_of_key(random.bits(256).to_bytes(32, "big")) for _ in range(count)]
    if count > 1 << bits:
        raise ConfigurationError(f"{count} nodes need more than {bits} bits")
    ids: dict[NodeId, None] = {}
    while len(ids) < count:
        ids[NodeId(random.bits(bits))] = None
    return list(ids)


class OverlayRing:
    """Overlay machines in a world.

    Args:
        seed: of the world and the ids.
        config: of all machines.
        network: of the world.
        checks_wire: encode and decode every message.
        trace: receives every event.
        codec: encodes and decodes every message, instead of the one of `checks_wire`.
        queue, latency: of the world.

    Attributes:
        listeners: called with every effect that goes to the node above.
    """

    def __init__(
        self,
        seed: int,
        config: OverlayConfig | None = None,
        network: NetworkConfig | None = None,
        *,
        checks_wire: bool = False,
        trace: Trace | None = None,
        codec: Codec[OverlayMessage] | None = None,
        queue: str = "heap",
        latency: Latency | None = None,
    ) -> None:
        self.config = config or OverlayConfig.lan()
        if codec is None and checks_wire:
            codec = Codec(OverlayMessage)
        self.world: World[OverlayMachine] = World(
            seed,
            lambda peer, random: OverlayMachine(peer, self.config, random),
            network,
            codec,
            self._on_effect,
            trace,
            queue=queue,
            latency=latency,
        )
        self.listeners: list[Callable[[Peer, Effect], None]] = []
        self.joined: dict[tuple[NodeId, int], Instant] = {}
        self.join_failures: list[tuple[Peer, str]] = []
        self.left: list[Peer] = []
        self.failures: list[tuple[Instant, Peer, PeerFailed]] = []
        self.delivered: list[tuple[Peer, Delivered]] = []
        self.answers: dict[tuple[NodeId, int], RecordAnswer] = {}
        self._request = 0
        self._effect_handlers: dict[type[Effect], Callable[[Peer, Any], None]] = {
            JoinCompleted: lambda peer, _: self.joined.update({peer.incarnation_key: self.world.now}),
            Delivered: lambda peer, effect: self.delivered.append((peer, effect)),
            PeerFailed: lambda peer, effect: self.failures.append((self.world.now, peer, effect)),
            RecordAnswer: lambda peer, effect: self.answers.update({(peer.node, effect.request): effect}),
            JoinFailed: lambda peer, effect: self.join_failures.append((peer, effect.reason)),
            LeaveCompleted: lambda peer, _: self.left.append(peer),
        }

    def _on_effect(self, peer: Peer, effect: Effect) -> None:
        note = self._effect_handlers.get(type(effect))
        if note is not None:
            note(peer, effect)
        for listener in self.listeners:
            listener(peer, effect)

    # ---- nodes

    @property
    def machines(self) -> list[OverlayMachine]:
        """Return the machines of the nodes that are up, by id."""
        return [node.machine for node in self.world.live]

    @property
    def members(self) -> list[NodeId]:
        """Return the ids of the members, sorted."""
        return [machine.me.node for machine in self.machines if machine.joined]

    def machine(self, node: NodeId) -> OverlayMachine:
        """Return the machine of a node."""
        return self.world.nodes[node].machine

    def start(self, node: NodeId, seeds: Sequence[NodeId], **options: Any) -> Peer:
        """Start a node, or its next incarnation, and have it join through these nodes; options as of `World.start`."""
        peer = self.world.start(options.pop("peer", Peer(node, 1)), **options).peer
        handles = tuple(self.world.nodes[seed].peer for seed in seeds if seed != node)
        self.world.inject(node, JoinRing(handles))
        return peer

    def build(self, ids: Sequence[NodeId], interval_ns: int, limit_ns: int = 120 * SECOND) -> bool:
        """Create a ring with the first id and let the others join one by one through random members; return true when all are
        members.
        """
        random = RandomStream(self.world.seed, "build")
        self.start(ids[0], ())
        for index, node in enumerate(ids[1:], start=1):
            self.world.run_for(interval_ns)
            self.start(node, [ids[random.index(index)], ids[0]])
        return self.world.run_until(lambda: all(node.machine.joined for node in self.world.live), limit_ns)

    def assemble(self, ids: Sequence[NodeId]) -> None:
        """Start with a finished ring: every node knows all others, and no node probes. For questions about routes and joins."""
        peers = [self.world.start(Peer(node, 1)).peer for node in ids]
        for node in ids:
            self.machine(node).adopt(peers, self.world.now)

    # ---- requests

    def route(self, source: NodeId, key: NodeId, payload: bytes = b"") -> None:
        """Route a message."""
        self.world.inject(source, RouteMessage(key, payload))

    def store(self, at: NodeId, key: NodeId, expected: int, value: bytes, limit_ns: int = 20 * SECOND) -> RecordAnswer:
        """Write a record and wait for the answer."""
        self._request += 1
        self.world.inject(at, StoreRecord(self._request, key, expected, value))
        return self._answer(at, self._request, limit_ns)

    def read(self, at: NodeId, key: NodeId, limit_ns: int = 20 * SECOND) -> RecordAnswer:
        """Read a record and wait for the answer."""
        self._request += 1
        self.world.inject(at, ReadRecord(self._request, key))
        return self._answer(at, self._request, limit_ns)

    def _answer(self, at: NodeId, request: int, limit_ns: int) -> RecordAnswer:
        if not self.world.run_until(lambda: (at, request) in self.answers, limit_ns, limit_ns // 2_000):
            raise TimeoutError(f"no answer to request {request} of {at.short}")
        return self.answers[at, request]
