"""One node's part of the distributed planner: what its neighbours say that it costs to go on from them, and what it says itself.

    neighbour says J →   heard: a claim below what its hops must cost counts as that, a wild one as unreachable
    own links change →   J(v) = min over w of ω(v, w) + J heard of w, when somebody asks
    J moved by 10 % →    due: the neighbours that send through here hear it at once
    otherwise →          told with each acknowledgement, and every so often
    to the next hop →    unreachable (poisoned reverse): its own way leads not through who depends on it

Claims only ever come from the neighbour that they are about. A stale one costs detours, never a loop of a packet: packets carry
the nodes that they visited.

Source: [AgileDART] §V; the project's shuffle specification §7.
"""

from collections.abc import Iterable, Mapping
from math import isfinite, isnan

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_shuffle.divergence import COST_MAX
from agiledart_shuffle.graph import UNREACHABLE

MAX_DESTINATIONS = 64
"""Destinations in one announcement: 64 of 16 bytes each are 1 kB."""

CHANGE = 0.1
"""Share by which a cost to go must move to be told at once."""

Claims = tuple[tuple[int, float], ...]
"""(destination, cost to go in slots) of one announcement."""


class CostExchange:
    """What one node knows of costs to go.

    Args:
        bounds: out-neighbour → destination → least that it can cost from there: its hops, since no link costs less than 1.
        cost_most: a claim above it is unreachable.

    Raises:
        RemoteProtocolError: from `hear`, for what no honest node sends.
    """

    def __init__(self, bounds: Mapping[int, Mapping[int, float]], cost_most: float = 256 * COST_MAX) -> None:
        self._bounds = bounds
        self._received = {neighbour: dict(costs) for neighbour, costs in bounds.items()}
        self._announced: dict[int, float] = {}
        self._cost_most = cost_most
        self.destinations = tuple(dict.fromkeys(each for costs in bounds.values() for each in costs))

    def receive(self, neighbour: int, claims: Iterable[tuple[int, float]]) -> None:
        """Take a neighbour's announcement, all of it or nothing; of destinations that nobody asked for it says nothing here."""
        taken = tuple(claims)
        received_cost = self._received.get(neighbour)
        if received_cost is None:
            raise RemoteProtocolError("costs to go of a node that is no neighbour")
        if len(taken) > MAX_DESTINATIONS:
            raise RemoteProtocolError(f"costs to go of more than {MAX_DESTINATIONS} destinations")
        if any(isnan(cost) or cost < 0.0 for _, cost in taken):
            raise RemoteProtocolError("a cost to go that is no number from 0 on")
        for destination, cost in taken:
            least = self._bounds[neighbour].get(destination)
            if least is not None:
                received_cost[destination] = UNREACHABLE if cost > self._cost_most else max(cost, least)

    def received_cost(self, neighbour: int, destination: int) -> float:
        """What it costs to go on from a neighbour, as far as is known."""
        return self._received[neighbour].get(destination, UNREACHABLE)

    def to_go(self, destination: int, links: Mapping[int, float]) -> tuple[float, int | None]:
        """(J, next hop) with these costs of the own links; (unreachable, None) where none leads on."""
        best, hop = UNREACHABLE, None
        for neighbour, cost in links.items():
            whole = cost + self._received[neighbour].get(destination, UNREACHABLE)
            if whole < best:
                best, hop = whole, neighbour
        return best, hop

    def is_due(self, links: Mapping[int, float], change: float = CHANGE) -> bool:
        """Has a cost to go moved so far from what was told that neighbours must hear it at once?"""
        return any(
            _moved(self._announced.get(destination), self.to_go(destination, links)[0], change)
            for destination in self.destinations
        )

    def mark_announced(self, links: Mapping[int, float]) -> None:
        """All neighbours have been told what holds now."""
        for destination in self.destinations:
            self._announced[destination] = self.to_go(destination, links)[0]

    def announcement(self, to: int, links: Mapping[int, float]) -> Claims:
        """What to tell a neighbour: of too many destinations those that moved most."""
        claims = [
            (destination, UNREACHABLE if hop == to else cost)
            for destination in self.destinations
            if destination != to
            for cost, hop in (self.to_go(destination, links),)
        ]
        if len(claims) > MAX_DESTINATIONS:
            claims.sort(key=lambda claim: _distance(self._announced.get(claim[0]), claim[1]), reverse=True)
        return tuple(claims[:MAX_DESTINATIONS])


def _moved(before: float | None, now: float, change: float) -> bool:
    if before is None or isfinite(before) != isfinite(now):
        return True
    return isfinite(now) and abs(now - before) > change * before


def _distance(before: float | None, now: float) -> float:
    if before is None or isfinite(before) != isfinite(now):
        return UNREACHABLE
    return abs(now - before) / max(before, 1.0) if isfinite(now) else 0.0
