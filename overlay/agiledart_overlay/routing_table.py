"""The routing table: row = digits shared with the owner, column = the next digit.

Any node of a slot brings a message one digit nearer to its key, so the cheap ones are kept.

Source: [Pastry] §2.2; several candidates a slot, cheapest first, from the project's overlay specification §2.
"""

from collections.abc import Callable, Iterator

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer

Cost = Callable[[Peer], float]


class RoutingTable:
    """Rows × columns of a few candidates each, ordered by cost, then id.

    Args:
        owner: never an entry.
        bits, digit_bits: length of an id and of a digit.
        candidates: most nodes in one slot.
    """

    __slots__ = ("_bits", "_candidates", "_columns", "_digit_bits", "_digits", "_owner", "_slots")

    def __init__(self, owner: NodeId, bits: int, digit_bits: int, candidates: int) -> None:
        self._owner, self._bits, self._digit_bits, self._candidates = int(owner), bits, digit_bits, candidates
        self._columns = 1 << digit_bits
        self._digits = bits // digit_bits
        self._slots: dict[int, list[Peer]] = {}
        """By row * columns + column."""

    @property
    def slots(self) -> int:
        """Slots that are not empty."""
        return len(self._slots)

    def _place(self, node: NodeId) -> int:
        row = (self._bits - (self._owner ^ node).bit_length()) // self._digit_bits
        column = (node >> (self._bits - self._digit_bits * (row + 1))) & (self._columns - 1)
        return row * self._columns + column

    def slot_of(self, node: NodeId) -> tuple[int, int]:
        """Row and column where a node belongs. Not for the owner."""
        return divmod(self._place(node), self._columns)

    def __contains__(self, node: NodeId) -> bool:
        return node != self._owner and any(peer.node == node for peer in self._slots.get(self._place(node), ()))

    def __iter__(self) -> Iterator[Peer]:
        for slot in self._slots.values():
            yield from slot

    def items(self) -> Iterator[tuple[tuple[int, int], tuple[Peer, ...]]]:
        """Each slot that is not empty, with its candidates."""
        for place, slot in self._slots.items():
            yield divmod(place, self._columns), tuple(slot)

    def wants(self, node: NodeId) -> bool:
        """Whether a node would fill an empty slot."""
        return node != self._owner and self._place(node) not in self._slots

    def primary(self, node: NodeId) -> Peer | None:
        """The cheapest entry of the slot where a node belongs. Not for the owner."""
        slot = self._slots.get(self._place(node))
        return slot[0] if slot else None

    def candidates(self, row: int, column: int) -> tuple[Peer, ...]:
        """The nodes of one slot, cheapest first."""
        return tuple(self._slots.get(row * self._columns + column, ()))

    def towards(self, key: NodeId) -> list[Peer] | tuple[()]:
        """The slot of a key: nodes that share one digit more with it than the owner does, cheapest first. Not to be changed."""
        return self._slots.get(self._place(key), ())

    def row(self, row: int) -> tuple[Peer, ...]:
        """All candidates of one row, by column."""
        first = row * self._columns
        return tuple(peer for place in range(first, first + self._columns) for peer in self._slots.get(place, ()))

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows that are not empty, ascending."""
        return tuple(sorted(dict.fromkeys(place // self._columns for place in self._slots)))

    def rows_for(self, node: NodeId) -> tuple[Peer, ...]:
        """The cheapest candidate of every slot in rows 0 … digits shared with `node`: what helps it to join."""
        row = (self._bits - (self._owner ^ node).bit_length()) // self._digit_bits
        end = (row + 1) * self._columns
        return tuple(self._slots[place][0] for place in sorted(self._slots) if place < end)

    def add(self, peer: Peer, cost: Cost) -> bool:
        """Offer a peer to its slot; true when it is in afterwards. A full slot drops its dearest."""
        node = peer.node
        if node == self._owner:
            return False
        place = self._place(node)
        slot = self._slots.get(place)
        if slot is None:
            self._slots[place] = [peer]
            return True
        if len(slot) == 1 and slot[0].node == node:
            slot[0] = peer
            return True
        ranked = [(cost(other), other.node, other) for other in slot if other.node != node]
        ranked.append((cost(peer), node, peer))
        ranked.sort(key=_rank)
        del ranked[self._candidates :]
        slot[:] = [other for _, _, other in ranked]
        return any(other is peer for other in slot)

    def reorder(self, cost: Cost) -> None:
        """Costs have changed: cheapest first again."""
        for slot in self._slots.values():
            if len(slot) > 1:
                slot.sort(key=lambda other: (cost(other), other.node))

    def remove(self, node: NodeId) -> bool:
        """Forget a node; true when it was an entry."""
        if node == self._owner:
            return False
        place = self._place(node)
        slot = self._slots.get(place)
        if slot is None or all(peer.node != node for peer in slot):
            return False
        slot[:] = [peer for peer in slot if peer.node != node]
        if not slot:
            del self._slots[place]
        return True


def _rank(entry: tuple[float, NodeId, Peer]) -> tuple[float, NodeId]:
    return entry[0], entry[1]
