"""Runs a scenario: a hostile phase in which safety is checked, then quiet, after which everything must be right again.

`python -m agiledart_simulation.runner --seeds 100-160` runs seeds and prints one line for each; a failing one prints its options
and what is wrong. Exit code 1 when one failed.
"""

import argparse
import sys
from dataclasses import dataclass

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import ID_BITS, NodeId, key_of_name
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.config import OverlayConfig
from agiledart_overlay.events import LeaveRing, StoreRecord
from agiledart_simulation.checkers.records import RecordLedger
from agiledart_simulation.checkers.ring import leaf_violations, stale_violations, table_violations
from agiledart_simulation.checkers.routing import root_of, route_violations
from agiledart_simulation.faults import Crash, Heal, Partition, Pause, Weather, apply
from agiledart_simulation.ring import Ring, simulated_ids
from agiledart_simulation.scenario import Scenario, draw
from agiledart_simulation.trace import Trace

_KEYS = 6
_QUIET_NS = 60 * SECOND
"""Time after the last fault in which the ring must be right again."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a run.

    Args:
        violations: empty when all is well.
        events: steps taken by all machines.
        digest: of the whole run.
        quiet_ns: virtual time from the last fault until everything was right.
        reached: how often each kind of thing happened.
    """

    violations: tuple[str, ...]
    events: int
    digest: str
    quiet_ns: int
    reached: tuple[tuple[str, int], ...]


class Run:
    """One run of one scenario."""

    def __init__(self, scenario: Scenario, config: OverlayConfig | None = None, *, checks_wire: bool = True) -> None:
        self.scenario = scenario
        self.trace = Trace()
        self.ring = Ring(scenario.seed, config, checks_wire=checks_wire, trace=self.trace)
        self.random = RandomStream(scenario.seed, "hostile")
        self.ids = simulated_ids(scenario.seed, scenario.nodes + scenario.steps)
        self.unused = self.ids[scenario.nodes :]
        self.ledger = RecordLedger()
        self.writes: dict[tuple[NodeId, int], tuple[NodeId, bytes]] = {}
        self.lost_records: dict[NodeId, None] = {}
        self.violations: list[str] = []
        self.reached: dict[str, int] = {}
        self.cut: tuple[NodeId, ...] = ()
        self._request = 1_000_000

    def run(self) -> Report:
        """Build, harass, rest, judge."""
        scenario, ring, world = self.scenario, self.ring, self.ring.world
        if not ring.build(self.ids[: scenario.nodes], SECOND // 20):
            self.violations.append("build: not everybody joined")
        apply(world, Weather(scenario.loss, scenario.duplicate, scenario.reorder))
        for _ in range(scenario.steps):
            self._hostile_step(self.random.choice(scenario.kinds))
            world.run_for(int(scenario.step_ns * self.random.uniform()))
            self._collect()
            self.violations.extend(table_violations(ring.machines, ID_BITS, ring.config.digit_bits))
        apply(world, Heal())
        self.cut = ()
        started = world.now
        world.run_for(scenario.max_pause_ns)
        joining = [machine for machine in ring.machines if not machine.joined]
        world.run_for(ring.config.join_timeout_ns if joining else 0)
        for node in sorted(world.nodes):
            self._restart_lost(node)
        world.run_until(self._is_quiet, _QUIET_NS, SECOND // 2)
        quiet_ns = world.now - started
        self._collect()
        self._judge()
        reached = tuple(sorted(self.reached.items()))
        return Report(tuple(self.violations), world.events, self.trace.digest, quiet_ns, reached)

    # ---- the hostile phase

    def _hostile_step(self, kind: str) -> None:
        done = {
            "join": self._join,
            "kill": lambda: self._crash(silent=False),
            "silent": lambda: self._crash(silent=True),
            "restart": self._restart,
            "pause": self._pause,
            "partition": self._partition,
            "weather": self._weather,
            "leave": self._leave,
            "write": self._write,
            "route": self._route,
        }[kind]()
        if done:
            self.reached[kind] = self.reached.get(kind, 0) + 1

    def _up(self) -> list[NodeId]:
        return [
            node.peer.node for node in self.ring.world.live if node.machine.joined and node.peer.node not in self.cut
        ]

    def _down(self) -> list[NodeId]:
        return [node for node, life in sorted(self.ring.world.nodes.items()) if not life.is_up]

    def _may_lose_one(self) -> bool:
        return len(self._down()) + len(self.cut) < self.scenario.max_down and len(self._up()) > 2

    def _seeds(self) -> list[NodeId]:
        up = self._up()
        self.random.shuffle(up)
        return up[: self.scenario.seeds_each]

    def _join(self) -> bool:
        seeds = self._seeds()
        if not self.unused or not seeds:
            return False
        self.ring.start(self.unused.pop(), seeds)
        return True

    def _crash(self, *, silent: bool) -> bool:
        if not self._may_lose_one():
            return False
        self._collect()
        apply(self.ring.world, Crash((self.random.choice(self._up()),), silent))
        self._note_lost_records()
        return True

    def _restart(self) -> bool:
        """A node that is down comes back, or one that is up is killed and comes back before anybody has noticed."""
        down, seeds = self._down(), self._seeds()
        if not down and self._may_lose_one():
            down = [self.random.choice(self._up())]
            apply(self.ring.world, Crash((down[0],)))
            self._note_lost_records()
            seeds = [seed for seed in seeds if seed != down[0]]
        if not down or not seeds:
            return False
        self.ring.start(self.random.choice(down), seeds)
        return True

    def _pause(self) -> bool:
        up = self._up()
        if len(up) < 3:
            return False
        apply(self.ring.world, Pause(self.random.choice(up), int(self.scenario.max_pause_ns * self.random.uniform())))
        return True

    def _partition(self) -> bool:
        """Cut one node off, or heal the cut."""
        if self.cut:
            self.ring.world.network.heal()
            self.cut = ()
        elif self._may_lose_one():
            self.cut = (self.random.choice(self._up()),)
            apply(self.ring.world, Partition(self.cut))
        return True

    def _weather(self) -> bool:
        scenario, random = self.scenario, self.random
        apply(
            self.ring.world,
            Weather(scenario.loss * random.uniform(), scenario.duplicate, scenario.reorder * random.uniform()),
        )
        return True

    def _leave(self) -> bool:
        if not self._may_lose_one():
            return False
        node = self.random.choice(self._up())
        self.ring.world.inject(node, LeaveRing())
        return True

    def _write(self) -> bool:
        up = self._up()
        if not up:
            return False
        node = self.random.choice(up)
        key = key_of_name("test", str(self.random.index(_KEYS)))
        known = self.ledger.version(key)
        self._request += 1
        value = f"{node.short} {self._request}".encode()
        self.writes[node, self._request] = (key, value)
        self.ring.world.inject(node, StoreRecord(self._request, key, known, value))
        return True

    def _route(self) -> bool:
        up = self._up()
        if not up:
            return False
        self.ring.route(self.random.choice(up), NodeId(self.random.bits(ID_BITS)), b"x")
        return True

    # ---- bookkeeping

    def _collect(self) -> None:
        for peer in self.ring.left:
            life = self.ring.world.nodes[peer.node]
            if life.is_up and life.peer.life == peer.life:
                self.ring.world.crash(peer.node)
        self.ring.left.clear()
        for asked, (key, value) in list(self.writes.items()):
            answer = self.ring.answers.get(asked)
            if answer is None:
                continue
            del self.writes[asked]
            if answer.ok and not self._is_from_cut(asked[0]):
                self.ledger.confirm(key, answer.version, value)
            elif answer.reason == "conflict":
                self.ledger.learn(key, answer.version)

    def _is_from_cut(self, node: NodeId) -> bool:
        """A partition has a root on each side: what the smaller side confirms may lose against the other side's."""
        return "partition" in self.scenario.kinds or node in self.cut

    def _note_lost_records(self) -> None:
        """A record whose last holder died is gone, and nobody promised otherwise."""
        held = {record.key for machine in self.ring.machines for record in machine.records}
        for key in self.ledger.keys:
            if key not in held:
                self.lost_records[key] = None

    # ---- the quiet phase

    def _restart_lost(self, node: NodeId) -> None:
        """A node that gave up joining in the hostile phase is started again, as its operator would."""
        life = self.ring.world.nodes[node]
        if any(peer.life == life.peer.life for peer, _ in self.ring.join_failures) and life.is_up:
            self.ring.world.crash(node)
            self.ring.start(node, self._up()[:3])

    def _is_quiet(self) -> bool:
        ring = self.ring
        self._collect()
        joining = [machine for machine in ring.machines if not machine.joined]
        return not joining and not leaf_violations(ring.machines, ring.config.leaf_count) and not self._record_faults()

    def _record_faults(self) -> list[str]:
        ring = self.ring
        found = self.ledger.violations(ring.machines, ID_BITS, ring.config.replicas)
        return [line for line in found if not any(key.short in line for key in self.lost_records)]

    def _judge(self) -> None:
        ring, config = self.ring, self.ring.config
        machines = [machine for machine in ring.machines if machine.joined]
        self.violations.extend(
            f"join: {machine.me.node.short} is no member" for machine in ring.machines if not machine.joined
        )
        self.violations.extend(leaf_violations(machines, config.leaf_count))
        self.violations.extend(table_violations(machines, ID_BITS, config.digit_bits))
        lives = {node: life.peer.incarnation for node, life in ring.world.nodes.items()}
        self.violations.extend(stale_violations(machines, lives))
        keys = [NodeId(self.random.bits(ID_BITS)) for _ in range(50)]
        sources = [self.random.choice(machines).me.node for _ in keys]
        self.violations.extend(route_violations(machines, keys, sources, ID_BITS, config.digit_bits))
        self.violations.extend(self._record_faults())
        self._judge_deliveries(keys[:10], sources[:10])
        self._judge_conflicts(machines[0].me.node)

    def _judge_deliveries(self, keys: list[NodeId], sources: list[NodeId]) -> None:
        """Real messages arrive once at the right node."""
        ring = self.ring
        ring.delivered.clear()
        for key, source in zip(keys, sources, strict=True):
            ring.route(source, key)
        ring.world.run_for(2 * SECOND)
        for key in keys:
            at = [peer.node for peer, delivered in ring.delivered if delivered.key == key]
            want = root_of(ring.members, key, ID_BITS)
            if at != [want]:
                nodes = [node.short for node in at]
                self.violations.append(f"delivery: {key.short} at {nodes}, not once at {want.short}")

    def _judge_conflicts(self, node: NodeId) -> None:
        """Records can be read, and written again with the version that was read."""
        for key in self.ledger.keys:
            if key in self.lost_records:
                continue
            read = self.ring.read(node, key)
            if not read.ok:
                self.violations.append(f"record {key.short}: read says {read.reason}")
                continue
            written = self.ring.store(node, key, read.version, b"last")
            if not written.ok:
                self.violations.append(f"record {key.short}: write says {written.reason}")


def run_seed(seed: int, most_nodes: int = 25, *, checks_wire: bool = True) -> Report:
    """Run the scenario of one seed."""
    return Run(draw(seed, most_nodes), checks_wire=checks_wire).run()


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="agiledart_simulation.runner", description=__doc__)
    parser.add_argument("--seeds", default="1-10", help="one seed, or a range such as 1-100")
    parser.add_argument("--nodes", type=int, default=25, help="most nodes at the start")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition("-")
    failed = 0
    for seed in range(int(first), int(last or first) + 1):
        report = run_seed(seed, options.nodes)
        verdict = "FAILED" if report.violations else "ok"
        reached = " ".join(f"{kind}={count}" for kind, count in report.reached)
        sys.stdout.write(
            f"seed {seed} {verdict} events={report.events} digest={report.digest} "
            f"quiet={report.quiet_ns / SECOND:.1f}s {reached}\n"
        )
        if report.violations:
            failed += 1
            sys.stdout.write(f"  {draw(seed, options.nodes)}\n")
            sys.stdout.writelines(f"  {line}\n" for line in report.violations[:10])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
