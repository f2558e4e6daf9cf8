"""Trial of one policy: send packets over a network one after the other, and record the cost of each.

Regret is counted attempt by attempt: an attempt on link (v, w) costs a slot and is worth θ·(V(v) - V(w)), where V is the true
cost to go. Its mean is that of the delay minus the optimal delay, and it has far less noise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from agiledart_experiments.paths.networks import PathNetwork
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.policy import Journey, PathPolicy

ATTEMPTS_MOST = 200
"""Most attempts on a link in one visit to a node; then the policy chooses again, without that link."""


@dataclass(slots=True)
class PathTrial:
    """Trial of one policy on one network.

    Attributes:
        network: the network with its present rates.
        policy: the policy that chooses the links.
        luck: random stream of the attempts' outcomes.
        decides_per_slot: whether the policy chooses again after every failed attempt.
        regret: regret of each packet, in slots.
        delays: delay of each packet as drawn, in slots.
        paths: links that each packet took, in order, without those that it left by backtracking.
        slot: number of the present slot, from 1 on.
        lost: number of packets that found no path.
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
        """Compute the costs to go of the network."""
        self.change(self.network.rates)

    def change(self, rates: Sequence[float]) -> None:
        """Change the rates of the links from now on."""
        self.network = PathNetwork(self.network.graph, self.network.source, self.network.sink, tuple(rates))
        self._to_go = self.network.costs_to_go
        self._logs = [math.log1p(-rate) if rate < 1.0 else -math.inf for rate in rates]

    def send(self, packets: int) -> None:
        """Send this number of packets, one after the other."""
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
        """Draw the number of attempts that a packet needs on a link (geometric distribution, one draw)."""
        return int(math.log(1.0 - self.luck.uniform()) / self._logs[link]) + 1

    def _backtrack(self, journey: Journey, taken: list[int]) -> float:
        """Go back over the last link from a dead end, and return the regret: one slot, recorded as a failure of the link."""
        link = taken.pop()
        tail = self.network.graph.tails[link]
        regret = 1.0 + self._to_go[tail] - self._to_go[journey.node]
        journey.backtrack(tail, link)
        self.policy.record(link, 1, arrived=False)
        self.slot += 1
        return regret
