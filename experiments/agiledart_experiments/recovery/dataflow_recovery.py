"""Experiment `dataflow-recovery`: how long dataflows take to run again after many nodes fail at one moment.

AgileDART, figure 11a: recovery time stays stable while the number of simultaneous failures grows (the paper prints no figures).
Here it is the virtual time from the failures until every host of an affected dataflow runs in its new attempt, with its state
restored. The goal is a slope of less than 5 % of the base for each further failure, up to 10 % of all nodes.

Each application runs on seven of the nodes and has its own register, fragments and simulated network. The figure leaves out
contention between applications that share a node.
"""

from typing import NamedTuple

from agiledart_experiments.overlay_recovery import line
from agiledart_experiments.recovery import real_dataflow_recovery
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.attempts.coordinator import Phase
from agiledart_recovery.wire.names import InstanceId
from agiledart_recovery.wire.register_value import Assignment, InstanceRole, Plan
from agiledart_simulation.runs.recovery_faults import RUN
from agiledart_simulation.runs.recovery_run import DETECTION_NS, RecoveryRun
from agiledart_simulation.runs.scenario import draw

PAPER = (1_000, (1, 2, 4, 8, 16, 32, 64, 128))
SMALL = (200, (1, 2, 4, 8, 16))
"""Nodes of the network, and the numbers of nodes that fail at once."""

HOSTS = 7
"""Hosts of one application: they run its instances, vote on its register, and store its fragments."""

NODES_PER_APPLICATION = 2
"""Nodes for each application; with seven hosts each, a node takes part in three or four applications."""

FLOWS_NS, LIMIT_NS, LOOK_NS = 6 * SECOND, 120 * SECOND, 50 * MILLISECOND

PARTS = range(4)
"""Indices of the hosts that run the source, the steps and the sink; the last three vote."""


class Struck(NamedTuple):
    """Outcome of one application after the failures.

    Attributes:
        seconds: until it ran again; None: it waits, since two of three voters failed or too few fragments of a state are left.
        wrong: description of an invariant that did not hold; empty: all held.
    """

    seconds: float | None
    wrong: str = ""


class StruckRun(RecoveryRun):
    """Simulated run of a source, two steps with state and a sink on seven hosts, some of which fail silently at once."""

    def _plan(self) -> Plan:
        peers = [self.world.nodes[node].peer for node in self.ids]
        names = (
            ("S", InstanceRole.SOURCE),
            ("X", InstanceRole.STAGE),
            ("Y", InstanceRole.STAGE),
            ("K", InstanceRole.SINK),
        )
        assignments = tuple(
            Assignment(InstanceId(name, 0, 0) if role is InstanceRole.SOURCE else InstanceId(name), role, peers[number])
            for number, (name, role) in enumerate(names)
        )
        return Plan(assignments, (("S", "X"), ("X", "Y"), ("Y", "K")), syncs=True)

    def strike(self, places: tuple[int, ...]) -> Struck:
        """Kill the hosts at these indices, and return how long the others take to continue."""
        self._build()
        self._pass(FLOWS_NS)
        before = self.ledger.newest
        assert before is not None
        began = self.world.now
        for place in places:
            self.crash(self.ids[place], is_power=True)
        while (
            self.world.now - began < LIMIT_NS and not self.ledger.violations and not self._runs_in(before.attempt + 1)
        ):
            self._pass(LOOK_NS)
        wrong = next(iter(self.ledger.violations), "")
        return Struck((self.world.now - began) / SECOND if self._runs_in(before.attempt + 1) else None, wrong)

    def _runs_in(self, attempt: int) -> bool:
        """Return whether an attempt with this number or a later one runs: its coordinator has reports from all its hosts."""
        value = self.ledger.newest
        if value is None or value.attempt < attempt:
            return False
        coordinators = [host.machine.coordinators[RUN] for host in self.hosts if self.leads(host)]
        parts = {assignment.host.node for assignment in value.plan.assignments}
        return any(machine.phase is Phase.RUNNING for machine in coordinators) and all(
            self.world.nodes[node].is_up for node in parts
        )


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each number of failures."""
    if settings.real:
        return real_dataflow_recovery.run(settings)
    nodes, usual = PAPER if settings.is_paper else SMALL
    counts = settings.sizes_or(usual)
    if counts[-1] > nodes:
        raise ConfigurationError(f"--failures {counts[-1]}: the network has {nodes:,} nodes.")
    random = RandomStream(settings.seed, "applications")
    applications = [_some(random, nodes, HOSTS) for _ in range(nodes // NODES_PER_APPLICATION)]
    rows = []
    for count in counts:
        settings.progress(f"{count} of {nodes:,} nodes die")
        rows.append(_row(count, set(_some(random, nodes, count)), applications, settings.seed))
    within = [
        (row["failures"], row["recovery_seconds"]) for row in rows if row["failures"] <= nodes // 10 and row["hit"]
    ]
    base, slope = line(within)
    goals = (
        Goal(f"slope per failure below 5 % of the base ({base:.2f} s) up to 10 % of the nodes", slope < 0.05 * base),
        Goal("all invariants hold", not any(row["violations"] for row in rows)),
        Goal("no application waits after the loss of only one host", not any(row["wait_after_one"] for row in rows)),
    )
    parameters = {
        "nodes": nodes,
        "failures": counts,
        "applications": len(applications),
        "hosts": HOSTS,
        "slope_seconds": round(slope, 4),
        "base_seconds": round(base, 3),
    }
    notes = (
        f"time is virtual, deaths are silent; a host counts as failed after {DETECTION_NS / SECOND:g} s",
        "applications do not share links",
    )
    return ExperimentReport(parameters, tuple(rows), goals, notes)


def _some(random: RandomStream, nodes: int, count: int) -> tuple[int, ...]:
    """Draw `count` different nodes."""
    chosen: dict[int, None] = {}
    while len(chosen) < count:
        chosen[random.index(nodes)] = None
    return tuple(chosen)


def _row(count: int, victims: set[int], applications: list[tuple[int, ...]], seed: int) -> Row:
    outcomes: list[Struck] = []
    after_one = 0
    for number, hosts in enumerate(applications):
        places = tuple(place for place, node in enumerate(hosts) if node in victims)
        if any(place in PARTS for place in places):
            struck = StruckRun(draw(seed * 10_000 + number, name="recovery", fixed={"nodes": HOSTS})).strike(places)
            outcomes.append(struck)
            after_one += struck.seconds is None and len(places) == 1
    took = sorted(outcome.seconds for outcome in outcomes if outcome.seconds is not None)
    wrong = [outcome.wrong for outcome in outcomes if outcome.wrong]
    return {
        "failures": count,
        "hit": len(outcomes),
        "recovery_seconds": round(sum(took) / len(took), 3) if took else None,
        "slowest_seconds": round(took[-1], 3) if took else None,
        "wait": len(outcomes) - len(took),
        "wait_after_one": after_one,
        "violations": len(wrong),
        "first_violation": wrong[0] if wrong else None,
    }
