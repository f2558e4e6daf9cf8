"""Network of `agiledart place` out of the loads that nodes reported: delays are halves of measured round trips.

A pair that no node measured has the guess by coordinates, where both nodes are sure of their places. A node with pairs of which
nothing is known is left out, and a note names it: no figure is invented.

Source: spec of placement §10.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from agiledart_kernel.coordinates import Coordinate
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.display_names import display_names
from agiledart_node.records.measured_delays import measured_delays_ms
from agiledart_node.wire.formation_messages import NodeLoad
from agiledart_placement.files.network_file import NetworkDescription
from agiledart_placement.problem.network_view import FigureSource, LinkFigures, SpacePosition, TableNetwork
from agiledart_placement.problem.problem import SLOTS
from agiledart_placement.problem.request import HostState, Obstacle

LIVE: Final = "live"
"""Name of the network of an agent, where files have theirs."""

MAX_ERROR: Final = 0.5
"""Relative error of a coordinate above which its guesses count for nothing."""

UNKNOWN_MS: Final = 1e9
"""Delay that stands for an unknown one where nodes with unknown pairs stay: nothing that crosses such a link is compared."""

CORES, MEMORY = "cores", "memory_mb"

Loads = Mapping[NodeId, tuple[Peer, NodeLoad]]
"""Loads by node."""

Unfit = Mapping[NodeId, Obstacle]
"""Nodes that can take no instance, with the reason."""


def network_of_loads(loads: Loads, unfit: Unfit | None = None, *, keeps_unknown: bool = False) -> NetworkDescription:
    """Return the nodes that answered as a network, with notes about figures that are missing.

    Args:
        keeps_unknown: pairs of which nothing is known get the delay `UNKNOWN_MS`, and their nodes stay.
    """
    peers = {node: peer for node, (peer, _) in loads.items()}
    names = display_names(tuple(peers.values()))
    links = _links(loads)
    positions = {
        node: place for node, (_, load) in loads.items() if (place := space_position(load.coordinate)) is not None
    }
    order = sorted(loads, key=lambda node: names[node])
    if keeps_unknown:
        links |= _unknown_links(order, links, positions)
    complete, notes = _with_known_pairs(order, links, positions, names)
    hosts = {node: _host(*loads[node], names[node], (unfit or {}).get(node)) for node in complete}
    notes += _missing(hosts, loads)
    inside = {pair: figures for pair, figures in links.items() if pair[0] in hosts and pair[1] in hosts}
    view = TableNetwork(inside, {node: positions[node] for node in complete if node in positions})
    return NetworkDescription(LIVE, hosts, {names[node]: node for node in complete}, view, notes=tuple(notes))


def _links(loads: Loads) -> dict[tuple[NodeId, NodeId], LinkFigures]:
    """Return measured links, both directions alike; where both ends measured, the mean counts."""
    return {pair: LinkFigures(delay, source=FigureSource.MEASURED) for pair, delay in measured_delays_ms(loads).items()}


def _unknown_links(
    order: Sequence[NodeId],
    links: Mapping[tuple[NodeId, NodeId], LinkFigures],
    positions: Mapping[NodeId, SpacePosition],
) -> dict[tuple[NodeId, NodeId], LinkFigures]:
    figures = LinkFigures(UNKNOWN_MS, source=FigureSource.UNKNOWN)
    return {
        (a, b): figures
        for a in order
        for b in order
        if a != b and (a, b) not in links and not (a in positions and b in positions)
    }


def space_position(coordinate: Coordinate | None) -> SpacePosition | None:
    """Return a node's place for one-way delays in ms; None: it is not sure of it, or sent nonsense."""
    if coordinate is None or not coordinate.is_sane or coordinate.error > MAX_ERROR * 1_000_000:
        return None
    point = coordinate.x / 2_000, coordinate.y / 2_000, coordinate.z / 2_000
    return SpacePosition(point, coordinate.height / 2_000)


def _with_known_pairs(
    order: Sequence[NodeId],
    links: Mapping[tuple[NodeId, NodeId], LinkFigures],
    positions: Mapping[NodeId, SpacePosition],
    names: Mapping[NodeId, str],
) -> tuple[list[NodeId], list[str]]:
    """Return nodes of which every pair is known, and a note for each node left out: first the one with most unknown pairs."""
    unknown: dict[NodeId, dict[NodeId, bool]] = {node: {} for node in order}
    for a in order:
        for b in order:
            if a < b and (a, b) not in links and not (a in positions and b in positions):
                unknown[a][b] = unknown[b][a] = True
    notes = []
    while any(unknown.values()):
        worst = max(order, key=lambda node: len(unknown.get(node, ())))
        other = min(unknown[worst], key=lambda node: names[node])
        notes.append(f"{names[worst]} is left out: no node has measured its delay to {names[other]} yet")
        del unknown[worst]
        for others in unknown.values():
            others.pop(worst, None)
    return [node for node in order if node in unknown], notes


def _host(peer: Peer, load: NodeLoad, name: str, unfit: Obstacle | None) -> HostState:
    resources: dict[str, float] = {SLOTS: float(load.capacity)}
    used: dict[str, float] = {SLOTS: float(load.operators)}
    if load.cores:
        resources[CORES] = float(load.cores)
        if load.busy_permille is not None:
            used[CORES] = round(load.cores * load.busy_permille / 1_000, 3)
    if load.free_memory_mb is not None:
        resources[MEMORY] = float(load.free_memory_mb)
    return HostState(
        peer.node,
        load.operators,
        load.capacity,
        is_draining=load.is_draining,
        unfit=unfit,
        offers=load.labels,
        name=name,
        zone=peer.zone,
        host=peer.host,
        resources=resources,
        used=used,
        speed=load.speed_permille / 1_000 if load.speed_permille else 1.0,
    )


def _missing(hosts: Mapping[NodeId, HostState], loads: Loads) -> list[str]:
    """Return notes about figures that nodes did not report, and about nodes that take nothing."""
    notes = []
    for what, missing in (
        ("speed is not measured and counts as 1", [n for n in hosts if not loads[n][1].speed_permille]),
        ("processor share is not measured", [n for n in hosts if loads[n][1].busy_permille is None]),
        ("free memory is not measured", [n for n in hosts if loads[n][1].free_memory_mb is None]),
        ("is drained or leaving, and takes no instance", [n for n in hosts if loads[n][1].is_draining]),
    ):
        if missing:
            notes.append(f"{', '.join(hosts[node].name for node in missing[:8])}: {what}")
    return notes
