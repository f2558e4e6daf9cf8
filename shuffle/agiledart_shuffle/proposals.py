"""Which relays are asked for a circuit: those by which the target should be near, as far as they and we know. No I/O.

What a relay claims of its own way to the target only proposes: what is opened is then measured between the two ends, and whoever
claimed less than half of what it turned out to be is believed less for a while. Source: the shuffle spec, section 12.
"""

from collections.abc import Callable, Iterable
from typing import Final

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.cheapest import cheapest_link
from agiledart_shuffle.graph import LinkGraph
from agiledart_shuffle.policy import Journey

SLOT_NS: Final = 5 * MILLISECOND
COST_MOST: Final = 1_000_000
"""Slots that anybody may claim: above an hour."""

UNKNOWN: Final = 20
"""Slots that are taken for a way that nobody has measured."""

DOUBTED_NS: Final = 600 * SECOND
"""For which a relay's claims count double each time that it claimed too little, up to 64 times."""

MAX_RELAYS: Final = 3
"""Relays of one circuit."""

MAX_CLAIMS: Final = 512
"""Relay and target whose claims are remembered; of more, the oldest go."""


def may_relay(me: NodeId, visited: tuple[NodeId, ...]) -> bool:
    """May this relay be asked, when the asker and so many relays have been before? None twice, and not too many."""
    return me not in visited and len(set(visited)) == len(visited) and len(visited) <= MAX_RELAYS


class Proposals:
    """What relays have claimed.

    Args:
        rtt_ns: to a peer, as measured; None: not measured.
        random: decides between equals.
    """

    def __init__(self, rtt_ns: Callable[[NodeId], int | None], random: RandomStream) -> None:
        self._rtt_ns, self._random = rtt_ns, random
        self._claims: dict[tuple[NodeId, NodeId], int] = {}
        self._doubts: dict[str, tuple[int, int]] = {}  # by name: how many times as dear, until when

    def cost_to(self, node: NodeId) -> int:
        """Of the own link to a node, in slots."""
        rtt_ns = self._rtt_ns(node)
        return UNKNOWN if rtt_ns is None else min(COST_MOST, 1 + rtt_ns // SLOT_NS)

    def claimed(self, relay: NodeId, target: NodeId, cost: int) -> None:
        """A relay says what its own way there costs."""
        self._claims.pop((relay, target), None)
        self._claims[relay, target] = cost
        if len(self._claims) > MAX_CLAIMS:
            del self._claims[next(iter(self._claims))]

    def doubt(self, names: Iterable[str], now: int) -> None:
        """Ways by these took more than twice what they claim."""
        for name in names:
            times, until = self._doubts.pop(name, (1, 0))
            self._doubts[name] = (min(64, 2 * times if now < until else 2), now + DOUBTED_NS)
            if len(self._doubts) > MAX_CLAIMS:
                del self._doubts[next(iter(self._doubts))]

    def ranked(self, relays: Iterable[Peer], target: NodeId, now: int, visited: tuple[NodeId, ...] = ()) -> list[Peer]:
        """Those of the relays that have not been asked, the one by which the whole way should cost least first."""
        peers = [peer for peer in relays if peer.node not in visited]
        graph = LinkGraph(len(peers) + 1, [(0, number + 1) for number in range(len(peers))])
        beyond = [0.0, *(self._claim(peer, target, now) for peer in peers)]
        costs = [float(self.cost_to(peer.node)) for peer in peers]
        journey, ranked = Journey(0), list[Peer]()
        while (link := cheapest_link(graph, journey, costs, beyond, self._random)) is not None:
            journey.closed[link] = None
            ranked.append(peers[link])
        return ranked

    def _claim(self, relay: Peer, target: NodeId, now: int) -> float:
        times, until = self._doubts.get(relay.name, (1, 0))
        return float(self._claims.get((relay.node, target), UNKNOWN) * (times if now < until else 1))
