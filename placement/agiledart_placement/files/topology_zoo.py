"""Networks of the Topology Zoo: GraphML, GML, and the JSON of `topohub`.

The delay of a link is its great circle ÷ 200 km/ms, its bandwidth `LinkSpeedRaw` (bits/s). A node without coordinates takes the
mean place of its neighbours that have some; a node without such neighbours, and a link to a node that is not there, are left out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from math import asin, cos, inf, isfinite, radians, sin, sqrt
from typing import Any
from xml.etree import ElementTree

from agiledart_kernel.errors import ConfigurationError
from agiledart_placement.files.routed_network import PhysicalLink, PhysicalNetwork

EARTH_RADIUS_KM = 6371.0
FIBRE_KM_PER_MS = 200.0
Fields = Mapping[str, Any]
"""Fields of a node or an edge by name."""


def great_circle_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Return the distance of two places, as (latitude, longitude) in degrees (haversine)."""
    (lat1, lon1), (lat2, lon2) = ((radians(x), radians(y)) for x, y in (a, b))
    half = sin((lat2 - lat1) / 2) ** 2 + cos(lat1) * cos(lat2) * sin((lon2 - lon1) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * asin(min(1.0, sqrt(half)))


def read_graphml(text: bytes, file: str) -> PhysicalNetwork:
    """Return the network of a GraphML file. Raises ConfigurationError."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ConfigurationError(f"{file}:{error.position[0]}:{error.position[1]}: it is no XML: {error}.") from None
    space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
    keys = {key.get("id", ""): key.get("attr.name", "") for key in root.iter(f"{space}key")}

    def fields(element: ElementTree.Element) -> Fields:
        own = {keys.get(data.get("key", ""), ""): data.text or "" for data in element.iter(f"{space}data")}
        return {**own, **element.attrib}

    nodes = [fields(node) for node in root.iter(f"{space}node")]
    return _network(nodes, [fields(edge) for edge in root.iter(f"{space}edge")], file)


_GML = re.compile(r'\s*(?:#[^\n]*\n|"([^"]*)"|(\[)|(\])|([^\s\[\]"]+))')


def read_gml(text: str, file: str) -> PhysicalNetwork:
    """Return the network of a GML file. Raises ConfigurationError with the line."""
    words: Iterator[tuple[str, str, int]] = _gml_words(text)
    root = _gml_block(words, file, is_root=True)
    graph = next((value for key, value in root if key == "graph" and isinstance(value, list)), None)
    if graph is None:
        raise ConfigurationError(f"{file}: it has no graph [ … ].")
    nodes = [dict(value) for key, value in graph if key == "node" and isinstance(value, list)]
    edges = [dict(value) for key, value in graph if key == "edge" and isinstance(value, list)]
    return _network(nodes, edges, file)


def _gml_words(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield kind (`text`, `open`, `close`, `word`), content and line of each token."""
    line, at = 1, 0
    while at < len(text):
        match = _GML.match(text, at)
        if match is None:
            return
        line += text.count("\n", at, match.end())
        at = match.end()
        for kind, content in zip(("text", "open", "close", "word"), match.groups(), strict=True):
            if content is not None:
                yield kind, content, line


def _gml_block(words: Iterator[tuple[str, str, int]], file: str, *, is_root: bool = False) -> list[tuple[str, Any]]:
    entries: list[tuple[str, Any]] = []
    for kind, key, line in words:
        if kind == "close":
            return entries
        if kind != "word":
            raise ConfigurationError(f"{file}:{line}: expected a key, not {key[:40]!r}.")
        value_kind, value, _ = next(words, ("end", "", line))
        if value_kind in ("end", "close"):
            raise ConfigurationError(f"{file}:{line}: {key} has no value.")
        entries.append((key, _gml_block(words, file) if value_kind == "open" else value))
    if not is_root:
        raise ConfigurationError(f"{file}: a [ is not closed.")
    return entries


def read_topohub(document: Mapping[str, Any], file: str) -> PhysicalNetwork:
    """Return the network of a node-link document of `topohub`: `pos` is (longitude, latitude). Raises ConfigurationError."""
    nodes = []
    for number, node in enumerate(document.get("nodes", ())):
        if not isinstance(node, Mapping):
            raise ConfigurationError(f"{file}: nodes[{number}] = {str(node)[:40]}: expected an object.")
        position = node.get("pos") or (None, None)
        nodes.append({**node, "label": node.get("name"), "Longitude": position[0], "Latitude": position[1]})
    edges = document.get("edges", document.get("links", ()))
    return _network(nodes, [edge for edge in edges if isinstance(edge, Mapping)], file)


def _network(nodes: Sequence[Fields], edges: Sequence[Fields], file: str) -> PhysicalNetwork:
    ids = [str(node.get("id", number)) for number, node in enumerate(nodes)]
    number_of = {name: number for number, name in enumerate(ids)}
    names = [str(node.get("label") or ids[number]) for number, node in enumerate(nodes)]
    notes: list[str] = []
    joined: list[tuple[int, int, float]] = []
    for number, edge in enumerate(edges):
        a, b = (number_of.get(str(edge.get(key))) for key in ("source", "target"))
        if a is None or b is None:
            notes.append(f"edge {number} leads to a node that is not there, and was left out")
            continue
        joined.append((a, b, _bandwidth(edge, number, file)))
    places = [_place(node, names[number], file) for number, node in enumerate(nodes)]
    if all(place is None for place in places):
        raise ConfigurationError(f"{file}: nodes: no node has a Latitude and a Longitude, so no link has a delay.")
    _fill_places(places, joined, names, notes)
    remaining = [number for number, place in enumerate(places) if place is not None]
    index = {number: position for position, number in enumerate(remaining)}
    links = []
    for a, b, bandwidth in joined:
        here, there = places[a], places[b]
        if here is not None and there is not None:
            delay = great_circle_km(here, there) / FIBRE_KM_PER_MS
            links.append(PhysicalLink(index[a], index[b], delay, bandwidth))
    return PhysicalNetwork(file, [names[number] for number in remaining], links, notes=notes)


def _place(node: Fields, name: str, file: str) -> tuple[float, float] | None:
    latitude, longitude = node.get("Latitude"), node.get("Longitude")
    if latitude in (None, "") or longitude in (None, ""):
        return None
    try:
        place = float(str(latitude)), float(str(longitude))
    except ValueError:
        place = inf, inf
    if not (isfinite(place[0]) and isfinite(place[1]) and abs(place[0]) <= 90 and abs(place[1]) <= 360):
        raise ConfigurationError(f"{file}: node {name}: Latitude {latitude}, Longitude {longitude}: expected degrees.")
    return place


def _bandwidth(edge: Fields, number: int, file: str) -> float:
    """Return bytes/s of an edge; unlimited when it names no speed."""
    raw = edge.get("LinkSpeedRaw")
    if raw in (None, ""):
        return inf
    try:
        bits = float(str(raw))
    except ValueError:
        bits = -1.0
    if not 0 < bits < inf:
        raise ConfigurationError(f"{file}: edge {number}: LinkSpeedRaw = {raw}: expected bits/s above 0.")
    return bits / 8


def _fill_places(
    places: list[tuple[float, float] | None], joined: list[tuple[int, int, float]], names: list[str], notes: list[str]
) -> None:
    """Give nodes without coordinates the mean place of neighbours with some, again and again."""
    near: list[list[int]] = [[] for _ in places]
    for a, b, _ in joined:
        near[a].append(b)
        near[b].append(a)
    missing = [number for number, place in enumerate(places) if place is None]
    guessed: list[int] = []
    while missing:
        known = {n: [p for p in (places[o] for o in near[n]) if p is not None] for n in missing}
        ready = [number for number in missing if known[number]]
        if not ready:
            break
        for number in ready:
            beside = known[number]
            places[number] = sum(p[0] for p in beside) / len(beside), sum(p[1] for p in beside) / len(beside)
        guessed += ready
        missing = [number for number in missing if number not in ready]
    if guessed:
        listed = ", ".join(names[number] for number in guessed[:5])
        notes.append(f"{len(guessed)} nodes without coordinates took the mean place of their neighbours: {listed}")
    if missing:
        listed = ", ".join(names[number] for number in missing[:5])
        notes.append(
            f"{len(missing)} nodes without coordinates and without neighbours that have some were left out: {listed}"
        )
