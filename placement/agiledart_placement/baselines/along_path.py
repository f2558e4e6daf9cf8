"""Default placement: stages on the nodes that the JOIN messages passed; overflow goes to the leaf sets of these nodes.

Source: [AgileDART] §IV-A; spec of the dataflow graph, section 4 rules 1 to 4 and 7.

Departs: the spec excludes a sink that is a pure actuator from the hosts. Nodes do not report whether they are actuators, so
the last node of a path is a host like the others. When capacity is short and rules must be relaxed, this strategy ranks host
and overflow candidates together by operator count. The spec would fill the host completely first, which the balance rule was
meant to prevent. When source and sink are one node, the first instances of the steps between them stay there, unless the node
is busy with other applications: rows that leave a node and come back cross two links for nothing. When no node lies between
source and sink, two steps stay with the sink and two with the source, for the same reason; instances of other applications there
take their places. Before the balance rule is relaxed, an instance may go to a candidate of another host of the paths: the spec
asks the host's own candidates only, and many sinks that are near each other on the ring fill these together.
"""

from itertools import takewhile
from typing import Final

from agiledart_kernel.node_id import NodeId
from agiledart_placement.baselines.ledger import SHARED, STRICT, UNBALANCED, Ledger, no_capacity
from agiledart_placement.problem.request import Obstacle, Placement, PlacementRequest, StageDemand

END_STEPS: Final = 2
"""Steps that stay with the sink, and with the source, of a path without nodes between: as many as a node's balanced share."""


def host_list(path: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    """Return H: the nodes of a path that may host operators. A source node hosts only sources, unless it is the whole path."""
    return path[1:] or path[:1]


def host_index(position: int, operators: int, hosts: int) -> int:
    """Return ⌊j·|H|/q⌋: contiguous, monotone, near the source first, so that reducing operators run early (rule 1)."""
    return position * hosts // operators


def junction_of(path: tuple[NodeId, ...], others: list[tuple[NodeId, ...]]) -> int:
    """Return the index in `path` from which all of these other paths have joined it; 0 when there are none."""
    first = 0
    for other in others:
        met = next((i for i, node in enumerate(path) if node in other), len(path) - 1)
        first = max(first, met)
    return first


class AlongPath:
    """Placement strategy that assigns stages to the nodes of recorded paths."""

    keeps_balance = True

    def place(self, request: PlacementRequest) -> Placement:
        """Return a node for every instance; see `PlacementStrategy.place`."""
        ledger = Ledger(request)
        ledger.put_pinned()
        reach = _Reachability(request)
        # Per sink, the path with the most stages goes first: stages that paths share follow the longest one.
        for path in sorted(request.paths, key=lambda path: (path[-1], -len(reach.between(path)), path[0])):
            stages = [stage for stage in reach.between(path) if (stage.stage, 0) not in ledger.nodes]
            self._place_path(request, ledger, reach, path, stages)
        for stage in request.stages:  # steps between no source and no sink of a recorded path
            if (stage.stage, 0) not in ledger.nodes:
                self._place_stage(request, ledger, stage, request.paths[0][-1])
        return ledger.placement()

    def _place_path(
        self,
        request: PlacementRequest,
        ledger: Ledger,
        reach: "_Reachability",
        path: tuple[NodeId, ...],
        stages: list[StageDemand],
    ) -> None:
        hosts = host_list(path)
        skipped = 1 if hosts[0] != path[0] or len(path) > 1 else 0
        by_host: list[list[StageDemand]] = [[] for _ in hosts]
        others = [other for other in request.paths if other[-1] == path[-1] and other[0] != path[0]]
        alone = takewhile(lambda stage: not any(reach.feeds(other[0], stage.stage) for other in others), stages)
        at_ends = _steps_at_ends(request, path, stages, list(alone))
        for position, stage in enumerate(stages):
            if stage.stage in at_ends:
                continue
            index = host_index(position, len(stages), len(hosts))
            feeding = [other for other in others if reach.feeds(other[0], stage.stage)]
            index = min(max(index, junction_of(path, feeding) - skipped), len(hosts) - 1)
            by_host[index].append(stage)
        for stage in stages:
            if stage.stage in at_ends:
                self._place_stage(request, ledger, stage, at_ends[stage.stage], is_home=True)
        # On the sink's node the last steps come first. Steps that this node does not take run before them, so no row comes back.
        by_host[-1].reverse()
        for host, here in zip(hosts, by_host, strict=True):
            for stage in here:
                self._place_stage(request, ledger, stage, host, is_home=len(path) == 1)

    def _place_stage(
        self, request: PlacementRequest, ledger: Ledger, stage: StageDemand, host: NodeId, *, is_home: bool = False
    ) -> None:
        for index in range(stage.parallelism):
            if index:
                obstacle: Obstacle | None = Obstacle.COPIES
            else:
                obstacle = ledger.obstacle_at_home(host, stage) if is_home else ledger.obstacle(host, stage, STRICT)
            node = host if obstacle is None else self._overflow(request, ledger, stage, index, host)
            if obstacle is not None and node != host:
                ledger.away[stage.stage, index] = host, obstacle
            ledger.put(stage, index, node)

    def _overflow(
        self, request: PlacementRequest, ledger: Ledger, stage: StageDemand, index: int, host: NodeId
    ) -> NodeId:
        """Return another node for an instance that its host does not take (rule 3).

        Candidates are ranked by load: the leaf set of the host first, then its neighbourhood set, then both and the host with fewer
        rules. Before the balance rule goes, all nodes off the paths that reported their load are candidates: the leaf set of one
        host may be full while those of the other hosts are empty.
        """
        state = request.hosts.get(host)
        leaves, neighbours = (state.candidates, state.neighbours) if state is not None else ((), ())
        all_candidates = (host, *leaves, *neighbours)
        on_paths = frozenset(node for path in request.paths for node in path)
        off_paths = tuple(node for node in request.hosts if node not in on_paths)
        pools = [
            (STRICT, leaves),
            (STRICT, neighbours),
            (SHARED, all_candidates),
            (SHARED, off_paths),
            (UNBALANCED, all_candidates),
            (UNBALANCED, off_paths),
        ]
        if ledger.has_rules(stage):  # the nodes that rules allow may lie anywhere
            pools += [(level, tuple(request.hosts)) for level in (STRICT, SHARED, UNBALANCED)]
        for level, pool in pools:
            with_capacity = [node for node in pool if ledger.has_capacity(node, stage, level)]
            if with_capacity:
                ledger.relax(level)
                return min(
                    with_capacity, key=ledger.load_with_one_more
                )  # equal loads: the nearer one, which comes first
        raise no_capacity(stage, index, request)


def _steps_at_ends(
    request: PlacementRequest, path: tuple[NodeId, ...], stages: list[StageDemand], alone: list[StageDemand]
) -> dict[int, NodeId]:
    """Return the steps that stay on the source's or the sink's node because no node lies between: stage → node.

    The last steps stay with the sink and the first ones with the source, so rows cross one link. Instances of other applications
    on these nodes take places of such steps: without this, each end of a short path would exceed its balanced share.

    Args:
        path: from the source's node to the sink's.
        stages: free stages between them, in topological order.
        alone: the first of them, as far as no other source feeds them.
    """
    if len(path) != 2:
        return {}
    ends = [request.hosts[node] for node in path]
    at_source, at_sink = (max(0, END_STEPS * end.places - end.operators) for end in ends)
    last = stages[len(stages) - min(at_sink, len(stages)) :]
    first = alone[: min(at_source, len(stages) - len(last))]
    return {stage.stage: path[0] for stage in first} | {stage.stage: path[1] for stage in last}


class _Reachability:
    """Index of the stages that lie between given sources and sinks."""

    def __init__(self, request: PlacementRequest) -> None:
        self._stages = request.stages
        self._down: dict[int, list[int]] = {stage.stage: [] for stage in request.stages}
        self._up: dict[int, list[int]] = {stage.stage: [] for stage in request.stages}
        for upstream, downstream in request.edges:
            self._down[upstream].append(downstream)
            self._up[downstream].append(upstream)
        self._pinned: dict[NodeId, list[int]] = {}
        for stage in request.stages:
            if stage.pinned is not None:
                self._pinned.setdefault(stage.pinned, []).append(stage.stage)
        self._below: dict[NodeId, frozenset[int]] = {}
        self._above: dict[NodeId, frozenset[int]] = {}

    def between(self, path: tuple[NodeId, ...]) -> list[StageDemand]:
        """Return the free stages between the sources of the first node and the sinks of the last, in topological order."""
        source, sink = path[0], path[-1]
        if sink not in self._above:
            sinks = [stage for stage in self._pinned.get(sink, []) if not self._down[stage]]
            self._above[sink] = _closure(self._up, sinks)
        above = self._above[sink]
        below = self._sources_below(source)
        return [s for s in self._stages if s.pinned is None and s.stage in below and s.stage in above]

    def feeds(self, source: NodeId, stage: int) -> bool:
        """Return whether records of sources on this node reach the stage."""
        return stage in self._sources_below(source)

    def _sources_below(self, node: NodeId) -> frozenset[int]:
        if node not in self._below:
            sources = [stage for stage in self._pinned.get(node, []) if not self._up[stage]]
            self._below[node] = _closure(self._down, sources)
        return self._below[node]


def _closure(links: dict[int, list[int]], start: list[int]) -> frozenset[int]:
    seen = set(start)
    queue = list(start)
    while queue:
        for neighbour in links[queue.pop()]:
            if neighbour not in seen:
                seen.add(neighbour)
                queue.append(neighbour)
    return frozenset(seen)
