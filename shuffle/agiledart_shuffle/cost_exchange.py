"""One node's part of the distributed planner: the costs to go that neighbours announce, and its own announcements.

    neighbour announces J → receive: a claim below the cost of its hops is raised to it, an absurd one counts as unreachable
    own links change      → J(v) = min over w of ω(v, w) + J received from w, computed on demand
    J moved by 10 %       → due: the neighbours that send through this node get the new J at once
    otherwise             → sent with each acknowledgement, and at a fixed interval of packets
    to the next hop       → the least cost by other neighbours: a packet from there has visited it, and does not go back

A claim only ever comes from the neighbour that it is about. A stale claim costs detours, never a loop of a packet: packets
carry the nodes that they visited.

Source: [AgileDART] §V; the project's shuffle specification §7.
"""

from collections.abc import Collection, Iterable, Mapping
from math import isfinite, isnan
from typing import NamedTuple

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_shuffle.divergence import COST_MAX
from agiledart_shuffle.graph import UNREACHABLE

MAX_DESTINATIONS = 64
"""Most destinations in one announcement: 64 of 16 bytes each are 1 kB."""

CHANGE = 0.1
"""Share by which a cost to go must move to be announced at once."""

Claims = tuple[tuple[int, float], ...]
"""Claims of one announcement: (destination, cost to go in slots)."""


class CostToGo(NamedTuple):
    """Cost to go of one node.

    Args:
        cost: the least one; next_hop: the neighbour that it leads by; None: no link leads on.
        without_hop: the least one by another neighbour.
    """

    cost: float = UNREACHABLE
    next_hop: int | None = None
    without_hop: float = UNREACHABLE

    def announced_to(self, neighbour: int | None) -> float:
        """Return the cost for packets from this neighbour, which do not go back to it."""
        return self.without_hop if neighbour == self.next_hop else self.cost


class CostExchange:
    """Table of the costs to go that one node knows.

    Args:
        bounds: out-neighbour → destination → least possible cost from there: its hops, since no link costs less than 1.
        cost_most: a claim above it counts as unreachable.

    Raises:
        RemoteProtocolError: from `receive`, for an announcement that no honest node sends.
    """

    def __init__(self, bounds: Mapping[int, Mapping[int, float]], cost_most: float = 256 * COST_MAX) -> None:
        self._bounds = {neighbour: dict(costs) for neighbour, costs in bounds.items()}
        self._received = {neighbour: dict(costs) for neighbour, costs in bounds.items()}
        self._announced: dict[int, CostToGo] = {}
        self._cost_most = cost_most
        self.destinations = tuple(dict.fromkeys(sink for costs in bounds.values() for sink in costs))

    def set_neighbours(self, neighbours: Collection[int]) -> None:
        """Exchange with these neighbours from now on. Nothing is known yet of the costs to go from a new one."""
        for gone in [neighbour for neighbour in self._bounds if neighbour not in neighbours]:
            del self._bounds[gone], self._received[gone]
        for neighbour in neighbours:
            if neighbour not in self._bounds:
                self._bounds[neighbour], self._received[neighbour] = {}, {}
                for destination in self.destinations:
                    self._begin(neighbour, destination)

    def set_destinations(self, destinations: Iterable[int]) -> None:
        """Exchange costs to these destinations from now on."""
        before, self.destinations = self.destinations, tuple(dict.fromkeys(destinations))
        for gone in set(before) - set(self.destinations):
            self._announced.pop(gone, None)
            for neighbour in self._bounds:
                self._bounds[neighbour].pop(gone, None)
                self._received[neighbour].pop(gone, None)
        for destination in self.destinations:
            for neighbour in self._bounds if destination not in before else ():
                self._begin(neighbour, destination)

    def _begin(self, neighbour: int, destination: int) -> None:
        self._bounds[neighbour][destination] = least = 0.0 if neighbour == destination else 1.0
        self._received[neighbour][destination] = 0.0 if least == 0.0 else UNREACHABLE

    def forget_claims(self, neighbour: int) -> None:
        """Forget what a neighbour announced: the link to it is lost."""
        for destination in self._bounds.get(neighbour, ()):
            self._begin(neighbour, destination)

    def receive(self, neighbour: int, claims: Iterable[tuple[int, float]]) -> None:
        """Store a neighbour's announcement, all of it or nothing; claims about other destinations are ignored."""
        taken = tuple(claims)
        received_cost = self._received.get(neighbour)
        if received_cost is None:
            raise RemoteProtocolError("announcement of costs to go from a node that is not a neighbour")
        if len(taken) > MAX_DESTINATIONS:
            raise RemoteProtocolError(f"announcement of costs to go to more than {MAX_DESTINATIONS} destinations")
        if any(isnan(cost) or cost < 0.0 for _, cost in taken):
            raise RemoteProtocolError("announcement of a cost to go that is negative or not a number")
        for destination, cost in taken:
            least = self._bounds[neighbour].get(destination)
            if least is not None:
                received_cost[destination] = UNREACHABLE if cost > self._cost_most else max(cost, least)

    def received_cost(self, neighbour: int, destination: int) -> float:
        """Return the cost from a neighbour to the destination that it announced last; `UNREACHABLE` if none is known."""
        return self._received[neighbour].get(destination, UNREACHABLE)

    def to_go(self, destination: int, links: Mapping[int, float]) -> CostToGo:
        """Return the cost to go for these costs of the own links."""
        best = CostToGo()
        for neighbour, cost in links.items():
            total = cost + self._received[neighbour].get(destination, UNREACHABLE)
            if total < best.cost:
                best = CostToGo(total, neighbour, best.cost)
            elif total < best.without_hop:
                best = best._replace(without_hop=total)
        return best

    def is_due(self, links: Mapping[int, float], change: float = CHANGE) -> bool:
        """Return whether a claim moved so far since it was announced that neighbours must get it at once."""
        for destination in self.destinations:
            before, now = self._announced.get(destination), self.to_go(destination, links)
            if before is None or has_moved(before.cost, now.cost, change):
                return True
            if any(
                has_moved(before.announced_to(hop), now.announced_to(hop), change)
                for hop in (before.next_hop, now.next_hop)
            ):
                return True
        return False

    def mark_announced(self, links: Mapping[int, float]) -> None:
        """Record that all neighbours have the present costs."""
        for destination in self.destinations:
            self._announced[destination] = self.to_go(destination, links)

    def announcement(self, to: int, links: Mapping[int, float]) -> Claims:
        """Return the claims to send to a neighbour: if there are too many destinations, those that moved most."""
        claims = [
            (destination, self.to_go(destination, links).announced_to(to))
            for destination in self.destinations
            if destination != to
        ]
        if len(claims) > MAX_DESTINATIONS:
            before = {destination: cost.announced_to(to) for destination, cost in self._announced.items()}
            claims.sort(key=lambda claim: _distance(before.get(claim[0]), claim[1]), reverse=True)
        return tuple(claims[:MAX_DESTINATIONS])


def has_moved(before: float | None, now: float, change: float = CHANGE) -> bool:
    """Return whether a cost to go moved by more than a share since it was announced."""
    if before is None or isfinite(before) != isfinite(now):
        return True
    return isfinite(now) and abs(now - before) > change * before


def _distance(before: float | None, now: float) -> float:
    if before is None or isfinite(before) != isfinite(now):
        return UNREACHABLE
    return abs(now - before) / max(before, 1.0) if isfinite(now) else 0.0
