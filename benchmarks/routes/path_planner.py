"""Cost of the planner of shuffle paths: its numerics, and a decision at networks of growing size.

    python -m benchmarks.routes.path_planner [--rounds 5]

CPU time of this process, the least of the rounds: on a shared machine only that means something. A node of the mesh refreshes
its own links at each decision and everything at each exchange; nothing is done per frame.
"""

import argparse
import json
import math
import time
from collections.abc import Callable

from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.divergence import upper_exponent
from agiledart_shuffle.draws import beta
from agiledart_shuffle.estimates import CHANGING, Estimates
from agiledart_shuffle.graph import LinkGraph
from agiledart_shuffle.hop_planner import PathPlanner
from agiledart_shuffle.policies.kl import KlIndex
from agiledart_shuffle.policies.shared_prior import SharedPriorIndex
from agiledart_shuffle.policy import Journey, LinkIndex

SIZES = ((25, 100), (50, 250), (100, 500), (250, 1250), (1000, 5000))
"""Nodes and links."""


def least_us(work: Callable[[], int], rounds: int) -> float:
    """Return the CPU microseconds per operation in the best round; the work returns its number of operations."""
    best = math.inf
    for _ in range(rounds):
        began = time.process_time_ns()
        count = work()
        best = min(best, (time.process_time_ns() - began) / count / 1000.0)
    return best


def numerics(rounds: int) -> dict[str, float]:
    """Measure the parts of an index."""
    random = RandomStream(1, "cases")
    cases = [(random.between(0.02, 0.98), 10.0 ** random.between(-6.0, 0.5)) for _ in range(5_000)]
    roots = [upper_exponent(*case) for case in cases]
    estimates = Estimates(len(cases), CHANGING)

    def cold() -> int:
        for rate, nats in cases:
            upper_exponent(rate, nats)
        return len(cases)

    def warm() -> int:
        for (rate, nats), root in zip(cases, roots, strict=True):
            upper_exponent(rate, nats * 1.0001, root)
        return len(cases)

    def draws() -> int:
        for rate, _ in cases:
            beta(random, 1.0 + 40.0 * rate, 1.0 + 40.0 * (1.0 - rate))
        return len(cases)

    def records() -> int:
        for link in range(len(cases)):
            estimates.record(link, 3, arrived=True)
        return len(cases)

    return {
        "upper_inverse_cold_us": least_us(cold, rounds),
        "upper_inverse_warm_us": least_us(warm, rounds),
        "beta_draw_us": least_us(draws, rounds),
        "record_us": least_us(records, rounds),
    }


def learnt(nodes: int, links: int, index: LinkIndex, exchange_every: int = 1) -> PathPlanner:
    """Return a planner of a random network, with some attempts on every link."""
    random = RandomStream(1, "network", nodes)
    arcs = dict.fromkeys((node, (node + 1) % nodes) for node in range(nodes))
    while len(arcs) < links:
        tail, head = random.index(nodes), random.index(nodes)
        if tail != head:
            arcs[tail, head] = None
    graph = LinkGraph(nodes, arcs)
    planner = PathPlanner(graph, nodes - 1, index, random, memory=CHANGING, exchange_every=exchange_every)
    for link in range(links):
        for _ in range(3):
            planner.record(link, 1 + random.index(4), arrived=True)
    return planner


def of_size(nodes: int, links: int, index: Callable[[], LinkIndex], rounds: int) -> dict[str, float]:
    """Measure an exchange, which recomputes all indices and costs to go, and a decision, which refreshes own links alone."""
    repetitions = max(5, 20_000 // links)
    eager, lazy = learnt(nodes, links, index()), learnt(nodes, links, index(), exchange_every=10**9)
    lazy.start_packet(1_000)
    lazy.start_packet(1_001)

    def exchange() -> int:
        for slot in range(repetitions):
            eager.start_packet(1_000 + slot)
        return repetitions

    def decide() -> int:
        for slot in range(repetitions):
            for node in range(0, nodes, max(1, nodes // 25)):
                lazy.next_link(Journey(node), 1_002 + slot)
        return repetitions * len(range(0, nodes, max(1, nodes // 25)))

    return {"exchange_us": least_us(exchange, rounds), "decision_us": least_us(decide, rounds)}


def main() -> None:
    """Print one line of JSON for the numerics, and one for each size and index."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    rounds: int = arguments.parse_args().rounds
    print(json.dumps({name: round(value, 2) for name, value in numerics(rounds).items()}))
    indices: dict[str, Callable[[], LinkIndex]] = {
        "planned": lambda: SharedPriorIndex(RandomStream(1, "draws")),
        "kl": lambda: KlIndex(0.05),
    }
    for nodes, links in SIZES:
        for name, index in indices.items():
            costs = of_size(nodes, links, index, rounds)
            row = {"nodes": nodes, "links": links, "policy": name}
            print(json.dumps(row | {key: round(value, 1) for key, value in costs.items()}))


if __name__ == "__main__":
    main()
