"""Networks of other tools: nodes and physical links, over which shortest routes give the delay of every pair."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.node_id import NodeId
from agiledart_placement.files.network_file import NetworkDescription, node_id_of_name
from agiledart_placement.problem.network_view import LinkFigures, TableNetwork
from agiledart_placement.problem.request import HostState


@dataclass(frozen=True, slots=True)
class PhysicalLink:
    """Link between two nodes, in both directions.

    Args:
        a, b: numbers of the nodes.
        delay_ms: one way.
        bandwidth: bytes/s; infinite: unlimited.
    """

    a: int
    b: int
    delay_ms: float
    bandwidth: float = inf


@dataclass(slots=True)
class PhysicalNetwork:
    """Nodes and links as another tool wrote them.

    Attributes:
        file: for messages.
        names: of the nodes; doubled ones get their number behind them.
        links: physical links.
        hosts: state of a node by its name, without id; missing: a node with default figures.
        notes: omissions and changes, for the user.
    """

    file: str
    names: list[str]
    links: list[PhysicalLink]
    hosts: dict[str, HostState] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def routed(network: PhysicalNetwork, capacity: Mapping[str, float] | None = None) -> NetworkDescription:
    """Return a network in which each pair has the delay of its shortest route, and the least bandwidth on it.

    Links that join the same pair become one: the shortest delay, and the sum of their bandwidths. Only the largest part of a
    network that is not connected remains.

    Args:
        network: nodes and links.
        capacity: capacity of nodes that name none.

    Raises:
        ConfigurationError: no node remains.
    """
    if not network.names:
        raise ConfigurationError(f"{network.file}: it has no node.")
    near = _merged(network)
    remaining = _largest_part(network, near)
    names = _unique([network.names[n] for n in remaining])
    ids = {name: node_id_of_name(name) for name in names}
    order = list(ids.values())
    hosts: dict[NodeId, HostState] = {}
    for name, number in zip(names, remaining, strict=True):
        state = network.hosts.get(network.names[number])
        resources = dict(state.resources) if state is not None and state.resources else dict(capacity or {})
        speed = state.speed if state is not None else 1.0
        hosts[ids[name]] = HostState(ids[name], capacity=2**31, name=name, resources=resources, speed=speed)
    place = {number: position for position, number in enumerate(remaining)}
    table, links = [], {}
    for number in remaining:
        routes = _routes(near, number)
        table.append(array("d", [routes[other][0] for other in remaining]))
        for other, (delay, bandwidth) in routes.items():
            if other != number and bandwidth < inf:
                links[order[place[number]], order[place[other]]] = LinkFigures(delay, bandwidth=bandwidth)
    view = TableNetwork(links, table=table, order=order)
    return NetworkDescription(network.file, hosts, ids, view, notes=tuple(network.notes))


def _merged(network: PhysicalNetwork) -> list[dict[int, tuple[float, float]]]:
    near: list[dict[int, tuple[float, float]]] = [{} for _ in network.names]
    doubled = 0
    for link in network.links:
        if link.a == link.b:
            network.notes.append(f"a link of {network.names[link.a]} to itself was left out")
            continue
        old = near[link.a].get(link.b)
        doubled += old is not None
        delay = link.delay_ms if old is None else min(old[0], link.delay_ms)
        bandwidth = link.bandwidth if old is None else old[1] + link.bandwidth
        near[link.a][link.b] = near[link.b][link.a] = delay, bandwidth
    if doubled:
        network.notes.append(f"{doubled} links join a pair that another link joins: shortest delay, sum of bandwidths")
    return near


def _largest_part(network: PhysicalNetwork, near: list[dict[int, tuple[float, float]]]) -> list[int]:
    seen = [False] * len(near)
    parts: list[list[int]] = []
    for start in range(len(near)):
        if seen[start]:
            continue
        seen[start] = True
        part, queue = [start], [start]
        while queue:
            for other in near[queue.pop()]:
                if not seen[other]:
                    seen[other] = True
                    part.append(other)
                    queue.append(other)
        parts.append(sorted(part))
    largest = max(parts, key=len)
    if len(largest) < len(near):
        network.notes.append(f"{len(near) - len(largest)} nodes without a route to the others were left out")
    return largest


def _routes(near: list[dict[int, tuple[float, float]]], start: int) -> dict[int, tuple[float, float]]:
    """Return delay and least bandwidth of the shortest route to each node (Dijkstra)."""
    done: dict[int, tuple[float, float]] = {}
    heap: list[tuple[float, int, float]] = [(0.0, start, inf)]
    while heap:
        delay, node, bandwidth = heappop(heap)
        if node in done:
            continue
        done[node] = delay, bandwidth
        for other, (more, width) in near[node].items():
            if other not in done:
                heappush(heap, (delay + more, other, min(bandwidth, width)))
    return done


def _unique(names: Sequence[str]) -> list[str]:
    """Return names without duplicates: a later one gets its number."""
    counts: dict[str, int] = {}
    result = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        result.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return result
