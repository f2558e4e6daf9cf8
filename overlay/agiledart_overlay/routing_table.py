"""The routing table: row = digits shared with the owner, column = the next digit.

Any node of a slot brings a message one digit nearer to its key, so the cheap ones are kept.

Source: [Pastry] §2.2; several candidates a slot, cheapest first, from the project's overlay specification §2.
"""

from collections.abc import Callable, Iterator

from agiledart_kernel.node_id import NodeId, digit, shared_prefix
from agiledart_kernel.peer import Peer

Cost = Callable[[Peer], float]


class RoutingTable:
    """Rows × columns of a few candidates each, ordered by cost, then id.

    Args:
        owner: never an entry.
        bits, digit_bits: length of an id and of a digit.
        candidates: most nodes in one slot.
    """

    __slots__ = ("_bits", "_candidates", "_digit_bits", "_owner", "_slots")

    def __init__(self, owner: NodeId, bits: int, digit_bits: int, candidates: int) -> None:
        self._owner, self._bits, self._digit_bits, self._candidates = owner, bits, digit_bits, candidates
        self._slots: dict[tuple[int, int], list[Peer]] = {}

    @property
    def slots(self) -> int:
        """Slots that are not empty."""
        return len(self._slots)

    def slot_of(self, node: NodeId) -> tuple[int, int]:
        """Row and column where a node belongs. Not for the owner."""
        row = shared_prefix(self._owner, node, self._bits, self._digit_bits)
        return row, digit(node, row, self._bits, self._digit_bits)

    def __contains__(self, node: NodeId) -> bool:
        return node != self._owner and any(peer.node == node for peer in self._slots.get(self.slot_of(node), ()))

    def __iter__(self) -> Iterator[Peer]:
        for slot in self._slots.values():
            yield from slot

    def items(self) -> Iterator[tuple[tuple[int, int], tuple[Peer, ...]]]:
        """Each slot that is not empty, with its candidates."""
        for place, slot in self._slots.items():
            yield place, tuple(slot)

    def wants(self, node: NodeId) -> bool:
        """Whether a node would fill an empty slot."""
        return node != self._owner and self.slot_of(node) not in self._slots

    def candidates(self, row: int, column: int) -> tuple[Peer, ...]:
        """The nodes of one slot, cheapest first."""
        return tuple(self._slots.get((row, column), ()))

    def row(self, row: int) -> tuple[Peer, ...]:
        """All candidates of one row, by column."""
        return tuple(peer for column in range(1 << self._digit_bits) for peer in self._slots.get((row, column), ()))

    def rows_for(self, node: NodeId) -> tuple[Peer, ...]:
        """The cheapest candidate of every slot in rows 0 … digits shared with `node`: what helps it to join."""
        last = shared_prefix(self._owner, node, self._bits, self._digit_bits)
        return tuple(slot[0] for (row, _), slot in sorted(self._slots.items()) if row <= last)

    def add(self, peer: Peer, cost: Cost) -> bool:
        """Offer a peer to its slot; true when it is in afterwards. A full slot drops its dearest."""
        if peer.node == self._owner:
            return False
        place = self.slot_of(peer.node)
        slot = [other for other in self._slots.get(place, ()) if other.node != peer.node]
        slot.append(peer)
        slot.sort(key=lambda other: (cost(other), other.node))
        del slot[self._candidates :]
        self._slots[place] = slot
        return any(other.node == peer.node for other in slot)

    def remove(self, node: NodeId) -> bool:
        """Forget a node; true when it was an entry."""
        if node == self._owner:
            return False
        place = self.slot_of(node)
        slot = self._slots.get(place)
        if slot is None or all(peer.node != node for peer in slot):
            return False
        rest = [peer for peer in slot if peer.node != node]
        if rest:
            self._slots[place] = rest
        else:
            del self._slots[place]
        return True
