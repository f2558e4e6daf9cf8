"""Run of one stateful application under faults: its hosts die, sleep, lose power and disks, are cut off and come back.

Always: V1 to V7 of recovery's invariants (`checkers.recovery_ledger`). In the end, when all nodes are back and no fault happens
any more: the run finishes, and it has committed what a run without failures would have committed (V8, L1).
"""

from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from typing import Final

from agiledart_kernel.codec import Codec
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.machine import Completed, Effect, Event, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observation
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.attempts.coordinator import Phase
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.register.key_splitting import key_digest, split_key
from agiledart_recovery.wire import observations as seen
from agiledart_recovery.wire.effects import FragmentKey, SendFragment
from agiledart_recovery.wire.events import BootstrapRun, CandidatesFound, HostBack, HostLost, MakeVoterSlot
from agiledart_recovery.wire.messages import RecoveryMessage
from agiledart_recovery.wire.names import INITIAL_CHECKPOINT, InstanceId, Voter
from agiledart_recovery.wire.register_value import (
    Assignment,
    InstanceRole,
    InstanceSnapshot,
    LossPolicy,
    Plan,
    RegisterValue,
    RunState,
)
from agiledart_simulation.checkers.recovery_ledger import RecoveryLedger
from agiledart_simulation.pipeline.disk import Disk
from agiledart_simulation.pipeline.pipeline_messages import FrameAck, PipelineFrame
from agiledart_simulation.pipeline.recovery_host import Action, RecoveryHost, lacks_key
from agiledart_simulation.pipeline.tables import JOINED, drawn_table, encode_tables, marked_shared
from agiledart_simulation.runs.recovery_faults import RUN, RecoveryFaults
from agiledart_simulation.runs.run_report import RunReport
from agiledart_simulation.runs.scenario import Scenario
from agiledart_simulation.world.faults import Heal, Weather, apply
from agiledart_simulation.world.latency_models import Latency
from agiledart_simulation.world.network import NetworkConfig
from agiledart_simulation.world.trace import Trace
from agiledart_simulation.world.world import World

_CODEC = Codec[object](RecoveryMessage | PipelineFrame | FrameAck)
_LOOK_NS = 250 * MILLISECOND

LOST_FETCH_SHARE = 0.1
"""Share of lost requests among those to the host that saved a snapshot."""

DETECTION_NS = 1_500 * MILLISECOND
"""Silence after which a host takes another one for dead."""

_FEWEST, _MOST = 5, 9


def config_of(random: RandomStream) -> RecoveryConfig:
    """Return settings of agents on a local network, hurried so that much happens in a short run."""
    return RecoveryConfig(
        checkpoint_interval_ns=(500 + random.index(1_500)) * MILLISECOND,
        epoch_timeout_ns=6 * SECOND,
        handover_timeout_ns=4 * SECOND,
        prepare_timeout_ns=6 * SECOND,
        reset_timeout_ns=2 * SECOND,
        gather_ns=4 * SECOND,
        voter_timeout_ns=6 * SECOND,
        capacity_retry_ns=2 * SECOND,
        max_restarts=1_000,
        pause_max_ns=SECOND,
        m=2,
        k=1 + random.index(2),
        ack_timeout_ns=SECOND,
    )


RUN_KEY: Final = sha256(b"key of a simulated run").digest()

_IDLE_NS = 12 * SECOND
"""Time without rows in the middle of a run that saves less."""


class RecoveryRun:
    """One run of the scenario `recovery`.

    Attributes:
        rows: of each source.
        snapshot_bytes: declared size of stages' snapshots: small ones are copied, large ones cut.
        saves_less: in a third of the runs the register holds the snapshots of one stage, and no epoch begins while no rows come.
        splits_key: the run has a key, which is split among its voters; hosts need it to make and read fragments.
    """

    splits_key = False

    def __init__(self, scenario: Scenario, *, trace: Trace | None = None, latency: Latency | None = None) -> None:
        self.scenario = scenario
        self.random = RandomStream(scenario.seed, "recovery")
        self.trace = trace or Trace()
        self.config = config_of(self.random)
        if scenario.name == "losses":
            self.config = replace(self.config, state_timeout_ns=3 * SECOND)
        self.rows = 80 + self.random.index(120)
        self.interval_ns = (100 + self.random.index(150)) * MILLISECOND
        self.snapshot_bytes = self.random.choice((1_000, 4 << 20))
        self.saves_less = scenario.name == "recovery" and RandomStream(scenario.seed, "saving").index(3) == 1
        self.disks: dict[NodeId, Disk] = {}
        self.ledger = RecoveryLedger(self.disks)
        self.counts: dict[str, int] = {}
        self.stays_down: dict[NodeId, int] = {}
        self.silent_until: dict[int, int] = {}
        self.world: World[RecoveryHost] = World(
            scenario.seed,
            self._make,
            NetworkConfig(),
            _CODEC,
            self._on_effect,
            self.trace,
            queue=scenario.queue,
            latency=latency,
        )
        self.ids: list[NodeId] = []
        self._free_at: dict[NodeId, int] = {}
        self._pending: dict[NodeId, list[tuple[int, Action, Event | None]]] = {}
        self._number = 0
        self._apart: dict[tuple[NodeId, NodeId], int] = {}
        self._reported_unreachable: dict[tuple[NodeId, int, NodeId], None] = {}
        self._stateful: dict[NodeId, None] = {}

    # ---- the phases

    def run(self) -> RunReport:
        """Start the run, apply faults to its hosts, let it rest, check the outcome."""
        scenario, world = self.scenario, self.world
        self._build()
        faults = RecoveryFaults(self)
        apply(world, Weather(scenario.loss, scenario.duplicate, scenario.reorder))
        for _ in range(scenario.steps):
            kind = self.random.choice(scenario.kinds)
            if faults.do(kind):
                self.reached(kind)
            self._pass(int(scenario.step_ms * MILLISECOND * self.random.uniform()))
            if self.ledger.violations:
                break
            self._restart_stopped()
        apply(world, Heal())
        self.stays_down, self.silent_until = {}, {}
        for node in self.ids:
            self.start(node)
        began = world.now
        while world.now - began < scenario.quiet_s * SECOND and not self.ledger.violations and not self._is_quiet():
            self._pass(SECOND)
        if not self.ledger.violations:
            self.ledger.check_end(self.rows)
            # A host that prepared in vain and missed the message drops its preparation in this time: also one of a rival that
            # slept.
            self.world.run_for(3 * (self.config.handover_timeout_ns + self.config.prepare_timeout_ns))
            self.ledger.check_left(self.hosts)
            self.ledger.check_configuration(self.hosts)
        reached = {**self.counts, **{f"message-{what}": n for what, n in world.network.reached.items()}}
        return RunReport(
            violations=tuple(self.ledger.violations)[:50],
            events=world.events,
            messages=world.messages_sent,
            digest=self.trace.digest,
            virtual_s=round(world.now / SECOND, 3),
            quiet_ns=world.now - began,
            reached=tuple(sorted(reached.items())),
        )

    def _build(self) -> None:
        count = max(_FEWEST, min(_MOST, self.scenario.nodes))
        for index in range(count):
            node = NodeId(self.random.bits(128))
            self.ids.append(node)
            self.disks[node] = Disk()
            self.world.start(Peer(node, 1, f"host-{index}"))
            self._boot(node)
        voters = [self.world.nodes[node].peer for node in self.ids[-3:]]
        shares = split_key(RUN_KEY, tuple(peer.node for peer in voters)) if self.splits_key else (None, None, None)
        for peer, share in zip(voters, shares, strict=True):
            self.world.inject(peer.node, MakeVoterSlot(RUN, peer.node, share))
        self.world.run_for(MILLISECOND)
        voter_slots = tuple(Voter(peer, self.machine(peer.node).voter_slots[RUN].voter_slot) for peer in voters)
        value = RegisterValue(
            RUN,
            1,
            0,
            self._plan(),
            INITIAL_CHECKPOINT,
            voter_slots,
            saves_less=self.saves_less,
            key_digest=key_digest(RUN_KEY) if self.splits_key else b"",
        )
        self.world.inject(voters[0].node, BootstrapRun(value))
        # A node that starts a run waits for its first attempt; before that nothing is promised.
        self.world.run_until(lambda: self.ledger.newest is not None and self.ledger.newest.attempt > 0, 10 * SECOND)

    def _plan(self) -> Plan:
        """Return a plan of two sources, of which the second can't be read again, two stages and a sink.

        The sink may move in half of the runs.
        """
        peers = [self.world.nodes[node].peer for node in self.ids]
        choice, index = self.random.choice, self.random.index
        if self.scenario.name == "scaling":
            return self._plan_of_many(peers)
        if_lost = LossPolicy.PREVIOUS if self.scenario.name == "losses" else LossPolicy.WAIT
        standby = RandomStream(self.scenario.seed, "standbys").index(2) if self.scenario.name == "recovery" else 0
        places = [peers[0], peers[1], choice(peers), choice(peers), choice(peers)]
        assignments = (
            Assignment(InstanceId("S", 0, 0), InstanceRole.SOURCE, places[0], is_pinned=bool(index(2))),
            Assignment(InstanceId("L", 0, 1), InstanceRole.SOURCE, places[1], is_pinned=True, has_log=True),
            Assignment(InstanceId("X"), InstanceRole.STAGE, places[2], if_lost=if_lost, standby=standby),
            Assignment(InstanceId("Y"), InstanceRole.STAGE, places[3], if_lost=if_lost, standby=standby),
            Assignment(InstanceId("K"), InstanceRole.SINK, places[4], is_pinned=bool(index(2))),
        )
        self._stateful = {
            assignment.host.node: None for assignment in assignments if assignment.role is not InstanceRole.STAGE
        }
        return Plan(assignments, (("S", "X"), ("L", "X"), ("X", "Y"), ("Y", "K")), syncs=True)

    def _plan_of_many(self, peers: list[Peer]) -> Plan:
        """Return a plan of a chain of one to three stages with one to three instances each.

        The second source may join it farther down, by key or with rows for all instances.
        """
        choice, index = self.random.choice, self.random.index
        names = ("X", "Y", "Z")[: 1 + index(3)]
        tables = {name: drawn_table(self.random, 1 + index(3)) for name in names}
        assignments = [
            Assignment(InstanceId("S", 0, 0), InstanceRole.SOURCE, peers[0], is_pinned=True),
            Assignment(InstanceId("L", 0, 1), InstanceRole.SOURCE, peers[1], is_pinned=True, has_log=True),
        ]
        assignments += [
            Assignment(InstanceId(name, 0, number), InstanceRole.STAGE, choice(peers))
            for name, table in tables.items()
            for number in range(max(table) + 1)
        ]
        assignments.append(Assignment(InstanceId("K"), InstanceRole.SINK, choice(peers), is_pinned=True))
        self._stateful = {
            assignment.host.node: None for assignment in assignments if assignment.role is not InstanceRole.STAGE
        }
        chain = ("S", *names, "K")
        edges = (*pairwise(chain), (JOINED, choice(names)))
        body = encode_tables(tables)
        if RandomStream(self.scenario.seed, "meaning").index(2):
            body = marked_shared(body, edges[-1])
        return Plan(tuple(assignments), edges, syncs=True, body=body)

    def _pass(self, span_ns: int) -> None:
        """Let time pass, checking everything now and then."""
        until = self.world.now + span_ns
        while self.world.now < until and not self.ledger.violations:
            self.world.run_for(min(_LOOK_NS, until - self.world.now))
            self._detect()
            self.ledger.check(self.hosts)

    def stall(self, node: NodeId, span_ns: int) -> None:
        """Stop a node's disk for a while; then carry out all that waits, in order."""
        self._free_at[node] = max(self._free_at.get(node, 0), self.world.now) + span_ns

    def wait(self, span_ns: int) -> None:
        """Let time pass, checking everything now and then."""
        self._pass(span_ns)

    def _is_quiet(self) -> bool:
        """Return whether the run is finished, and every sink has emitted all that is committed."""
        value = self.ledger.newest
        is_emitted = value is not None and all(self.disks[end.host].part.committed == end.offset for end in value.parts)
        return value is not None and value.state is RunState.FINISHED and is_emitted

    # ---- nodes

    @property
    def hosts(self) -> list[RecoveryHost]:
        """Return the hosts that are up."""
        return [node.machine for node in self.world.live]

    def machine(self, node: NodeId) -> RecoveryMachine:
        """Return the recovery machine of a node."""
        return self.world.nodes[node].machine.machine

    def leads(self, host: RecoveryHost) -> bool:
        """Return whether a host coordinates, as far as it knows."""
        coordinator = host.machine.coordinators.get(RUN)
        return coordinator is not None and coordinator.phase in (Phase.RUNNING, Phase.RESETTING, Phase.WAITING)

    def _coordinates(self, node: NodeId) -> bool:
        return any(host.me.node == node and self.leads(host) for host in self.hosts)

    def may_lose_disk(self, node: NodeId) -> bool:
        """Return whether a node's disk has nothing that no other disk has: no log, no part of a sink."""
        disk = self.disks[node]
        value = self.ledger.newest
        parts = [end.host for end in value.parts] if value is not None else []
        sinks = [assignment.host.node for assignment in value.plan.of(InstanceRole.SINK)] if value is not None else []
        return node not in self._stateful and not disk.logs and node not in parts and node not in sinks

    def _make(self, peer: Peer, random: RandomStream) -> RecoveryHost:
        return RecoveryHost(peer, self.disks[peer.node], self, self.config, random, self._observe)

    def _boot(self, node: NodeId) -> None:
        here = self.world.nodes[node]
        self.world.inject(node, here.machine.boot())
        others = [self.world.nodes[other].peer for other in self.ids if other != node]
        self.random.shuffle(others)
        self.world.inject(node, CandidatesFound(tuple(others)))
        for other in self.ids:
            there = self.world.nodes[other]
            if other != node and there.is_up:
                known = tuple(self.world.nodes[known_node].peer for known_node in self.ids if known_node != other)
                self.world.inject(other, CandidatesFound(known))

    def crash(self, node: NodeId, *, is_power: bool) -> None:
        """End a node: some of its pending writes are carried out, or none."""
        self.world.crash(node, silent=is_power)
        pending = self._pending.pop(node, [])
        survive = self.random.index(len(pending) + 1)
        for _, action, _ in pending[:survive]:
            action()
        if is_power and self.disks[node].power_cut():
            self.reached("lost tail")

    def start(self, node: NodeId) -> None:
        """Start a node that is down."""
        if not self.world.nodes[node].is_up and self.stays_down.get(node, 0) <= self.world.now:
            self.world.start(self.world.nodes[node].peer)
            self._free_at[node] = 0
            self._boot(node)

    def _restart_stopped(self) -> None:
        """Restart stopped nodes now and then, so that a run does not only wait."""
        for node in self.ids:
            if not self.world.nodes[node].is_up and not self.random.index(4):
                self.start(node)

    def _detect(self) -> None:
        """Report what the overlay's failure detector would: a node that is unreachable for some time is lost, perhaps wrongly."""
        now, network, nodes = self.world.now, self.world.network, self.world.nodes
        for a in self.ids:
            if not nodes[a].is_up:
                continue
            incarnation = nodes[a].peer.incarnation
            for b in self.ids:
                there = nodes[b]
                apart = not there.is_up or now < there.paused_until or network.is_cut(a, b) or network.is_cut(b, a)
                since = self._apart.setdefault((a, b), now) if apart else self._apart.pop((a, b), now)
                key = (a, incarnation, b)
                if a != b and apart and now - since >= DETECTION_NS and key not in self._reported_unreachable:
                    self._reported_unreachable[key] = None
                    self.world.inject(a, HostLost(b))
                elif a != b and not apart and key in self._reported_unreachable:
                    del self._reported_unreachable[key]
                    self.world.inject(a, HostBack(there.peer))

    # ---- what hosts need (`HostEnvironment`)

    def write(self, host: RecoveryHost, action: Action, event: Event | None) -> None:
        """Schedule a write; writes of one node are carried out in order."""
        node, world = host.me.node, self.world
        at = max(self._free_at.get(node, 0), world.now) + int((1 + 10 * self.random.uniform()) * MILLISECOND)
        self._free_at[node] = at
        self._number += 1
        number = self._number
        self._pending.setdefault(node, []).append((number, action, event))
        world.call(at - world.now, lambda: self._written(node, number))

    def _written(self, node: NodeId, number: int) -> None:
        pending = self._pending.get(node, [])
        if pending and pending[0][0] == number:
            _, action, event = pending.pop(0)
            action()
            if event is not None:
                self.world.inject(node, event)

    def available(self, source: int, number: int) -> bool:
        """Return whether a row exists yet: rows appear one after the other, except those of a silent source.

        Where a run saves less, no rows come for a while in its middle.
        """
        if (
            self.saves_less
            and number >= self.rows // 2
            and self.world.now < self.rows // 2 * self.interval_ns + _IDLE_NS
        ):
            return False
        return number * self.interval_ns <= self.world.now and self.world.now >= self.silent_until.get(source, 0)

    def _reaches(self, a: NodeId, b: NodeId) -> bool:
        there, network = self.world.nodes[b], self.world.network
        return there.is_up and self.world.now >= there.paused_until and not network.is_cut(a, b)

    def fetch(self, host: RecoveryHost, instance: InstanceId, snapshot: InstanceSnapshot) -> bytes | None:
        """Return a snapshot if m of its fragments can be reached. A fragment is a copy here, and the hash finds an altered one."""
        if lacks_key(host, RUN):
            return None
        fragments: list[bytes] = []
        for index, replica_node in enumerate(snapshot.replica_nodes):
            key = FragmentKey(RUN, instance, snapshot.checkpoint, index)
            if replica_node and self._reaches(host.me.node, replica_node) and key in self.disks[replica_node].fragments:
                fragments.append(self.disks[replica_node].fragments[key])
        intact = [fragment for fragment in fragments if sha256(fragment).digest() == snapshot.digest]
        if len(intact) < len(fragments):
            self.reached("altered fragment")
        fragments = intact
        if len(fragments) < snapshot.m:
            return None
        self.reached("rebuilt from m" if len(fragments) == snapshot.m else "rebuilt from more")
        return fragments[0]

    def fetch_from_origin(
        self, host: RecoveryHost, origin: Peer, instance: InstanceId, snapshot: InstanceSnapshot
    ) -> bytes | None:
        """Return a snapshot from the disk of the host that saved it; one message in ten is lost."""
        if not self._reaches(host.me.node, origin.node) or self.random.uniform() < LOST_FETCH_SHARE:
            return None
        return self.disks[origin.node].snapshots.get((instance, snapshot.checkpoint))

    def store(self, host: RecoveryHost, effect: SendFragment) -> None:
        """Send a fragment; the replica node checks it and writes it to its disk."""
        if lacks_key(host, effect.key.run):
            self.world.inject(host.me.node, Failed(effect.request, "the run's key is not here"))
            return
        raw = host.disk.snapshots.get((effect.key.instance, effect.key.checkpoint))
        self.world.call(int((1 + 20 * self.random.uniform()) * MILLISECOND), lambda: self._arrive(host, effect, raw))

    def _arrive(self, host: RecoveryHost, effect: SendFragment, raw: bytes | None) -> None:
        sender = self.world.nodes[host.me.node]
        if not sender.is_up or sender.peer.incarnation != host.me.incarnation:
            return
        reason = "" if raw is not None and self._reaches(host.me.node, effect.replica_node) else "it can't be reached"
        if not reason:
            fragment_store = self.machine(effect.replica_node).fragment_store
            reason = fragment_store.refusal(effect.key, effect.attempt)
            if not reason and raw is not None:
                fragment_store.put(effect.key, host.me.node)
                self.disks[effect.replica_node].fragments[effect.key] = raw
                self.disks[effect.replica_node].owners[effect.key] = host.me.node
        outcome: Event = Failed(effect.request, reason) if reason else Completed(effect.request)
        self.world.inject(host.me.node, outcome)

    def report_violation(self, line: str) -> None:
        """Report a violation."""
        self.ledger.complain(line)

    def reached(self, what: str) -> None:
        """Count a named event."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def _on_effect(self, _: Peer, effect: Effect) -> None:
        raise TypeError(f"no handler for the effect {type(effect).__name__}")

    def _observe(self, observation: Observation) -> None:
        if isinstance(observation, seen.ValueAcknowledged):
            before = self.ledger.newest
            self.ledger.on_acknowledged(observation.stamp, observation.value)
            if (
                before is not None
                and before.plan != observation.value.plan
                and before.attempt == observation.value.attempt
            ):
                self.reached("changed plan")
                if self.world.network.config.loss:
                    self.reached("changed plan under loss")
                changed = len(observation.value.plan.changes)
                self.reached("several stages" if changed > 1 else "one stage")
                if changed > 2:
                    self.reached("three stages")
            self.ledger.check_idle(before, observation.value)
            if before is not None and before.committed == observation.value.committed:
                was_rolled_back = before.rolled_back_to is not None, observation.value.rolled_back_to is not None
                if was_rolled_back[0] != was_rolled_back[1]:
                    self.reached("rolled back" if was_rolled_back[1] else "rolled forward")
            leaders = sum(self.leads(host) for host in self.hosts)
            if leaders > 1:
                self.reached("two coordinators")
        elif isinstance(observation, seen.ChangeFinalised):
            self.reached(f"change {observation.change.fate}")
        elif isinstance(observation, _COUNTED):
            self.reached(_COUNTED_AS[type(observation)])
            if isinstance(observation, seen.VoterReplaced) and self._coordinates(observation.gone):
                self.reached("coordinator replaced")


_COUNTED_AS: dict[type[Observation], str] = {
    seen.AttemptBegan: "attempt",
    seen.EpochCommitted: "commit",
    seen.EpochPassedOver: "aborted",
    seen.VoterReplaced: "voter replaced",
    seen.RunWaits: "waited",
    seen.SnapshotDegraded: "degraded",
    seen.CoordinationLost: "overtaken",
}
_COUNTED = tuple(_COUNTED_AS)

REACHED = (
    "lost tail",
    "rows overtaken",
    "attempt",
    "commit",
    "aborted",
    "voter replaced",
    "coordinator replaced",
    "waited",
    "changed plan",
    "changed plan under loss",
    "two coordinators",
    "rebuilt from m",
    "restored from a chain",
    "degraded",
    "overtaken",
    "quorum recovered",
    "voter slot given",
    "premature: refused",
    "saved in the register",
    "standby took over",
    "standby was up to date",
)
"""Events that a large campaign must have reached beside its kinds."""

REACHED_BY_LOSSES = (*("attempt", "commit", "waited", "rolled back", "two coordinators", "overtaken", "changed plan"),)
"""Events that a large campaign of lost states must have reached beside its kinds."""

REACHED_BY_SCALING = (
    *("attempt", "commit", "changed plan", "handed", "two coordinators", "overtaken", "one stage", "several stages"),
    *("change done", "change let-go", "change rolled-back", "three stages", "join handed", "shared state handed"),
    "applied to preloaded state",
    "rows overtaken",
    *(
        f"{role} died while {step}"
        for role in ("coordinator", "old", "new")
        for step in ("preparing", "checkpointing-faster", "carried")
    ),
)
"""Events that a large campaign of changes must have reached beside its kinds."""
