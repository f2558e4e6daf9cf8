"""Networks of the experiments of Rizou et al.: slices of PlanetLab with measured round trips, or three continents on paper."""

import os
from array import array
from dataclasses import replace
from math import exp
from pathlib import Path

from agiledart.placement.loading import measured_network, table_network
from agiledart_kernel.randomness import RandomStream
from agiledart_placement.files.network_file import NetworkDescription
from agiledart_placement.instances.tag_and_count import normal
from agiledart_placement.latency_space.embedding import embedded, embedding_error_ms
from agiledart_placement.problem.network_view import SpacePosition, TableNetwork, estimated_delay_ms
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import PlacementRequest

NODES = 226
FILE = "network_rtt/planetlab490_rtt_ms.parquet"
SLICES = (1, 7)
CONTINENTS = (((0.0, 0.0, 0.0), 22.0, 0.5), ((95.0, 20.0, 0.0), 14.0, 0.8), ((-120.0, 60.0, 30.0), 25.0, 1.0))
"""Centre, deviation and cumulative share of nodes of each continent, in ms."""


def planetlab_slice(number: int) -> NetworkDescription | None:
    """Return the first 226 nodes of a slice; None when AGILEDART_DATA does not hold the file, or pyarrow is missing."""
    root = os.environ.get("AGILEDART_DATA")
    path = Path(root, FILE) if root else None
    if path is None or not path.is_file():
        return None
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        return None
    return measured_network(path, nodes=NODES, time_slice=number)


def continents(seed: int, sigma: float, nodes: int = NODES) -> NetworkDescription:
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


def embedded_network(network: NetworkDescription, seed: int) -> NetworkDescription:
    """Return a network with positions by Vivaldi."""
    return with_positions(network, embedded(_problem(network, seed)))


def mean_error_ms(network: NetworkDescription) -> float:
    """Return the mean absolute error of one-way delays that the positions guess."""
    positions = [network.view.position(node) or SpacePosition((0.0, 0.0, 0.0)) for node in network.hosts]
    return embedding_error_ms(_problem(network, 0), positions)


def _problem(network: NetworkDescription, seed: int) -> Problem:
    return Problem(PlacementRequest((), (), (), network.hosts, network=network.view, seed=seed))
