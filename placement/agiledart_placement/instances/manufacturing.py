"""Manufacturing topology of Hochreiner et al. on a factory's machines and three leased hosts.

Source: [Hochreiner 2017] tables 1 and 2, and the published host of 4 vCPUs and 7 GB. The paper has no network: gateways, the
plant's server and all delays are chosen here. Bytes of derived items are not printed; they count 100 each.
"""

from agiledart_kernel.randomness import RandomStream
from agiledart_placement.files.network_file import NETWORK_FORMAT, NetworkDescription, read_network
from agiledart_placement.files.topology_file import TOPOLOGY_FORMAT, TopologyDescription, read_topology

MACHINES, TICK_S = 8, 0.48
"""Most machines at one time, and seconds in which each of them sends the items of a simulated minute."""

OPERATORS = {
    "parse": (1500, 660, 452), "availability-filter": (600, 131, 524), "performance": (750, 100, 430),
    "availability": (750, 83, 502), "quality": (750, 77, 527), "temperature-monitor": (600, 65, 440),
    "effectiveness": (700, 46, 464), "report": (1300, 47, 452),
}  # fmt: skip
"""Milliseconds for an item, processor shares (1,024: one core) and MB of memory."""

INFORM = (500, 74, 466)
"""The same of the step that informs users; it runs on the plant's server."""

SELECTIVITY = {"availability-filter": 1 / 50, "temperature-monitor": 1 / 100, "effectiveness": 1 / 3, "report": 1 / 300}
SOURCES = {
    "availability-sensor": (5, 95, "availability-filter", "gateway-1"),
    "production-image": (1, 12_500, "parse", "gateway-2"),
    "temperature-sensor": (10, 90, "temperature-monitor", "gateway-3"),
}
"""Items of a machine in a simulated minute, bytes of an item, first operator, and the node where they arrive."""

STREAMS = (
    ("parse", "performance"), ("parse", "availability"), ("parse", "quality"), ("performance", "effectiveness"),
    ("availability", "effectiveness"), ("quality", "effectiveness"), ("effectiveness", "report"),
    ("availability-filter", "inform"), ("temperature-monitor", "inform"), ("report", "inform"),
)  # fmt: skip
DERIVED_BYTES = 100


def factory(seed: int) -> NetworkDescription:
    """Return three gateways, the plant's server and three leased hosts; delays are 1 to 3 ms in the plant, 15 to 40 ms to hosts."""
    draw = RandomStream(seed, "manufacturing")
    gateways = [f"gateway-{number}" for number in (1, 2, 3)]
    hosts = [f"host-{number}" for number in (1, 2, 3)]
    capacities = {
        **{name: demand(512, 1_024) for name in gateways},
        "plant": demand(2_048, 4_096),
        **{name: demand(4_096, 7_168) for name in hosts},
    }
    names = list(capacities)
    links = []
    for position, name in enumerate(names):
        for other in names[:position]:
            bounds = (15, 40) if (name in hosts) != (other in hosts) else (1, 3)
            links.append({"from": other, "to": name, "delay_ms": draw.between(*bounds)})
    nodes = [{"name": name, "capacity": capacity} for name, capacity in capacities.items()]
    return read_network({"format": NETWORK_FORMAT, "nodes": nodes, "links": links}, "factory")


def manufacturing() -> TopologyDescription:
    """Return three pinned sources, eight operators and the step that informs users."""
    sources = [
        {"name": name, "on": [node], "rate": items * MACHINES / TICK_S} for name, (items, _, _, node) in SOURCES.items()
    ]
    operators = [
        {"name": name, "execution_ms": ms, "demand": demand(cpu, memory), "selectivity": SELECTIVITY.get(name, 1)}
        for name, (ms, cpu, memory) in OPERATORS.items()
    ]
    ms, cpu, memory = INFORM
    informing = {"name": "inform", "on": ["plant"], "execution_ms": ms, "demand": demand(cpu, memory)}
    document = {
        "format": TOPOLOGY_FORMAT,
        "name": "manufacturing",
        "operators": [*sources, *operators, informing],
        "streams": [
            *({"from": name, "to": first, "bytes": size} for name, (_, size, first, _) in SOURCES.items()),
            *({"from": above, "to": below, "bytes": DERIVED_BYTES} for above, below in STREAMS),
        ],
    }
    return read_topology(document, "manufacturing")


def demand(cpu: int, memory: int) -> dict[str, int]:
    """Return amounts by resource, of an instance or of a node."""
    return {"cpu": cpu, "memory": memory}
