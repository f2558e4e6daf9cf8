"""Sends packets over a network, one after the other, and says what each cost.

Regret is counted attempt by attempt: one on link (v, w) costs a slot and is worth θ·(V(v) - V(w)), V being the true cost to
go. This has the mean of delay less optimal delay and far less noise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from agiledart_experiments.paths.networks import PathNetwork
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.policy import Journey, PathPolicy

ATTEMPTS_MOST = 200
"""On one link in one visit; then the packet decides again, without that link."""


@dataclass(slots=True)
class PathTrial:
    """One policy on one network.

    Attributes:
        regret: of each packet, in slots.
        delays: of each packet, in slots, as drawn.
        paths: the links that each packet took, in order, turns back left out.
        slot: the present one, from 1 on.
        lost: packets that found no way.
    """

    network: PathNetwork
    policy: PathPolicy
    luck: RandomStream
    decides_per_slot: bool = False
    regret: list[float] = field(default_factory=list)
    delays: list[int] = field(default_factory=list)
    paths: list[tuple[int, ...]] = field(default_factory=list)
    slot: int = 1
    lost: int = 0
    _to_go: list[float] = field(default_factory=list)
    _logs: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Look at the network."""
        self.change(self.network.rates)

    def change(self, rates: Sequence[float]) -> None:
        """From now on links have these rates."""
        self.network = PathNetwork(self.network.graph, self.network.source, self.network.sink, tuple(rates))
        self._to_go = self.network.costs_to_go
        self._logs = [math.log1p(-rate) if rate < 1.0 else -math.inf for rate in rates]

    def send(self, packets: int) -> None:
        """So many packets, one after the other."""
        for _ in range(packets):
            self._send_one()

    def _send_one(self) -> None:
        policy, graph, sink = self.policy, self.network.graph, self.network.sink
        began, regret = self.slot, 0.0
        journey, taken = Journey(self.network.source), list[int]()
        policy.start_packet(self.slot)
        while journey.node != sink:
            link = policy.next_link(journey, self.slot)
            if link is None:
                if not taken:
                    self.lost += 1
                    break
                regret += self._backtrack(journey, taken)
                continue
            needed = self._attempts(link)
            most = 1 if self.decides_per_slot else ATTEMPTS_MOST
            attempts, arrived = (needed, True) if needed <= most else (most, False)
            self.slot += attempts
            head = graph.heads[link]
            regret += attempts * (1.0 - self.network.rates[link] * (self._to_go[journey.node] - self._to_go[head]))
            policy.record(link, attempts, arrived=arrived)
            if arrived:
                taken.append(link)
                journey.move(head)
            elif not self.decides_per_slot:
                journey.closed[link] = None
        policy.end_packet()
        self.regret.append(regret)
        self.delays.append(self.slot - began)
        self.paths.append(tuple(taken))

    def _attempts(self, link: int) -> int:
        """How many a packet needs: geometric, out of one draw."""
        return int(math.log(1.0 - self.luck.uniform()) / self._logs[link]) + 1

    def _backtrack(self, journey: Journey, taken: list[int]) -> float:
        """A dead end: back over the last link, which takes a slot and counts as a failure there."""
        link = taken.pop()
        tail = self.network.graph.tails[link]
        regret = 1.0 + self._to_go[tail] - self._to_go[journey.node]
        journey.backtrack(tail, link)
        self.policy.record(link, 1, arrived=False)
        self.slot += 1
        return regret
