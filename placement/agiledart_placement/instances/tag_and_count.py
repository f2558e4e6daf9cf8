"""Tag-and-Count on eight workers, the prototype's experiment of Cardellini et al.

Source: spec of placement P1b; results.md, figure 4. Source and consumer are pinned to one worker of availability 1.
"""

from collections.abc import Mapping
from itertools import pairwise
from math import cos, log, pi, sqrt

from agiledart_kernel.randomness import RandomStream
from agiledart_placement.files.network_file import NETWORK_FORMAT, NetworkDescription, read_network
from agiledart_placement.files.topology_file import TOPOLOGY_FORMAT, TopologyDescription, read_topology

WORKERS, SLOTS, EXECUTORS_OF_A_SLOT = 8, 2, 4
SOURCE_RATE = 10.0
LOW_AVAILABILITY = 0.99


def normal(draw: RandomStream, mean: float, deviation: float) -> float:
    """Return a number of the normal distribution (Box and Muller)."""
    return mean + deviation * sqrt(-2 * log(1 - draw.uniform())) * cos(2 * pi * draw.uniform())


def worker_delays(seed: int) -> dict[tuple[int, int], tuple[float, float]]:
    """Return mean and deviation of the delay of each pair of workers, in ms."""
    draw = RandomStream(seed, "tag_and_count", "delays")
    return {(a, b): (draw.between(12, 32), draw.between(1, 3)) for a in range(WORKERS) for b in range(a)}


def measured_delays(seed: int, draw: RandomStream) -> dict[tuple[int, int], float]:
    """Return the delays of all pairs as they are at one moment, in ms."""
    return {pair: max(0.1, normal(draw, mean, deviation)) for pair, (mean, deviation) in worker_delays(seed).items()}


def eight_workers(
    seed: int, *, has_failures: bool = True, delays_ms: Mapping[tuple[int, int], float] | None = None
) -> NetworkDescription:
    """Return eight workers with two slots of four executors each.

    Args:
        seed: of the delays.
        has_failures: half of the workers have availability 0.99; worker 0 has 1.
        delays_ms: delays of all pairs; None: their means.
    """
    delays = delays_ms or {pair: mean for pair, (mean, _) in worker_delays(seed).items()}
    document = {
        "format": NETWORK_FORMAT,
        "nodes": [
            {
                "name": f"w{n}",
                "capacity": {"slots": SLOTS * EXECUTORS_OF_A_SLOT},
                "availability": LOW_AVAILABILITY if has_failures and n % 2 else 1.0,
            }
            for n in range(WORKERS)
        ],
        "links": [{"from": f"w{a}", "to": f"w{b}", "delay_ms": delay} for (a, b), delay in delays.items()],
    }
    return read_network(document, "eight workers")


def tag_and_count() -> TopologyDescription:
    """Return source → five operators of two executors each → consumer; 12 executors, each takes 1 ms for a row."""
    names = ["source", *(f"op{n}" for n in range(1, 6)), "consumer"]
    document = {
        "format": TOPOLOGY_FORMAT,
        "name": "tag-and-count",
        "operators": [
            {
                "name": name,
                "execution_ms": 1,
                **({"instances": 2} if name.startswith("op") else {"on": ["w0"]}),
                **({"rate": SOURCE_RATE} if name == "source" else {}),
            }
            for name in names
        ],
        "streams": [{"from": a, "to": b} for a, b in pairwise(names)],
    }
    return read_topology(document, "tag-and-count")
