"""Virtual hosts that run MOPA by messages: delay, loss and churn, and one machine for each free operator of a tree.

The machines are those of `agiledart_placement.latency_space`. A message that is lost is sent again after half a second, as requests
of agents are. Nodes know 54 random others and their 32 nearest; some of them are dead.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush, nsmallest
from math import exp
from typing import Final

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.randomness import RandomStream
from agiledart_placement.instances.delay_tables import CONTINENTS
from agiledart_placement.instances.tag_and_count import normal
from agiledart_placement.latency_space.mopa_instance import MAX_PAUSE_NS, MopaInstance, NeighbourLink, PositionNews
from agiledart_placement.latency_space.nearest_walk import ACQUAINTANCES, NearestWalk, near_acquaintances
from agiledart_placement.latency_space.points import Point, distance
from agiledart_placement.problem.network_view import SpacePosition

SIGMA: Final = 0.175
"""Deviation of the logarithm of a delay from the distance: 15 ms in the mean, as in the paper."""

LOSS, DEAD, FULL = 0.02, 0.05, 0.2
"""Shares of messages that are lost, of nodes that have died and others still know, of nodes without room."""

RANDOM_KNOWN, NEAREST_KNOWN = 54, 32
RESEND_NS: Final = SECOND // 2
CALM_NS: Final = 5 * SECOND
"""Time without a change of position after which a host looks for nodes."""

LEAST_GAIN: Final = 0.05


class MopaNodes:
    """Nodes in three clusters, with their tables of acquaintances."""

    def __init__(self, seed: int, count: int) -> None:
        draw = RandomStream(seed, "mopa-nodes", count)
        self._seed = seed
        self.places: list[SpacePosition] = []
        for _ in range(count):
            share = draw.uniform()
            centre, deviation, _ = next(part for part in CONTINENTS if share < part[2])
            x, y, z = (normal(draw, middle, deviation) for middle in centre)
            self.places.append(SpacePosition((x, y, z)))
        self.is_dead = [draw.uniform() < DEAD for _ in range(count)]
        self.is_full = [draw.uniform() < FULL for _ in range(count)]
        self._tables: dict[int, dict[int, SpacePosition]] = {}
        self._delays: dict[tuple[int, int], float] = {}

    def delay(self, a: int, b: int) -> float:
        """Return the real one-way delay in ms."""
        if a == b:
            return 0.0
        pair = min(a, b), max(a, b)
        if pair not in self._delays:
            factor = exp(normal(RandomStream(self._seed, "delay", *pair), 0, SIGMA))
            self._delays[pair] = factor * distance(self.places[a].point, self.places[b].point)
        return self._delays[pair]

    def known(self, node: int) -> dict[int, SpacePosition]:
        """Return the acquaintances of a node."""
        if node not in self._tables:
            draw = RandomStream(self._seed, "known", node)
            others = [draw.index(len(self.places)) for _ in range(RANDOM_KNOWN)]
            others += self.nearest(self.places[node].point, NEAREST_KNOWN + 1)
            self._tables[node] = {other: self.places[other] for other in others if other != node}
        return self._tables[node]

    def nearest(self, point: Point, count: int) -> list[int]:
        """Return the true nearest nodes to a point, dead ones included."""
        places = self.places
        return nsmallest(count, range(len(places)), key=lambda node: distance(places[node].point, point))

    def living_nearest(self, point: Point, count: int) -> list[int]:
        """Return the nearest nodes that live."""
        return [node for node in self.nearest(point, 2 * count + 8) if not self.is_dead[node]][:count]


@dataclass
class MopaCounts:
    """Counts of one run.

    Attributes:
        messages: positions that were sent, also again; asks: for nodes and places.
        moves: changes of hosts.
        recalls, questions: of each walk.
    """

    messages: int = 0
    asks: int = 0
    moves: int = 0
    recalls: list[float] = field(default_factory=list)
    questions: list[int] = field(default_factory=list)


class MopaWorld:
    """One tree on virtual hosts.

    Args:
        nodes: see `MopaNodes`.
        links: by operator, (neighbour, rate).
        hosts: node of each operator at the start.
        free: operators that may move.
        at: their virtual positions at the start.
        draw: of losses.
    """

    def __init__(
        self,
        nodes: MopaNodes,
        links: list[list[tuple[int, float]]],
        hosts: list[int],
        free: list[int],
        at: list[Point],
        draw: RandomStream,
    ) -> None:
        self.nodes, self.links, self.hosts, self._free, self._draw = nodes, links, list(hosts), frozenset(free), draw
        self.machines = {name: MopaInstance[tuple[int, ...]]((name,), at[name], {}) for name in free}
        for name, machine in self.machines.items():
            for other, rate in links[name]:
                link = NeighbourLink[tuple[int, ...]](rate, other in self._free, at[other])
                link.sent = PositionNews(at[name], {})  # neighbours know where it starts
                machine.links[other,] = link
        self.now, self._order, self.counts = 0, 0, MopaCounts()
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._candidates: dict[int, tuple[int, ...]] = {}
        self._changed: dict[int, int | None] = dict.fromkeys(free)
        self._scheduled: dict[int, bool] = {}
        self._wishes: dict[int, int] = {}
        for name in free:
            self._step_later(name)

    def run(self, until: int = 300 * SECOND) -> MopaCounts:
        """Let all operators react until nothing happens any more."""
        while self._due and self._due[0][0] <= until:
            self.now, _, call = heappop(self._due)
            call()
        return self.counts

    def usage(self) -> float:
        """Return Σ rate × real delay over all links."""
        return usage_of(self.nodes, self.links, self.hosts)

    def _at(self, when: int, call: Callable[[], None]) -> None:
        self._order += 1
        heappush(self._due, (when, self._order, call))

    def _step(self, name: int) -> None:
        self._scheduled.pop(name, None)
        machine = self.machines[name]
        before = machine.at
        for (other,), news in machine.step(self.now).items():
            self._send(name, other, news)
        if (later := machine.next_step()) is not None and later > self.now:
            self._at(later, partial(self._step, name))
        if distance(before, machine.at) > 0 or self._changed[name] is None:
            self._changed[name] = self.now
            self._at(self.now + CALM_NS, partial(self._came_to_rest, name, self.now))

    def _send(self, name: int, other: int, news: PositionNews[tuple[int, ...]]) -> None:
        self.counts.messages += 1
        machine = self.machines[name]
        if machine.links[other,].sent is not news:
            return  # a later one replaces it
        if self._draw.uniform() < LOSS:
            self._at(self.now + RESEND_NS, partial(self._send, name, other, news))
            return
        delay = self.nodes.delay(self.hosts[name], self.hosts[other])
        self._at(self.now + int(delay * MILLISECOND), partial(self._receive, name, other, news))

    def _receive(self, name: int, other: int, news: PositionNews[tuple[int, ...]]) -> None:
        self.machines[other].received((name,), news, self.now)
        self._step_later(other)

    def _step_later(self, name: int) -> None:
        """Let a machine react after a random pause: neighbours that react at once would chase each other."""
        if name not in self._scheduled:
            self._scheduled[name] = True
            self._at(self.now + int(self._draw.uniform() * MAX_PAUSE_NS), partial(self._step, name))

    def _came_to_rest(self, name: int, since: int) -> None:
        """Look for nodes near the position, and ask the coordinator for a place."""
        if self._changed[name] != since:
            return  # it has moved again
        point = self.machines[name].at
        walk = NearestWalk(
            point, self.nodes.known(self.hosts[name]) | {self.hosts[name]: self.nodes.places[self.hosts[name]]}
        )
        while (node := walk.question()) is not None:
            self.counts.asks += 1
            if self.nodes.is_dead[node]:
                walk.failed(node)
            else:
                walk.answered(node, near_acquaintances(point, self.nodes.known(node)))
        answered = [node for node in walk.best() if not self.nodes.is_dead[node]]
        true = self.nodes.living_nearest(point, ACQUAINTANCES)
        self.counts.recalls.append(len(set(answered) & set(true)) / len(true))
        self.counts.questions.append(walk.questions)
        self._candidates[name] = tuple(answered)
        self._place(name)

    def _place(self, name: int) -> None:
        """Ask the coordinator for the first candidate with room. It weighs the move alone, then all wishes that it has together."""
        self.counts.asks += 1
        target = next((node for node in self._candidates[name] if not self.nodes.is_full[node]), None)
        if target is None:
            return
        self._wishes[name] = target
        for moves in ({name: target}, self._wishes):
            wanted = {operator: node for operator, node in moves.items() if node != self.hosts[operator]}
            if wanted and self._usage_with(wanted) < self.usage() * (1 - LEAST_GAIN):
                self._move(wanted)
                return

    def _move(self, wanted: dict[int, int]) -> None:
        for name, node in wanted.items():
            self.hosts[name] = node
        self.counts.moves += len(wanted)
        neighbours = {other: True for name in wanted for other, _ in self.links[name]}
        for other in neighbours:
            if other in self._candidates:
                self._at(self.now + SECOND, partial(self._place, other))

    def _usage_with(self, moves: dict[int, int]) -> float:
        hosts = [moves.get(name, node) for name, node in enumerate(self.hosts)]
        return usage_of(self.nodes, self.links, hosts)


def usage_of(nodes: MopaNodes, links: list[list[tuple[int, float]]], hosts: list[int]) -> float:
    """Return Σ rate × real delay over all links."""
    pairs = ((a, b, rate) for a, neighbours in enumerate(links) for b, rate in neighbours if a < b)
    return sum(rate * nodes.delay(hosts[a], hosts[b]) for a, b, rate in pairs)
