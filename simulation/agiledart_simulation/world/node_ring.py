"""World of whole nodes, with an instance host that starts nothing: submissions, deaths and reports without processes."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_kernel.codec import Codec
from agiledart_kernel.instants import MILLISECOND, SECOND, Instant
from agiledart_kernel.machine import Completed, Effect, Failed, Received
from agiledart_kernel.node_id import NodeId, digit, ring_distance
from agiledart_kernel.observation import Observation
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.config import NodeConfig
from agiledart_node.node import Node
from agiledart_node.protocol import NODE_CODEC
from agiledart_node.records.application import PEER_CODEC, node_name_key
from agiledart_node.wire.commands import Command
from agiledart_node.wire.effects import (
    DrainLocalSources,
    Progressed,
    ReadLogs,
    ReadTap,
    RefusedRequest,
    Replied,
    StartInstances,
    StartLocalSources,
    StopInstances,
)
from agiledart_node.wire.events import ClockRead, UserRequest
from agiledart_node.wire.formation_messages import LogLine, TapRow, TapRows
from agiledart_overlay.wire.events import JoinRing
from agiledart_overlay.wire.messages import RecordCopy
from agiledart_simulation.world.latency_models import Latency
from agiledart_simulation.world.network import NetworkConfig
from agiledart_simulation.world.overlay_ring import simulated_ids
from agiledart_simulation.world.trace import Trace
from agiledart_simulation.world.world import World

WALL_MS = 1_357_516_800_000
"""Wall time of the virtual world's beginning: 2013-01-07."""

TESTER = Principal("admin", "", b"t" * 32)
"""The requester in a virtual world."""

Hosted = tuple[NodeId, str, int]
"""(node, application, version)."""


class NodeRing:
    """Nodes a1, a2, … in a world; requests are answered into `answers`.

    Args:
        zones: how many zones the nodes lie in, in turn; 0: none of them is in a zone.
        checks_wire: encode and decode every message.
        start_ns: time that starting instances takes.
        observations: receives everything that a node reports.
        cores: of the nodes, in turn.

    Attributes:
        answers, answered_at: by request: the reply or refusal, and when it came.
        progress: lines for the waiting user, by request.
        running: parts whose instances run, by (node, application, version).
        flowing, drained: where sources read, where they were told to end.
        start_failure: returns the reason why a part can't be started at a node, `""` if it can.
    """

    def __init__(
        self,
        seed: int,
        count: int,
        config: NodeConfig,
        network: NetworkConfig | None = None,
        *,
        zones: int = 0,
        checks_wire: bool = False,
        start_ns: int = 0,
        trace: Trace | None = None,
        queue: str = "heap",
        latency: Latency | None = None,
        observations: Callable[[NodeId, Observation], None] | None = None,
        cores: Sequence[int] = (1,),
    ) -> None:
        self.config, self.start_ns, self.observations = config, start_ns, observations
        codec: Codec[Any] | None = NODE_CODEC if checks_wire else None
        self.world: World[Node] = World(
            seed, self._make, network, codec, self._on_effect, trace, queue=queue, latency=latency
        )
        self.ids = simulated_ids(seed, count)
        self.names = {node: f"a{index + 1}" for index, node in enumerate(self.ids)}
        self.cores = {node: cores[index % len(cores)] for index, node in enumerate(self.ids)}
        self._configs = {count: replace(config, cores=count) for count in cores}
        self.zones = {node: f"zone-{index % zones}" if zones else "" for index, node in enumerate(self.ids)}
        self.by_name = {name: node for node, name in self.names.items()}
        self.answers: dict[int, Replied | RefusedRequest] = {}
        self.answered_at: dict[int, Instant] = {}
        self.progress: dict[int, list[str]] = {}
        self.running: dict[Hosted, list[DeploymentPart]] = {}
        self.flowing: dict[Hosted, bool] = {}
        self.drained: dict[Hosted, bool] = {}
        self.start_failure: Callable[[Peer, DeploymentPart], str] = lambda peer, part: ""
        self._request = 0

    def _make(self, peer: Peer, random: RandomStream) -> Node:
        config = self._configs[self.cores[peer.node]]
        if self.observations is None:
            return Node(peer, config, random)
        report = self.observations
        return Node(peer, config, random, lambda observation: report(peer.node, observation))

    # ---- nodes

    def node(self, name: str) -> NodeId:
        """Return the id of a node."""
        return self.by_name[name]

    def machine(self, name: str) -> Node:
        """Return the machine of a node."""
        return self.world.nodes[self.by_name[name]].machine

    @property
    def live(self) -> Iterator[Node]:
        """Return the machines of the nodes that are up, by id."""
        return (node.machine for node in self.world.live)

    def start(self, node: NodeId, *seeds: NodeId) -> None:
        """Start a node, or its next incarnation, and have it join through these nodes."""
        self.world.start(Peer(node, 1, self.names[node], zone=self.zones[node]))
        self.world.inject(node, ClockRead(WALL_MS + self.world.now // 1_000_000))
        self.world.inject(node, JoinRing(tuple(self.world.nodes[seed].peer for seed in seeds)))

    def join_all(self, interval_ns: int = 20 * MILLISECOND, limit_ns: int = 300 * SECOND) -> bool:
        """Create a ring and let the others join one after the other; return true when all are members."""
        random = RandomStream(self.world.seed, "mesh")
        self.start(self.ids[0])
        for index, node in enumerate(self.ids[1:], start=1):
            self.world.run_for(interval_ns)
            self.start(node, self.ids[random.index(index)], self.ids[0])
        return self.world.run_until(lambda: all(node.joined for node in self.live), limit_ns)

    def assemble(self) -> None:
        """Start with a finished ring, from global knowledge: true leaves, filled tables, neighbours of the own zone.

        No node sets a timer, so that nodes only react to requests; deaths stay undetected.
        """
        peers = {
            node: self.world.start(Peer(node, 1, self.names[node], zone=self.zones[node])).peer for node in self.ids
        }
        maps = _Tables(sorted(self.ids), self.config.overlay.leaf_count // 2, RandomStream(self.world.seed, "tables"))
        nodes_by_zone: dict[str, list[NodeId]] = {}
        for node in self.ids:
            nodes_by_zone.setdefault(self.zones[node], []).append(node)
        random = RandomStream(self.world.seed, "neighbours")
        for node in self.ids:
            zone = nodes_by_zone[self.zones[node]]
            near = {random.choice(zone): None for _ in range(self.config.overlay.neighbour_count)}
            known = {other: None for other in (*near, *maps.leaves(node), *maps.slots(node)) if other != node}
            self.world.nodes[node].machine.overlay.adopt((peers[other] for other in known), self.world.now)

    def note_names(self, nodes: Sequence[NodeId]) -> None:
        """Store on an assembled ring which node has which name, as nodes do when they join."""
        ordered = sorted(self.ids)
        for node in nodes:
            peer = self.world.nodes[node].peer
            key = node_name_key(peer.name)
            root, other = _nearest(ordered, key)
            copy = RecordCopy(key, 1, PEER_CODEC.encode(peer), (node, 1, 0))
            self.world.inject(root, Received(self.world.nodes[other].peer, copy))

    def crash(self, name: str, *, silent: bool = False) -> None:
        """End a node and what runs on it."""
        node = self.by_name[name]
        self.world.crash(node, silent=silent)
        for key in [key for key in self.running if key[0] == node]:
            del self.running[key]

    # ---- the driver's part

    def _on_effect(self, peer: Peer, effect: Effect) -> None:
        node = peer.node
        if isinstance(effect, Replied | RefusedRequest):
            assert effect.request not in self.answers, "two answers to one request"
            self.answers[effect.request] = effect
            self.answered_at[effect.request] = self.world.now
        elif isinstance(effect, Progressed):
            self.progress.setdefault(effect.request, []).append(effect.text)
        elif isinstance(effect, StartInstances):
            self._start_instances(peer, effect)
        elif isinstance(effect, StopInstances):
            self.running.pop((node, effect.application, effect.version), None)
            self.flowing.pop((node, effect.application, effect.version), None)
        elif isinstance(effect, StartLocalSources):
            self.flowing[node, effect.application, effect.version] = True
        elif isinstance(effect, DrainLocalSources):
            self.drained[node, effect.application, effect.version] = True
        elif isinstance(effect, ReadLogs):
            line = LogLine(effect.after + 1, WALL_MS, "count", f"hello from {peer.name}")
            self.world.inject(node, Completed(effect.request, (line,)))
        elif isinstance(effect, ReadTap):
            row = TapRow(effect.after + 1, 0, WALL_MS, f'{{"seen": "{effect.step}"}}')
            self.world.inject(node, Completed(effect.request, TapRows(0, (row,), 7)))

    def _start_instances(self, peer: Peer, effect: StartInstances) -> None:
        part = effect.part
        reason = self.start_failure(peer, part)
        if reason:
            self.world.inject(peer.node, Failed(effect.request, reason), self.start_ns)
            return
        self.running.setdefault((peer.node, part.application, part.version), []).append(part)
        result = {placed.copy: f"{peer.name}:{placed.stage}.{placed.index}" for placed in part.instances}
        self.world.inject(peer.node, Completed(effect.request, result), self.start_ns)

    # ---- users

    def ask(self, name: str, command: Command, delay_ns: int = 0, principal: Principal = TESTER) -> int:
        """Have a user send a command to a node; return the request's number."""
        self._request += 1
        self.world.inject(self.by_name[name], UserRequest(self._request, command, "tester", principal), delay_ns)
        return self._request

    def is_answered(self, request: int) -> bool:
        """Return whether a request has its reply or refusal."""
        return request in self.answers


def _nearest(ordered: Sequence[NodeId], key: NodeId) -> tuple[NodeId, NodeId]:
    """Return the two ids closest to a key, of a sorted list of at least three."""
    index = bisect_left(ordered, key)
    nearby = [ordered[(index + step) % len(ordered)] for step in (-2, -1, 0, 1)]
    ranked = sorted(dict.fromkeys(nearby), key=lambda node: (ring_distance(node, key), node))
    return ranked[0], ranked[1]


class _Tables:
    """True leaf sets and filled routing tables of a ring."""

    def __init__(self, ordered: list[NodeId], half: int, random: RandomStream) -> None:
        self._ordered, self._half, self._random = ordered, half, random
        self._index = {node: index for index, node in enumerate(ordered)}

    def leaves(self, node: NodeId) -> list[NodeId]:
        """Return the nearest nodes in each direction."""
        index, count = self._index[node], len(self._ordered)
        reach = min(self._half, (count - 1))
        return [self._ordered[(index + step) % count] for step in range(-reach, reach + 1) if step]

    def slots(self, node: NodeId) -> list[NodeId]:
        """Return one random node for each slot of the routing table that can be filled."""
        ordered, nodes = self._ordered, []
        low, high, row = 0, len(ordered), 0
        while high - low > 1:
            shift = 128 - 4 * (row + 1)
            own = digit(node, row)
            base = (node >> (shift + 4)) << (shift + 4)
            bounds = [bisect_left(ordered, base + (column << shift), low, high) for column in range(17)]
            for column in range(16):
                first, last = bounds[column], bounds[column + 1]
                if column != own and last > first:
                    nodes.append(ordered[first + self._random.index(last - first)])
            low, high, row = bounds[own], bounds[own + 1], row + 1
        return nodes
