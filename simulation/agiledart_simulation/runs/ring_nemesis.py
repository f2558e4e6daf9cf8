"""Faults of a ring's nodes: one method for each kind of a scenario. Each returns whether the fault was possible now.

Network faults: `link_faults`. Record of faults, for the checkers: `nemesis`.
"""

from collections.abc import Callable

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import ID_BITS, NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.scribe.events import JoinTopic, LeaveTopic
from agiledart_overlay.scribe.messages import topic_id
from agiledart_overlay.wire.events import LeaveRing, UnwatchPeer, WatchPeer
from agiledart_simulation.runs.link_faults import LinkFaults
from agiledart_simulation.runs.nemesis import Nemesis
from agiledart_simulation.runs.scenario import Scenario
from agiledart_simulation.world.faults import Clog, Crash, Deafen, Drift, Heal, Mute, Pause, Stutter, Weather
from agiledart_simulation.world.overlay_ring import OverlayRing, simulated_ids

TOPICS = (topic_id("simulated", "first"), topic_id("simulated", "second"))
"""Trees that nodes join and leave."""


class RingNemesis(Nemesis):
    """Nemesis of one ring.

    Args:
        ring: the ring under test.
        scenario: its options.
        on_crash: called with a node before it dies.
        on_split: called when nodes are cut off, so that there may be two rings.
    """

    def __init__(
        self, ring: OverlayRing, scenario: Scenario, on_crash: Callable[[NodeId], None], on_split: Callable[[], None]
    ) -> None:
        super().__init__(ring, scenario, on_split)
        self._on_crash = on_crash
        self._links = LinkFaults(self)
        ids = simulated_ids(scenario.seed, scenario.most_ids, scenario.id_bits)
        if scenario.cluster:
            ids = _clustered(ids, scenario.cluster, scenario.id_bits, self.random)
        self.ids, self.unused = ids[: scenario.nodes], ids[scenario.nodes :]
        self.reached: dict[str, int] = {}
        self.faulty: tuple[NodeId, ...] = ()
        """Nodes that stay broken in the quiet phase."""
        self._kinds: dict[str, Callable[[], bool]] = {
            "join": self._join,
            "crowd": self._crowd,
            "kill": lambda: self._crash(silent=False),
            "silent": lambda: self._crash(silent=True),
            "adjacent": self._adjacent,
            "restart": self._restart,
            "image": self._image,
            "leave": self._leave,
            "pause": self._pause,
            "pauses": self._pauses,
            "row": self._row,
            "stutter": self._stutter,
            "clock": self._clock,
            **self._links.kinds,
            "weather": self._weather,
            "topic": self._topic,
            "watch": self._watch,
        }

    def act(self, kind: str) -> bool:
        """Apply a fault of this kind; return false when it makes no sense now."""
        done = self._kinds[kind]()
        if done:
            self.count(kind)
        return done

    def count(self, kind: str) -> None:
        """Count an event of a kind."""
        self.reached[kind] = self.reached.get(kind, 0) + 1

    def seeds(self) -> list[NodeId]:
        """Return the seeds of a starting node."""
        up = self.up()
        self.random.shuffle(up)
        return up[: self.scenario.seeds_each]

    def rate_ppb(self) -> int:
        """Return the error of the next clock, in parts per billion."""
        return int(self.scenario.drift_ppm * 1_000 * self.random.between(-1.0, 1.0))

    def peer(self, node: NodeId) -> Peer:
        """Return the handle of a node's first incarnation."""
        zone = f"zone{int(node) % self.scenario.zones}" if self.scenario.zones else ""
        return Peer(node, 1, "", "", zone)

    # ---- coming and going

    def start(self, node: NodeId, seeds: list[NodeId]) -> None:
        """Start a node, or its next incarnation."""
        known = self.ring.world.nodes.get(node)
        rate_ppb = None if known is not None else self.rate_ppb()
        self.ring.start(node, seeds, peer=self.peer(node), rate_ppb=rate_ppb)

    def _join(self) -> bool:
        seeds = self.seeds()
        if not self.unused or not seeds:
            return False
        self.start(self.unused.pop(), seeds)
        return True

    def _crowd(self) -> bool:
        """Start several nodes within an instant, some of them in the same key range."""
        seeds = self.seeds()
        count = min(2 + self.random.index(4), len(self.unused))
        if count < 2 or not seeds:
            return False
        for _ in range(count):
            self.start(self.unused.pop(), seeds)
        return True

    def kill(self, node: NodeId, *, silent: bool) -> None:
        """End a node now."""
        node_state = self.ring.world.nodes[node]
        self._on_crash(node)
        self.deaths.on_death(node_state.peer.incarnation_key)
        self.do(Crash((node,), silent))

    def _crash(self, *, silent: bool) -> bool:
        if not self.may_lose():
            return False
        self.kill(self.random.choice(self.up()), silent=silent)
        return True

    def _adjacent(self) -> bool:
        """Cut the power of ring neighbours together: as many as the leaf sets must bear."""
        most = min(self.scenario.max_down, self.ring.config.leaf_count // 2 - 1)
        up = self.up()
        if most < 2:
            return False
        count = 2 + self.random.index(most - 1)
        if not self.may_lose(count):
            return False
        first = self.random.index(len(up))
        for step in range(count):
            self.kill(up[(first + step) % len(up)], silent=True)
        return True

    def _restart(self) -> bool:
        """Restart a node that is down, or kill one and restart it before any other has noticed."""
        down, seeds = self.down(), self.seeds()
        if not down and self.may_lose():
            down = [self.random.choice(self.up())]
            self.kill(down[0], silent=bool(self.random.index(2)))
            seeds = [seed for seed in seeds if seed != down[0]]
        if not down or not seeds:
            return False
        self.start(self.random.choice(down), seeds)
        return True

    def _image(self) -> bool:
        """Restart a node from an old image of its disk: with an incarnation that was used before."""
        down, seeds = self.down(), self.seeds()
        if not down or not seeds:
            return False
        node = self.random.choice(down)
        old = self.ring.world.nodes[node].peer
        self.disturb(node, 10 * SECOND)
        self.deaths.on_return(old.incarnation_key)
        self.ring.start(node, seeds, peer=old, forgets=True)
        return True

    def _leave(self) -> bool:
        if not self.may_lose():
            return False
        self.ring.world.inject(self.random.choice(self.up()), LeaveRing())
        return True

    # ---- hindering nodes

    def _nap(self, node: NodeId) -> None:
        self.pause(node, int(self.scenario.max_pause_ms * MILLISECOND * self.random.uniform()))

    def pause(self, node: NodeId, duration: int) -> None:
        """Let a node sleep for so many nanoseconds."""
        self.disturb(node, duration)
        self.do(Pause(node, duration))

    def _pause(self) -> bool:
        up = self.up()
        if len(up) < 3:
            return False
        self._nap(self.random.choice(up))
        return True

    def _pauses(self) -> bool:
        """Let ring neighbours sleep at once: a machine with several virtual nodes is moved."""
        up = self.up()
        if len(up) < 8:
            return False
        first = self.random.index(len(up))
        for step in range(2 + self.random.index(3)):
            self._nap(up[(first + step) % len(up)])
        return True

    def _row(self) -> bool:
        """Let ring neighbours fall asleep together and wake up together, when the others may have closed the range over them."""
        up = self.up()
        if len(up) < 8:
            return False
        first, duration = (
            self.random.index(len(up)),
            int(self.scenario.max_pause_ms * MILLISECOND * self.random.uniform()),
        )
        for step in range(2 + self.random.index(4)):
            self.pause(up[(first + step) % len(up)], duration)
        return True

    def _stutter(self) -> bool:
        """Let a node be late with everything for some seconds."""
        up = self.up()
        if len(up) < 3:
            return False
        node = self.random.choice(up)
        duration = int(20 * SECOND * self.random.uniform())
        self.disturb(node, duration)
        self.do(Stutter(node, (50 + self.random.index(900)) * MILLISECOND))
        self.ring.world.call(duration, lambda: self.do(Stutter(node, 0)))
        return True

    def _clock(self) -> bool:
        up = self.up()
        if not up or not self.scenario.drift_ppm:
            return False
        self.do(Drift(self.random.choice(up), self.rate_ppb()))
        return True

    def _weather(self) -> bool:
        scenario, random = self.scenario, self.random
        if scenario.burst or scenario.spike:
            self.disturb_network(0)
        self.do(self.weather(random.uniform()))
        return True

    def _topic(self) -> bool:
        """Let a node join a tree, or leave it."""
        up = self.up()
        if not up:
            return False
        topic = TOPICS[self.random.index(len(TOPICS))] >> (ID_BITS - self.scenario.id_bits)
        event = (LeaveTopic if self.random.uniform() < 0.3 else JoinTopic)(NodeId(topic))
        self.ring.world.inject(self.random.choice(up), event)
        return True

    def _watch(self) -> bool:
        """Let a node watch others, as the hosts of an application do, or stop watching them."""
        up = self.up()
        if len(up) < 3:
            return False
        node = self.random.choice(up)
        for other in up:
            if other != node and self.random.uniform() < 0.5:
                peer = self.ring.world.nodes[other].peer
                self.ring.world.inject(node, UnwatchPeer(other) if self.random.uniform() < 0.2 else WatchPeer(peer))
        return True

    def weather(self, share: float) -> Weather:
        """Return the scenario's weather, scaled by a share."""
        scenario = self.scenario
        return Weather(
            scenario.loss * share,
            scenario.duplicate,
            scenario.reorder * share,
            scenario.burst * share,
            scenario.spike * share,
            scenario.spike_ms * MILLISECOND,
        )

    # ---- the quiet phase

    def calm_down(self) -> None:
        """Undo all faults that are not meant to stay."""
        self._links.calm_down()
        self.calms += 1
        self.cut = {}
        self.clogged = {end: min(until, self.ring.world.now) for end, until in self.clogged.items()}
        self.do(Heal())
        for node in self.ring.world.live:
            if node.stutter_ns:
                self.do(Stutter(node.peer.node, 0))

    def break_for_good(self) -> None:
        """Apply one fault that stays, around a core of healthy nodes that must not depend on it."""
        kind, up = self.scenario.permanent, self.up()
        if kind == "none" or len(up) < 4:
            return
        self.random.shuffle(up)
        first, second = up[:2]
        self.faulty = (first, second) if kind == "oneway" else (first,)
        for node in self.faulty:
            self.disturb(node, 3_600 * SECOND)
        self.disturb_network(0)
        if kind not in ("dead", "stutter"):
            self.on_split()
        if kind == "dead":
            self.kill(first, silent=True)
        elif kind in ("mute", "deaf"):
            self.do(Mute(first) if kind == "mute" else Deafen(first))
        elif kind == "oneway":
            self.do(Clog(first, second))
        elif kind == "stutter":
            self.do(Stutter(first, (300 + self.random.index(700)) * MILLISECOND))
        else:
            self._links.flap_on(first, (500 + self.random.index(4_500)) * MILLISECOND, 1_000, self.calms)
        self.count(f"permanent-{kind}")


def _clustered(ids: list[NodeId], width: int, bits: int, random: RandomStream) -> list[NodeId]:
    """Return ids of which four of five are close together, so that many nodes join in one key range."""
    near = [NodeId((ids[0] + random.index(width)) % (1 << bits)) if random.uniform() < 0.8 else node for node in ids]
    return [first if near.index(first) == place else ids[place] for place, first in enumerate(near)]
