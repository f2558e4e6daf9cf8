"""Street graphs: a part of Sydney from measured data, or a similar graph drawn from a seed."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from agiledart_experiments.paths.data import table
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.graph import LinkGraph

BOX = (151.21343, 151.21934, -33.88919, -33.87463)
"""Longitudes and latitudes of the paper's map."""

NODES = 300
"""Number of junctions. The measured table lacks small streets, so the box grows about its centre until it holds as many."""

_DEGREE = 2.6


@dataclass(frozen=True, slots=True)
class StreetMap:
    """Streets with the places of their junctions.

    Attributes:
        graph: junctions and one-way streets.
        places: longitude and latitude of each junction; a point of the unit square where streets are drawn.
    """

    graph: LinkGraph
    places: tuple[tuple[float, float], ...]

    def segments(self) -> list[list[tuple[float, float]]]:
        """Return the two ends of each street, once for both directions."""
        pairs = {(min(a, b), max(a, b)): None for a, b in zip(self.graph.tails, self.graph.heads, strict=True)}
        return [[self.places[a], self.places[b]] for a, b in pairs]


def sydney() -> StreetMap | None:
    """Return the strongly connected part of the streets around the paper's box; None when the table is missing."""
    nodes = table("road_sydney/inner_city_nodes.csv.gz")
    links = table("road_sydney/inner_city_links.csv.gz")
    if nodes is None or links is None:
        return None
    west, east, south, north = BOX
    middle_x, middle_y, half_x, half_y = (west + east) / 2, (south + north) / 2, (east - west) / 2, (north - south) / 2
    away = {
        row["node"]: max(abs(float(row["lon"]) - middle_x) / half_x, abs(float(row["lat"]) - middle_y) / half_y)
        for row in nodes
    }
    roads = [(row["from_node"], row["to_node"]) for row in links if row["kind"] == "road"]
    at = {row["node"]: (round(float(row["lon"]), 6), round(float(row["lat"]), 6)) for row in nodes}
    growth = 1.0
    while True:
        inside = [(tail, head) for tail, head in roads if max(away[tail], away[head]) <= growth]
        graph, names = strongest_part(inside)
        if graph.nodes >= NODES or len(inside) == len(roads):
            return StreetMap(graph, tuple(at[str(name)] for name in names))
        growth += 0.05


def generated(random: RandomStream) -> StreetMap:
    """Draw random junctions and two-way streets between near junctions that do not cross, to a mean degree of 2.6."""
    places = [(random.uniform(), random.uniform()) for _ in range(NODES)]
    pairs = [(a, b) for a in range(NODES) for b in range(a) if math.dist(places[a], places[b]) < 3.0 / math.sqrt(NODES)]
    pairs.sort(key=lambda pair: math.dist(places[pair[0]], places[pair[1]]))
    streets: list[tuple[int, int]] = []
    tree = list(range(NODES))
    spare = []
    for a, b in pairs:
        if any(_cross(places[a], places[b], places[c], places[d]) for c, d in streets if not {a, b} & {c, d}):
            continue
        if _root(tree, a) != _root(tree, b):
            tree[_root(tree, a)] = _root(tree, b)
            streets.append((a, b))
        else:
            spare.append((a, b))
    random.shuffle(spare)
    for a, b in spare:
        if len(streets) >= NODES * _DEGREE / 2:
            break
        if not any(_cross(places[a], places[b], places[c], places[d]) for c, d in streets if not {a, b} & {c, d}):
            streets.append((a, b))
    graph, names = strongest_part([*streets, *((b, a) for a, b in streets)])
    return StreetMap(graph, tuple(places[int(str(name))] for name in names))


def strongest_part(links: Iterable[tuple[object, object]]) -> tuple[LinkGraph, list[object]]:
    """Return the largest part in which every node reaches every other, and the names of its nodes by number.

    Nodes are numbered in the order of the links.
    """
    pairs = list(links)
    number: dict[object, int] = {}
    for pair in pairs:
        for name in pair:
            number.setdefault(name, len(number))
    whole = LinkGraph(len(number), [(number[tail], number[head]) for tail, head in pairs])
    back = LinkGraph(len(number), [(number[head], number[tail]) for tail, head in pairs])
    left = dict.fromkeys(range(len(number)))
    largest: list[int] = []
    while left:
        node = next(iter(left))
        to, of = whole.hops_to_go(node), back.hops_to_go(node)
        part = [other for other in range(len(number)) if max(to[other], of[other]) < math.inf]
        for other in part:
            del left[other]
        largest = max(largest, part, key=len)
    again = {node: at for at, node in enumerate(largest)}
    inner_links = [
        (again[a], again[b]) for a, b in zip(whole.tails, whole.heads, strict=True) if a in again and b in again
    ]
    named = list(number)
    return LinkGraph(len(largest), dict.fromkeys(inner_links)), [named[node] for node in largest]


def _root(tree: list[int], node: int) -> int:
    while tree[node] != node:
        tree[node] = tree[tree[node]]
        node = tree[node]
    return node


def _cross(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float], d: tuple[float, float]) -> bool:
    """Return whether two streets without a common end cross each other."""
    return _side(a, b, c) != _side(a, b, d) and _side(c, d, a) != _side(c, d, b)


def _side(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[0] - a[0]) * (c[1] - a[1]) > (b[1] - a[1]) * (c[0] - a[0])
