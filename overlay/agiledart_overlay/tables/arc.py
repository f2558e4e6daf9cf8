"""Arcs of the ring: the keys between two neighbours, and the owner of each of them.

Pure arithmetic on ids. A key belongs to the closer neighbour; at equal distance to the smaller id. The two functions `keys_after`
and `keys_before` divide every key range without rest and without overlap, whatever else the two ends know.
"""

from dataclasses import dataclass

from agiledart_kernel.node_id import NodeId


@dataclass(frozen=True, slots=True)
class Arc:
    """Run of keys clockwise from `start`, `length` of them; the whole ring when `length` is 2^bits."""

    start: NodeId
    length: int

    def holds(self, key: int, mask: int) -> bool:
        """Report whether a key lies in the arc; `mask` is 2^bits - 1."""
        return (key - self.start) & mask < self.length


def clockwise_distance(left: int, right: int, mask: int) -> int:
    """Return the clockwise distance from one node to the next; the whole ring when they are the same."""
    return (right - left) & mask or mask + 1


def keys_after(left: int, right: int, mask: int) -> int:
    """Return how many keys clockwise from `left`, itself included, belong to it when `right` is the next node."""
    length = clockwise_distance(left, right, mask)
    if length & 1:
        return (length + 1) // 2
    return length // 2 + (left < right)


def keys_before(left: int, right: int, mask: int) -> int:
    """Return how many keys counter-clockwise of `right`, itself excluded, belong to it when `left` is the previous node."""
    return clockwise_distance(left, right, mask) - keys_after(left, right, mask)


def is_between(left: int, node: int, right: int, mask: int) -> bool:
    """Report whether a node lies strictly between two others, clockwise; when these are the same, whether it is another node."""
    return 0 < (node - left) & mask < clockwise_distance(left, right, mask)


def arc_between(left: int, node: int, right: int, mask: int) -> Arc:
    """Return the keys of a node whose neighbours, real or supposed, are `left` and `right`."""
    before = keys_before(left, node, mask)
    return Arc(NodeId((node - before) & mask), before + keys_after(node, right, mask))
