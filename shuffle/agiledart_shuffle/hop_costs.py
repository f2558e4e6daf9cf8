"""Algorithm 1 as one agent runs it: ω, attempts and J for each neighbour and destination, from probes between agents. No I/O.

    a destination is in use    → its J is asked of the neighbours, with every probe until the use ends
    a probe is out             → each slot of 5 ms that passes is an attempt on the link, its answer is the success
    an answer, or a notice     → J as the neighbour has it (`CostExchange`: poisoned reverse, no claim below its bound)
    own J moved by 10 %        → the neighbours that asked get it at once; otherwise with their next probe
    a link is lost             → ω is unreachable until a new link answers

No destination in use: no probe is sent. A neighbour that is asked about a destination asks its own neighbours, up to the number of
relays that a circuit may have. Source: [AgileDART] §V, Algorithm 1; the project's shuffle specification §7.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_shuffle.cost_exchange import MAX_DESTINATIONS, Claims, CostExchange, has_moved
from agiledart_shuffle.estimates import EstimateMemory, Estimates
from agiledart_shuffle.graph import UNREACHABLE
from agiledart_shuffle.policy import LinkIndex
from agiledart_shuffle.proposals import COST_MOST, MAX_RELAYS, SLOT_NS

MAX_NEIGHBOURS: Final = 16
"""Most neighbours whose links are measured: the nearest ones."""

INSPECT_NS: Final = 250 * MILLISECOND
CALM_NS: Final = 4 * SECOND
"""Time between two probes of a link."""

BUSY_NS: Final = SECOND
"""The same while costs move."""

RESTLESS_NS: Final = 10 * SECOND
"""Time after a cost moved for which probes are sent more often."""

LEASE_NS: Final = 30 * SECOND
"""Time for which a destination stays in use after it was asked for."""

MAX_ASKERS: Final = 64
"""Most nodes that get the costs to go of this one; beyond it the one that asked first is dropped."""

RENEW_NS: Final = 10 * SECOND
RETRY_NS: Final = 5 * SECOND
"""Time after which a lost link is dialled again."""


class WantedCost(NamedTuple):
    """Request for J to a destination; `relays`: number of further relays that the path may have."""

    destination: NodeId
    relays: int


class ProbeNeighbour(NamedTuple):
    """Effect: open the link to a neighbour if there is none, call `probe_sent`, and send a probe with these requests."""

    neighbour: NodeId
    wanted: tuple[WantedCost, ...]


class NotifyNeighbour(NamedTuple):
    """Effect: send claims to a neighbour at once, without a probe of it."""

    neighbour: NodeId
    claims: Claims


class HopChoice(NamedTuple):
    """A neighbour as the next hop to a destination.

    Args:
        omega: cost of the link in slots; `attempts`: slots on record, as they count now; `to_go`: J that it announced.
        reason: `chosen`, or why it is not: `dearer`, `visited`, `not allowed`, `no path` or `no link`.
    """

    neighbour: NodeId
    omega: float
    attempts: float
    to_go: float
    reason: str

    @property
    def total(self) -> float:
        """ω + J."""
        return self.omega + self.to_go


@dataclass(slots=True)
class _Neighbour:
    place: int
    is_down: bool = False
    is_opening: bool = False
    probed: int | None = None
    counted: int = 0
    next_probe: int = 0
    requested: dict[NodeId, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Asker:
    announced: dict[NodeId, float] = field(default_factory=dict)
    leases: dict[NodeId, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Use:
    """Ends of a destination's leases, by the number of relays that a path from here may have.

    A lease for n relays asks neighbours for leases for n - 1. So two neighbours do not keep each other's leases alive.
    """

    ends: list[int] = field(default_factory=lambda: [0] * (MAX_RELAYS + 1))

    def relays(self, now: int) -> int:
        """Return the most relays of a lease that has not ended; -1: all have ended."""
        return max((relays for relays, end in enumerate(self.ends) if end > now), default=-1)


class HopCosts:
    """Costs of the next hops of one agent.

    Args:
        me: the agent.
        index: ω of a link from its counts.
        halving_ns: time in which half of the evidence about a link is forgotten.
        now: the present instant.
    """

    def __init__(self, me: NodeId, index: LinkIndex, halving_ns: int, now: int) -> None:
        self._me, self._index, self._began = me, index, now
        self._estimates = Estimates(
            MAX_NEIGHBOURS, EstimateMemory(keep=0.5 ** (SLOT_NS / halving_ns), forgets_used=True)
        )
        self._costs = [1.0] * MAX_NEIGHBOURS
        self._neighbours: dict[NodeId, _Neighbour] = {}
        self._askers: dict[NodeId, _Asker] = {}
        self._uses: dict[NodeId, _Use] = {}
        self._exchange = CostExchange({}, COST_MOST)
        self._slot = 0
        self._restless_until = self._inspected = now
        self.probes = self.notices = 0

    # ---- what is known

    @property
    def destinations(self) -> tuple[NodeId, ...]:
        """Destinations in use."""
        return tuple(self._uses)

    def omega(self, neighbour: NodeId) -> float | None:
        """Return ω of the link to a neighbour; `UNREACHABLE` while it is lost, None before its first answer."""
        known = self._neighbours.get(neighbour)
        if known is None or (not known.is_down and self._estimates.attempts[known.place] <= 0.0):
            return None
        return UNREACHABLE if known.is_down else max(self._costs[known.place], 1.0)

    def received_cost(self, neighbour: NodeId, destination: NodeId) -> float | None:
        """Return J of a neighbour to a destination; None: it is not known."""
        if neighbour not in self._neighbours or destination not in self._uses:
            return None
        cost = self._exchange.received_cost(neighbour, destination)
        return None if cost == UNREACHABLE and destination not in self._neighbours[neighbour].requested else cost

    def to_go(self, destination: NodeId) -> float:
        """Return J of this agent to a destination."""
        return self._exchange.to_go(destination, self._links()).cost

    def choices(
        self,
        destination: NodeId,
        visited: Collection[NodeId] = (),
        is_allowed: Callable[[NodeId], bool] = lambda _: True,
    ) -> list[HopChoice]:
        """Return all neighbours as next hops, the cheapest by ω + J first; the first of them that is allowed is `chosen`.

        Args:
            visited: nodes that the request has passed.
            is_allowed: is this neighbour allowed as a relay?
        """
        choices = []
        for node, known in self._neighbours.items():
            omega = self.omega(node)
            to_go = self._exchange.received_cost(node, destination) if destination in self._uses else UNREACHABLE
            attempts = self._estimates.counts(known.place)[1]
            if node in visited:
                reason = "visited"
            elif not is_allowed(node):
                reason = "not allowed"
            elif omega is None or omega == UNREACHABLE:
                reason = "no link"
            else:
                reason = "no path" if to_go == UNREACHABLE else "dearer"
            choices.append(HopChoice(node, UNREACHABLE if omega is None else omega, attempts, to_go, reason))
        choices.sort(key=lambda choice: (choice.reason != "dearer", choice.total, choice.neighbour))
        if choices and choices[0].reason == "dearer":
            choices[0] = choices[0]._replace(reason="chosen")
        return choices

    def promise(self, destination: NodeId, is_allowed: Callable[[NodeId], bool] = lambda _: True) -> float:
        """Return the least ω + J through a relay; `UNREACHABLE` where no neighbour promises a path."""
        best = self.choices(destination, (destination,), is_allowed)
        return best[0].total if best and best[0].reason == "chosen" else UNREACHABLE

    def _links(self) -> dict[int, float]:
        return {node: omega for node in self._neighbours if (omega := self.omega(node)) is not None}

    # ---- events

    def set_neighbours(self, nodes: Iterable[NodeId], now: int) -> None:
        """Measure the links to these nodes, the nearest first; only `MAX_NEIGHBOURS` of them count."""
        wanted = dict.fromkeys(node for node in nodes if node != self._me)
        for gone in [node for node in self._neighbours if node not in wanted]:
            del self._neighbours[gone]
        free = [place for place in range(MAX_NEIGHBOURS) if place not in {n.place for n in self._neighbours.values()}]
        for node in wanted:
            if node not in self._neighbours and free:
                place = free.pop(0)
                self._estimates.begin_anew(place)
                self._neighbours[node] = _Neighbour(place, next_probe=now)
        self._exchange.set_neighbours(self._neighbours)

    def use(self, destination: NodeId, now: int, relays: int = MAX_RELAYS) -> None:
        """Keep J to a destination for some time; `relays`: number of relays that a path from here may have."""
        if destination == self._me:
            return
        if destination not in self._uses:
            if len(self._uses) >= MAX_DESTINATIONS:
                return
            self._uses[destination] = _Use()
            self._exchange.set_destinations(self._uses)
        use = self._uses[destination]
        if relays > use.relays(now):
            self._restless(now)
            for known in self._neighbours.values():
                known.requested.pop(destination, None)
        use.ends[relays] = now + LEASE_NS

    def inspect(self, now: int) -> list[ProbeNeighbour | NotifyNeighbour]:
        """Count the slots that have passed, and return the probes and notices that are due. Called every `INSPECT_NS`."""
        late = now - self._inspected - 2 * INSPECT_NS
        self._inspected = now
        for destination in [destination for destination, use in self._uses.items() if use.relays(now) < 0]:
            del self._uses[destination]
            self._exchange.set_destinations(self._uses)
        for known in self._neighbours.values():
            if known.probed is not None:
                known.probed += max(0, late)  # this process was delayed itself: no link is slower for it
                self._count(known, now)
        self._age(now)
        effects: list[ProbeNeighbour | NotifyNeighbour] = []
        for node, known in self._neighbours.items():
            if known.probed is None and not known.is_opening and now >= known.next_probe and self._is_needed(node, now):
                known.is_opening = True
                self.probes += 1
                effects.append(ProbeNeighbour(node, self._wanted(node, known, now)))
        return [*effects, *self._notices(now)]

    def probe_sent(self, neighbour: NodeId, now: int) -> None:
        """Note that the link to a neighbour is open and the probe goes out now."""
        if (known := self._neighbours.get(neighbour)) is not None:
            known.is_opening, known.probed, known.counted = False, now, 0

    def answered(self, neighbour: NodeId, claims: Claims, now: int) -> list[ProbeNeighbour | NotifyNeighbour]:
        """Note the answer to a probe, with the claims in it. Raises RemoteProtocolError."""
        known = self._neighbours.get(neighbour)
        if known is None or known.probed is None:
            return []
        slots = max(1, ceil((now - known.probed) / SLOT_NS))
        self._age(now)
        self._estimates.record(known.place, max(0, slots - known.counted), arrived=True)
        self._refresh(known)
        known.probed, known.is_down = None, False
        known.next_probe = now + (BUSY_NS if now < self._restless_until else CALM_NS)
        return self.received(neighbour, claims, now)

    def received(self, neighbour: NodeId, claims: Claims, now: int) -> list[ProbeNeighbour | NotifyNeighbour]:
        """Note claims of a neighbour. Raises RemoteProtocolError."""
        if neighbour not in self._neighbours:
            return []
        self._exchange.receive(neighbour, claims)
        return self._notices(now)

    def lost(self, neighbour: NodeId, now: int) -> list[ProbeNeighbour | NotifyNeighbour]:
        """Note that the link to a neighbour is lost, or could not be opened."""
        known = self._neighbours.get(neighbour)
        if known is None:
            return []
        self._estimates.begin_anew(known.place)
        self._neighbours[neighbour] = _Neighbour(known.place, is_down=True, next_probe=now + RETRY_NS)
        self._costs[known.place] = 1.0
        self._exchange.forget_claims(neighbour)
        return self._notices(now)

    def asked(self, neighbour: NodeId, wanted: Iterable[WantedCost], now: int) -> Claims:
        """Return the claims that answer a neighbour's probe: those that it asks for, and those that moved since."""
        asker = self._askers.setdefault(neighbour, _Asker())
        if len(self._askers) > MAX_ASKERS:
            del self._askers[next(iter(self._askers))]
        fresh = []
        for destination, relays in wanted:
            if destination in (self._me, neighbour):
                continue
            self.use(destination, now, min(relays, MAX_RELAYS - 1))
            if destination in self._uses:
                fresh.append(destination)
                asker.leases[destination] = now + LEASE_NS
        return self._claims(neighbour, asker, now, fresh)

    # ---- parts

    def _count(self, known: _Neighbour, now: int) -> None:
        assert known.probed is not None
        passed = max(0, now - known.probed) // SLOT_NS - known.counted
        if passed > 0:
            known.counted += passed
            self._estimates.record(known.place, passed, arrived=False)
            self._refresh(known)

    def _is_needed(self, node: NodeId, now: int) -> bool:
        """Return whether a path to a destination in use may begin with the link to this neighbour."""
        return node in self._uses or any(use.relays(now) > 0 for use in self._uses.values())

    def _age(self, now: int) -> None:
        slot = (now - self._began) // SLOT_NS
        if slot > self._slot:
            self._estimates.end_packet(slot - self._slot)
            self._slot = slot

    def _refresh(self, known: _Neighbour) -> None:
        """Compute ω of one link from its record."""
        self._index.survey(self._estimates)
        self._index.refresh(self._costs, (known.place,), self._estimates, self._slot + 1)

    def _restless(self, now: int) -> None:
        self._restless_until = now + RESTLESS_NS
        for known in self._neighbours.values():
            known.next_probe = min(known.next_probe, now + BUSY_NS)

    def _wanted(self, node: NodeId, known: _Neighbour, now: int) -> tuple[WantedCost, ...]:
        """Return the destinations to ask a neighbour for: those not asked lately, where its path may have a relay."""
        wanted = []
        for destination, use in self._uses.items():
            relays = use.relays(now)
            is_due = now - known.requested.get(destination, now - RENEW_NS) >= RENEW_NS
            if destination != node and relays > 0 and is_due:
                known.requested[destination] = now
                wanted.append(WantedCost(destination, relays - 1))
        return tuple(wanted)

    def _notices(self, now: int) -> list[ProbeNeighbour | NotifyNeighbour]:
        effects: list[ProbeNeighbour | NotifyNeighbour] = []
        for node, asker in self._askers.items():
            if asker.leases and (claims := self._claims(node, asker, now)):
                self.notices += 1
                effects.append(NotifyNeighbour(node, claims))
        return effects

    def _claims(self, node: NodeId, asker: _Asker, now: int, fresh: Collection[NodeId] = ()) -> Claims:
        """Return the claims for a neighbour that moved since it last got them, and the fresh ones."""
        for destination in [destination for destination, until in asker.leases.items() if until <= now]:
            del asker.leases[destination]
            asker.announced.pop(destination, None)
        claims = []
        for number, cost in self._exchange.announcement(node, self._links()):
            target = NodeId(number)
            if target not in asker.leases:
                continue
            moved = _moved_by_a_slot(asker.announced.get(target), cost)
            if moved:
                self._restless(now)
            if target in fresh or moved:
                asker.announced[target] = cost
                claims.append((target, cost))
        return tuple(claims)


def _moved_by_a_slot(before: float | None, cost: float) -> bool:
    """Return whether a cost moved by 10 % and by a slot: less is the length of a slot, no change of a link."""
    return has_moved(before, cost) and (before is None or abs(min(cost, COST_MOST) - min(before, COST_MOST)) >= 1.0)
