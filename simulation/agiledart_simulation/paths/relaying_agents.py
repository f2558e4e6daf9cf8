"""Agents that measure their links, exchange costs to go, and relay circuits hop by hop, as the planner has it.

A request is the packet of Algorithm 1. A relay without a link to the target passes it on to the neighbour with the least
expected cost of the rest, among those not visited yet. Tickets, ranking and exchange are the machines that agents run; sockets
are not.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from agiledart_kernel.errors import Refused
from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.cost_exchange import Claims, CostExchange
from agiledart_shuffle.graph import LinkGraph
from agiledart_shuffle.proposals import COST_MOST, Proposals, may_relay
from agiledart_simulation.paths.spliced_circuit import At
from agiledart_simulation.paths.wires import Wires
from agiledart_transport.circuit_tickets import Booking, CircuitTickets

ANNOUNCE_INTERVAL_NS: Final = SECOND
ASK_NS: Final = SECOND
"""Timeout for one answer of a neighbour."""


class RelayBooking(NamedTuple):
    """Booking of one relay for an asking node."""

    relay: int
    asker: int
    ticket: bytes


RELAYS_TRIED: Final = 2
"""Neighbours that a relay asks one after the other, when the first finds no path."""

Answer = Callable[[tuple[int, ...], tuple[RelayBooking, ...]], None]
"""Callback that receives the relays of the circuit and its target, and all tickets; both empty when no neighbour finds a path.
"""


class RelayingAgent:
    """Agent of one node.

    Attributes:
        neighbours: nodes that it knows; `links`: round trip to each of them that answers now.
        announces_low: whether it claims that paths from it are as short as possible.
    """

    def __init__(
        self, number: int, peers: list[Peer], bounds: dict[int, dict[int, float]], random: RandomStream
    ) -> None:
        self.number, self.peers = number, peers
        self.links: dict[int, int] = {}
        self.announces_low = False
        self.neighbours = tuple(bounds)
        self.exchange = CostExchange(bounds)
        self.tickets = CircuitTickets()
        self._numbers = {peer.node: at for at, peer in enumerate(peers)}
        self.proposals = Proposals(lambda node: self.links.get(self._numbers[node]), random)

    @property
    def costs(self) -> dict[int, float]:
        """Return the costs of its own links, in slots."""
        return {other: float(self.proposals.cost_to(self.peers[other].node)) for other in self.links}

    def announcement(self, to: int) -> Claims:
        """Return the announcement for a neighbour."""
        claims = self.exchange.announcement(to, self.costs)
        return tuple((destination, 1.0) for destination, _ in claims) if self.announces_low else claims

    def ranked(self, target: int, visited: tuple[NodeId, ...], now: int) -> list[int]:
        """Return neighbours that may be next on a path to a target, the most promising first, the target included."""
        candidates = []
        for other in self.links:
            cost = 0.0 if other == target else self.exchange.received_cost(other, target)
            if cost <= COST_MOST:
                self.proposals.claimed(self.peers[other].node, self.peers[target].node, int(cost))
                candidates.append(self.peers[other])
        return [
            self._numbers[peer.node]
            for peer in self.proposals.ranked(candidates, self.peers[target].node, now, visited)
        ]


class RelayingAgents:
    """All agents.

    Args:
        clock, at: the time, and a function that schedules an action at an instant.
        complain: receives violations.

    Attributes:
        circles: requests that were refused because they had visited the relay before; `reused`: tickets that came twice.
    """

    def __init__(
        self,
        wires: Wires,
        count: int,
        random: RandomStream,
        clock: Callable[[], int],
        at: At,
        complain: Callable[[str], None],
    ) -> None:
        self.wires, self.random, self._clock, self._at, self._complain = wires, random, clock, at, complain
        self.peers = [Peer(NodeId(random.bits(128)), 1, f"a{number}") for number in range(count)]
        graph = LinkGraph(count, wires.delays_ns)
        hops = {target: graph.hops_to_go(target) for target in range(count)}
        self.all = [
            RelayingAgent(
                number,
                self.peers,
                {
                    other: {target: hops[target][other] for target in range(count) if target != number}
                    for source, other in wires.delays_ns
                    if source == number
                },
                RandomStream(random.bits(64), "agent", number),
            )
            for number in range(count)
        ]
        self._times_redeemed: dict[bytes, int] = {}
        self.redeemed: dict[RelayBooking, Booking] = {}
        self.circles = self.reused = self.messages = 0

    # ---- measuring and announcing

    def begin(self) -> None:
        """Start the periodic announcements."""
        for number in range(len(self.all)):
            self._at(
                self._clock() + int(ANNOUNCE_INTERVAL_NS * self.random.uniform()), partial(self._on_interval, number)
            )

    def _on_interval(self, number: int) -> None:
        now = self._clock()
        self._at(now + ANNOUNCE_INTERVAL_NS, lambda: self._on_interval(number))
        if self.wires.dies(number, now) <= now or self.wires.awake(number, now) > now:
            return
        for other in self.all[number].neighbours:
            back = self.wires.round_trip(number, other, now)
            if back <= now + ASK_NS:
                self._at(back, partial(self._answered, number, other, back - now))
            else:
                self._at(now + ASK_NS, partial(self._silent, number, other))
        self._announce(number)

    def _answered(self, number: int, other: int, took: int) -> None:
        links = self.all[number].links
        links[other] = took if other not in links else (3 * links[other] + took) // 4
        self._announce_if_due(number)

    def _silent(self, number: int, other: int) -> None:
        self.all[number].links.pop(other, None)
        self._announce_if_due(number)

    def _announce_if_due(self, number: int) -> None:
        agent = self.all[number]
        if agent.exchange.is_due(agent.costs):
            self._announce(number)

    def _announce(self, number: int) -> None:
        """Announce to neighbours the costs to go from this agent, unless the message is lost."""
        agent, now = self.all[number], self._clock()
        agent.exchange.mark_announced(agent.costs)
        if self.wires.is_so("untold", now, number):
            return
        for other in agent.neighbours:
            when = self.wires.passes(number, other, now)
            if when <= now + ASK_NS:
                self.messages += 1
                claims = agent.announcement(other)
                self._at(when, partial(self._receive_announcement, other, number, claims))

    def _receive_announcement(self, number: int, other: int, claims: Claims) -> None:
        self.all[number].exchange.receive(other, claims)
        self._announce_if_due(number)

    # ---- circuits

    def ask(self, asker: int, relay: int, target: int, visited: tuple[int, ...], answer: Answer) -> None:
        """Ask a neighbour for a circuit to a target; `visited`: the asking node and the relays before."""
        now, wires = self._clock(), self.wires
        there = wires.awake(relay, wires.passes(asker, relay, now))
        is_open = [True]

        def end(path: tuple[int, ...], holds: tuple[RelayBooking, ...]) -> None:
            back = wires.passes(relay, asker, self._clock())
            if back <= now + 3 * ASK_NS:
                self._at(back, lambda: give(path, holds))

        def give(path: tuple[int, ...], holds: tuple[RelayBooking, ...]) -> None:
            if is_open:
                is_open.clear()
                answer(path, holds)

        self.messages += 1
        self._at(now + 3 * ASK_NS, lambda: give((), ()))
        if there <= now + ASK_NS and wires.dies(relay, there) > there:
            self._at(there, lambda: self._relay(asker, relay, target, visited, end))

    def _relay(self, asker: int, relay: int, target: int, visited: tuple[int, ...], end: Answer) -> None:
        agent, now = self.all[relay], self._clock()
        nodes = tuple(self.peers[number].node for number in visited)
        if not may_relay(self.peers[relay].node, nodes):
            self.circles += 1
            end((), ())
            return
        if relay in visited:
            self._complain(f"P3: {relay} relays a circuit that has visited it: {visited}")
            end((), ())
            return

        def book(onward: tuple[int, ...], holds: tuple[RelayBooking, ...]) -> None:
            ticket = self.random.bits(128).to_bytes(16, "big")
            booking = Booking(self.peers[asker].node.to_bytes(16, "big"), f"h{onward[0]}" if onward else "", 1)
            try:
                agent.tickets.book(ticket, booking, self._clock())
            except Refused:
                onward = ()
            end((relay, *onward) if onward else (), (RelayBooking(relay, asker, ticket), *holds))

        if target in agent.links:  # measured, unlike the claims of others
            book((target,), ())
            return
        ranked = agent.ranked(target, (*nodes, self.peers[relay].node), now)[:RELAYS_TRIED]

        def backtrack(onward: tuple[int, ...], holds: tuple[RelayBooking, ...]) -> None:
            if onward or not ranked:
                book(onward, holds)
            else:
                self.ask(relay, ranked.pop(0), target, (*visited, relay), backtrack)

        backtrack((), ())

    def redeem(self, hold: RelayBooking) -> Booking | None:
        """Redeem the ticket at the start of a connection to a relay; None: it is refused."""
        try:
            booking = self.all[hold.relay].tickets.redeem(hold.ticket, self._clock())
        except Refused:
            self.reused += hold.ticket in self._times_redeemed
            return None
        self.redeemed[hold] = booking
        self._times_redeemed[hold.ticket] = self._times_redeemed.get(hold.ticket, 0) + 1
        if self._times_redeemed[hold.ticket] > 1:
            self._complain("P4: a ticket was used for two circuits")
        return booking

    def ended(self, hold: RelayBooking) -> None:
        """Note that the circuit of a ticket has ended."""
        self.all[hold.relay].tickets.ended(self.redeemed[hold])
