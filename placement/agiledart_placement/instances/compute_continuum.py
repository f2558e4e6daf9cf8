"""Test bed of Ecker et al.: eleven supervisors, three manual topologies, nine random ones.

Source: spec of placement §5.8. The paper's latencies stand in a drawing only, and its random numbers cannot be repeated; both are
drawn here.
"""

from dataclasses import dataclass
from math import hypot

from agiledart_kernel.randomness import RandomStream
from agiledart_placement.files.network_file import NETWORK_FORMAT, NetworkDescription, read_network
from agiledart_placement.files.topology_file import TOPOLOGY_FORMAT, TopologyDescription, read_topology

OPERATIONS = {"R1": 16, "R2": 7, "R3": 12, "R4": 15, "R5": 11, "R6": 11, "R7": 22, "R8": 8, "R9": 10}
"""Operations of the random topologies, source and sink included; R8 and R9 have a cycle."""

MANUAL = ("M1", "M2", "M3")
CYCLIC = ("R8", "R9")
MEMORY_MB = 90.0
"""Memory of an instance."""

SUPERVISORS = (
    (150, 2048), (100, 1024), (30, 768), (30, 768), (30, 768), (100, 1024),
    (100, 1024), (30, 768), (30, 768), (30, 768), (30, 768),
)  # fmt: skip
"""Processor points (100: one core) and memory in MB of w1 to w11."""

SELECTIVITIES = (0.5, 0.5, 1.0, 1.0, 1.5)


def supervisor_bed(seed: int) -> NetworkDescription:
    """Return the eleven supervisors, at random places of a square of 4 ms × 4 ms; 5 % of every capacity stay free."""
    draw = RandomStream(seed, "supervisor_bed")
    places = [(4 * draw.uniform(), 4 * draw.uniform()) for _ in SUPERVISORS]
    names = [f"w{n + 1}" for n in range(len(SUPERVISORS))]
    document = {
        "format": NETWORK_FORMAT,
        "headroom": 0.05,
        "nodes": [
            {"name": name, "capacity": {"cpu": cpu, "memory": memory}}
            for name, (cpu, memory) in zip(names, SUPERVISORS, strict=True)
        ],
        "links": [
            {
                "from": names[a],
                "to": names[b],
                "delay_ms": 0.5 + hypot(places[a][0] - places[b][0], places[a][1] - places[b][1]),
            }
            for a in range(len(names))
            for b in range(a)
        ],
    }
    return read_network(document, "test bed")


@dataclass(frozen=True, slots=True)
class OperationGraph:
    """Graph of operations before loads are known.

    Attributes:
        instances: of each operation; 0 is the source, 1 the sink.
        edges: streams.
        work: processor time of a row, relative.
        selectivity: rows out for each row in.
    """

    instances: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    work: tuple[float, ...]
    selectivity: tuple[float, ...]


def operation_graph(name: str, seed: int) -> OperationGraph:
    """Return one of the topologies `M1` to `M3`, `R1` to `R9`."""
    draw = RandomStream(seed, "operations", name)
    if name == "M1":
        instances, edges = [1] * 6, [(0, 2), (2, 3), (3, 4), (4, 5), (5, 1)]
    elif name in MANUAL:
        instances, edges = [1, 1, 10 if name == "M2" else 1], [(0, 2), (2, 1)]
    else:
        edges = _grown(OPERATIONS[name], draw)
        if name in CYCLIC:
            edges.append(_edge_back(OPERATIONS[name], edges, draw))
        instances = [1, 1] + [2] * (OPERATIONS[name] - 2)
    work = tuple(draw.between(0.5, 1.5) for _ in instances)
    selectivity = tuple(draw.choice(SELECTIVITIES) for _ in instances)
    return OperationGraph(tuple(instances), tuple(edges), work, selectivity)


def _grown(count: int, draw: RandomStream) -> list[tuple[int, int]]:
    """Return the edges of a random graph: edges become an operation in series, or a diamond of two, until the count is reached."""
    edges = [(0, 1)]
    size = 2
    while size < count:
        a, b = edges.pop(draw.index(len(edges)))
        if draw.uniform() < 0.4 and size + 2 <= count:
            edges += [(a, size), (size, b), (a, size + 1), (size + 1, b)]
            size += 2
        else:
            edges += [(a, size), (size, b)]
            size += 1
    return edges


def _edge_back(count: int, edges: list[tuple[int, int]], draw: RandomStream) -> tuple[int, int]:
    """Return an edge from a random inner operation to one of its inner ancestors, or to itself without any."""
    above: dict[int, list[int]] = {}
    for a, b in edges:
        above.setdefault(b, []).append(a)
    operation = 2 + draw.index(count - 2)
    ancestors: dict[int, bool] = {}
    queue = [operation]
    while queue:
        for a in above.get(queue.pop(), ()):
            if a not in ancestors:
                ancestors[a] = True
                queue.append(a)
    inner = sorted(a for a in ancestors if a > 1)
    return operation, draw.choice(inner) if inner else operation


def loaded_topology(name: str, graph: OperationGraph, points: float) -> TopologyDescription:
    """Return a topology whose instances need this many processor points in all."""
    rates = operation_rates(graph)
    needs = [w * rate for w, rate in zip(graph.work, rates, strict=True)]
    factor = points / sum(needs)
    labels = ["source", "sink", *(f"op{n}" for n in range(2, len(graph.instances)))]
    document = {
        "format": TOPOLOGY_FORMAT,
        "name": name,
        "operators": [
            {
                "name": label,
                "instances": count,
                "demand": {"cpu": need * factor / count, "memory": MEMORY_MB},
                "selectivity": selectivity,
                **({"rate": factor} if label == "source" else {}),
            }
            for label, count, need, selectivity in zip(labels, graph.instances, needs, graph.selectivity, strict=True)
        ],
        "streams": [
            {"from": labels[a], "to": labels[b], "rate": factor * _output(graph, rates, a)} for a, b in graph.edges
        ],
    }
    return read_topology(document, name)


def operation_rates(graph: OperationGraph) -> list[float]:
    """Return the rows that each operation handles for each row of the source; an edge that leads back adds none."""
    rates = [0.0] * len(graph.instances)
    rates[0] = 1.0
    incoming: dict[int, list[int]] = {}
    for a, b in graph.edges:
        incoming.setdefault(b, []).append(a)
    done = {0: True}
    while len(done) < len(rates):
        ready = [b for b in incoming if b not in done and all(a in done for a in incoming[b])]
        if not ready:  # a cycle: its first operation goes on without what leads back
            ready = [next(b for b in incoming if b not in done and any(a in done for a in incoming[b]))]
        for b in ready:
            rates[b] = sum(_output(graph, rates, a) for a in incoming[b] if a in done)
            done[b] = True
    return rates


def _output(graph: OperationGraph, rates: list[float], operation: int) -> float:
    return rates[operation] * (1.0 if operation == 0 else graph.selectivity[operation])
