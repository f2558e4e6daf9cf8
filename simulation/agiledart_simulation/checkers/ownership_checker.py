"""Checker of I6, no key has two owners, after every event; and of the time for which keys have no owner.

Each node's claim is kept in a sorted list of arcs. After an event of a node its claim is read again, by its own clock, and
compared with the neighbouring arcs, so a check costs the logarithm of the number of nodes. Between its events a claim can only
end, when a lease expires, which also happens to a paused node. Such ends are kept in a heap and checked when their time has
come.

Some keys are watched for the time that they have no owner.

Source: the project's overlay specification §2 (I6) and §5, step 7.
"""

from bisect import bisect_left, insort
from heapq import heappop, heappush

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import ID_BITS, NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.overlay_machine import OverlayMachine
from agiledart_overlay.tables.arc import Arc
from agiledart_simulation.world.simulated_node import SimulatedNode
from agiledart_simulation.world.world import World

_FOREVER = 1 << 61
_MAX_KEPT = 20


class OwnershipChecker:
    """Ownership of keys in a world of overlay machines; attach it before the first node starts.

    Args:
        world: its nodes are observed.
        bits: length of an id.
        watched_keys: number of random keys that are watched for the time without an owner.

    Attributes:
        is_whole: false while the network is partitioned; each side then has an owner of each key, and overlaps are not counted.
        overlaps: number of times that two claims were seen to overlap.
        violations: the first of them in words.
        longest_ns: longest time for which one watched key had no owner, once it had had one.
    """

    def __init__(self, world: World[OverlayMachine], bits: int = ID_BITS, watched_keys: int = 64) -> None:
        self._world = world
        self._mask = (1 << bits) - 1
        self.is_whole = True
        self.overlaps = 0
        self.violations: list[str] = []
        self._starts: list[tuple[int, NodeId]] = []
        self._arcs: dict[NodeId, Arc] = {}
        self._ends: list[tuple[Instant, NodeId]] = []
        self._watched_until: dict[NodeId, int] = {}
        random = RandomStream(world.seed, "owners")
        self._keys = sorted(NodeId(random.bits(bits)) for _ in range(watched_keys))
        self._count = [0] * len(self._keys)
        self._free_since: dict[int, int] = {}
        self.free_ns = self.longest_ns = 0
        world.observers.append(self.check)

    # ---- checking

    def check(self, node: SimulatedNode[OverlayMachine]) -> None:
        """Check the claim of a node that has had an event."""
        self.expire()
        self._update(node.peer.node)

    def check_all(self) -> None:
        """Check all claims after a change that is no event of a node, such as a crash."""
        self.expire()
        for node in (*self._world.nodes, *self._arcs):
            self._update(node)

    def expire(self) -> None:
        """Remove claims that have expired by now."""
        now, ends = self._world.now, self._ends
        while ends and ends[0][0] <= now:
            at, node = heappop(ends)
            self._watched_until.pop(node, None)
            self._update(node, at)

    def _claim(self, node: NodeId, at: Instant) -> Arc | None:
        node_state = self._world.nodes.get(node)
        if node_state is None or not node_state.is_up:
            return None
        return node_state.machine.claim(node_state.local(at))

    def _update(self, node: NodeId, at: Instant | None = None) -> None:
        now = self._world.now if at is None else at
        claim = self._claim(node, now)
        if claim is not None and node not in self._watched_until:
            node_state = self._world.nodes[node]
            if node_state.machine.claim_ends < _FOREVER:
                ends = self._watched_until[node] = node_state.world_instant(node_state.machine.claim_ends)
                heappush(self._ends, (ends, node))
        old = self._arcs.get(node)
        if old == claim:
            return
        if old is not None:
            self._take_out(node, old, now)
        if claim is not None:
            self._put_in(node, claim, now)

    def _take_out(self, node: NodeId, arc: Arc, now: int) -> None:
        index = bisect_left(self._starts, (arc.start, node))
        del self._starts[index], self._arcs[node]
        self._count_keys(arc, -1, now)

    def _put_in(self, node: NodeId, arc: Arc, now: Instant) -> None:
        for other in self._beside(arc):
            beside = self._arcs.get(other)
            if beside is None or not _overlap(arc, beside, self._mask):
                continue
            fresh = self._claim(other, now)
            if fresh != beside:
                self._take_out(other, beside, now)
                if fresh is not None:
                    self._put_in(other, fresh, now)
            if fresh is not None and _overlap(arc, fresh, self._mask):
                self._report(node, other, now)
        self._arcs[node] = arc
        insort(self._starts, (arc.start, node))
        self._count_keys(arc, 1, now)

    def _beside(self, arc: Arc) -> list[NodeId]:
        """Return the nodes whose arcs can overlap with an arc: all that begin in it, and some that begin just before."""
        starts, mask = self._starts, self._mask
        if not starts:
            return []
        index = bisect_left(starts, (arc.start, NodeId(0)))
        nearby = [starts[index - 1 - step][1] for step in range(min(3, len(starts)))]
        for step in range(len(starts)):
            start, node = starts[(index + step) % len(starts)]
            if (start - arc.start) & mask >= arc.length:
                break
            if node not in nearby:
                nearby.append(node)
        return nearby

    def _report(self, node: NodeId, other: NodeId, now: int) -> None:
        if not self.is_whole:
            return
        self.overlaps += 1
        if len(self.violations) < _MAX_KEPT:
            self.violations.append(f"I6: {node.short} and {other.short} both own keys at {now / 1e9:.6f} s")

    # ---- keys without an owner

    def _count_keys(self, arc: Arc, change: int, now: int) -> None:
        keys, mask = self._keys, self._mask
        first = bisect_left(keys, arc.start)
        for step in range(len(keys)):
            index = (first + step) % len(keys)
            if (keys[index] - arc.start) & mask >= arc.length:
                break
            self._count[index] += change
            if self._count[index] == 0:
                self._free_since[index] = now
            elif self._count[index] == 1 and change == 1 and index in self._free_since:
                free = now - self._free_since.pop(index)
                self.free_ns += free
                self.longest_ns = max(self.longest_ns, free)

    @property
    def owned(self) -> int:
        """Return the number of keys that have an owner now; 2^bits when all have one."""
        return sum(arc.length for arc in self._arcs.values())

    @property
    def is_complete(self) -> bool:
        """Return whether every key has exactly one owner now."""
        return self.owned == self._mask + 1 and not self.overlapping()

    def overlapping(self) -> list[str]:
        """Return claims that overlap now, also in a partitioned network."""
        violations = []
        for index, (start, node) in enumerate(self._starts):
            following, other = self._starts[(index + 1) % len(self._starts)]
            if other != node and (following - start) & self._mask < self._arcs[node].length:
                violations.append(f"I6: {node.short} and {other.short} overlap")
        return violations


def _overlap(one: Arc, other: Arc, mask: int) -> bool:
    return (other.start - one.start) & mask < one.length or (one.start - other.start) & mask < other.length


def ring_violations(machines: list[OverlayMachine], now: Instant) -> list[str]:
    """Return where the agreed ring differs from the truth: a missing member, a wrong neighbour, or a change in progress."""
    ordered = sorted(machines, key=lambda machine: machine.me.node)
    violations = []
    for index, machine in enumerate(ordered):
        name = machine.me.node.short
        before, after = ordered[index - 1].me, ordered[(index + 1) % len(ordered)].me
        predecessor, successor = machine.agreed_neighbours
        if not machine.is_stable:
            violations.append(f"ring: {name} is not stable")
        if predecessor != before or successor != after:
            violations.append(
                f"ring: {name} lies between {predecessor} and {successor}, not {before.node.short} and {after.node.short}"
            )
    return violations
