"""The dynamic dataflow graph: JOIN paths, their tree, and the order in which parts are deployed.

Source: [AgileDART] §IV-A; spec of the dataflow graph, section 3 (algorithm BUILD). The soft state of a node on a path is
(application, previous hop, next hop). A node that already has it for this sink is a *junction*: the JOIN continues because it
records the path, but no second set of state is created (the Scribe rule).
"""

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from agiledart_kernel.instants import Duration, Instant
from agiledart_kernel.limits import MAX_PATH
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer

MAX_SOFT_STATES = 10_000
"""Forwarder states and recorded paths of one node; the oldest are dropped first."""


@dataclass(slots=True)
class Forwarder:
    """Soft state of one node on the path of JOINs of one application to one sink."""

    next: NodeId | None
    since: Instant
    previous: list[NodeId] = field(default_factory=list)

    @property
    def is_junction(self) -> bool:
        """Return whether paths meet here."""
        return len(self.previous) > 1


class JoinSoftState:
    """Soft state of a node about JOINs that it forwarded or received."""

    def __init__(self, lifetime: Duration) -> None:
        self._lifetime = lifetime
        self.forwarders: dict[tuple[int, NodeId], Forwarder] = {}
        self._paths: dict[tuple[int, NodeId], tuple[Instant, tuple[Peer, ...]]] = {}

    def passed(
        self, number: int, sink: NodeId, previous: NodeId | None, onward: NodeId | None, now: Instant
    ) -> Forwarder:
        """Note a JOIN from `previous` (None: it starts here) to `onward` (None: it ends here)."""
        state = self.forwarders.get((number, sink))
        if state is None:
            _evict_oldest(self.forwarders)
            state = self.forwarders[number, sink] = Forwarder(onward, now)
        state.next, state.since = onward, now
        if previous is not None and previous not in state.previous and len(state.previous) < MAX_PATH:
            state.previous.append(previous)
        return state

    def arrived(self, number: int, source: NodeId, path: tuple[Peer, ...], now: Instant) -> None:
        """Note a JOIN that reached its sink, this node."""
        if (number, source) not in self._paths:
            _evict_oldest(self._paths)
        self._paths[number, source] = (now, path)

    def path_from(self, number: int, source: NodeId) -> tuple[Peer, ...] | None:
        """Return the recorded path of a source's JOIN to this node."""
        entry = self._paths.get((number, source))
        return entry[1] if entry else None

    def forget_old(self, now: Instant) -> None:
        """Drop entries that were not refreshed for the lifetime of soft state."""
        for number_sink in [k for k, state in self.forwarders.items() if now - state.since > self._lifetime]:
            del self.forwarders[number_sink]
        for number_source in [k for k, (since, _) in self._paths.items() if now - since > self._lifetime]:
            del self._paths[number_source]


def _evict_oldest(table: MutableMapping[tuple[int, NodeId], Any]) -> None:
    if len(table) >= MAX_SOFT_STATES:
        del table[next(iter(table))]


def is_path(path: tuple[Peer, ...], source: NodeId, sink: NodeId) -> bool:
    """Return whether a reported path is valid: from source to sink, each node once, not too long."""
    ids = [peer.node for peer in path]
    return 1 <= len(ids) <= MAX_PATH and ids[0] == source and ids[-1] == sink and len(frozenset(ids)) == len(ids)


def merged_tree(paths: tuple[tuple[Peer, ...], ...]) -> tuple[tuple[Peer, ...], ...]:
    """Merge paths into a tree for each sink: a later path follows an earlier one from the node where they meet.

    Slightly wrong tables can make two routes meet, separate and meet again; the forwarder state of the first one is used.
    """
    onward: dict[tuple[NodeId, NodeId], tuple[Peer, ...]] = {}
    merged = []
    for path in paths:
        sink = path[-1].node
        for position, peer in enumerate(path):
            rest = onward.get((sink, peer.node))
            if rest is not None:
                path = path[:position] + rest
                break
        for position, peer in enumerate(path):
            onward.setdefault((sink, peer.node), path[position:])
        merged.append(path)
    return tuple(merged)


def junctions(paths: tuple[tuple[Peer, ...], ...]) -> tuple[NodeId, ...]:
    """Return the nodes at which two paths to the same sink meet, sorted; sinks included when paths meet only there."""
    previous: dict[tuple[NodeId, NodeId], list[NodeId]] = {}
    for path in paths:
        for before, after in pairwise(path):
            into = previous.setdefault((path[-1].node, after.node), [])
            if before.node not in into:
                into.append(before.node)
    return tuple(sorted({node for (_, node), into in previous.items() if len(into) > 1}))


def waves(stages: int, edges: tuple[tuple[int, int], ...]) -> list[list[int]]:
    """Return stage numbers in the order of deployment: sinks first; a stage comes after all its downstream stages.

    Raises:
        ValueError: the graph has a cycle.
    """
    waiting = [0] * stages
    upstream: list[list[int]] = [[] for _ in range(stages)]
    for above, below in edges:
        waiting[above] += 1
        upstream[below].append(above)
    wave = [stage for stage in range(stages) if waiting[stage] == 0]
    order: list[list[int]] = []
    while wave:
        order.append(wave)
        ready = []
        for stage in wave:
            for above in upstream[stage]:
                waiting[above] -= 1
                if waiting[above] == 0:
                    ready.append(above)
        wave = sorted(ready)
    if sum(len(wave) for wave in order) != stages:
        raise ValueError("the graph has a cycle")
    return order
