"""Topologies of `agiledart place`: documents `agiledart-topology/1` as stages with demands, and streams with loads.

Source: spec of placement §9.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agiledart_kernel.limits import MAX_PARALLELISM
from agiledart_placement.files.document_reader import DocumentReader
from agiledart_placement.files.network_file import NetworkDescription
from agiledart_placement.problem.order import levels
from agiledart_placement.problem.request import PlacementRequest, StageDemand, StreamLoad

TOPOLOGY_FORMAT = "agiledart-topology/1"
KINDS = ("node", "host", "zone")


@dataclass(frozen=True, slots=True)
class TopologyDescription:
    """Operators and streams of a topology, not yet joined with a network.

    Attributes:
        file, name: for messages.
        stages: numbered from 0, without candidates.
        on: names of candidate nodes by stage; None: all.
        edges, loads: streams.
        rates: rows per second that a source emits, by stage.
    """

    file: str
    name: str
    stages: tuple[StageDemand, ...]
    on: tuple[tuple[str, ...] | None, ...]
    edges: tuple[tuple[int, int], ...]
    loads: tuple[StreamLoad, ...]
    rates: tuple[float, ...]


def read_topology(document: object, file: str) -> TopologyDescription:
    """Return the topology of a document. Raises ConfigurationError with the file, the place and the value."""
    reader = DocumentReader(document, file)
    kind = reader.text("format")
    if kind != TOPOLOGY_FORMAT:
        reader.fail("format", kind, f"expected {TOPOLOGY_FORMAT!r}")
    name = reader.text("name", "topology")
    operators = list(reader.objects("operators", is_needed=True))
    numbers: dict[str, int] = {}
    for operator in operators:
        own = operator.text("name")
        if own in numbers:
            operator.fail("name", own, "two operators have this name")
        numbers[own] = len(numbers)
    stages = tuple(_stage(operator, number, numbers) for number, operator in enumerate(operators))
    on = tuple(operator.texts("on") if operator.has("on") else None for operator in operators)
    rates = tuple(operator.number("rate", 0.0) for operator in operators)
    for operator in operators:
        operator.end()
    edges, given = [], []
    for stream in reader.objects("streams"):
        a, b = (numbers[stream.named(key, numbers, stream.text(key), "operator")] for key in ("from", "to"))
        edges.append((a, b))
        given.append((stream.optional("rate"), stream.number("bytes", 1.0)))
        stream.end()
    reader.end()
    loads = stream_loads(stages, rates, edges, given)
    return TopologyDescription(file, name, stages, on, tuple(edges), loads, rates)


def _stage(operator: DocumentReader, number: int, numbers: Mapping[str, int]) -> StageDemand:
    instances = operator.number("instances", 1, 1, MAX_PARALLELISM)
    if instances != int(instances):
        operator.fail("instances", instances, "expected a whole number")
    apart = []
    for text in operator.texts("apart_from"):
        kind, colon, other = text.partition(":")
        if not colon or kind not in KINDS:
            kind, other = "node", text
        apart.append((kind, numbers[operator.named("apart_from", numbers, other, "operator")]))
    together = [
        numbers[operator.named("together_with", numbers, t, "operator")] for t in operator.texts("together_with")
    ]
    return StageDemand(
        number,
        operator.text("name"),
        int(instances),
        needs=operator.texts("needs"),
        demand=operator.amounts("demand"),
        execution_ms=operator.number("execution_ms", 0.0),
        selectivity=operator.number("selectivity", 1.0),
        state_bytes=int(operator.number("state_bytes", 0.0)),
        zone=operator.text("zone", ""),
        together_with=tuple(together),
        apart_from=tuple(apart),
    )


def stream_loads(
    stages: Sequence[StageDemand],
    rates: Sequence[float],
    edges: Sequence[tuple[int, int]],
    given: Sequence[tuple[float | None, float]],
) -> tuple[StreamLoad, ...]:
    """Return the load of each stream; one without rate carries the whole output of its operator.

    On a cycle a stream that leads back adds nothing to the input of operators before it.
    """
    order = [vertex for level in levels(len(stages), edges) for vertex in level]
    rank = {vertex: number for number, vertex in enumerate(order)}
    flow: list[float] = [0.0 if rate is None else rate for rate, _ in given]
    for vertex in order:
        into = sum(flow[n] for n, (a, b) in enumerate(edges) if b == vertex and rank[a] < rank[b])
        output = rates[vertex] + into * stages[vertex].selectivity
        for number, (a, _) in enumerate(edges):
            if a == vertex and given[number][0] is None:
                flow[number] = output
    return tuple(StreamLoad(rate, size) for rate, (_, size) in zip(flow, given, strict=True))


def joined_request(
    network: NetworkDescription, topologies: Sequence[TopologyDescription], *, is_exclusive: bool = False
) -> PlacementRequest:
    """Return the request to place these topologies together on a network; `paths` stay empty.

    Raises:
        ConfigurationError: a topology names a node that the network lacks.
    """
    stages: list[StageDemand] = []
    edges: list[tuple[int, int]] = []
    loads: list[StreamLoad] = []
    for number, topology in enumerate(topologies):
        offset = len(stages)
        prefix = f"{topology.name}/" if len(topologies) > 1 else ""
        for stage, names in zip(topology.stages, topology.on, strict=True):
            reader = DocumentReader({}, topology.file, f"operators[{stage.stage}]")
            ids = None
            if names is not None:
                ids = tuple(network.ids[reader.named("on", network.ids, name, "node")] for name in names)
            stages.append(
                replace(
                    stage,
                    stage=offset + stage.stage,
                    name=prefix + stage.name,
                    application=number,
                    pinned=ids[0] if ids is not None and len(ids) == 1 else None,
                    candidates=ids,
                    together_with=tuple(offset + other for other in stage.together_with),
                    apart_from=tuple((kind, offset + other) for kind, other in stage.apart_from),
                )
            )
        edges += [(a + offset, b + offset) for a, b in topology.edges]
        loads += topology.loads
    return PlacementRequest(
        tuple(stages),
        tuple(edges),
        (),
        network.hosts,
        max_ops_balanced=2**31,
        loads=tuple(loads),
        network=network.view,
        headroom=network.headroom,
        is_exclusive=is_exclusive,
    )


def topology_document(topology: TopologyDescription) -> dict[str, object]:
    """Return a topology as a document that `read_topology` reads."""
    operators = []
    for stage, on, rate in zip(topology.stages, topology.on, topology.rates, strict=True):
        names = [other.name for other in topology.stages]
        entry: dict[str, object] = {"name": stage.name}
        optional: dict[str, object] = {
            "instances": stage.parallelism if stage.parallelism > 1 else None,
            "demand": dict(stage.demand) or None,
            "execution_ms": stage.execution_ms or None,
            "rate": rate or None,
            "selectivity": None if stage.selectivity == 1 else stage.selectivity,
            "on": None if on is None else list(on),
            "zone": stage.zone or None,
            "needs": list(stage.needs) or None,
            "together_with": [names[other] for other in stage.together_with] or None,
            "apart_from": [n if k == "node" else f"{k}:{n}" for k, n in ((k, names[o]) for k, o in stage.apart_from)]
            or None,
            "state_bytes": stage.state_bytes or None,
        }
        operators.append({**entry, **{key: value for key, value in optional.items() if value is not None}})
    streams = [
        {
            "from": topology.stages[a].name,
            "to": topology.stages[b].name,
            "rate": load.rate,
            **({} if load.bytes == 1 else {"bytes": load.bytes}),
        }
        for (a, b), load in zip(topology.edges, topology.loads, strict=True)
    ]
    return {"format": TOPOLOGY_FORMAT, "name": topology.name, "operators": operators, "streams": streams}
