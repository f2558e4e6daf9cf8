"""Networks of `agiledart place`: documents `agiledart-network/1` as host states and links.

Source: spec of placement §9.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import inf

from agiledart_kernel.node_id import NodeId
from agiledart_placement.files.document_reader import DocumentReader
from agiledart_placement.problem.network_view import LinkFigures, SpacePosition, TableNetwork
from agiledart_placement.problem.request import HostState

NETWORK_FORMAT = "agiledart-network/1"


@dataclass(frozen=True, slots=True)
class NetworkDescription:
    """Nodes and links of a network.

    Attributes:
        file: for messages.
        hosts: states of the nodes, in the order of the file.
        ids: name → id.
        view: links.
        headroom: share of every capacity that stays free.
        notes: remarks about the file for the user.
    """

    file: str
    hosts: Mapping[NodeId, HostState]
    ids: Mapping[str, NodeId]
    view: TableNetwork
    headroom: float = 0.0
    notes: tuple[str, ...] = ()


def node_id_of_name(name: str) -> NodeId:
    """Return the id of a node that exists on paper only: the first 16 bytes of SHA-256 of its name."""
    return NodeId.from_bytes16(sha256(name.encode()).digest()[:16])


def read_network(document: object, file: str) -> NetworkDescription:
    """Return the network of a document. Raises ConfigurationError with the file, the place and the value."""
    reader = DocumentReader(document, file)
    kind = reader.text("format")
    if kind != NETWORK_FORMAT:
        reader.fail("format", kind, f"expected {NETWORK_FORMAT!r}")
    headroom = reader.number("headroom", 0.0, 0.0, 0.999)
    hosts: dict[NodeId, HostState] = {}
    ids: dict[str, NodeId] = {}
    positions: dict[NodeId, SpacePosition] = {}
    for node in reader.objects("nodes", is_needed=True):
        state, position = _host(node, ids)
        ids[state.name] = state.node
        hosts[state.node] = state
        if position is not None:
            positions[state.node] = position
    if not hosts:
        reader.fail("nodes", [], "a network needs a node")
    links: dict[tuple[NodeId, NodeId], LinkFigures] = {}
    for link in reader.objects("links"):
        a, b = (ids[link.named(key, ids, link.text(key), "node")] for key in ("from", "to"))
        figures, both = _figures(link), link.flag("both", default=True)
        link.end()
        if a == b:
            link.fail("to", link.value("to"), "a link leads to another node; links of a node to itself are perfect")
        links[a, b] = figures
        if both:
            links[b, a] = figures
    usual = reader.object("default_link")
    default = None if usual is None else _figures(usual)
    if usual is not None:
        usual.flag("both", default=True)
        usual.end()
    reader.end()
    _check_pairs(reader, hosts, links, default, positions)
    return NetworkDescription(file, hosts, ids, TableNetwork(links, positions, default), headroom)


def _host(node: DocumentReader, ids: Mapping[str, NodeId]) -> tuple[HostState, SpacePosition | None]:
    name = node.text("name")
    if name in ids:
        node.fail("name", name, "two nodes have this name")
    resources, used = node.amounts("capacity"), node.amounts("used")
    for resource in used:
        node.named("used", resources, resource, "resource in capacity")
    point, height = node.point("position_ms"), node.number("height_ms", 0.0)
    idle, busy = node.optional("watts_idle"), node.optional("watts_busy")
    if idle is not None and busy is not None and busy < idle:
        node.fail("watts_busy", busy, "expected at least watts_idle")
    state = HostState(
        node_id_of_name(name),
        capacity=2**31,
        offers=node.texts("labels"),
        name=name,
        zone=node.text("zone", ""),
        host=node.text("host", ""),
        resources=resources,
        used=used,
        speed=node.number("speed", 1.0, 1e-9),
        availability=node.number("availability", 1.0, 0.0, 1.0),
        price_per_hour=node.optional("price_per_hour"),
        watts_idle=idle,
        watts_busy=busy,
    )
    node.end()
    return state, None if point is None else SpacePosition(point, height)


def _figures(link: DocumentReader) -> LinkFigures:
    bandwidth = link.optional("bandwidth")
    return LinkFigures(
        link.number("delay_ms"),
        link.number("availability", 1.0, 0.0, 1.0),
        inf if bandwidth is None else bandwidth,
        link.number("loss", 0.0, 0.0, 1.0),
    )


def _check_pairs(
    reader: DocumentReader,
    hosts: Mapping[NodeId, HostState],
    links: Mapping[tuple[NodeId, NodeId], LinkFigures],
    default: LinkFigures | None,
    positions: Mapping[NodeId, SpacePosition],
) -> None:
    if default is not None or len(positions) == len(hosts):
        return
    for a, here in hosts.items():
        for b, there in hosts.items():
            if a != b and (a, b) not in links and not (a in positions and b in positions):
                pair = f"{here.name} → {there.name}"
                reader.fail(
                    "links", pair, "no link joins this pair, no default_link is given, and a position is missing"
                )


def network_document(network: NetworkDescription) -> dict[str, object]:
    """Return a network as a document that `read_network` reads."""
    nodes = []
    for node, state in network.hosts.items():
        position = network.view.position(node)
        entry: dict[str, object] = {"name": state.name, "capacity": dict(state.resources)}
        optional: dict[str, object] = {
            "used": dict(state.used) or None,
            "speed": None if state.speed == 1 else state.speed,
            "availability": None if state.availability == 1 else state.availability,
            "zone": state.zone or None,
            "host": state.host or None,
            "labels": list(state.offers) or None,
            "position_ms": None if position is None else list(position.point),
            "height_ms": None if position is None or not position.height_ms else position.height_ms,
            "price_per_hour": state.price_per_hour,
            "watts_idle": state.watts_idle,
            "watts_busy": state.watts_busy,
        }
        nodes.append({**entry, **{key: value for key, value in optional.items() if value is not None}})
    return {
        "format": NETWORK_FORMAT,
        "headroom": network.headroom,
        "nodes": nodes,
        "links": _link_documents(network),
        "default_link": None if network.view.default is None else _figures_document(network.view.default),
    }


def _link_documents(network: NetworkDescription) -> list[dict[str, object]]:
    names = {node: state.name for node, state in network.hosts.items()}
    known = dict(network.view.links())
    for a in names:
        for b in names:
            if a != b and (a, b) not in known and network.view.is_measured(a, b):
                known[a, b] = network.view.link(a, b)
    documents: list[dict[str, object]] = []
    for (a, b), figures in known.items():
        is_pair = known.get((b, a)) == figures
        if is_pair and names[a] > names[b]:
            continue
        ends = {"from": names[a], "to": names[b]}
        documents.append({**ends, **_figures_document(figures), **({} if is_pair else {"both": False})})
    return documents


def _figures_document(figures: LinkFigures) -> dict[str, object]:
    document: dict[str, object] = {"delay_ms": figures.delay_ms}
    if figures.availability < 1:
        document["availability"] = figures.availability
    if figures.bandwidth < inf:
        document["bandwidth"] = figures.bandwidth
    if figures.loss:
        document["loss"] = figures.loss
    return document
