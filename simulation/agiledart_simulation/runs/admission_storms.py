"""Storms: joins, leaves, crashes, restarts, pauses and cuts drawn from a seed, on rings of 3 to 40 nodes; then calm.

While the network is whole no key may have two owners; in the calm the ring must become right.
"""

import sys
from dataclasses import replace

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import ID_BITS, NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.events import LeaveRing
from agiledart_simulation.runs.admission_bed import Bed

SMALL_BITS = 8
_CALM_NS = 90 * SECOND
DEEDS = ("join", "crash", "leave", "pause", "restart", "cut")


class Storm:
    """One drawn run.

    Args:
        seed: everything comes from it.
        drift_ppm: most by which a clock is too fast or too slow.
        kinds: what may happen.
    """

    def __init__(self, seed: int, drift_ppm: int = 4_900, kinds: tuple[str, ...] = DEEDS) -> None:
        self.random = random = RandomStream(seed, "storm")
        self.loss = random.choice((0.0, 0.0, 0.005, 0.01, 0.02))
        self.is_small = random.uniform() < 0.3
        config = OverlayConfig.lan()
        if self.is_small:
            config = replace(config, id_bits=SMALL_BITS, digit_bits=2, leaf_count=16)
        self.bits = SMALL_BITS if self.is_small else ID_BITS
        self.bed = Bed(seed, self.loss, config)
        self.is_clustered = not self.is_small and random.uniform() < 0.3
        self.base = random.bits(ID_BITS)
        self.drift_ppm = drift_ppm if random.uniform() < 0.7 else 0
        self.kinds = tuple(kind for kind in kinds if random.uniform() < 0.7) or ("join",)
        self.done: dict[str, int] = {}
        self.used: dict[NodeId, None] = {}

    def fresh(self) -> NodeId:
        """An id that nobody has had."""
        random = self.random
        while True:
            node = NodeId(random.bits(self.bits))
            if self.is_clustered and random.uniform() < 0.8:
                node = NodeId((self.base + random.index(160)) % (1 << ID_BITS))
            if node not in self.used:
                self.used[node] = None
                return node

    def start(self, node: NodeId, *, is_first: bool = False) -> None:
        """Start a node through up to three members."""
        # A moment may come at which nobody is in the ring: without seeds it would found one of its own, as it was told to.
        known = self.bed.in_ring or list(self.bed.world.nodes)
        up = [other for other in known if other != node]
        self.random.shuffle(up)
        rate = int(1_000 * self.drift_ppm * self.random.between(-1.0, 1.0))
        self.bed.start(node, () if is_first else up[:3], rate)

    def run(self) -> float | None:
        """Grow, storm, calm; seconds until all was right, or None."""
        random, bed = self.random, self.bed
        self.start(self.fresh(), is_first=True)
        bed.world.run_for(SECOND)
        size = random.choice((3, 5, 8, 13, 25, 40))
        while len(bed.world.nodes) < size:
            for _ in range(min(size - len(bed.world.nodes), random.choice((1, 1, 2, 5, 40)))):
                self.start(self.fresh())
            bed.world.run_for(int(random.uniform() * SECOND))
        for _ in range(8 + random.index(18)):
            bed.world.run_for(int(random.choice((0.0, 0.05, 0.2, 1.0, 4.0)) * random.uniform() * SECOND))
            bed.bury_the_left()
            deed = random.choice(self.kinds)
            if self._do(deed):
                self.done[deed] = self.done.get(deed, 0) + 1
        bed.world.network.heal()
        return self.calm()

    def calm(self) -> float | None:
        """No more faults. Overlaps count again when the two sides of a cut have become one ring."""
        bed, began = self.bed, self.bed.world.now
        while bed.world.now - began < _CALM_NS:
            bed.world.run_for(SECOND // 2)
            bed.bury_the_left()
            for peer, _ in bed.ring.join_failures:
                if bed.world.nodes[peer.node].peer.life == peer.life and bed.world.nodes[peer.node].is_up:
                    bed.world.crash(peer.node)
                    self.start(peer.node)
            bed.ring.join_failures.clear()
            if bed.is_right:
                bed.owners.is_whole = True
                bed.world.run_for(5 * SECOND)
                took = (bed.world.now - began) / SECOND - 5
                # Three renewals in a row may be lost at any moment: the next round mends that.
                return took if bed.world.run_until(lambda: bed.is_right, SECOND) else None
        return None

    def _do(self, deed: str) -> bool:
        least = {"join": 0, "crash": 5, "restart": 3, "leave": 4, "pause": 4, "cut": 4}[deed]
        up = self.bed.in_ring
        if len(up) < least:
            return False
        deeds = {
            "join": self._join,
            "crash": self._crash,
            "restart": self._restart,
            "leave": self._leave,
            "pause": self._pause,
            "cut": self._cut,
        }
        return deeds[deed](up)

    def _join(self, up: list[NodeId]) -> bool:
        if len(self.bed.world.nodes) > 60:
            return False
        for _ in range(self.random.choice((1, 2, 2, 4, 8))):
            self.start(self.fresh())
        return True

    def _crash(self, up: list[NodeId]) -> bool:
        first, count = self.random.index(len(up)), self.random.choice((1, 1, 1, 2, 3))
        for step in range(count):
            self.bed.world.crash(up[(first + step) % len(up)], silent=self.random.uniform() < 0.5)
        return True

    def _restart(self, up: list[NodeId]) -> bool:
        random, world = self.random, self.bed.world
        node = random.choice(up)
        world.crash(node, silent=random.uniform() < 0.5)
        world.run_for(int(random.choice((0.0, 0.1, 1.0, 5.0)) * random.uniform() * SECOND))
        self.start(node)
        return True

    def _leave(self, up: list[NodeId]) -> bool:
        self.bed.world.inject(self.random.choice(up), LeaveRing())
        return True

    def _pause(self, up: list[NodeId]) -> bool:
        random = self.random
        count = random.choice((1, 1, 2, 3, 4)) if len(up) > 12 else 1
        first, duration = random.index(len(up)), int(random.between(0.1, 8.0) * SECOND)
        for step in range(count):
            self.bed.world.pause(up[(first + step) % len(up)], duration)
        return True

    def _cut(self, up: list[NodeId]) -> bool:
        if not self.bed.owners.is_whole:
            return False
        self.bed.owners.is_whole = False
        self.bed.world.network.partition(tuple(node for node in up if self.random.uniform() < 0.5))
        return True


def storms(seeds: range, drift_ppm: int = 4_900) -> list[dict[str, object]]:
    """One row for each seed."""
    rows: list[dict[str, object]] = []
    for seed in seeds:
        storm = Storm(seed, drift_ppm)
        settled = storm.run()
        bed = storm.bed
        row: dict[str, object] = {
            "seed": seed, "nodes": len(bed.world.live), "bits": storm.bits, "loss": storm.loss, "drift_ppm": storm.drift_ppm,
            "done": storm.done, "overlaps": bed.owners.overlaps, "settled": settled, "events": bed.world.events,
            "longest_without_owner": round(bed.owners.longest_ns / SECOND, 2),
        }  # fmt: skip
        if bed.owners.overlaps or settled is None:
            row["wrong"] = bed.wrong()
            sys.stderr.write(f"{row}\n")
        rows.append(row)
    return rows
