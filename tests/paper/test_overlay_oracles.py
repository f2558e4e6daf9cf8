"""[Pastry] §2: the oracles of the overlay's specification, section 12: routes and a join by hand (O1), hops of large rings (O2),
the prefix walk of the figure (O3)."""

import math
from itertools import pairwise

import pytest

from agiledart_kernel.node_id import NodeId, node_id_of_key, ring_distance, shared_prefix
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.tables.leaf_set import LeafSet
from agiledart_overlay.tables.next_hop import Rule, next_hop
from agiledart_overlay.tables.routing_table import RoutingTable
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.messages import JoinRows
from agiledart_overlay.wire.ring_messages import AdmissionConfirmed
from agiledart_simulation.world.network import NetworkConfig
from agiledart_simulation.world.overlay_ring import OverlayRing
from agiledart_simulation.world.trace import Trace

SMALL = OverlayConfig(id_bits=8, digit_bits=2, leaf_count=4)
HAND_RING = "0012 0113 0230 1021 1203 1320 2011 2130 2302 3003 3121 3312"


def base4(text: str) -> NodeId:
    return NodeId(int(text, 4))


def text4(node: int) -> str:
    digits = ""
    for _ in range(4):
        node, digit = divmod(node, 4)
        digits = str(digit) + digits
    return digits


class EstimateMemory(Trace):
    """Keeps the messages that were received."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[tuple[NodeId | None, object]] = []

    def add(self, at: int, node: NodeId, source: NodeId | None, kind: str, payload: object) -> None:
        super().add(at, node, source, kind, payload)
        self.messages.append((source, payload))


def hand_ring() -> tuple[OverlayRing, EstimateMemory]:
    memory = EstimateMemory()
    ring = OverlayRing(1, SMALL, NetworkConfig(span_ns=0, jitter_ns=0), trace=memory)
    ring.assemble([base4(name) for name in HAND_RING.split()])
    return ring, memory


@pytest.mark.parametrize(
    ("source", "key", "path"),
    [("0012", "2131", "0012 2011 2130"), ("0012", "3220", "0012 3312"), ("1021", "1113", "1021 1203")],
)
def test_o1_route_by_hand(source: str, key: str, path: str) -> None:
    ring, _ = hand_ring()
    ring.route(base4(source), base4(key), b"hello")
    ring.world.run_for(1_000_000_000)
    ((at, delivered),) = ring.delivered
    assert " ".join(text4(peer.node) for peer in delivered.path) == path
    assert at.node == delivered.path[-1].node
    assert delivered.payload == b"hello"


def test_o1_join_by_hand() -> None:
    ring, memory = hand_ring()
    ring.start(base4("2133"), [base4("0012")])
    ring.world.run_for(1_000_000_000)
    joiner = base4("2133")
    told = sorted((message.position, source) for source, message in memory.messages if isinstance(message, JoinRows))
    assert [text4(source) for _, source in told if source is not None] == ["0012", "2011", "2130"]
    assert all(
        source == base4("2130") for source, message in memory.messages if isinstance(message, AdmissionConfirmed)
    )
    machine = ring.machine(joiner)
    assert machine.joined
    assert [text4(peer.node) for peer in machine.leaf_set.counterclockwise] == ["2130", "2011"]
    assert [text4(peer.node) for peer in machine.leaf_set.clockwise] == ["2302", "3003"]
    rows = {message.position: message for _, message in memory.messages if isinstance(message, JoinRows)}
    by_position = {
        position: sorted({text4(sighting.peer.node) for sighting in message.sightings})
        for position, message in rows.items()
    }
    assert {"1021", "2011", "3003"} <= set(by_position[0]), "row 0 comes from 0012"
    assert {"2130", "2302"} <= set(by_position[1]), "row 1 comes from 2011"
    assert "2302" in by_position[2], "rows 2 and 3 as far as 2130 has them"


def test_o1_slot_choice_is_the_smallest_id() -> None:
    ring, _ = hand_ring()
    entries = ring.machine(base4("0012")).routing_table.candidates(0, 2)
    assert [text4(peer.node) for peer in entries] == ["2011", "2130", "2302"]


class KnownRing:
    """Tables from global knowledge; points in the unit square; slot = nearest of at most 16 random candidates."""

    def __init__(self, count: int, seed: int) -> None:
        random = RandomStream(seed, "o2")
        self.random = random
        self.ids = sorted(node_id_of_key(random.bits(256).to_bytes(32, "big")) for _ in range(count))
        self.place = {node: (random.uniform(), random.uniform()) for node in self.ids}
        self.leaves: dict[NodeId, LeafSet] = {}
        self.tables: dict[NodeId, RoutingTable] = {}
        prefixes: dict[tuple[int, int], list[NodeId]] = {}
        for node in self.ids:
            for length in range(1, 6):
                prefixes.setdefault((length, node >> (128 - 4 * length)), []).append(node)
        for index, node in enumerate(self.ids):
            leaf_set = self.leaves[node] = LeafSet(node, 24, 128)
            for step in range(1, min(12, count - 1) + 1):
                leaf_set.add(Peer(self.ids[(index + step) % count]))
                leaf_set.add(Peer(self.ids[(index - step) % count]))
            table = self.tables[node] = RoutingTable(node, 128, 4, 1)
            for row in range(5):
                own = node >> (128 - 4 * (row + 1))
                for column in range(16):
                    group = prefixes.get((row + 1, own & ~15 | column), [])
                    if column != own & 15 and group:
                        sample = [random.choice(group) for _ in range(16)] if len(group) > 16 else group
                        nearest = min(sample, key=lambda other: (self.distance(node, other), other))
                        table.add(Peer(nearest), 0.0)

    def distance(self, a: NodeId, b: NodeId) -> float:
        return math.dist(self.place[a], self.place[b])

    def route(self, source: NodeId, key: NodeId) -> list[NodeId]:
        path = [source]
        while True:
            here = path[-1]
            hop = next_hop(here, key, self.leaves[here], self.tables[here], (), 128, 4)
            if hop.peer is None:
                return path
            there = hop.peer.node
            if hop.rule is Rule.TABLE:
                assert shared_prefix(there, key) > shared_prefix(here, key)
            else:
                assert ring_distance(there, key) < ring_distance(here, key)
            path.append(there)


@pytest.mark.parametrize(("count", "mean"), [(100, 1.62), (1000, 2.39)])
def test_o2_hops_of_a_correct_ring(count: int, mean: float) -> None:
    ring = KnownRing(count, seed=3)
    most = math.ceil(math.log(count, 16)) + 1
    hops, stretches = [], []
    for _ in range(2_000):
        source, key = ring.random.choice(ring.ids), NodeId(ring.random.bits(128))
        path = ring.route(source, key)
        assert path[-1] == min(ring.ids, key=lambda node: (ring_distance(node, key), node))
        assert len(path) - 1 <= most
        hops.append(len(path) - 1)
        direct = ring.distance(source, path[-1])
        if direct > 0:
            stretches.append(sum(ring.distance(a, b) for a, b in pairwise(path)) / direct)
    assert abs(sum(hops) / len(hops) - mean) < 0.15
    assert sorted(stretches)[len(stretches) // 2] < 2


def test_o3_prefix_walk_of_the_figure() -> None:
    sink = NodeId.from_hex("D45A3C")
    shared = {name: shared_prefix(NodeId.from_hex(name), sink) for name in ("D4A8A1", "D45342", "D45A55", "D45A35")}
    assert shared == {"D4A8A1": 2, "D45342": 3, "D45A55": 4, "D45A35": 5}
    assert all(shared_prefix(NodeId.from_hex(source), sink) == 0 for source in ("75A342", "1564A6"))
