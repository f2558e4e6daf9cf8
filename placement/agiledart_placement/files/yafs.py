"""Files of YAFS: `network.json` as a network, `appDefinition.json` as topologies.

A link has the propagation time PR as delay, in ms, and BW × 10⁶ bytes/s; pairs without link take the shortest route. RAM is the
resource `ram`; the speed of a node is its IPT ÷ the least one. A module takes the instructions of its messages ÷ the least IPT. A
message from outside is a source of one row per second, since the rate stands in the user's program.
"""

from collections.abc import Mapping
from math import inf
from typing import Any

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.node_id import NodeId
from agiledart_placement.files.document_reader import DocumentReader
from agiledart_placement.files.routed_network import PhysicalLink, PhysicalNetwork
from agiledart_placement.files.topology_file import TOPOLOGY_FORMAT, TopologyDescription, read_topology
from agiledart_placement.problem.request import HostState

OUTSIDE = "None"
MS = 1_000.0
_NOWHERE = NodeId(0)
"""Id of states that only carry figures; `routed` gives the real ones."""


def is_yafs_network(document: object) -> bool:
    """Return whether a JSON value looks like `network.json` of YAFS."""
    return isinstance(document, Mapping) and "entity" in document and "link" in document


def is_yafs_applications(document: object) -> bool:
    """Return whether a JSON value looks like `appDefinition.json` of YAFS."""
    return (
        isinstance(document, list) and bool(document) and isinstance(document[0], Mapping) and "module" in document[0]
    )


def read_yafs_network(document: object, file: str) -> PhysicalNetwork:
    """Return the network of a document. Raises ConfigurationError with the file, the place and the value."""
    reader = DocumentReader(document, file)
    names: list[str] = []
    numbers: dict[str, int] = {}
    speeds: list[float | None] = []
    resources: list[dict[str, float]] = []
    for entity in reader.objects("entity", is_needed=True):
        name = str(entity.value("id"))
        if name in numbers:
            entity.fail("id", entity.value("id"), "two entities have this id")
        numbers[name] = len(names)
        names.append(f"n{name}" if name.isdigit() else name)
        ram = entity.optional("RAM")
        resources.append({} if ram is None else {"ram": ram})
        speeds.append(entity.optional("IPT"))
    known = [speed for speed in speeds if speed]
    least = min(known, default=1.0)
    hosts = {
        name: HostState(_NOWHERE, resources=amounts, speed=(speed or least) / least)
        for name, amounts, speed in zip(names, resources, speeds, strict=True)
    }
    links = []
    for link in reader.objects("link", is_needed=True):
        a, b = (numbers[link.named(key, numbers, str(link.value(key)), "entity")] for key in ("s", "d"))
        width = link.optional("BW")
        links.append(PhysicalLink(a, b, link.number("PR", 0.0), inf if width is None else width * 1e6))
    notes = [] if known else ["no entity has an IPT: all speeds are 1"]
    return PhysicalNetwork(file, names, links, hosts, notes)


def read_yafs_applications(document: object, file: str, least_ipt: float = 0.0) -> list[TopologyDescription]:
    """Return one topology for each application.

    Args:
        document: list of applications.
        file: for messages.
        least_ipt: instructions per second of a node of speed 1; 0: unknown, then modules take no time.

    Raises:
        ConfigurationError: the file, the place and the value.
    """
    if not isinstance(document, list):
        raise ConfigurationError(f"{file}: document: expected a list of applications.")
    return [_application(DocumentReader(a, file, f"[{n}]"), file, least_ipt) for n, a in enumerate(document)]


def _application(reader: DocumentReader, file: str, least_ipt: float) -> TopologyDescription:
    modules: dict[str, dict[str, Any]] = {}
    for module in reader.objects("module", is_needed=True):
        name = str(module.value("name"))
        ram = module.optional("RAM")
        modules[name] = {"name": name, **({} if ram is None else {"demand": {"ram": ram}})}
    streams = []
    for message in reader.objects("message", is_needed=True):
        below = message.named("d", modules, str(message.value("d")), "module")
        above, instructions = str(message.value("s")), message.number("instructions", 0.0)
        if least_ipt:
            time_ms = instructions / least_ipt * MS
            modules[below]["execution_ms"] = max(time_ms, modules[below].get("execution_ms", 0.0))
        if above == OUTSIDE:
            modules[below]["rate"] = modules[below].get("rate", 0.0) + 1.0
        else:
            message.named("s", modules, above, "module")
            streams.append({"from": above, "to": below, "bytes": message.number("bytes", 1.0)})
    name = str(reader.value("name"))
    document = {"format": TOPOLOGY_FORMAT, "name": f"app{name}" if name.isdigit() else name}
    return read_topology({**document, "operators": list(modules.values()), "streams": streams}, file)


def least_instructions(document: object) -> float:
    """Return the least IPT of a `network.json`; 0: unknown."""
    entities = document.get("entity", ()) if isinstance(document, Mapping) else ()
    known = [
        e["IPT"] for e in entities if isinstance(e, Mapping) and isinstance(e.get("IPT"), int | float) and e["IPT"] > 0
    ]
    return float(min(known, default=0.0))
