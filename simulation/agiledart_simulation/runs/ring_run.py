"""Run of a ring's scenario: a phase of faults in which safety is checked, then quiet, after which everything must be right again.

One fault may stay in the quiet phase; then the healthy core must be right without the broken node's help.
"""

from dataclasses import replace

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import ID_BITS, NodeId, key_of_name
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.overlay_machine import OverlayMachine
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.effects import JoinFailed
from agiledart_overlay.wire.events import StoreRecord
from agiledart_simulation.checkers.leaf_sets import (
    core_violations,
    leaf_violations,
    stale_violations,
)
from agiledart_simulation.checkers.lookup_ledger import LookupLedger
from agiledart_simulation.checkers.ownership_checker import OwnershipChecker, ring_violations
from agiledart_simulation.checkers.periodic_checks import PeriodicChecks, machine_violations
from agiledart_simulation.checkers.record_ledger import RecordLedger
from agiledart_simulation.checkers.routing import root_of, route_violations
from agiledart_simulation.checkers.trees import tree_violations
from agiledart_simulation.runs.ring_nemesis import TOPICS, RingNemesis
from agiledart_simulation.runs.run_report import RunReport
from agiledart_simulation.runs.scenario import Scenario, draw
from agiledart_simulation.world.faults import Weather
from agiledart_simulation.world.latency_models import Latency
from agiledart_simulation.world.network import NetworkConfig
from agiledart_simulation.world.overlay_ring import OverlayRing
from agiledart_simulation.world.trace import Trace

_KEYS = 6
_LOOKUPS_A_STEP = 2
_LOOKUP_TIMEOUT_NS = 30 * SECOND
"""Time after which no look-up is in progress any more: it was delivered or given up."""

_CUTTING = ("island", "partition", "split", "oneway", "flap", "clog", "swizzle")
_MAX_VIOLATIONS = 50


def config_of(scenario: Scenario) -> OverlayConfig:
    """Return the overlay's settings in a scenario: the preset of agents with the scenario's sizes."""
    presets = {"lan": OverlayConfig.lan(), "wan": OverlayConfig.wan()}
    return replace(
        presets.get(scenario.preset) or OverlayConfig.simulation(scenario.nodes),
        id_bits=scenario.id_bits,
        digit_bits=scenario.digit_bits,
        leaf_count=scenario.leaf_count,
        replicas=min(4, scenario.leaf_count),
    )


def network_of(scenario: Scenario) -> NetworkConfig:
    """Return the network of a scenario: that of a quiet local network, or slow links, mostly by distance."""
    if not scenario.link_ms:
        return NetworkConfig(host_rate=scenario.host_rate)
    percent = scenario.link_ms * MILLISECOND // 100
    return NetworkConfig(5 * percent, 70 * percent, 25 * percent, host_rate=scenario.host_rate)


class RingRun:
    """One run of one scenario.

    Attributes:
        watched_keys: number of keys watched for the time that they have no owner.
    """

    watched_keys = 16

    def __init__(
        self,
        scenario: Scenario,
        config: OverlayConfig | None = None,
        *,
        checks_wire: bool = True,
        latency: Latency | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.scenario = scenario
        self.trace = trace or Trace()
        self.ring = OverlayRing(
            scenario.seed,
            config or config_of(scenario),
            network_of(scenario),
            checks_wire=checks_wire,
            trace=self.trace,
            queue=scenario.queue,
            latency=latency,
        )
        self.bits = self.ring.config.id_bits
        self.random = RandomStream(scenario.seed, "run")
        self.lookups = LookupLedger(self.bits, self.ring.config.digit_bits)
        self.looks = PeriodicChecks(self.ring.world)
        self.owners = OwnershipChecker(self.ring.world, self.bits, self.watched_keys)
        self.hostile = RingNemesis(self.ring, scenario, self._on_crash, self._on_split)
        self.records = RecordLedger()
        # In a partition each side has a root: a write that one side confirms may lose against the other side's.
        self.records.is_single = not any(kind in _CUTTING for kind in scenario.kinds) and scenario.permanent == "none"
        self.writes: dict[tuple[NodeId, int], tuple[NodeId, bytes]] = {}
        self.lost_records: dict[NodeId, None] = {}
        self.violations: dict[str, None] = {}
        self._request = 1_000_000
        self.ring.listeners.append(self.lookups.on_effect)
        self.ring.listeners.append(self._on_effect)

    def run(self) -> RunReport:
        """Build the ring, apply faults, let it rest, check the outcome."""
        hostile, world = self.hostile, self.ring.world
        self._build()
        self._harass()
        quiet_ns = self._rest()
        self._check_outcome()
        self._check_always()
        reached = {**hostile.reached, **{f"message-{what}": n for what, n in world.network.reached.items()}}
        return RunReport(
            violations=tuple(self.violations)[:_MAX_VIOLATIONS],
            events=world.events,
            messages=world.messages_sent,
            digest=self.trace.digest,
            virtual_s=round(world.now / SECOND, 3),
            quiet_ns=quiet_ns,
            lookups=self.lookups.sent,
            duplicates=self.lookups.duplicates,
            unowned_ms=self.owners.longest_ns // MILLISECOND,
            false_alarms=hostile.deaths.false_alarms,
            reached=tuple(sorted(reached.items())),
        )

    def complain(self, lines: list[str]) -> None:
        """Report violations."""
        for line in lines:
            if len(self.violations) < _MAX_VIOLATIONS:
                self.violations[line] = None

    # ---- the hostile phase

    def _build(self) -> None:
        """Build a ring by real joins, one after the other."""
        ring, hostile = self.ring, self.hostile
        hostile.start(hostile.ids[0], [])
        for index, node in enumerate(hostile.ids[1:], start=1):
            ring.world.run_for(SECOND // 20)
            hostile.start(node, [hostile.ids[self.random.index(index)], hostile.ids[0]])
        if not ring.world.run_until(lambda: all(machine.joined for machine in ring.machines), 120 * SECOND):
            self.complain(["build: some nodes did not join"])

    def _harass(self) -> None:
        scenario = self.scenario
        self.hostile.do(self.hostile.weather(1.0))
        for _ in range(scenario.steps):
            self._step(self.random.choice(scenario.kinds))
            self.ring.world.run_for(int(scenario.step_ms * MILLISECOND * self.random.uniform()))
            self._check_always()

    def _step(self, kind: str) -> None:
        if kind == "write":
            done = self._write()
        elif kind == "route":
            done = self._look_up()
        else:
            done = self.hostile.act(kind)
            self._note_lost_records()
            kind = ""
        if done and kind:
            self.hostile.count(kind)
        for _ in range(_LOOKUPS_A_STEP):
            self._look_up()

    def _write(self) -> bool:
        up = self.hostile.up()
        if not up:
            return False
        node = self.random.choice(up)
        key = NodeId(key_of_name("test", str(self.random.index(_KEYS))) >> (ID_BITS - self.bits))
        known = self.records.version(key)
        self._request += 1
        value = f"{node.short} {self._request}".encode()
        self.writes[node, self._request] = (key, value)
        self.records.write(key, known + 1, value)
        self.ring.world.inject(node, StoreRecord(self._request, key, known, value))
        return True

    def _look_up(self) -> bool:
        up = self.hostile.up()
        if not up:
            return False
        key = NodeId(self.random.bits(self.bits))
        self.ring.route(self.random.choice(up), key, self.lookups.send(key, self.ring.world.now))
        return True

    # ---- bookkeeping

    def _on_crash(self, node: NodeId) -> None:
        self._collect()
        self.lookups.on_crash(self.ring.machine(node))

    def _on_split(self) -> None:
        """Note that the network is cut: each side has its own owners, until all is one ring again."""
        self.owners.is_whole = False

    def _on_effect(self, peer: Peer, effect: Effect) -> None:
        """Restart a node that gave up joining after a while, as its operator would."""
        if isinstance(effect, JoinFailed):
            self.ring.world.call(5 * SECOND, lambda: self._start_again(peer))

    def _start_again(self, peer: Peer) -> None:
        node_state = self.ring.world.nodes[peer.node]
        seeds = [node for node in self.hostile.up() if node != peer.node][:3]
        if (
            node_state.is_up
            and node_state.peer.incarnation_key == peer.incarnation_key
            and not node_state.machine.joined
            and seeds
        ):
            self.hostile.kill(peer.node, silent=False)
            self.hostile.start(peer.node, seeds)

    def _collect(self) -> None:
        world = self.ring.world
        for peer in self.ring.left:
            node_state = world.nodes[peer.node]
            if node_state.is_up and node_state.peer.incarnation_key == peer.incarnation_key:
                self.lookups.on_crash(node_state.machine)
                self.hostile.deaths.on_death(peer.incarnation_key)
                world.crash(peer.node)
        self.ring.left.clear()
        for asked, (key, value) in list(self.writes.items()):
            answer = self.ring.answers.pop(asked, None)
            if answer is None:
                continue
            del self.writes[asked]
            if answer.ok:
                self.records.confirm(key, answer.version, value)
            elif answer.reason == "conflict":
                self.records.learn(key, answer.version)

    def _note_lost_records(self) -> None:
        """Note records whose last replica node died: no promise covers them."""
        self._collect()
        held = self.records.held(self.ring.machines)
        for key in self.records.keys:
            if key not in held:
                self.lost_records[key] = None

    def _check_always(self) -> None:
        """Check the invariants that must hold at any time."""
        self._collect()
        self.complain(self.looks.violations)
        self.complain(machine_violations(self.ring.machines))
        self.complain(self.lookups.violations)
        self.complain(self.hostile.deaths.violations)
        self.complain(self.hostile.deaths.stale_violations())
        self.complain(self.owners.violations)

    # ---- the quiet phase

    @property
    def core(self) -> list[OverlayMachine]:
        """Return the machines of the nodes that are not broken for good."""
        return [machine for machine in self.ring.machines if machine.me.node not in self.hostile.faulty]

    def _rest(self) -> int:
        """End all faults except the permanent one; return the time until everything was right, in nanoseconds."""
        scenario, world = self.scenario, self.ring.world
        self.hostile.calm_down()
        awake_at = max((node.paused_until for node in world.live), default=0)
        world.run_for(max(0, awake_at - world.now))
        self.hostile.break_for_good()
        self._note_lost_records()
        started = world.now
        world.run_until(self._is_quiet, scenario.quiet_s * SECOND, SECOND // 2)
        quiet_ns = world.now - started
        self.owners.is_whole = not self.hostile.faulty and not self._ring_faults()
        world.run_for(_LOOKUP_TIMEOUT_NS)
        return quiet_ns

    def _is_quiet(self) -> bool:
        self._collect()
        return not self._ring_faults() and not self._record_faults() and not self._tree_faults()

    def _ring_faults(self) -> list[str]:
        ring, core, faulty = self.ring, self.core, self.hostile.faulty
        outside = [f"join: {machine.me.node.short} is no member" for machine in core if not machine.joined]
        if outside:
            return outside
        if faulty:
            return core_violations(core, faulty, ring.config.leaf_count)
        return [*leaf_violations(core, ring.config.leaf_count), *self._owner_faults()]

    def _tree_faults(self) -> list[str]:
        """Return violations of tr_1, which holds when the ring is quiet."""
        if self.hostile.faulty or "topic" not in self.scenario.kinds:
            return []
        topics = [NodeId(topic >> (ID_BITS - self.bits)) for topic in TOPICS]
        machines, most = self.ring.machines, self.ring.config.max_children
        return [line for topic in topics for line in tree_violations(machines, topic, self.bits, most)]

    def _owner_faults(self) -> list[str]:
        """Return keys without one owner, and wrong agreed neighbours. Valid when the ring is quiet.

        A member without a lease owns nothing. So all keys may be owned while it still takes itself for part of another ring.
        """
        self.owners.check_all()
        violations = ring_violations(self.ring.machines, self.ring.world.now)
        if not self.owners.is_complete:
            free = (1 << self.bits) - self.owners.owned
            violations.append(f"I6: {free} keys have no owner")
        return violations

    def _record_faults(self) -> list[str]:
        if self.hostile.faulty:
            return []
        violations = self.records.violations(self.ring.machines, self.bits, self.ring.config.replicas)
        return [line for line in violations if not any(key.short in line for key in self.lost_records)]

    def _check_outcome(self) -> None:
        ring, config, core = self.ring, self.ring.config, self.core
        self.complain(self._ring_faults())
        self.complain(self._record_faults())
        self.complain(self._tree_faults())
        machines = [machine for machine in core if machine.joined]
        if not machines:
            self.complain(["ring: no node is left in it"])
            return
        self.complain(self.lookups.balance_violations(ring.machines))
        if not self.hostile.faulty:
            incarnations = {node: node_state.peer.incarnation for node, node_state in ring.world.nodes.items()}
            self.complain(stale_violations(machines, incarnations))
            keys = [NodeId(self.random.bits(self.bits)) for _ in range(50)]
            sources = [self.random.choice(machines).me.node for _ in keys]
            self.complain(route_violations(machines, keys, sources, self.bits, config.digit_bits))
        self._check_deliveries(Weather(0.0, 0.2, 0.0), machines, 20, exactly=True)
        self._check_deliveries(Weather(0.05, 0.05, 0.1), machines, 20, exactly=False)
        self.hostile.do(Weather(0.0, 0.0, 0.0))
        if not self.hostile.faulty:
            self._check_conflicts(machines[0].me.node)

    def _check_deliveries(self, weather: Weather, machines: list[OverlayMachine], count: int, *, exactly: bool) -> None:
        """Check rt_2: real messages arrive, once, at the right node; keys that may concern the broken node are left out."""
        ring, random = self.ring, self.random
        self.hostile.do(weather)
        healthy = sorted(machine.me.node for machine in machines)
        all_nodes = sorted((*healthy, *(node for node in self.hostile.faulty if ring.world.nodes[node].is_up)))
        first = self.lookups.sent
        wanted = []
        for _ in range(count):
            key = NodeId(random.bits(self.bits))
            root = root_of(healthy, key, self.bits)
            if root_of(all_nodes, key, self.bits) == root:
                wanted.append(root)
                ring.route(random.choice(healthy), key, self.lookups.send(key, ring.world.now))
        ring.world.run_for(3 * SECOND if exactly and not self.hostile.faulty else 15 * SECOND)
        doubles = 0
        for number, root in enumerate(wanted, start=first):
            at = self.lookups.outcome(number)
            doubles += max(0, len(at) - 1)
            if not at or any(node != root for node in at) or (exactly and len(at) > 1 and not self.hostile.faulty):
                self.complain([f"rt_2: look-up {number} at {[node.short for node in at]}, not once at {root.short}"])
        if doubles > max(2, count // 10):
            self.complain([f"rt_2: {doubles} of {count} look-ups arrived more than once"])

    def _check_conflicts(self, node: NodeId) -> None:
        """Check that records can be read, and written again with the version that was read."""
        for key in self.records.keys:
            if key in self.lost_records:
                continue
            read = self.ring.read(node, key)
            if not read.ok:
                self.complain([f"record {key.short}: read says {read.reason}"])
                continue
            written = self.ring.store(node, key, read.version, b"last")
            if not written.ok:
                self.complain([f"record {key.short}: write says {written.reason}"])


def run_seed(seed: int, most_nodes: int = 25, *, checks_wire: bool = True) -> RunReport:
    """Run the scenario of one seed."""
    return RingRun(draw(seed, most_nodes), checks_wire=checks_wire).run()
