"""Fifty nodes of IoT-LAB Grenoble, channel by channel: delivery rates as they were measured over 31 hours, replayed in time."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from agiledart_experiments.paths.data import table
from agiledart_experiments.paths.networks import PathNetwork
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.graph import UNREACHABLE, LinkGraph

RATE_LEAST = 0.02
"""A link over which nothing came in a hundred frames may still let one of fifty through."""

COST_LEAST = 3.0
"""Slots from source to sink at least, or there is nothing to choose."""


@dataclass(frozen=True, slots=True)
class Replay:
    """One channel over time.

    Attributes:
        network: its links with the rates first measured.
        changes: minute, link and rate of each later measurement, in order of time.
        length: minutes.
    """

    network: PathNetwork
    changes: tuple[tuple[int, int, float], ...]
    length: int

    def minutes(self) -> Iterator[list[float] | None]:
        """For each minute all rates if some changed, else None."""
        rates, at = list(self.network.rates), 0
        for minute in range(self.length):
            began = at
            while at < len(self.changes) and self.changes[at][0] <= minute:
                _, link, rate = self.changes[at]
                rates[link] = rate
                at += 1
            yield list(rates) if at > began else None


def replays(seed: int, channels: int) -> list[Replay]:
    """So many channels, each with a source and a sink far apart; none when the measurements are not there."""
    rows = table("wireless_links/grenoble50_pdr.csv.gz")
    if rows is None:
        return []
    began = min(datetime.fromisoformat(row["datetime"]) for row in rows)
    by_channel: dict[int, list[tuple[int, int, int, float]]] = {}
    for row in rows:
        minute = int((datetime.fromisoformat(row["datetime"]) - began).total_seconds() // 60)
        sample = (minute, int(row["src"]), int(row["dst"]), max(RATE_LEAST, float(row["pdr"])))
        by_channel.setdefault(int(row["channel"]), []).append(sample)
    names = sorted(by_channel)
    RandomStream(seed, "channels").shuffle(names)
    return [_replay(by_channel[channel], RandomStream(seed, "ends", channel)) for channel in sorted(names[:channels])]


def _replay(samples: list[tuple[int, int, int, float]], random: RandomStream) -> Replay:
    samples.sort()
    number: dict[tuple[int, int], int] = {}
    rates: list[float] = []
    changes = []
    for minute, tail, head, rate in samples:
        link = number.setdefault((tail, head), len(number))
        if link == len(rates):
            rates.append(rate)
        else:
            changes.append((minute, link, rate))
    nodes = 1 + max(max(pair) for pair in number)
    graph = LinkGraph(nodes, number)
    costs = [1.0 / rate for rate in rates]
    while True:
        sink = random.index(nodes)
        togo = graph.cost_to_go(costs, sink)
        far = [node for node in range(nodes) if COST_LEAST <= togo[node] < UNREACHABLE]
        if far:
            break
    network = PathNetwork(graph, random.choice(far), sink, tuple(rates))
    return Replay(network, tuple(changes), samples[-1][0] + 1)
