"""MOPA at the host of one free instance: a machine without I/O. No node sees the whole application.

    positions and rates of the neighbours → Weber point → own position → messages to free neighbours

Free neighbours at the same point act as one. They exchange the pulls on them from outside, and compute the same point from all of
them. When they have rested, the member with the least name begins, and the others follow. A member leaves when it is pulled
outwards more than its links hold it.

Source: spec of placement §3, algorithm 1 of Rizou et al., and §10.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from agiledart_kernel.instants import SECOND
from agiledart_placement.latency_space.points import NOTIFY_MS, Point, Pull, distance, length, resultant, usage
from agiledart_placement.latency_space.weber import weber_point

Name = TypeVar("Name", bound=tuple[int, ...])

LEAST_INTERVAL_NS: Final = 2 * SECOND
"""Least time between two messages to one neighbour."""

MAX_PAUSE_NS: Final = 2 * SECOND
"""Longest random pause before a machine reacts. Neighbours that reacted at once would swap places again and again."""

HOLD_NS: Final = 6 * SECOND
"""Time for which a free neighbour must have stayed before the one with the lesser name moves to it: else both would swap places."""

SAME_POINT_MS: Final = 1e-3
RATE_WEIGHT: Final = 0.3
RATE_CHANGE: Final = 0.1
"""Relative change of the averaged rate of a link that is a reason to compute anew."""

CALM_TRIGGERS: Final = 2
"""Triggers without a move after which the position counts as calm."""

MAX_PULLS: Final = 32
"""Pulls in one message."""

_LEAST_SHARE: Final = 1e-9

Pulls = Mapping[tuple[Name, Name], Pull]
"""(member of the cluster, its neighbour outside) → point of the neighbour, and rate."""


@dataclass(frozen=True, slots=True)
class PositionNews(Generic[Name]):
    """Message to a free neighbour: the sender's point, and the pulls on its side when both are at one point."""

    at: Point
    pulls: Pulls[Name]

    def differs_from(self, before: "PositionNews[Name] | None") -> bool:
        """Return whether a neighbour that heard of another position should hear of this one."""
        return _differs(before, self)


@dataclass(slots=True)
class NeighbourLink(Generic[Name]):
    """Link of the instance.

    Attributes:
        rate: bytes or rows per second.
        is_free: the neighbour may move, so it hears of moves.
        at: its point; None: not known yet; at_ns: since when.
        pulls: that it reported; None: none yet.
        average: of measured rates.
        sent, sent_ns: last message to it, and when.
    """

    rate: float
    is_free: bool
    at: Point | None = None
    at_ns: int = 0
    pulls: Pulls[Name] | None = None
    average: float | None = None
    sent: PositionNews[Name] | None = None
    sent_ns: int | None = None


@dataclass(slots=True)
class MopaInstance(Generic[Name]):
    """Position of one instance.

    Attributes:
        name: of the instance.
        at: its virtual position.
        links: by neighbour.
        triggers_at_rest: triggers since its last move of `NOTIFY_MS`.
    """

    name: Name
    at: Point
    links: dict[Name, NeighbourLink[Name]]
    triggers_at_rest: int = 0
    _is_due: bool = field(default=True)
    _held_until: int = 0
    _union: dict[tuple[Name, Name], Point] = field(default_factory=dict)
    _union_ns: int = 0

    @property
    def is_calm(self) -> bool:
        """Return whether a move of its host may follow."""
        return not self._is_due and self.triggers_at_rest >= CALM_TRIGGERS

    def received(self, neighbour: Name, news: PositionNews[Name], now: int) -> None:
        """Take the position of a neighbour."""
        link = self.links.get(neighbour)
        if link is not None:
            if link.at is None or distance(link.at, news.at) >= SAME_POINT_MS:
                link.at_ns = now
            link.at = news.at
            link.pulls = {key: pull for key, pull in list(news.pulls.items())[:MAX_PULLS] if key[0] != self.name}
            self._is_due = True

    def rate_measured(self, neighbour: Name, rate: float) -> None:
        """Take a measured rate of a link."""
        link = self.links.get(neighbour)
        if link is None:
            return
        link.average = rate if link.average is None else link.average + RATE_WEIGHT * (rate - link.average)
        if abs(link.average - link.rate) > RATE_CHANGE * link.rate:
            link.rate, self._is_due = link.average, True

    def step(self, now: int) -> dict[Name, PositionNews[Name]]:
        """Compute the position anew if something has changed; return the messages that are due now."""
        if self._is_due:
            self._is_due = False
            before, self.at = self.at, self._calm_target(now)
            self.triggers_at_rest = 0 if distance(before, self.at) >= NOTIFY_MS else self.triggers_at_rest + 1
        due: dict[Name, PositionNews[Name]] = {}
        for neighbour, link in self.links.items():
            if link.is_free and (link.sent_ns is None or now - link.sent_ns >= LEAST_INTERVAL_NS):
                news = PositionNews(self.at, self._pulls_for(neighbour))
                if _differs(link.sent, news):
                    link.sent, link.sent_ns = news, now
                    due[neighbour] = news
        return due

    def news_for(self, neighbour: Name) -> PositionNews[Name]:
        """Return what a neighbour should know now."""
        return PositionNews(self.at, self._pulls_for(neighbour))

    def next_step(self) -> int | None:
        """Return when a message that waits for its interval, or a move that waits, is due; None: none waits."""
        waiting = [
            link.sent_ns + LEAST_INTERVAL_NS
            for neighbour, link in self.links.items()
            if link.is_free
            and link.sent_ns is not None
            and _differs(link.sent, PositionNews(self.at, self._pulls_for(neighbour)))
        ]
        return min([*waiting, *([self._held_until] if self._held_until else [])], default=None)

    def _calm_target(self, now: int) -> Point:
        """Return the target, but the present point while a free neighbour there, with a greater name, may be coming here."""
        self._held_until = 0
        target = self._target(now)
        for neighbour, link in self.links.items():
            is_there = link.is_free and link.at is not None and distance(link.at, target) < SAME_POINT_MS
            is_elsewhere = distance(target, self.at) >= SAME_POINT_MS
            if is_there and is_elsewhere and neighbour > self.name and now - link.at_ns < HOLD_NS:
                self._hold(link.at_ns + HOLD_NS)
                return self.at
        return target

    def _hold(self, until: int) -> None:
        self._held_until, self._is_due = until, True

    def _members(self) -> list[Name]:
        """Return the free neighbours at this point."""
        return [
            neighbour
            for neighbour, link in self.links.items()
            if link.is_free and link.at is not None and link.rate > 0 and distance(link.at, self.at) < SAME_POINT_MS
        ]

    def _target(self, now: int) -> Point:
        members = self._members()
        outer = [
            (link.at, link.rate) for name, link in self.links.items() if link.at is not None and name not in members
        ]
        inner = sum(self.links[name].rate for name in members)
        if not members or length(resultant(self.at, outer)) > inner:
            return weber_point(self.at, [(link.at, link.rate) for link in self.links.values() if link.at is not None])[
                0
            ]
        shared: dict[tuple[Name, Name], Pull] = {}
        for name in members:
            if (pulls := self.links[name].pulls) is None:
                return self.at  # it has not said what pulls it
            shared |= pulls
        if any(member < self.name for member in (*members, *(key[0] for key in shared))):
            return self.at  # another one begins
        points = {key: pull[0] for key, pull in shared.items()} | {(self.name, self.name): self.at}
        if points.keys() != self._union.keys() or any(
            distance(point, self._union[key]) >= NOTIFY_MS for key, point in points.items()
        ):
            self._union, self._union_ns = points, now
        if now - self._union_ns < HOLD_NS:  # a neighbour outside may be about to join
            self._hold(self._union_ns + HOLD_NS)
            return self.at
        union = [*outer, *(pull for (_, other), pull in shared.items() if other != self.name)]
        target, _ = weber_point(self.at, union)
        here, there = usage(self.at, union), usage(target, union)
        return target if there < here - _LEAST_SHARE * abs(here) else self.at

    def _pulls_for(self, neighbour: Name) -> dict[tuple[Name, Name], Pull]:
        """Return the pulls on the cluster from this side of a link; empty unless the neighbour is a member."""
        members = self._members()
        if neighbour not in members:
            return {}
        own = {
            (self.name, other): (link.at, link.rate)
            for other, link in self.links.items()
            if other not in members and link.at is not None
        }
        for member in members:
            if member != neighbour:
                own |= {key: pull for key, pull in (self.links[member].pulls or {}).items() if key[0] != neighbour}
        return dict(list(own.items())[:MAX_PULLS])


def _differs(before: PositionNews[Name] | None, after: PositionNews[Name]) -> bool:
    """Return whether a neighbour should hear of a change."""
    if before is None or distance(before.at, after.at) >= NOTIFY_MS:
        return True
    if not after.pulls:
        return False
    if before.pulls.keys() != after.pulls.keys() or distance(before.at, after.at) >= SAME_POINT_MS:
        return True
    return any(
        distance(pull[0], before.pulls[key][0]) >= NOTIFY_MS
        or abs(pull[1] - before.pulls[key][1]) > RATE_CHANGE * before.pulls[key][1]
        for key, pull in after.pulls.items()
    )
