"""Networks that are tables of delays: of equal nodes n0, n1 …, with or without positions, and three continents on paper."""

from array import array
from collections.abc import Mapping
from dataclasses import replace
from math import exp

from agiledart_kernel.randomness import RandomStream
from agiledart_placement.files.network_file import NetworkDescription, node_id_of_name
from agiledart_placement.instances.tag_and_count import normal
from agiledart_placement.problem.network_view import SpacePosition, TableNetwork, estimated_delay_ms
from agiledart_placement.problem.request import HostState

CONTINENTS = (((0.0, 0.0, 0.0), 22.0, 0.5), ((95.0, 20.0, 0.0), 14.0, 0.8), ((-120.0, 60.0, 30.0), 25.0, 1.0))
"""Centre, deviation and cumulative share of nodes of each continent, in ms."""


def table_network(
    delays_ms: list[list[float]], name: str, capacity: Mapping[str, float] | None = None
) -> NetworkDescription:
    """Return a network of equal nodes n0, n1 … with these one-way delays."""
    ids = {f"n{number}": node_id_of_name(f"n{number}") for number in range(len(delays_ms))}
    hosts = {
        node: HostState(node, capacity=2**31, name=name, resources=dict(capacity or {})) for name, node in ids.items()
    }
    table = [array("d", row) for row in delays_ms]
    return NetworkDescription(name, hosts, ids, TableNetwork({}, table=table, order=tuple(hosts)))


def continents(seed: int, sigma: float, nodes: int = 226) -> NetworkDescription:
    """Return nodes in three clusters; a delay is the distance × lognormal(σ); positions are the true ones."""
    draw = RandomStream(seed, "continents", sigma)
    points = []
    for _ in range(nodes):
        share = draw.uniform()
        centre, deviation, _ = next(part for part in CONTINENTS if share < part[2])
        x, y, z = (normal(draw, middle, deviation) for middle in centre)
        points.append((x, y, z))
    delays = [[0.0] * nodes for _ in range(nodes)]
    for a in range(nodes):
        for b in range(a):
            apart = estimated_delay_ms(SpacePosition(points[a]), SpacePosition(points[b]))
            delays[a][b] = delays[b][a] = apart * exp(normal(draw, 0, sigma)) if sigma else apart
    return with_positions(table_network(delays, "continents"), [SpacePosition(point) for point in points])


def with_positions(network: NetworkDescription, positions: list[SpacePosition]) -> NetworkDescription:
    """Return a network of measured delays whose nodes also have positions."""
    order = tuple(network.hosts)
    table = [array("d", network.view.delays_ms(node, order)) for node in order]
    view = TableNetwork({}, dict(zip(order, positions, strict=True)), table=table, order=order)
    return replace(network, view=view)
