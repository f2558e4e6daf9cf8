"""Next hops of circuits by ω + J: their costs for users, and a relay's choice of another relay instead of the target."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_shuffle.hop_costs import HopCosts
from agiledart_shuffle.proposals import MAX_RELAYS

CHEAPER: Final = 0.85
"""Share of the direct hop's cost below which a relay leads a circuit to another relay instead."""

MAX_CIRCUITS_NOTED: Final = 256
"""Circuits whose further relays are remembered."""


class HopRecord(NamedTuple):
    """A neighbour as the next hop of circuits to a target, for users.

    Args:
        name: of the neighbour; `is_target`: it is the target itself.
        omega, attempts, to_go, reason: as in `HopChoice`.
        relays: further relays of the last circuit through it.
    """

    name: str
    is_target: bool
    omega: float
    attempts: float
    to_go: float
    reason: str
    relays: tuple[str, ...]


class NextHops:
    """Next hops of one agent.

    Args:
        me: the agent.
        costs: ω and J.
        use: keeps the costs to a destination from now on.
        members: returns the nodes that have a link with this agent now.
        known: returns all nodes of the ring that this agent knows.
    """

    def __init__(
        self,
        me: NodeId,
        costs: HopCosts,
        use: Callable[[NodeId], None],
        members: Callable[[], tuple[Peer, ...]],
        known: Callable[[], Iterable[Peer]],
    ) -> None:
        self._me, self._costs, self.use, self._members, self._known = me, costs, use, members, known
        self._behind: dict[tuple[NodeId, str], tuple[str, ...]] = {}

    def to(self, target: NodeId, by: tuple[str, ...] = ()) -> tuple[HopRecord, ...]:
        """Return the next hops of circuits to a target, the cheapest first, and keep their costs from now on.

        Args:
            by: names of the only relays allowed; empty: any.
        """
        self.use(target)
        names = {peer.node: peer.name or peer.node.short for peer in (*self._known(), *self._members())}

        def is_allowed(node: NodeId) -> bool:
            return node == target or self._can_relay(node, by)

        records = []
        for hop in self._costs.choices(target, (), is_allowed):
            name = names.get(hop.neighbour, hop.neighbour.short)
            behind = self.relays_behind(target, name)
            is_target = hop.neighbour == target
            records.append(HopRecord(name, is_target, hop.omega, hop.attempts, hop.to_go, hop.reason, behind))
        return tuple(records)

    def cheaper_relay(self, target: NodeId, visited: tuple[NodeId, ...]) -> Peer | None:
        """Return the relay whose ω + J is clearly below ω of the link to the target; None: the target is the next hop.

        Args:
            visited: the node that asks for a circuit, and the relays before this agent.
        """
        if len(visited) >= MAX_RELAYS:
            return None
        direct = self._costs.omega(target)
        best = next(iter(self._costs.choices(target, (*visited, self._me, target), self._can_relay)), None)
        if direct is None or best is None or best.reason != "chosen" or best.total >= CHEAPER * direct:
            return None
        return next((peer for peer in self._members() if peer.node == best.neighbour), None)

    def note_circuit(self, target: NodeId, relay: str, behind: tuple[str, ...]) -> None:
        """Remember which relays are behind one."""
        self._behind.pop((target, relay), None)
        if len(self._behind) >= MAX_CIRCUITS_NOTED:
            del self._behind[next(iter(self._behind))]
        self._behind[target, relay] = behind

    def relays_behind(self, target: NodeId, relay: str) -> tuple[str, ...]:
        """Return the further relays of the last circuit to a target through this one."""
        return self._behind.get((target, relay), ())

    def _can_relay(self, node: NodeId, by: tuple[str, ...] = ()) -> bool:
        """Return whether a neighbour takes connections, and is one of the names, if there are any."""
        peer = next((peer for peer in self._members() if peer.node == node), None)
        return peer is not None and not peer.reach.holders and (not by or peer.name in by)
