"""Network faults of a ring: partitions, links that close, flap, or hold messages back."""

from collections.abc import Callable
from functools import partial

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_simulation.runs.nemesis import Nemesis
from agiledart_simulation.world.faults import Clog, Deafen, HoldMessages, Mute, Partition, Restore, Unclog


class LinkFaults:
    """Network faults, drawn by the nemesis; one method for each kind, which returns whether it was possible now."""

    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis = nemesis
        self._cuts = 0
        self.kinds: dict[str, Callable[[], bool]] = {
            "island": lambda: self._partition(1, 1),
            "partition": lambda: self._partition(1, 2),
            "split": lambda: self._partition(2, 2),
            "oneway": self._oneway,
            "flap": self._flap,
            "clog": self._clog,
            "swizzle": self._swizzle,
        }

    def calm_down(self) -> None:
        """Note that all faults have been undone: what was to heal later is healed."""
        self._cuts += 1

    def _partition(self, sides: int, share: int) -> bool:
        """Cut off one node (share 1), or up to half of all on each further side; healed after a while."""
        up = self._nemesis.up()
        if self._nemesis.cut or len(up) < 3:
            return False
        self._nemesis.random.shuffle(up)
        groups = []
        for _ in range(sides):
            count = 1 if share == 1 else 1 + self._nemesis.random.index(max(1, len(up) // (sides + 1)))
            groups.append(tuple(up[:count]))
            del up[:count]
        self._nemesis.cut = {node: None for group in groups for node in group}
        self._nemesis.on_split()
        self._nemesis.do(Partition(groups[0], tuple(groups[1:])))
        self._until_healed(int(30 * SECOND * self._nemesis.random.uniform()))
        return True

    def _until_healed(self, duration_ns: int) -> None:
        self._nemesis.disturb_network(duration_ns)
        self._cuts += 1
        number = self._cuts

        def heal() -> None:
            if self._cuts == number:
                self._nemesis.do(Partition(()))
                self._nemesis.cut = {}

        self._nemesis.ring.world.call(duration_ns, heal)

    def _oneway(self) -> bool:
        """Let a node send and receive nothing, or the other way round, for a while."""
        up = self._nemesis.up()
        if self._nemesis.cut or len(up) < 3:
            return False
        node = self._nemesis.random.choice(up)
        duration = int(20 * SECOND * self._nemesis.random.uniform())
        self._nemesis.disturb_network(duration)
        self._nemesis.on_split()
        self._nemesis.do(Mute(node) if self._nemesis.random.index(2) else Deafen(node))
        self._nemesis.ring.world.call(duration, lambda: self._nemesis.do(Restore(node)))
        return True

    def _flap(self) -> bool:
        """Let a node's connection come and go for a while."""
        up = self._nemesis.up()
        if self._nemesis.cut or len(up) < 3:
            return False
        node = self._nemesis.random.choice(up)
        period = (100 + self._nemesis.random.index(4_000)) * MILLISECOND
        rounds = 2 + self._nemesis.random.index(8)
        self._nemesis.disturb_network(period * rounds)
        self._nemesis.on_split()
        self.flap_on(node, period, rounds, self._nemesis.calms)
        return True

    def flap_on(self, node: NodeId, period: int, rounds: int, calms: int) -> None:
        """Let a connection come and go, until all faults are undone once more."""
        if self._nemesis.calms != calms:
            return
        world = self._nemesis.ring.world
        duty = self._nemesis.random.between(0.1, 0.9)
        self._nemesis.do(Mute(node))
        self._nemesis.do(Deafen(node))
        world.call(int(period * duty), lambda: self._nemesis.do(Restore(node)))
        if rounds > 1:
            world.call(period, lambda: self.flap_on(node, period, rounds - 1, calms))

    def _clog(self) -> bool:
        """Lose everything in one direction between two nodes for a while; all others still reach both.

        A second closed link may end at one of them, too. It may be that of a helper that would have reported that the other end
        of the first link lives. A node at an end of both may be taken for dead, and take others for dead. So may both ends
        while rings that were apart merge: the helper may be in the other one.
        """
        up = self._nemesis.up()
        if len(up) < 3:
            return False
        self._nemesis.random.shuffle(up)
        duration = int(20 * SECOND * self._nemesis.random.uniform())
        now, clogged = self._nemesis.ring.world.now, self._nemesis.clogged
        for end in up[:2]:
            if clogged.get(end, 0) > now:
                self._nemesis.disturb(end, max(duration, clogged[end] - now))
            clogged[end] = max(clogged.get(end, 0), now + duration)
        self._nemesis.do(Clog(up[0], up[1]))
        self._nemesis.ring.world.call(duration, lambda: self._nemesis.do(Unclog(up[0], up[1])))
        return True

    def _swizzle(self) -> bool:
        """Stop random links one by one, and release them in another order. They may partition the members for a while."""
        up = self._nemesis.up()
        if len(up) < 3:
            return False
        links = [(a, b) for a in up for b in up if a != b]
        self._nemesis.random.shuffle(links)
        links = links[: 2 + self._nemesis.random.index(min(10, len(links) - 1))]
        interval = (20 + self._nemesis.random.index(500)) * MILLISECOND
        ends = list(range(len(links)))
        self._nemesis.random.shuffle(ends)
        self._nemesis.disturb_network(2 * interval * len(links))
        calms = self._nemesis.calms
        for start, (end, (a, b)) in enumerate(zip(ends, links, strict=True)):
            stop_at, free_at = interval * start, interval * (len(links) + end)
            hold = partial(self._hold, HoldMessages(a, b, free_at - stop_at), calms)
            self._nemesis.ring.world.call(stop_at, hold)
        return True

    def _hold(self, hold: HoldMessages, calms: int) -> None:
        if self._nemesis.calms == calms:
            self._nemesis.do(hold)
