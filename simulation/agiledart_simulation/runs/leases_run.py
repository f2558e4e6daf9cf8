"""Run of gates, a cloud and leased hosts with faults: scenario `leases`."""

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Final

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.machine import Completed, Effect, Event, SetTimer, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.gate import gate_messages as messages
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.gate.lease_entry import DAY_NS, LeaseEntry
from agiledart_provisioning.gate.lease_gate import LeaseGate
from agiledart_provisioning.policies.hosts import Hosts
from agiledart_provisioning.providers.simulated_cloud import CloudHost, SimulatedCloud, described
from agiledart_provisioning.provisioning_settings import ProvisioningSettings
from agiledart_simulation.leases.lease_checker import LeaseChecker
from agiledart_simulation.leases.leased_network import SELF_END_NS, LeasedNetwork, ModelNode
from agiledart_simulation.runs.run_report import RunReport
from agiledart_simulation.runs.scenario import Scenario
from agiledart_simulation.world.latency_models import Latency
from agiledart_simulation.world.trace import Trace

NETWORK: Final = "5e1f0000"
MINUTE: Final = 60 * SECOND
_VIEW_NS: Final = 10 * SECOND
_MOST_COMPLAINTS: Final = 20

REACHED_BY_LEASES: Final = (
    "lease", "joined", "extend", "drain", "release", "stays", "limit", "double", "orphan", "repeat", "adopt", "handed over", "ban",
)  # fmt: skip
"""Decisions that a campaign must have seen."""


class GateProcess:
    """A gate as a process: its disk outlives it.

    Attributes:
        number: also its side of a network partition. starts: so far; an answer to an earlier process is dropped.
        tokens: lease → token, in the memory of its process. valid_tokens: lease → those that the ring accepts.
        cloud_cut_until: it does not reach the cloud before. reachable_since: the start of the last undisturbed time.
    """

    def __init__(self, number: int) -> None:
        self.number, self.name = number, f"g{number}"
        self.disk: dict[str, LeaseEntry] = {}
        self.machine: LeaseGate | None = None
        self.starts, self.cloud_cut_until, self.reachable_since = 0, 0, 0
        self.is_gone = False
        self.dies_at: set[str] = set()
        self.tokens: dict[str, str] = {}
        self.known_tokens: set[str] = set()
        self.valid_tokens: dict[str, set[str]] = {}

    @property
    def is_down(self) -> bool:
        """Return whether its process does not run."""
        return self.machine is None


def _settings(random: RandomStream) -> GateSettings:
    btu_ns, price = random.choice((10, 15, 30)) * MINUTE, 1_000_000
    hosts = 1 + random.index(4)
    return GateSettings(
        "act", hosts, random.choice((2 * hosts, 8, 20, 60)) * price, "small", price, btu_ns, capacity=4,
        window_ns=max(btu_ns // 20, 80 * SECOND),
    )  # fmt: skip


def _adopter(node: ModelNode | None, gates: list[GateProcess], since: int) -> GateProcess | None:
    """Return the gate that should adopt a host, because the host's own gate has been silent `since`."""
    if node is None or node.is_banned or node.shows != node.lease_id or node.renewed_ns > since:
        return None
    alive = [gate for gate in gates if not gate.is_down]
    is_owned = any(gate.name == node.gate for gate in alive)
    return None if is_owned or not alive else alive[0]


class LeasesRun:
    """One run of the scenario `leases`."""

    def __init__(self, scenario: Scenario, *, trace: Trace | None = None, latency: Latency | None = None) -> None:
        self.scenario, self.trace = scenario, trace or Trace()
        self.random = random = RandomStream(scenario.seed, "leases")
        # 1970-01-02 00:00 plus some hours: some runs pass midnight.
        self.begin = self.now = DAY_NS + random.choice((2, 22)) * 60 * MINUTE
        self._order = self.events = self.messages = 0
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self.violations: dict[str, None] = {}
        self.counts: dict[str, int] = {}
        self.settings = _settings(random)
        self.cloud = SimulatedCloud()
        self.network = LeasedNetwork(RandomStream(scenario.seed, "work"), 2 + random.index(2))
        self.checker = LeaseChecker(self.settings, self.cloud, self.complain)
        self.gates = [GateProcess(number) for number in range(1 + random.index(2))]
        self.records: dict[str, LeaseEntry] = {}
        self._next_faults: list[str] = []
        self._healed_at = self.begin
        self.is_over = False

    # ---- time

    def at(self, when: int, call: Callable[[], None]) -> None:
        """Schedule an action."""
        self._order += 1
        heappush(self._due, (max(when, self.now), self._order, call))

    def run_until(self, until: int) -> None:
        """Let time pass."""
        while self._due and self._due[0][0] <= until and not self.violations:
            self.now, _, call = heappop(self._due)
            self.events += 1
            call()
        self.now = max(self.now, until)

    def complain(self, line: str) -> None:
        """Report a violation."""
        if len(self.violations) < _MOST_COMPLAINTS:
            self.violations[f"{line} at {(self.now - self.begin) / SECOND:.3f} s"] = None

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
        self.trace.add(self.now, NodeId(0), None, what, None)

    # ---- gates

    def _start(self, gate: GateProcess) -> None:
        gate.starts += 1
        gate.reachable_since = self.now
        random = RandomStream(self.scenario.seed, gate.name, gate.starts)
        policy = Hosts(ProvisioningSettings(window_s=self.settings.window_ns / SECOND))
        gate.machine = LeaseGate(gate.name, NETWORK, self.settings, policy, random)
        self._step(gate, messages.LedgerRead(tuple(gate.disk.values())))

    def _kill(self, gate: GateProcess, why: str) -> None:
        self._count(why)
        gate.machine = None
        gate.tokens.clear()  # they were in its memory only
        if self.random.uniform() < 0.8 or not gate.is_gone:
            self.at(self.now + int(self.random.between(2, 240) * SECOND), partial(self._restart, gate))

    def _restart(self, gate: GateProcess) -> None:
        if gate.machine is None and not gate.is_gone:
            self._start(gate)

    def _step(self, gate: GateProcess, event: Event) -> None:
        if gate.machine is None:
            return
        self.messages += 1
        start = gate.starts
        for effect in gate.machine.step(event, self.now):
            self._carry_out(gate, effect)
            if gate.starts != start or gate.is_down:
                return

    def _answer(self, gate: GateProcess, after_ns: int, event: Event) -> None:
        start = gate.starts

        def come() -> None:
            if gate.starts == start:
                self._step(gate, event)

        self.at(self.now + after_ns, come)

    def _carry_out(self, gate: GateProcess, effect: Effect) -> None:
        match effect:
            case messages.WriteEntry():
                self.at(self.now + 5 * MILLISECOND, partial(self._written, gate, gate.starts, effect))
            case SetTimer(name, when):
                self._answer(gate, when - self.now, TimerFired(name))
            case messages.LeaseHost(lease_id, host_name, _):
                self._lease(gate, lease_id, host_name)
            case messages.ListHosts(asked_ns):
                self._list(gate, asked_ns)
            case messages.ReleaseHost(lease_id, host_id):
                self._release(gate, lease_id, host_id)
            case messages.DrainLeased(lease_id, name, undo):
                self._drain(gate, lease_id, name, undo=undo)
            case messages.RenewHost(lease_id, name):
                node = self.network.nodes.get(name)
                if node is not None and node.gate == gate.name:
                    node.renewed_ns, node.is_accepted = self.now, True
            case messages.AdoptHost(lease_id, name):
                self._adopt(gate, lease_id, name)
            case messages.BanNode(name, _):
                self.network.nodes[name].is_banned = True
            case messages.Decision(action, _, _):
                self._count(action)

    def _written(self, gate: GateProcess, start: int, effect: messages.WriteEntry) -> None:
        entry = effect.entry
        if gate.starts != start or gate.machine is None:
            return
        gate.disk[entry.lease_id] = entry
        known = self.records.get(entry.lease_id)
        if effect.is_public and (known is None or known.term <= entry.term):
            self.records[entry.lease_id] = entry
        was_down = gate.starts > 1 and self.now < gate.reachable_since + 10 * MINUTE
        was_cut = was_down or self.now < gate.cloud_cut_until + 10 * MINUTE
        self.checker.check_disk(gate.name, gate.disk, was_cut=was_cut, now=self.now)
        self._step(gate, Completed(effect.request))

    # ---- the cloud

    def _lease(self, gate: GateProcess, lease_id: str, host_name: str) -> None:
        self.checker.check_call(gate.disk, host_name, self.now)
        fault = self._next_faults.pop(0) if self._next_faults else ""
        if "before-call" in gate.dies_at:
            gate.dies_at.clear()
            self._kill(gate, "before-call")
            return
        took = int(self.random.between(1, 20) * SECOND)
        if self.now < gate.cloud_cut_until or fault == "lost-before":
            self._count("lost-before")
            self._lose(gate, lease_id, host_name)
            return
        if fault in ("quota", "payment"):
            self._count(fault)
            failure = messages.CallFailure.QUOTA if fault == "quota" else messages.CallFailure.PAYMENT
            self._answer(gate, took, messages.LeaseCallFailed(lease_id, failure, fault))
            return
        is_late = fault == "listed-late" or self.random.uniform() < 0.1
        listed_after_ns = int(self.random.between(5, 75) * SECOND) if is_late else 0
        if is_late:
            self._count("listed-late")
        token = gate.tokens.setdefault(lease_id, f"{lease_id}/{gate.starts}")
        gate.valid_tokens.setdefault(lease_id, {token})
        if token not in gate.known_tokens:
            gate.known_tokens.add(token)
            gate.valid_tokens[lease_id] = {token}  # the driver revokes those that an earlier process has made
        host = self.cloud.create(host_name, token, self.now, listed_after_ns)
        self.at(self.now + self.settings.btu_ns + SELF_END_NS, partial(self._end_itself, host))
        self._boot(gate, host, fault)
        if "before-answer" in gate.dies_at:
            gate.dies_at.clear()
            self._kill(gate, "before-answer")
        elif fault in ("lost-after", "listed-late"):
            self._count("lost-after")
            self._lose(gate, lease_id, host_name)
        else:
            self.checker.note_answer(gate.name, host.host_id)
            for _ in range(2 if fault == "twice" else 1):
                late_ns = took * (9 if fault == "slow" else 1)
                self._answer(gate, late_ns, messages.LeaseAnswered(lease_id, described(host)))
            if fault in ("twice", "slow"):
                self._count(fault)

    def _lose(self, gate: GateProcess, lease_id: str, host_name: str) -> None:
        self.checker.note_lost(host_name, self.now)
        lost = messages.CallFailure.LOST
        self._answer(gate, 30 * SECOND, messages.LeaseCallFailed(lease_id, lost, "no answer in time"))

    def _boot(self, gate: GateProcess, host: CloudHost, fault: str) -> None:
        if fault == "never-joins" or (fault == "listed-late" and self.random.uniform() < 0.5):
            self._count("never-joins")
            return
        if fault == "start-fails":
            self._count("start-fails")
            self.at(self.now + 20 * SECOND, partial(self._vanish, host))
            return
        self.at(self.now + int(self.random.between(20, 120) * SECOND), partial(self._join, gate, host, fault))

    def _join(self, gate: GateProcess, host: CloudHost, fault: str) -> None:
        """Join the ring with the lease's token, which works once."""
        lease_id = host.start_data.partition("/")[0]
        if host.ended_ns or host.start_data not in gate.valid_tokens[lease_id]:
            return
        gate.valid_tokens[lease_id].clear()
        shows = lease_id
        if fault == "stolen-token":
            self._count(fault)
            shows = "g0-1"
        name = f"n-{host.host_id}"
        side = self.random.index(2)
        node = ModelNode(name, side, 4, 0, lease_id, host.host_id, gate.name, self.now, shows=shows)
        node.is_accepted = False
        self.network.join(node)

    def _end_itself(self, host: CloudHost) -> None:
        """End a host that no gate has renewed for a unit and 15 minutes."""
        if host.ended_ns:
            return
        node = self.network.by_host(host.host_id)
        last = host.created_ns if node is None else max(host.created_ns, node.renewed_ns)
        due = last + self.settings.btu_ns + SELF_END_NS
        if self.now >= due:
            self._count("ends-itself")
            self._vanish(host)
        else:
            self.at(due, partial(self._end_itself, host))

    def _vanish(self, host: CloudHost) -> None:
        self.cloud.end(host.host_id, self.now)
        node = self.network.by_host(host.host_id)
        if node is not None:
            self.checker.note_owner(host_id=host.host_id, gate=node.gate)
            del self.network.nodes[node.name]  # its instances wait again; recovery restarts them

    def _list(self, gate: GateProcess, asked_ns: int) -> None:
        if self.now < gate.cloud_cut_until:
            self._answer(gate, 30 * SECOND, messages.ListFailed("no route to host"))
            return
        hosts = self.cloud.listed(f"agiledart-{NETWORK[:8]}-", self.now)
        self.checker.note_list(gate.name, hosts, asked_ns)
        self._answer(gate, int(self.random.between(1, 4) * SECOND), messages.HostsListed(asked_ns, hosts))

    def _release(self, gate: GateProcess, lease_id: str, host_id: str) -> None:
        entry = gate.disk.get(lease_id)
        if entry is None:
            self.complain(f"L1: {host_id} is released, and the ledger has no entry")
            return
        node, host = self.network.by_host(host_id), self.cloud.hosts[host_id]
        if not host.ended_ns:
            is_wanted = self.is_over or (node is not None and node.is_banned) or entry.lease_id not in host.host_name
            instances = 0 if node is None or node.is_banned else node.instances
            self.checker.check_release(gate.disk, entry, instances, is_wanted=is_wanted, now=self.now)
        if self.now < gate.cloud_cut_until:
            self._count("release-lost")
            return
        self._vanish(host)
        if self.random.uniform() < 0.2:
            self._count("release-answer-lost")
        else:
            self._answer(gate, int(self.random.between(1, 5) * SECOND), messages.ReleaseAnswered(host_id))

    # ---- nodes

    def _reachable(self, gate: GateProcess, name: str) -> ModelNode | None:
        return next((node for node in self.network.side_of(gate.number) if node.name == name), None)

    def _drain(self, gate: GateProcess, lease_id: str, name: str, *, undo: bool) -> None:
        node = self._reachable(gate, name)
        if node is None:
            if not undo:
                self._answer(gate, SECOND, messages.DrainRefused(lease_id, "it does not answer"))
            return
        others = [other for other in self.network.side_of(gate.number) if other is not node and not other.is_draining]
        if not undo and sum(other.capacity - other.instances for other in others) < node.instances:
            self._count("drain-refused")
            self._answer(gate, SECOND, messages.DrainRefused(lease_id, "no node has free capacity"))
            return
        node.is_draining = not undo

    def _adopt(self, gate: GateProcess, lease_id: str, name: str) -> None:
        """Let the host decide: it accepts another gate only when its own has been silent."""
        node = self._reachable(gate, name)
        if node is None or self.now - node.renewed_ns < self.settings.gone_ns or lease_id not in self.records:
            return
        node.gate, node.renewed_ns, node.is_accepted = gate.name, self.now, True
        self._answer(gate, 20 * MILLISECOND, messages.HostAdopted(self.records[lease_id]))

    def _view(self) -> None:
        for _ in range(3):
            self.network.place()
        for gate in self.gates:
            if gate.machine is None:
                continue
            visible = [
                other
                for other in self.gates
                if other.machine is not None and (other is gate or not self.network.is_parted)
            ]
            records = () if self.network.is_parted else tuple(self.records.values())
            if self.network.is_parted:
                records = tuple(record for record in self.records.values() if record.term == 1)
            self._step(
                gate,
                messages.ViewSeen(
                    self.network.seen(gate.number),
                    ("an application waits for capacity",) if self.network.waiting() else (),
                    leads=visible[0] is gate,
                    live_gates=frozenset(other.name for other in visible),
                    records=tuple(record for record in records if record.gate != gate.name),
                ),
            )
        self._check_hosts()
        self.at(self.now + _VIEW_NS, self._view)

    def _check_hosts(self) -> None:
        for host in self.cloud.running():
            maker = self.gates[int(host.host_name.split("-")[2][1:])]
            node = self.network.by_host(host.host_id)
            own = maker if node is None else next(gate for gate in self.gates if gate.name == node.gate)
            if own.machine is not None and self.now >= own.cloud_cut_until:
                self.checker.check_orphan(host, own.name, own.disk, max(own.reachable_since, self._healed_at), self.now)
            last = host.created_ns if node is None else max(host.created_ns, node.renewed_ns)
            if self.now - last > self.settings.btu_ns + SELF_END_NS + MINUTE:
                self.complain(f"L6: {host.host_id} of a silent gate has not ended itself")
            adopter = None if self.network.is_parted else _adopter(node, self.gates, self.now - self.settings.gone_ns)
            self.checker.check_neglect(host, None if adopter is None else adopter.disk, self.records, self.now)

    # ---- faults

    def _fault(self, kind: str) -> None:
        gate = self.random.choice(self.gates)
        if kind in ("before-call", "before-answer"):
            gate.dies_at.add(kind)
        elif kind == "kill":
            if gate.machine is not None:
                self._kill(gate, "kill")
        elif kind == "gone":
            if len(self.gates) > 1 and gate.machine is not None and not any(other.is_gone for other in self.gates):
                gate.is_gone = True
                self._kill(gate, "gone")
        elif kind == "ring-partition":
            if len(self.gates) > 1 and not self.network.is_parted:
                self._count(kind)
                self.network.is_parted = True
                self.at(self.now + int(self.random.between(60, 1_200) * SECOND), self._heal)
        elif kind == "cloud-partition":
            self._count(kind)
            gate.cloud_cut_until = self.now + int(self.random.between(20, 400) * SECOND)
            gate.reachable_since = gate.cloud_cut_until
        elif kind == "vanish":
            leased = [host for host in self.cloud.running() if self.network.by_host(host.host_id) is not None]
            if leased:
                self._count(kind)
                self._vanish(self.random.choice(leased))
        else:
            self._next_faults.append(kind)

    def _heal(self) -> None:
        self.network.is_parted = False
        self._healed_at = self.now

    def _change_demand(self) -> None:
        own = sum(node.capacity for node in self.network.nodes.values() if not node.lease_id)
        self.network.demand = self.random.choice((1, own // 2, own + 2, own + 6, own + 14))

    # ---- the run

    def run(self) -> RunReport:
        """Apply faults and changes of demand, let it rest, check the outcome."""
        for gate in self.gates:
            self._start(gate)
        self.at(self.now + SECOND, self._view)
        step_ns = 8 * MINUTE
        for number in range(self.scenario.steps):
            self.at(self.begin + number * step_ns, self._change_demand)
            when = self.begin + int((number + self.random.uniform()) * step_ns)
            self.at(when, partial(self._fault, self.random.choice(self.scenario.kinds)))
        self.run_until(self.begin + self.scenario.steps * step_ns)
        rested = self._rest()
        return RunReport(
            violations=tuple(self.violations),
            events=self.events,
            messages=self.messages,
            digest=self.trace.digest,
            virtual_s=round((self.now - self.begin) / SECOND, 3),
            quiet_ns=rested,
            reached=tuple(sorted(self.counts.items())),
        )

    def _rest(self) -> int:
        """End the demand, and wait until every lease has ended."""
        began = self.now
        self._next_faults.clear()
        self.network.demand = 1
        if self.network.is_parted:
            self._heal()
        for gate in self.gates:
            gate.dies_at.clear()
            self._restart(gate)
        self.run_until(self.now + 2 * self.settings.btu_ns + 30 * MINUTE)
        if self.network.waiting():
            self.complain("L9: work still waits for capacity")
        self.is_over = True
        for gate in self.gates:
            self._step(gate, messages.ReleaseWanted())
        while not self.violations and self.cloud.running() and self.now - began < 8 * self.settings.btu_ns:
            self.run_until(self.now + MINUTE)
        rested = self.now - began
        self.run_until(self.now + 10 * MINUTE)
        if not self.violations:
            silent = {gate.name for gate in self.gates if gate.is_gone}
            disks = {gate.name: gate.disk for gate in self.gates}
            self.checker.check_over({name: disk for name, disk in disks.items() if name not in silent})
            self.checker.check_bill(disks, silent, self.now)
        return rested
