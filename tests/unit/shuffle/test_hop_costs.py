"""ω, J and the next hop of agents that probe their links; a clock and a network made of numbers."""

import heapq
from collections.abc import Callable

import pytest

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_shuffle.graph import UNREACHABLE
from agiledart_shuffle.hop_costs import (
    INSPECT_NS,
    LEASE_NS,
    MAX_NEIGHBOURS,
    HopCosts,
    NotifyNeighbour,
    ProbeNeighbour,
)
from agiledart_shuffle.policies.kl import KlIndex
from agiledart_shuffle.proposals import MAX_RELAYS

MS, S = MILLISECOND, SECOND
ONE, TWO, THREE, FOUR, FIVE, SIX = (NodeId(number) for number in range(1, 7))


class Agents:
    """Agents joined by links; `rtt` holds the round trip of each link now, in nanoseconds; 0: it is cut."""

    def __init__(self, *links: tuple[NodeId, NodeId], rtt_ns: int = 8 * MS) -> None:
        self.rtt = {frozenset(link): rtt_ns for link in links}
        self.now = self._order = self.bytes = 0
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        nodes = dict.fromkeys(node for link in links for node in link)
        self.of = {node: HopCosts(node, KlIndex(0.05), 8 * S, 0) for node in nodes}
        for node in nodes:
            self._at(INSPECT_NS, lambda node=node: self._inspect(node))

    def _at(self, at: int, act: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._due, (at, self._order, act))

    def _inspect(self, node: NodeId) -> None:
        costs = self.of[node]
        costs.set_neighbours([other for link in self.rtt if node in link for other in link if other != node], self.now)
        self._carry_out(node, costs.inspect(self.now))
        self._at(self.now + INSPECT_NS, lambda: self._inspect(node))

    def _carry_out(self, node: NodeId, effects: list[ProbeNeighbour | NotifyNeighbour]) -> None:
        for effect in effects:
            other, rtt = effect.neighbour, self.rtt[frozenset((node, effect.neighbour))]
            if isinstance(effect, NotifyNeighbour):
                claims = effect.claims
                if rtt:
                    self._at(
                        self.now + rtt // 2,
                        lambda o=other, c=claims: self._carry_out(o, self.of[o].received(node, c, self.now)),
                    )
                continue
            self.of[node].probe_sent(other, self.now)
            if rtt:
                self._at(self.now + rtt // 2, lambda e=effect, rtt=rtt: self._reach(node, e, rtt))
            else:
                self._at(self.now + 3 * S, lambda o=other: self._carry_out(node, self.of[node].lost(o, self.now)))

    def _reach(self, node: NodeId, probe: ProbeNeighbour, rtt: int) -> None:
        other = probe.neighbour
        claims = self.of[other].asked(node, probe.wanted, self.now)
        self._at(self.now + rtt // 2, lambda: self._carry_out(node, self.of[node].answered(other, claims, self.now)))

    def run(self, seconds: float, *, uses: tuple[NodeId, NodeId] | None = (ONE, SIX)) -> "Agents":
        """Let time pass; one agent uses a destination every second."""
        end = self.now + int(seconds * S)
        next_use = self.now
        while self._due and self._due[0][0] <= end:
            at, _, act = heapq.heappop(self._due)
            while uses is not None and next_use <= at:
                self.of[uses[0]].use(uses[1], next_use)
                next_use += S
            self.now = at
            act()
        self.now = end
        return self

    def next_hop(self, node: NodeId, target: NodeId = SIX) -> NodeId | None:
        best = self.of[node].choices(target)
        return best[0].neighbour if best and best[0].reason == "chosen" else None


def chains(**more: int) -> Agents:
    """Two chains of relays from 1 to 6: by 2 and 3, and by 4 and 5."""
    return Agents((ONE, TWO), (TWO, THREE), (THREE, SIX), (ONE, FOUR), (FOUR, FIVE), (FIVE, SIX), **more)


def test_the_cost_to_go_is_the_sum_of_the_links_behind() -> None:
    agents = chains(rtt_ns=20 * MS).run(30)
    assert 3 * 1.5 < agents.of[ONE].to_go(SIX) <= 3 * 4
    assert agents.of[TWO].to_go(SIX) < agents.of[ONE].to_go(SIX)
    hops = {hop.neighbour: hop for hop in agents.of[ONE].choices(SIX)}
    assert set(hops) == {TWO, FOUR}
    assert all(hop.attempts > 4 and 1 < hop.omega <= 4 for hop in hops.values())


def test_a_link_two_hops_away_that_slows_down_changes_the_next_hop_within_five_seconds() -> None:
    agents = chains().run(30)
    for link in ((THREE, SIX), (FIVE, SIX)):
        agents.rtt[frozenset(link)] = 80 * MS
        agents.run(5)
        slow = TWO if link[0] == THREE else FOUR
        if link[0] == THREE:
            assert agents.next_hop(ONE) == FOUR
            agents.rtt[frozenset(link)] = 8 * MS
            agents.run(40)
        else:
            assert agents.next_hop(ONE) != slow


def test_a_cut_link_two_hops_away_is_unreachable_and_comes_back() -> None:
    agents = chains().run(30)
    agents.rtt[frozenset((THREE, SIX))] = 0
    agents.run(6)
    assert agents.next_hop(ONE) == FOUR
    assert {hop.neighbour: hop.reason for hop in agents.of[THREE].choices(SIX)}[SIX] == "no link"
    agents.rtt[frozenset((THREE, SIX))] = 8 * MS
    agents.run(20)
    assert agents.next_hop(THREE) == SIX


def test_a_node_is_no_next_hop_for_one_that_depends_on_it() -> None:
    agents = Agents((ONE, TWO), (TWO, SIX)).run(20)
    assert agents.next_hop(TWO) == SIX
    agents.rtt[frozenset((TWO, SIX))] = 0
    agents.run(10)
    assert agents.next_hop(ONE) is None, "its only claim was the other's"
    assert agents.of[TWO].to_go(SIX) == UNREACHABLE


def test_nothing_is_probed_without_a_destination_and_every_lease_ends() -> None:
    agents = chains().run(10, uses=None)
    assert not any(costs.probes for costs in agents.of.values())
    agents.run(10)
    assert all(costs.probes for node, costs in agents.of.items() if node != SIX)
    agents.run((MAX_RELAYS + 1) * LEASE_NS / S + 1, uses=None)
    assert not any(costs.destinations for costs in agents.of.values())
    probes = [costs.probes for costs in agents.of.values()]
    agents.run(10, uses=None)
    assert [costs.probes for costs in agents.of.values()] == probes


def test_calm_links_cost_a_probe_every_four_seconds_and_no_notice() -> None:
    agents = chains().run(60)
    probes, notices = agents.of[TWO].probes, agents.of[TWO].notices
    agents.run(40)
    assert agents.of[TWO].probes - probes <= 2 * 11
    assert agents.of[TWO].notices == notices


def test_only_a_visited_or_forbidden_hop_is_left_out() -> None:
    agents = chains().run(20)
    costs = agents.of[ONE]
    assert {hop.neighbour: hop.reason for hop in costs.choices(SIX, (TWO,))} == {TWO: "visited", FOUR: "chosen"}
    assert {hop.reason for hop in costs.choices(SIX, (), lambda _: False)} == {"not allowed"}
    assert costs.promise(SIX, lambda _: False) == UNREACHABLE
    assert costs.promise(SIX) == pytest.approx(costs.to_go(SIX))


def test_an_absurd_claim_is_refused_and_an_unasked_one_has_no_effect() -> None:
    agents = chains().run(20)
    costs = agents.of[ONE]
    before = costs.to_go(SIX)
    with pytest.raises(RemoteProtocolError):
        costs.received(TWO, ((SIX, -1.0),), agents.now)
    costs.received(THREE, ((SIX, 1.0),), agents.now)
    costs.received(TWO, ((FIVE, 1.0),), agents.now)
    assert costs.to_go(SIX) == before
    costs.received(TWO, ((SIX, 0.0),), agents.now)
    assert costs.received_cost(TWO, SIX) == 1.0, "no link costs less than a slot"


def test_the_number_of_neighbours_is_bounded() -> None:
    costs = HopCosts(ONE, KlIndex(0.05), 8 * S, 0)
    costs.set_neighbours([NodeId(number) for number in range(2, 100)], 0)
    costs.use(SIX, 0)
    assert len([effect for effect in costs.inspect(0) if isinstance(effect, ProbeNeighbour)]) == MAX_NEIGHBOURS


def test_a_delay_of_the_own_process_is_no_delay_of_its_links() -> None:
    costs = HopCosts(ONE, KlIndex(0.05), 8 * S, 0)
    costs.set_neighbours([SIX], 0)
    costs.use(SIX, 0)
    costs.inspect(0)
    costs.probe_sent(SIX, 0)
    costs.inspect(10 * S)
    costs.answered(SIX, (), 10 * S + MS)
    omega = costs.omega(SIX)
    assert omega is not None
    assert omega < 2.2 * INSPECT_NS / (5 * MS), "not the 2,000 slots of 10 seconds"
