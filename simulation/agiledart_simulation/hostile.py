"""What a hostile run does to a ring: one method for each kind of a scenario. Each returns whether it could be done now.

The other half of its work is to remember what was done, because the checkers must know which complaints are just: who is down, who
is cut off, who was disturbed until when.
"""

from collections.abc import Callable
from functools import partial

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import ID_BITS, NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.events import LeaveRing, Unwatch, Watch
from agiledart_overlay.scribe.events import JoinTopic, LeaveTopic
from agiledart_overlay.scribe.messages import topic_id
from agiledart_simulation.checkers.deaths import DeathLedger
from agiledart_simulation.faults import (
    Clog,
    Crash,
    Deafen,
    Drift,
    Fault,
    Heal,
    Hold,
    Mute,
    Partition,
    Pause,
    Restore,
    Stutter,
    Unclog,
    Weather,
    apply,
)
from agiledart_simulation.reach import is_connected
from agiledart_simulation.ring import Ring, simulated_ids
from agiledart_simulation.scenario import Scenario

TOPICS = (topic_id("simulated", "first"), topic_id("simulated", "second"))
"""Trees that nodes join and leave."""

_CALM_NS = 4 * SECOND
"""Time after a disturbance in which false alarms are forgiven."""


class Hostile:
    """The nemesis of one ring.

    Args:
        ring: what is harassed.
        scenario: how.
        on_crash: told of a node before it dies.
        on_split: told when nodes are cut off, so that there may be two rings.
    """

    def __init__(
        self, ring: Ring, scenario: Scenario, on_crash: Callable[[NodeId], None], on_split: Callable[[], None]
    ) -> None:
        self.ring, self.scenario, self._on_crash, self._on_split = ring, scenario, on_crash, on_split
        self.random = RandomStream(scenario.seed, "hostile")
        ids = simulated_ids(scenario.seed, scenario.most_ids, scenario.id_bits)
        self.ids, self.unused = ids[: scenario.nodes], ids[scenario.nodes :]
        self.cut: dict[NodeId, None] = {}
        self.reached: dict[str, int] = {}
        self.faults: list[tuple[int, Fault]] = []
        self.faulty: tuple[NodeId, ...] = ()
        """Nodes that stay broken in the quiet phase."""
        self._disturbed: dict[NodeId, int] = {}
        self._network_until = self._clogged_until = 0
        self._cuts = 0
        self._calms = 0
        """How often all was undone; what goes on by itself stops then."""
        self._flapping = False
        self.deaths = DeathLedger(ring.world, self.is_calm)
        ring.listeners.append(self.deaths.on_effect)
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
            "stutter": self._stutter,
            "clock": self._clock,
            "island": lambda: self._partition(1, 1),
            "partition": lambda: self._partition(1, 2),
            "split": lambda: self._partition(2, 2),
            "oneway": self._oneway,
            "flap": self._flap,
            "clog": self._clog,
            "swizzle": self._swizzle,
            "weather": self._weather,
            "topic": self._topic,
            "watch": self._watch,
        }

    def act(self, kind: str) -> bool:
        """One hostile thing; false when it makes no sense now."""
        done = self._kinds[kind]()
        if done:
            self.count(kind)
        return done

    def count(self, kind: str) -> None:
        """One more thing of a kind happened."""
        self.reached[kind] = self.reached.get(kind, 0) + 1

    def do(self, fault: Fault) -> None:
        """Let a fault happen, and note it."""
        self.faults.append((self.ring.world.now, fault))
        apply(self.ring.world, fault)
        self._look_for_parts()

    def _look_for_parts(self) -> None:
        """Links that are cut or held one by one part the members when no chain of open ones is left for as long as a lease."""
        world = self.ring.world
        until = world.now + self.ring.config.lease_ns
        awake = [node.peer.node for node in world.live if node.machine.joined and node.paused_until <= until]
        if not is_connected(awake, partial(world.network.is_open, until=until)):
            self._on_split()

    # ---- the truth

    def up(self) -> list[NodeId]:
        """Members that are up and not cut off."""
        return [
            node.peer.node for node in self.ring.world.live if node.machine.joined and node.peer.node not in self.cut
        ]

    def down(self) -> list[NodeId]:
        """Nodes that are down."""
        return [node for node, life in sorted(self.ring.world.nodes.items()) if not life.is_up]

    def is_calm(self, a: NodeId, b: NodeId) -> bool:
        """Whether nothing excuses that one of them takes the other for dead."""
        now, config = self.ring.world.now, self.ring.world.network.config
        is_wild = (
            config.loss > 0.05
            or config.burst_start
            or config.host_rate
            or (config.spike and config.spike_ns > 150_000_000)
        )
        if is_wild or now < self._network_until:
            return False
        return now >= self._disturbed.get(a, 0) and now >= self._disturbed.get(b, 0)

    def _disturb(self, node: NodeId, duration_ns: int) -> None:
        until = self.ring.world.now + duration_ns + _CALM_NS
        self._disturbed[node] = max(until, self._disturbed.get(node, 0))

    def _disturb_network(self, duration_ns: int) -> None:
        self._network_until = max(self._network_until, self.ring.world.now + duration_ns + _CALM_NS)

    def _may_lose(self, count: int = 1) -> bool:
        return len(self.down()) + len(self.cut) + count <= self.scenario.max_down and len(self.up()) > count + 1

    def seeds(self) -> list[NodeId]:
        """Whom a starting node is told of."""
        up = self.up()
        self.random.shuffle(up)
        return up[: self.scenario.seeds_each]

    def rate_ppb(self) -> int:
        """How wrong the next clock is."""
        return int(self.scenario.drift_ppm * 1_000 * self.random.between(-1.0, 1.0))

    def peer(self, node: NodeId) -> Peer:
        """The handle of a node's first life."""
        zone = f"zone{int(node) % self.scenario.zones}" if self.scenario.zones else ""
        return Peer(node, 1, "", "", zone)

    # ---- coming and going

    def start(self, node: NodeId, seeds: list[NodeId]) -> None:
        """Start a node, or its next life."""
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
        """Several come within an instant, some of them into the same gap."""
        seeds = self.seeds()
        count = min(2 + self.random.index(4), len(self.unused))
        if count < 2 or not seeds:
            return False
        for _ in range(count):
            self.start(self.unused.pop(), seeds)
        return True

    def kill(self, node: NodeId, *, silent: bool) -> None:
        """End a node now."""
        life = self.ring.world.nodes[node]
        self._on_crash(node)
        self.deaths.on_death(life.peer.life)
        self.do(Crash((node,), silent))

    def _crash(self, *, silent: bool) -> bool:
        if not self._may_lose():
            return False
        self.kill(self.random.choice(self.up()), silent=silent)
        return True

    def _adjacent(self) -> bool:
        """Ring neighbours lose power together: as many as the leaf sets must bear."""
        most = min(self.scenario.max_down, self.ring.config.leaf_count // 2 - 1)
        up = self.up()
        if most < 2:
            return False
        count = 2 + self.random.index(most - 1)
        if not self._may_lose(count):
            return False
        first = self.random.index(len(up))
        for step in range(count):
            self.kill(up[(first + step) % len(up)], silent=True)
        return True

    def _restart(self) -> bool:
        """A node that is down comes back, or one that is up is killed and comes back before anybody has noticed."""
        down, seeds = self.down(), self.seeds()
        if not down and self._may_lose():
            down = [self.random.choice(self.up())]
            self.kill(down[0], silent=bool(self.random.index(2)))
            seeds = [seed for seed in seeds if seed != down[0]]
        if not down or not seeds:
            return False
        self.start(self.random.choice(down), seeds)
        return True

    def _image(self) -> bool:
        """A node comes back from an old image of its disk: with an incarnation that was used before."""
        down, seeds = self.down(), self.seeds()
        if not down or not seeds:
            return False
        node = self.random.choice(down)
        old = self.ring.world.nodes[node].peer
        self._disturb(node, 10 * SECOND)
        self.deaths.on_return(old.life)
        self.ring.start(node, seeds, peer=old, forgets=True)
        return True

    def _leave(self) -> bool:
        if not self._may_lose():
            return False
        self.ring.world.inject(self.random.choice(self.up()), LeaveRing())
        return True

    # ---- hindering nodes

    def _nap(self, node: NodeId) -> None:
        duration = int(self.scenario.max_pause_ms * MILLISECOND * self.random.uniform())
        self._disturb(node, duration)
        self.do(Pause(node, duration))

    def _pause(self) -> bool:
        up = self.up()
        if len(up) < 3:
            return False
        self._nap(self.random.choice(up))
        return True

    def _pauses(self) -> bool:
        """Ring neighbours sleep at once: a machine with several virtual nodes is moved."""
        up = self.up()
        if len(up) < 8:
            return False
        first = self.random.index(len(up))
        for step in range(2 + self.random.index(3)):
            self._nap(up[(first + step) % len(up)])
        return True

    def _stutter(self) -> bool:
        """A node is late with everything for some seconds."""
        up = self.up()
        if len(up) < 3:
            return False
        node = self.random.choice(up)
        duration = int(20 * SECOND * self.random.uniform())
        self._disturb(node, duration)
        self.do(Stutter(node, (50 + self.random.index(900)) * MILLISECOND))
        self.ring.world.call(duration, lambda: self.do(Stutter(node, 0)))
        return True

    def _clock(self) -> bool:
        up = self.up()
        if not up or not self.scenario.drift_ppm:
            return False
        self.do(Drift(self.random.choice(up), self.rate_ppb()))
        return True

    # ---- hindering the network

    def _partition(self, sides: int, share: int) -> bool:
        """Cut off one node (share 1), or up to half of all on each further side; healed after a while."""
        up = self.up()
        if self.cut or len(up) < 3:
            return False
        self.random.shuffle(up)
        groups = []
        for _ in range(sides):
            count = 1 if share == 1 else 1 + self.random.index(max(1, len(up) // (sides + 1)))
            groups.append(tuple(up[:count]))
            del up[:count]
        self.cut = {node: None for group in groups for node in group}
        self._on_split()
        self.do(Partition(groups[0], tuple(groups[1:])))
        self._until_healed(int(30 * SECOND * self.random.uniform()))
        return True

    def _until_healed(self, duration_ns: int) -> None:
        self._disturb_network(duration_ns)
        self._cuts += 1
        number = self._cuts

        def heal() -> None:
            if self._cuts == number:
                self.do(Partition(()))
                self.cut = {}

        self.ring.world.call(duration_ns, heal)

    def _oneway(self) -> bool:
        """A node speaks and hears nothing, or the other way round, for a while."""
        up = self.up()
        if self.cut or len(up) < 3:
            return False
        node = self.random.choice(up)
        duration = int(20 * SECOND * self.random.uniform())
        self._disturb_network(duration)
        self._on_split()
        self.do(Mute(node) if self.random.index(2) else Deafen(node))
        self.ring.world.call(duration, lambda: self.do(Restore(node)))
        return True

    def _flap(self) -> bool:
        """A node's connection comes and goes for a while."""
        up = self.up()
        if self.cut or len(up) < 3:
            return False
        node = self.random.choice(up)
        period = (100 + self.random.index(4_000)) * MILLISECOND
        rounds = 2 + self.random.index(8)
        self._disturb_network(period * rounds)
        self._on_split()
        self._flap_on(node, period, rounds, self._calms)
        return True

    def _flap_on(self, node: NodeId, period: int, rounds: int, calms: int) -> None:
        if self._calms != calms:
            return
        world = self.ring.world
        duty = self.random.between(0.1, 0.9)
        self.do(Mute(node))
        self.do(Deafen(node))
        world.call(int(period * duty), lambda: self.do(Restore(node)))
        if rounds > 1:
            world.call(period, lambda: self._flap_on(node, period, rounds - 1, calms))

    def _clog(self) -> bool:
        """One direction between two nodes loses everything for a while; all others still reach both.

        Unless another link is closed, too: then helpers may fail who would have told that the other end lives.
        """
        up = self.up()
        if len(up) < 3:
            return False
        self.random.shuffle(up)
        duration = int(20 * SECOND * self.random.uniform())
        if self._clogged_until > self.ring.world.now:
            self._disturb_network(duration)
        self._clogged_until = max(self._clogged_until, self.ring.world.now + duration)
        self.do(Clog(up[0], up[1]))
        self.ring.world.call(duration, lambda: self.do(Unclog(up[0], up[1])))
        return True

    def _swizzle(self) -> bool:
        """Stop a random subset of links one by one, and release them in another order. They may part the members for a while."""
        up = self.up()
        if len(up) < 3:
            return False
        links = [(a, b) for a in up for b in up if a != b]
        self.random.shuffle(links)
        links = links[: 2 + self.random.index(min(10, len(links) - 1))]
        gap = (20 + self.random.index(500)) * MILLISECOND
        ends = list(range(len(links)))
        self.random.shuffle(ends)
        self._disturb_network(2 * gap * len(links))
        calms = self._calms
        for start, (end, (a, b)) in enumerate(zip(ends, links, strict=True)):
            stop_at, free_at = gap * start, gap * (len(links) + end)
            hold = partial(self._hold, Hold(a, b, free_at - stop_at), calms)
            self.ring.world.call(stop_at, hold)
        return True

    def _hold(self, hold: Hold, calms: int) -> None:
        if self._calms == calms:
            self.do(hold)

    def _weather(self) -> bool:
        scenario, random = self.scenario, self.random
        if scenario.burst or scenario.spike:
            self._disturb_network(0)
        self.do(self.weather(random.uniform()))
        return True

    def _topic(self) -> bool:
        """A node joins a tree, or leaves it."""
        up = self.up()
        if not up:
            return False
        topic = TOPICS[self.random.index(len(TOPICS))] >> (ID_BITS - self.scenario.id_bits)
        event = (LeaveTopic if self.random.uniform() < 0.3 else JoinTopic)(NodeId(topic))
        self.ring.world.inject(self.random.choice(up), event)
        return True

    def _watch(self) -> bool:
        """A node takes an interest in others, as the hosts of an application do, or loses it."""
        up = self.up()
        if len(up) < 3:
            return False
        node = self.random.choice(up)
        for other in up:
            if other != node and self.random.uniform() < 0.5:
                peer = self.ring.world.nodes[other].peer
                self.ring.world.inject(node, Unwatch(other) if self.random.uniform() < 0.2 else Watch(peer))
        return True

    def weather(self, share: float) -> Weather:
        """The scenario's weather, so bad."""
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
        """Undo all that is not meant to stay."""
        self._cuts += 1
        self._calms += 1
        self.cut = {}
        self.do(Heal())
        for node in self.ring.world.live:
            if node.stutter_ns:
                self.do(Stutter(node.peer.node, 0))

    def break_for_good(self) -> None:
        """One fault that stays, around a core of healthy nodes that must not care."""
        kind, up = self.scenario.permanent, self.up()
        if kind == "none" or len(up) < 4:
            return
        self.random.shuffle(up)
        first, second = up[:2]
        self.faulty = (first, second) if kind == "oneway" else (first,)
        for node in self.faulty:
            self._disturb(node, 3_600 * SECOND)
        self._disturb_network(0)
        if kind not in ("dead", "stutter"):
            self._on_split()
        if kind == "dead":
            self.kill(first, silent=True)
        elif kind in ("mute", "deaf"):
            self.do(Mute(first) if kind == "mute" else Deafen(first))
        elif kind == "oneway":
            self.do(Clog(first, second))
        elif kind == "stutter":
            self.do(Stutter(first, (300 + self.random.index(700)) * MILLISECOND))
        else:
            self._flap_on(first, (500 + self.random.index(4_500)) * MILLISECOND, 1_000, self._calms)
        self.count(f"permanent-{kind}")
