"""Files of `agiledart place`: networks, topologies and results, read from disk and written."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agiledart_kernel.errors import ConfigurationError
from agiledart_placement.files.document_reader import parse_json
from agiledart_placement.files.network_file import NetworkDescription, read_network
from agiledart_placement.files.routed_network import routed
from agiledart_placement.files.topology_file import TopologyDescription, read_topology
from agiledart_placement.files.topology_zoo import read_gml, read_graphml, read_topohub
from agiledart_placement.files.yafs import (
    is_yafs_applications,
    is_yafs_network,
    least_instructions,
    read_yafs_applications,
    read_yafs_network,
)
from agiledart_placement.instances.delay_tables import table_network

LARGEST_FILE = 256 * 2**20
MOST_NODES = 5_000


def load_network(path: str | Path, capacity: Mapping[str, float] | None = None) -> NetworkDescription:
    """Return the network of a file.

    Args:
        path: JSON of this project, of YAFS or of topohub; GraphML or GML of the Topology Zoo; or measured round trips, as
            `agiledart simulate --latencies` reads them.
        capacity: capacity of every node of a file that has none; None: unlimited.

    Raises:
        ConfigurationError: the file cannot be read; the message names the place and the value.
    """
    file = Path(path)
    if file.suffix == ".graphml":
        return routed(read_graphml(read_bytes(file), str(path)), capacity)
    if file.suffix == ".gml":
        return routed(read_gml(_text(file), str(path)), capacity)
    if file.suffix != ".json":
        return measured_network(file, capacity)
    document = _json(file)
    if is_yafs_network(document):
        return routed(read_yafs_network(document, str(path)), capacity)
    if isinstance(document, dict) and "format" not in document and "nodes" in document:
        return routed(read_topohub(document, str(path)), capacity)
    return read_network(document, str(path))


def measured_network(
    path: Path, capacity: Mapping[str, float] | None = None, nodes: int = MOST_NODES, time_slice: int | None = None
) -> NetworkDescription:
    """Return the first nodes of a file of measured round trips, named n0, n1 …; a link has half the round trip as delay."""
    from agiledart_simulation.world.latency_models import load

    delays = load(path, nodes, time_slice).delays_ms()
    return table_network(delays, str(path), capacity)


def load_topology(path: str | Path) -> TopologyDescription:
    """Return the topology of a JSON file. Raises ConfigurationError with the place and the value."""
    return read_topology(_json(Path(path)), str(path))


def load_topologies(path: str | Path, network: str | Path | None = None) -> list[TopologyDescription]:
    """Return the topology of a JSON file, or all applications of an `appDefinition.json` of YAFS.

    Args:
        path: the file.
        network: `network.json` of YAFS, for the speed of its nodes; None or another file: modules take no time.

    Raises:
        ConfigurationError: the file, the place and the value.
    """
    document = _json(Path(path))
    if not is_yafs_applications(document):
        return [read_topology(document, str(path))]
    least = 0.0
    if network is not None and Path(network).suffix == ".json":
        least = least_instructions(_json(Path(network)))
    return read_yafs_applications(document, str(path), least)


def _text(path: Path) -> str:
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: it is no text in UTF-8.") from None


def load_document(path: str | Path) -> Any:
    """Return the JSON value of a file. Raises ConfigurationError."""
    return _json(Path(path))


def save_document(path: str | Path, document: object) -> None:
    """Write a JSON document. Raises ConfigurationError when the file cannot be written."""
    try:
        Path(path).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}.") from None


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file that is not too large. Raises ConfigurationError."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ConfigurationError(f"{path}: it has more than {LARGEST_FILE // 2**20} MB.")
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}.") from None


def _json(path: Path) -> Any:
    return parse_json(read_bytes(path), str(path))
