"""Routing table: row = digits shared with the owner, column = the next digit.

Any node of a slot brings a message one digit nearer to its key, so the table keeps the cheap ones.

Source: [Pastry] §2.2; several candidates a slot, cheapest first, from the project's overlay specification §2.
"""

from bisect import insort
from collections.abc import Callable, Container, Iterator
from itertools import pairwise

from agiledart_kernel.node_id import NodeId, digit, shared_prefix
from agiledart_kernel.peer import Peer

Cost = Callable[[Peer], float]
_Entry = tuple[float, NodeId, Peer]
"""Cost at the last update, id, peer: sorts as slots are ordered, since ids differ."""


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
        self._slots: dict[int, list[_Entry]] = {}
        """Slots that are not empty, by row * columns + column."""

    @property
    def slots(self) -> int:
        """Return the number of slots that are not empty."""
        return len(self._slots)

    def _place(self, node: NodeId) -> int:
        row = (self._bits - (self._owner ^ node).bit_length()) // self._digit_bits
        column = (node >> (self._bits - self._digit_bits * (row + 1))) & (self._columns - 1)
        return row * self._columns + column

    def slot_of(self, node: NodeId) -> tuple[int, int]:
        """Return row and column where a node belongs. Not for the owner."""
        return divmod(self._place(node), self._columns)

    def __contains__(self, node: NodeId) -> bool:
        return node != self._owner and any(other == node for _, other, _ in self._slots.get(self._place(node), ()))

    def __iter__(self) -> Iterator[Peer]:
        for slot in self._slots.values():
            for _, _, peer in slot:
                yield peer

    def items(self) -> Iterator[tuple[tuple[int, int], tuple[Peer, ...]]]:
        """Yield each slot that is not empty, with its candidates."""
        for place, slot in self._slots.items():
            yield divmod(place, self._columns), tuple(peer for _, _, peer in slot)

    def wants(self, node: NodeId) -> bool:
        """Report whether a node would fill an empty slot."""
        return node != self._owner and self._place(node) not in self._slots

    def primary(self, node: NodeId) -> Peer | None:
        """Return the cheapest entry of the slot where a node belongs. Not for the owner."""
        slot = self._slots.get(self._place(node))
        return slot[0][2] if slot else None

    def candidates(self, row: int, column: int) -> tuple[Peer, ...]:
        """Return the nodes of one slot, cheapest first."""
        return tuple(peer for _, _, peer in self._slots.get(row * self._columns + column, ()))

    def towards(self, key: NodeId, avoid: Container[NodeId] = ()) -> Peer | None:
        """Return the cheapest node that shares one digit more with a key than the owner does. Not for the owner's own id."""
        for _, node, peer in self._slots.get(self._place(key), ()):
            if node not in avoid:
                return peer
        return None

    def row(self, row: int) -> tuple[Peer, ...]:
        """Return all candidates of one row, by column."""
        first = row * self._columns
        places = range(first, first + self._columns)
        slots = self._slots
        return tuple([peer for place in places if place in slots for _, _, peer in slots[place]])

    @property
    def rows(self) -> tuple[int, ...]:
        """Return the rows that are not empty, ascending."""
        return tuple(sorted(dict.fromkeys(place // self._columns for place in self._slots)))

    def rows_for(self, node: NodeId) -> tuple[Peer, ...]:
        """Return the cheapest candidate of every slot in rows 0 … digits shared with `node`: they help it to join."""
        row = (self._bits - (self._owner ^ node).bit_length()) // self._digit_bits
        end = (row + 1) * self._columns
        slots = self._slots
        return tuple([slots[place][0][2] for place in sorted(slots) if place < end])

    def add(self, peer: Peer, cost: float) -> bool:
        """Offer a peer of this cost to its slot; return True when it is in afterwards. A full slot drops its dearest."""
        node = peer.node
        if node == self._owner:
            return False
        place = self._place(node)
        slot = self._slots.get(place)
        entry = (cost, node, peer)
        if slot is None:
            self._slots[place] = [entry]
            return True
        for index, (_, other, _) in enumerate(slot):
            if other == node:
                del slot[index]
                break
        insort(slot, entry)
        if len(slot) > self._candidates:
            return slot.pop() is not entry
        return True

    def reorder(self, cost: Cost) -> None:
        """Sort all slots again after costs have changed."""
        for slot in self._slots.values():
            slot[:] = [(cost(peer), node, peer) for _, node, peer in slot]
            if len(slot) > 1:
                slot.sort()

    def remove(self, node: NodeId) -> bool:
        """Remove a node; return True when it was an entry."""
        if node == self._owner:
            return False
        place = self._place(node)
        slot = self._slots.get(place)
        if slot is None or all(other != node for _, other, _ in slot):
            return False
        slot[:] = [entry for entry in slot if entry[1] != node]
        if not slot:
            del self._slots[place]
        return True

    def violations(self) -> list[str]:
        """Check I1: every entry stands in its row and column. ring_1: slots are bounded, cheapest first. I3: the owner is in
        none.
        """
        complaints = []
        for place, slot in self._slots.items():
            row, column = divmod(place, self._columns)
            for _, node, peer in slot:
                if node == self._owner:
                    complaints.append("I3: the owner is in its own routing table")
                elif node != peer.node or not self._belongs(node, row, column):
                    complaints.append(f"I1: {peer.node.short} stands in slot {row},{column}")
            if not 0 < len(slot) <= self._candidates or any(a[:2] >= b[:2] for a, b in pairwise(slot)):
                complaints.append(
                    f"ring_1: slot {row},{column} has {len(slot)} nodes, at most {self._candidates}, or no order"
                )
        return complaints

    def _belongs(self, node: NodeId, row: int, column: int) -> bool:
        """Report whether a node belongs to a slot, by the definition, not by the arithmetic of `_place`."""
        bits, digit_bits = self._bits, self._digit_bits
        owner = NodeId(self._owner)
        return shared_prefix(owner, node, bits, digit_bits) == row and digit(node, row, bits, digit_bits) == column
