"""Ring on paper for `along_path`: ids are hashes of names, tables are complete, routes are those of JOIN messages."""

from dataclasses import replace

from agiledart_kernel.node_id import DIGIT_BITS, ID_BITS, NodeId, ring_distance
from agiledart_kernel.peer import Peer
from agiledart_overlay.tables.leaf_set import LeafSet
from agiledart_overlay.tables.next_hop import next_hop
from agiledart_overlay.tables.routing_table import RoutingTable
from agiledart_placement.files.network_file import node_id_of_name
from agiledart_placement.problem.request import PlacementRequest, StageDemand

LEAVES, CANDIDATES = 16, 3


class NameRing:
    """Routes between the nodes of a request."""

    def __init__(self, request: PlacementRequest) -> None:
        self._network, self._peers = request.network, [Peer(node) for node in request.hosts]
        self._tables: dict[NodeId, tuple[LeafSet, RoutingTable]] = {}

    def _tables_of(self, node: NodeId) -> tuple[LeafSet, RoutingTable]:
        if node not in self._tables:
            leaves, table = LeafSet(node, LEAVES, ID_BITS), RoutingTable(node, ID_BITS, DIGIT_BITS, CANDIDATES)
            for peer in self._peers:
                if peer.node != node:
                    leaves.add(peer)
                    table.add(peer, self._cost(node, peer.node))
            self._tables[node] = leaves, table
        return self._tables[node]

    def _cost(self, a: NodeId, b: NodeId) -> float:
        return self._network.link(a, b).delay_ms if self._network is not None else 0.0

    def route(self, source: NodeId, sink: NodeId) -> tuple[NodeId, ...]:
        """Return the nodes of a route, both ends included."""
        path = [source]
        while path[-1] != sink:
            leaves, table = self._tables_of(path[-1])
            hop = next_hop(path[-1], sink, leaves, table, (), ID_BITS, DIGIT_BITS)
            if hop.peer is None:
                break
            path.append(hop.peer.node)
        return tuple(path)

    def leaves(self, node: NodeId) -> tuple[NodeId, ...]:
        """Return the leaf set of a node, nearest in latency first."""
        members = self._tables_of(node)[0].members
        return tuple(sorted((peer.node for peer in members), key=lambda other: (self._cost(node, other), other)))


def with_paths(request: PlacementRequest) -> PlacementRequest:
    """Return the request with routes from each source to each sink that it feeds, and leaf sets as overflow targets.

    A source or sink that is not pinned gets the candidate whose id is nearest to the hash of its name.
    """
    ring = NameRing(request)
    above = dict.fromkeys(b for a, b in request.edges if a != b)
    below = dict.fromkeys(a for a, b in request.edges if a != b)
    ends = {
        stage.stage: replace(stage, pinned=_end(request, stage))
        for stage in request.stages
        if stage.stage not in above or stage.stage not in below
    }
    stages = tuple(ends.get(stage.stage, stage) for stage in request.stages)
    paths: dict[tuple[NodeId, ...], bool] = {}
    for source in ends.values():
        if source.stage in above or source.pinned is None:
            continue
        for number in _below(request, source.stage):
            sink = ends.get(number)
            if sink is not None and number not in below and sink.pinned is not None:
                paths[ring.route(source.pinned, sink.pinned)] = True
    if not paths and stages:
        paths[next(iter(request.hosts)),] = True  # a graph of cycles: it begins anywhere
    on_paths = dict.fromkeys(node for path in paths for node in path)
    everyone = tuple(request.hosts)
    hosts = {
        node: replace(state, candidates=ring.leaves(node), neighbours=everyone) if node in on_paths else state
        for node, state in request.hosts.items()
    }
    return replace(request, stages=stages, paths=tuple(paths), hosts=hosts)


def _end(request: PlacementRequest, stage: StageDemand) -> NodeId | None:
    if stage.pinned is not None:
        return stage.pinned
    key, nodes = node_id_of_name(stage.name), stage.candidates or tuple(request.hosts)
    fits = [
        node
        for node in nodes
        if (not stage.zone or request.hosts[node].zone == stage.zone)
        and all(tag in request.hosts[node].offers for tag in stage.needs)
    ]
    return min(fits, key=lambda node: (ring_distance(node, key, ID_BITS), node)) if fits else None


def _below(request: PlacementRequest, stage: int) -> list[int]:
    seen, queue = {stage: True}, [stage]
    while queue:
        here = queue.pop()
        for a, b in request.edges:
            if a == here and b not in seen:
                seen[b] = True
                queue.append(b)
    return list(seen)
