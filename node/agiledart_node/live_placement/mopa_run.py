"""MOPA of one run at one host: the points of its instances here, and what its neighbours hear. A machine without I/O.

    plan, places, rates → links of each instance → `MopaInstance` of those that may move → messages to neighbours that may move

Instances that stay are at their host. An instance begins to move once every neighbour has said where it is.
Source: spec of placement §3, algorithm 1, and §10.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.instants import SECOND
from agiledart_kernel.peer import Peer
from agiledart_node.live_placement.run_problem import stays
from agiledart_placement.latency_space.mopa_instance import (
    LEAST_INTERVAL_NS,
    RATE_CHANGE,
    MopaInstance,
    NeighbourLink,
    PositionNews,
)
from agiledart_placement.latency_space.points import NOTIFY_MS, Point, distance

Copy = tuple[int, int]
"""(stage, index)."""

CALM_NS: Final = 5 * SECOND
"""Time without a change of the point after which the host looks for nodes near it."""

REFRESH_NS: Final = 60 * SECOND
"""Time after which a host repeats a position, or a request for a place, without a change."""


@dataclass(frozen=True, slots=True)
class RunView:
    """State of a run, as one of its hosts knows it.

    Attributes:
        plan: its stages and edges.
        places: instance → node.
        local: instances here.
        at: this host's point.
        rates: (instance here, edge) → rate that it sends, in bytes or rows per second.
    """

    plan: StagePlan
    places: Mapping[Copy, Peer]
    local: frozenset[Copy]
    at: Point
    rates: Mapping[tuple[Copy, int], float]


class PositionMail(NamedTuple):
    """A message for the host of a neighbour."""

    to: Peer
    sender: Copy
    receiver: Copy
    news: PositionNews[Copy]
    rate: float | None


@dataclass(slots=True)
class _Sent:
    """The last message to a neighbour, with its receiver and time."""

    news: PositionNews[Copy]
    rate: float | None
    to: Peer
    at_ns: int


@dataclass(slots=True)
class _Rest:
    """Rest of an instance: since when its point is calm, and the point and places for which a place was asked, when."""

    at: Point
    since_ns: int
    asked: tuple[Point, Mapping[Copy, Peer]] | None = None
    asked_ns: int = 0


@dataclass(slots=True)
class MopaRun:
    """The instances of one run on one host."""

    machines: dict[Copy, MopaInstance[Copy]] = field(default_factory=dict)
    _sent: dict[tuple[Copy, Copy], _Sent] = field(default_factory=dict)
    _rests: dict[Copy, _Rest] = field(default_factory=dict)

    def step(self, view: RunView, now: int) -> list[PositionMail]:
        """Follow the plan, let the machines react, return the messages that are due."""
        links = {copy: neighbours(view.plan, copy) for copy in sorted(view.local)}
        self._follow(view, links, now)
        mails = []
        for copy, others in links.items():
            machine = self.machines.get(copy)
            if machine is not None and all(link.at is not None for link in machine.links.values()):
                machine.step(now)
            for other, edges in others.items():
                if stays(view.plan.stages[other[0]]) or other not in view.places:
                    continue
                news = PositionNews(view.at, {}) if machine is None else machine.news_for(other)
                rate = _rate(view, copy, other, edges)
                mail = PositionMail(view.places[other], copy, other, news, rate)
                if self._is_due(mail, now):
                    self._sent[copy, other] = _Sent(news, rate, mail.to, now)
                    mails.append(mail)
        return mails

    def failed(self, mail: PositionMail) -> None:
        """Forget that a message was sent, since its receiver did not confirm it."""
        self._sent.pop((mail.sender, mail.receiver), None)

    def received(self, sender: Copy, receiver: Copy, news: PositionNews[Copy], rate: float | None, now: int) -> None:
        """Take the position of a neighbour, and the rate at which it sends."""
        machine = self.machines.get(receiver)
        if machine is not None:
            machine.received(sender, news, now)
            if rate is not None:
                machine.rate_measured(sender, rate)

    def resting(self, view: RunView, now: int) -> list[tuple[Copy, Point]]:
        """Return the instances for which a place should be asked now, each with its point."""
        due = []
        for copy, machine in self.machines.items():
            rest = self._rests.setdefault(copy, _Rest(machine.at, now))
            if distance(rest.at, machine.at) >= NOTIFY_MS:
                rest.at, rest.since_ns = machine.at, now
            known = all(link.at is not None for link in machine.links.values())
            if not known or now - rest.since_ns < CALM_NS:
                continue
            before, places = rest.asked, dict(view.places)
            is_new = before is None or distance(before[0], machine.at) >= NOTIFY_MS or before[1] != places
            if is_new or now - rest.asked_ns >= REFRESH_NS:
                rest.asked, rest.asked_ns = (machine.at, places), now
                due.append((copy, machine.at))
        return due

    def _follow(self, view: RunView, links: Mapping[Copy, Mapping[Copy, tuple[int, ...]]], now: int) -> None:
        """Make machines for new instances and links, drop others, and take measured rates."""
        for table in (self.machines, self._rests):
            for copy in [copy for copy in table if copy not in view.local]:
                del table[copy]
        for pair in [pair for pair in self._sent if pair[0] not in view.local]:
            del self._sent[pair]
        for copy, others in links.items():
            if stays(view.plan.stages[copy[0]]):
                continue
            machine = self.machines.setdefault(copy, MopaInstance(copy, view.at, {}))
            for other in [other for other in machine.links if other not in others]:
                del machine.links[other]
            for other, edges in others.items():
                machine.links.setdefault(other, NeighbourLink(0.0, not stays(view.plan.stages[other[0]])))
                if (rate := _rate(view, copy, other, edges)) is not None:
                    machine.rate_measured(other, rate)

    def _is_due(self, mail: PositionMail, now: int) -> bool:
        sent = self._sent.get((mail.sender, mail.receiver))
        if sent is None or sent.to != mail.to or now - sent.at_ns >= REFRESH_NS:
            return True
        if now - sent.at_ns < LEAST_INTERVAL_NS:
            return False
        return mail.news.differs_from(sent.news) or _differ(sent.rate, mail.rate)


def neighbours(plan: StagePlan, copy: Copy) -> dict[Copy, tuple[int, ...]]:
    """Return the neighbours of an instance: instance → edges on which it sends to it; empty: it only receives."""
    stage, index = copy
    sends: dict[Copy, tuple[int, ...]] = {}
    for edge in plan.edges:
        other = edge.target if edge.source == stage else edge.source if edge.target == stage else None
        if other is None:
            continue
        for number in range(plan.stages[other].parallelism):
            if edge.partitioning != "forward" or number == index:
                more = (edge.index,) if edge.source == stage else ()
                sends[other, number] = (*sends.get((other, number), ()), *more)
    return sends


def _rate(view: RunView, copy: Copy, other: Copy, edges: tuple[int, ...]) -> float | None:
    """Return the rate that an instance sends to a neighbour; None: not measured, or it only receives."""
    if not edges or any((copy, edge) not in view.rates for edge in edges):
        return None
    shares = [
        view.rates[copy, edge]
        / (1 if view.plan.edges[edge].partitioning == "forward" else view.plan.stages[other[0]].parallelism)
        for edge in edges
    ]
    return sum(shares)


def _differ(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return before is not after
    return abs(after - before) > RATE_CHANGE * before
