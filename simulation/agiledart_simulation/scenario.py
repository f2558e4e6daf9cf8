"""A hostile run as data: how many nodes, what the network does, which faults when. All of it drawn from one seed.

Each seed also draws which kinds of faults it uses at all ("swarm testing"): a run without restarts finds other mistakes than
one with everything.

Source: [Swarm testing], Groce et al. 2012.
"""

from dataclasses import dataclass

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.randomness import RandomStream

KINDS = ("join", "kill", "silent", "restart", "pause", "partition", "weather", "leave", "write", "route")


@dataclass(frozen=True, slots=True)
class Scenario:
    """Options of one run; `str` of it, with the code, replays the run.

    Args:
        seed: of the world, and of every choice that the options leave open.
        nodes: at the start.
        steps: how many hostile things happen.
        step_ns: most time between two of them.
        kinds: which things may happen.
        loss, duplicate, reorder: chances of the network in the hostile phase.
        max_down: most nodes that are down or cut off at one time.
        max_pause_ns: longest sleep of a node.
        seeds_each: peers that a starting node is told of.
    """

    seed: int
    nodes: int
    steps: int
    step_ns: int
    kinds: tuple[str, ...]
    loss: float
    duplicate: float
    reorder: float
    max_down: int
    max_pause_ns: int
    seeds_each: int


def draw(seed: int, most_nodes: int = 25) -> Scenario:
    """The scenario of a seed."""
    random = RandomStream(seed, "scenario")
    nodes = 3 + random.index(most_nodes - 2)
    kinds = tuple(kind for kind in KINDS if random.uniform() < 0.6) or ("kill", "restart")
    has_weather = "weather" in kinds
    return Scenario(
        seed=seed,
        nodes=nodes,
        steps=8 + random.index(25),
        step_ns=(50 + random.index(3_000)) * MILLISECOND,
        kinds=kinds,
        loss=random.choice((0.0, 0.01, 0.05)) if has_weather else 0.0,
        duplicate=random.choice((0.0, 0.02)) if has_weather else 0.0,
        reorder=random.choice((0.0, 0.1)) if has_weather else 0.0,
        max_down=max(1, min(nodes // 3, 11)),
        max_pause_ns=random.choice((300 * MILLISECOND, 2 * SECOND, 8 * SECOND)),
        seeds_each=1 + random.index(3),
    )
