"""Request as arrays: instances and nodes by number, for strategies that look at many placements."""

from array import array
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import inf, log

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.node_id import NodeId
from agiledart_placement.problem.network_view import LOOP, LinkFigures, TableNetwork
from agiledart_placement.problem.order import levels
from agiledart_placement.problem.request import (
    HostState,
    Placement,
    PlacementRequest,
    SearchReport,
    StageDemand,
    StreamLoad,
)

SLOTS = "slots"
"""Resource that counts instances: each needs one unless its demand says otherwise, where some node names it."""


class InstanceEdge:
    """Part of a stream between two instances.

    Attributes:
        above, below: numbers of the instances.
        events: rows per second; `volume`: bytes per second.
        is_forward: the edge leads forward in the order of the operators.
    """

    __slots__ = ("above", "below", "events", "is_forward", "volume")

    def __init__(self, above: int, below: int, events: float, volume: float, *, is_forward: bool) -> None:
        self.above, self.below, self.events, self.volume, self.is_forward = above, below, events, volume, is_forward


class Problem:
    """Arrays of one request. Nodes are in the order of its hosts, instances in the order of its stages.

    Attributes:
        request: the request.
        nodes, names: ids and names of the nodes.
        resources: names of all resources.
        capacity, used: amounts by node and resource.
        instances: (stage, index) of each instance; `labels`: their names.
        demand: amounts by instance and resource.
        candidates: by instance, the nodes that may run it.
        emptied_by: by instance without candidates, the rule that removed the last one.
        edges: parts of streams between instances.
        touching: by instance, numbers of the edges at it.
        order: instances in the order of operators.
        together: by instance, the instances on whose node it must run.
        apart: by instance, (kind, other instance) that may share no node, host or zone with it.
    """

    def __init__(self, request: PlacementRequest) -> None:
        self.request = request
        hosts = list(request.hosts.values())
        self.nodes = [state.node for state in hosts]
        self.names = [state.name or state.node.short for state in hosts]
        self.node_index = {node: number for number, node in enumerate(self.nodes)}
        self.speed = [state.speed for state in hosts]
        self.limit_share = 1.0 - request.headroom
        self.instances = [(stage.stage, index) for stage in request.stages for index in range(stage.parallelism)]
        self.instance_index = {key: number for number, key in enumerate(self.instances)}
        self.stages = {stage.stage: stage for stage in request.stages}
        self.stage_of = [self.stages[stage] for stage, _ in self.instances]
        self.labels = [_label(self.stages[stage], index) for stage, index in self.instances]
        self.execution = [stage.execution_ms for stage in self.stage_of]
        self._set_resources(hosts)
        self.candidates: list[tuple[int, ...]] = []
        self.emptied_by: dict[int, str] = {}
        by_stage = {stage.stage: self._candidates_of(stage, hosts) for stage in request.stages}
        for number, stage in enumerate(self.stage_of):
            nodes, rule = by_stage[stage.stage]
            self.candidates.append(nodes)
            if not nodes:
                self.emptied_by[number] = rule
        self._set_edges()
        self._set_neighbours()
        self.host_groups = _groups([state.host or f"\0{n}" for n, state in enumerate(hosts)])
        self.zone_groups = _groups([state.zone or f"\0{n}" for n, state in enumerate(hosts)])

    def _set_resources(self, hosts: Sequence[HostState]) -> None:
        names = dict.fromkeys(name for state in hosts for name in state.resources)
        names |= dict.fromkeys(name for stage in self.stages.values() for name in stage.demand)
        self.resources = tuple(names)
        self.capacity = [[float(state.resources.get(name, 0.0)) for name in names] for state in hosts]
        self.used = [[float(state.used.get(name, 0.0)) for name in names] for state in hosts]
        implicit = {SLOTS: 1.0} if SLOTS in names else {}
        self.demand = [
            [float({**implicit, **stage.demand}.get(name, 0.0)) for name in names] for stage in self.stage_of
        ]

    def _candidates_of(self, stage: StageDemand, hosts: Sequence[HostState]) -> tuple[tuple[int, ...], str]:
        """Return the nodes that may run a stage; without any, also the rule that removed the last ones."""
        rules = (
            ("on", lambda state: stage.pinned is None or state.node == stage.pinned),
            ("on", lambda state: stage.candidates is None or state.node in stage.candidates),
            (f"zone {stage.zone!r}", lambda state: not stage.zone or state.zone == stage.zone),
            (f"needs {', '.join(stage.needs)}", lambda state: all(tag in state.offers for tag in stage.needs)),
            ("availability 0", lambda state: state.availability > 0),
            ("leaving or unfit nodes", lambda state: not state.is_draining and state.unfit is None),
        )
        left = list(enumerate(hosts))
        for name, keeps in rules:
            rest = [(number, state) for number, state in left if keeps(state)]
            if not rest:
                return (), name
            left = rest
        return tuple(number for number, _ in left), ""

    def _set_edges(self) -> None:
        request, stages = self.request, list(self.stages)
        position = {stage: number for number, stage in enumerate(stages)}
        order = levels(len(stages), [(position[a], position[b]) for a, b in request.edges])
        rank = {stages[vertex]: n for n, vertex in enumerate(v for level in order for v in level)}
        members: dict[int, list[int]] = {}
        for number, (stage, _) in enumerate(self.instances):
            members.setdefault(stage, []).append(number)
        self.members = members
        self.edges: list[InstanceEdge] = []
        loads = request.loads or (StreamLoad(),) * len(request.edges)
        self.has_backward = False
        for (above, below), load in zip(request.edges, loads, strict=True):
            pairs = [(a, b) for a in members[above] for b in members[below] if a != b]
            is_forward = rank[above] < rank[below]
            self.has_backward |= not is_forward and above != below
            for a, b in pairs:
                events = load.rate / len(pairs)
                self.edges.append(InstanceEdge(a, b, events, events * load.bytes, is_forward=is_forward))
        self.order = [number for stage in sorted(stages, key=lambda stage: rank[stage]) for number in members[stage]]
        self.touching: list[list[int]] = [[] for _ in self.instances]
        incoming: list[list[int]] = [[] for _ in self.instances]
        for number, edge in enumerate(self.edges):
            self.touching[edge.above].append(number)
            self.touching[edge.below].append(number)
            if edge.is_forward:
                incoming[edge.below].append(edge.above)
        self.forward_above = [tuple(dict.fromkeys(above)) for above in incoming]
        """Instances that feed each instance and precede it in the order."""

    def _set_neighbours(self) -> None:
        self.together: list[list[int]] = [[] for _ in self.instances]
        self.apart: list[list[tuple[str, int]]] = [[] for _ in self.instances]
        for number, (stage, index) in enumerate(self.instances):
            for other in self.stages[stage].together_with:
                partner = self.members[other][index % len(self.members[other])]
                if partner != number:
                    self.together[number].append(partner)
                    self.together[partner].append(number)
            for kind, other in self.stages[stage].apart_from:
                for partner in self.members[other]:
                    if partner != number:
                        self.apart[number].append((kind, partner))
                        self.apart[partner].append((kind, number))
        self.together = [list(dict.fromkeys(others)) for others in self.together]
        self.apart = [list(dict.fromkeys(others)) for others in self.apart]

    @cached_property
    def groups(self) -> list[list[int]]:
        """Groups of instances that must share a node, each in ascending order; a group has at least one instance."""
        seen = [False] * len(self.instances)
        groups = []
        for start in range(len(self.instances)):
            if seen[start]:
                continue
            seen[start] = True
            group, queue = [start], [start]
            while queue:
                for other in self.together[queue.pop()]:
                    if not seen[other]:
                        seen[other] = True
                        group.append(other)
                        queue.append(other)
            groups.append(sorted(group))
        return groups

    @cached_property
    def delay(self) -> "list[array[float]]":
        """One-way delays in ms, row = from, column = to. Raises ConfigurationError for a pair of which nothing is known."""
        network = self.request.network or TableNetwork({}, default=LinkFigures(0.0))
        try:
            return [network.delays_ms(node, self.nodes) for node in self.nodes]
        except KeyError as error:
            a, b = error.args[0]
            names = self.names[self.node_index[a]], self.names[self.node_index[b]]
            raise ConfigurationError(f"no link {names[0]} → {names[1]}, no default_link and no positions.") from None

    @cached_property
    def link_log(self) -> dict[tuple[int, int], float]:
        """Minus the logarithm of the availability of each link that is not perfect; infinite for 0."""
        return {
            pair: -log(f.availability) if f.availability else inf
            for pair, f in self._special.items()
            if f.availability < 1
        }

    @cached_property
    def bandwidth(self) -> dict[tuple[int, int], float]:
        """Bytes/s of each limited link."""
        return {pair: figures.bandwidth for pair, figures in self._special.items() if figures.bandwidth < inf}

    @cached_property
    def _special(self) -> dict[tuple[int, int], LinkFigures]:
        """Links between different nodes that have more than a delay."""
        network = self.request.network
        if network is None:
            return {}
        default = network.default if isinstance(network, TableNetwork) else None
        if default is not None and (default.availability < 1 or default.bandwidth < inf):
            pairs = [(a, b) for a in self.nodes for b in self.nodes if a != b]
            links: Mapping[tuple[NodeId, NodeId], LinkFigures] = {pair: network.link(*pair) for pair in pairs}
        else:
            links = network.links()
        index = self.node_index
        return {
            (index[a], index[b]): figures
            for (a, b), figures in links.items()
            if a != b and a in index and b in index and figures is not LOOP
        }

    def where_of(self, placement: Mapping[tuple[int, int], NodeId]) -> list[int]:
        """Return a placement as node numbers by instance. Raises ConfigurationError when it is not complete."""
        where = []
        for number, key in enumerate(self.instances):
            node = placement.get(key)
            if node is None or node not in self.node_index:
                raise ConfigurationError(f"{self.labels[number]}: the placement names no node of the network for it.")
            where.append(self.node_index[node])
        return where

    def placement(self, where: Sequence[int], search: SearchReport | None = None) -> Placement:
        """Return node numbers by instance as a placement."""
        nodes = {key: self.nodes[node] for key, node in zip(self.instances, where, strict=True)}
        return Placement(nodes, search=search or SearchReport())


def demand_of(stage: StageDemand, state: HostState) -> Mapping[str, float]:
    """Return what an instance of a stage needs on a node: its demand, and one slot where the node counts slots."""
    return {SLOTS: 1.0, **stage.demand} if SLOTS in state.resources else stage.demand


def _label(stage: StageDemand, index: int) -> str:
    return stage.name if stage.parallelism == 1 else f"{stage.name} {index}"


def _groups(names: Sequence[str]) -> list[int]:
    numbers: dict[str, int] = {}
    return [numbers.setdefault(name, len(numbers)) for name in names]
