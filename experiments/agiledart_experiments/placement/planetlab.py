"""Networks of the experiments of Rizou et al.: slices of PlanetLab with measured round trips."""

import os
from pathlib import Path

from agiledart.placement.loading import measured_network
from agiledart_placement.files.network_file import NetworkDescription
from agiledart_placement.instances.delay_tables import with_positions
from agiledart_placement.latency_space.embedding import embedded, embedding_error_ms
from agiledart_placement.problem.network_view import SpacePosition
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import PlacementRequest

NODES = 226
FILE = "network_rtt/planetlab490_rtt_ms.parquet"
SLICES = (1, 7)


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


def embedded_network(network: NetworkDescription, seed: int) -> NetworkDescription:
    """Return a network with positions by Vivaldi."""
    return with_positions(network, embedded(_problem(network, seed)))


def mean_error_ms(network: NetworkDescription) -> float:
    """Return the mean absolute error of one-way delays that the positions guess."""
    positions = [network.view.position(node) or SpacePosition((0.0, 0.0, 0.0)) for node in network.hosts]
    return embedding_error_ms(_problem(network, 0), positions)


def _problem(network: NetworkDescription, seed: int) -> Problem:
    return Problem(PlacementRequest((), (), (), network.hosts, network=network.view, seed=seed))
