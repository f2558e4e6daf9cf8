"""Choice of relays to ask for a circuit: those through which the target should be nearest, by all claims and measures. No I/O.

A relay's claim about its own path to the target only proposes: an opened circuit is then measured between its two ends. A
relay that claimed less than half of the measured delay is trusted less for a while. Source: the shuffle spec, section 12.
"""

from collections.abc import Callable, Iterable
from math import ceil
from typing import Final

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.cheapest import cheapest_link
from agiledart_shuffle.graph import UNREACHABLE, LinkGraph
from agiledart_shuffle.policy import Journey

SLOT_NS: Final = 5 * MILLISECOND
COST_MOST: Final = 1_000_000
"""Most slots that a relay may claim: above an hour."""

UNKNOWN: Final = 20
"""Slots assumed for a path that no node has measured."""

DOUBTED_NS: Final = 600 * SECOND
"""Time for which a relay's claims count double after each claim that was too low, up to 64 times."""

MAX_RELAYS: Final = 3
"""Most relays of one circuit."""

MAX_CLAIMS: Final = 512
"""Most (relay, target) pairs whose claims are stored; beyond it the oldest are dropped."""


def may_relay(me: NodeId, visited: tuple[NodeId, ...]) -> bool:
    """Return whether this relay may be asked after the asker and these relays: no node twice, and not too many."""
    return me not in visited and len(set(visited)) == len(visited) and len(visited) <= MAX_RELAYS


class Proposals:
    """Claims of relays about their paths.

    Args:
        rtt_ns: round-trip time to a peer in nanoseconds, as measured; None: not measured.
        random: decides between equal costs.
        omega: ω of the link to a neighbour, where its probes are counted; None: they are not.
        received_cost: J of a (neighbour, target) that the neighbour announced; None: none.
    """

    def __init__(
        self,
        rtt_ns: Callable[[NodeId], int | None],
        random: RandomStream,
        omega: Callable[[NodeId], float | None] = lambda _: None,
        received_cost: Callable[[NodeId, NodeId], float | None] = lambda _relay, _target: None,
    ) -> None:
        self._rtt_ns, self._random, self._omega, self._received_cost = rtt_ns, random, omega, received_cost
        self._claims: dict[tuple[NodeId, NodeId], int] = {}
        self._doubts: dict[str, tuple[int, int]] = {}  # by name: factor of its claims, until which instant

    def cost_to(self, node: NodeId) -> int:
        """Return the cost of the own link to a node, in slots: ω where it is known, else by the round trip."""
        return ceil(self._own_cost(node))

    def _own_cost(self, node: NodeId) -> float:
        if (omega := self._omega(node)) is not None:
            return min(float(COST_MOST), omega)
        rtt_ns = self._rtt_ns(node)
        return float(UNKNOWN if rtt_ns is None else min(COST_MOST, 1 + rtt_ns // SLOT_NS))

    def claimed(self, relay: NodeId, target: NodeId, cost: int) -> None:
        """Store a relay's claim about the cost of its own path to the target."""
        self._claims.pop((relay, target), None)
        self._claims[relay, target] = cost
        if len(self._claims) > MAX_CLAIMS:
            del self._claims[next(iter(self._claims))]

    def doubt(self, names: Iterable[str], now: int) -> None:
        """Trust these relays less: a path through them took more than twice what they claim."""
        for name in names:
            times, until = self._doubts.pop(name, (1, 0))
            self._doubts[name] = (min(64, 2 * times if now < until else 2), now + DOUBTED_NS)
            if len(self._doubts) > MAX_CLAIMS:
                del self._doubts[next(iter(self._doubts))]

    def ranked(self, relays: Iterable[Peer], target: NodeId, now: int, visited: tuple[NodeId, ...] = ()) -> list[Peer]:
        """Return the relays that have not been asked, the one with the least cost of the whole path first."""
        peers = [peer for peer in relays if peer.node not in visited]
        graph = LinkGraph(len(peers) + 1, [(0, number + 1) for number in range(len(peers))])
        beyond = [0.0, *(self._claim(peer, target, now) for peer in peers)]
        costs = [self._own_cost(peer.node) for peer in peers]
        journey, ranked = Journey(0), list[Peer]()
        while (link := cheapest_link(graph, journey, costs, beyond, self._random)) is not None:
            journey.closed[link] = None
            ranked.append(peers[link])
        return ranked

    def _claim(self, relay: Peer, target: NodeId, now: int) -> float:
        received = self._received_cost(relay.node, target)
        if received is None or received == UNREACHABLE:  # it may have measured nothing yet
            received = float(self._claims.get((relay.node, target), UNKNOWN))
        return received * self.doubt_about(relay.name, now)

    def doubt_about(self, name: str, now: int) -> int:
        """Return the factor by which a relay's claims count."""
        times, until = self._doubts.get(name, (1, 0))
        return times if now < until else 1
