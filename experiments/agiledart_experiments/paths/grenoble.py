"""Replay of the measured delivery rates of fifty IoT-LAB Grenoble nodes over 31 hours, channel by channel."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from agiledart_experiments.paths.data import table
from agiledart_experiments.paths.networks import PathNetwork
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.graph import UNREACHABLE, LinkGraph

RATE_LEAST = 0.02
"""Least delivery rate of a link: one that delivered none of a hundred frames may still deliver one of fifty."""

COST_LEAST = 3.0
"""Least cost from source to sink, in slots: on shorter paths a policy has nothing to choose."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Measured delivery rates of one channel over time.

    Attributes:
        network: the links of the channel with the rates measured first.
        changes: minute, link and rate of each later measurement, in order of time.
        length: length of the replay in minutes.
    """

    network: PathNetwork
    changes: tuple[tuple[int, int, float], ...]
    length: int

    def minutes(self) -> Iterator[list[float] | None]:
        """Yield for each minute all rates if a rate changed, else None."""
        rates, at = list(self.network.rates), 0
        for minute in range(self.length):
            began = at
            while at < len(self.changes) and self.changes[at][0] <= minute:
                _, link, rate = self.changes[at]
                rates[link] = rate
                at += 1
            yield list(rates) if at > began else None


def replays(seed: int, channels: int) -> list[Replay]:
    """Return replays of `channels` channels, each with a distant source and sink; none when the data is missing."""
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
