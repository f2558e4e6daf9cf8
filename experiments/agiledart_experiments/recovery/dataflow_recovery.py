"""How long dataflows take to run again after many of a network's nodes die at one moment.

AgileDART, figure 11a: recovery time stays stable while the number of simultaneous failures grows (no figures are printed). Here it
is the virtual time from the deaths until every host of a dataflow that was hit runs in its new life, from its state; the goal is a
slope of less than 5 % of the base for each further failure, up to 10 % of all nodes.

Each application lies on seven of the nodes and has a register, fragments and a simulated network of its own; what two of them take
from each other on a node that both use is not in this figure.
"""

from typing import NamedTuple

from agiledart_experiments.overlay_recovery import line
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
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
"""Nodes of the network, and how many of them die at once."""

HOSTS = 7
"""Of one application: who runs its parts, votes, holds fragments."""

NODES_PER_APPLICATION = 2
"""So a node takes part in three or four."""

FLOWS_NS, LIMIT_NS, LOOK_NS = 6 * SECOND, 120 * SECOND, 50 * MILLISECOND

PARTS = range(4)
"""Places of those that run its source, steps and sink; the last three vote."""


class Struck(NamedTuple):
    """One application after the deaths.

    Attributes:
        seconds: until it ran again; None: it waits, since two of its three voters died or nobody can rebuild a state.
        wrong: an invariant that did not hold; empty: all did.
    """

    seconds: float | None
    wrong: str = ""


class StruckRun(RecoveryRun):
    """A source, two steps with state and a sink on seven hosts, some of which die silently at one moment."""

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
        """Kill the hosts at these places; see when the others go on."""
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
        """Is there a life from this one on whose coordinator has heard of all its hosts that they have entered it?"""
        value = self.ledger.newest
        if value is None or value.attempt < attempt:
            return False
        led = [host.machine.coordinators[RUN] for host in self.hosts if self.leads(host)]
        parts = {each.host.node for each in value.plan.assignments}
        return any(one.phase is Phase.RUNNING for one in led) and all(self.world.nodes[node].is_up for node in parts)


def run(settings: Settings) -> ExperimentReport:
    """A row for each number of failures."""
    nodes, counts = PAPER if settings.is_paper else SMALL
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
        Goal("no application waits that has lost one host only", not any(row["wait_after_one"] for row in rows)),
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
        f"time is virtual, deaths are silent; a host is taken for dead after {DETECTION_NS / SECOND:g} s",
        "applications do not share links",
    )
    return ExperimentReport(parameters, tuple(rows), goals, notes)


def _some(random: RandomStream, nodes: int, count: int) -> tuple[int, ...]:
    """So many different nodes."""
    found: dict[int, None] = {}
    while len(found) < count:
        found[random.index(nodes)] = None
    return tuple(found)


def _row(count: int, victims: set[int], applications: list[tuple[int, ...]], seed: int) -> Row:
    found: list[Struck] = []
    after_one = 0
    for number, hosts in enumerate(applications):
        places = tuple(place for place, node in enumerate(hosts) if node in victims)
        if any(place in PARTS for place in places):
            struck = StruckRun(draw(seed * 10_000 + number, name="recovery", fixed={"nodes": HOSTS})).strike(places)
            found.append(struck)
            after_one += struck.seconds is None and len(places) == 1
    took = sorted(one.seconds for one in found if one.seconds is not None)
    wrong = [one.wrong for one in found if one.wrong]
    return {
        "failures": count,
        "hit": len(found),
        "recovery_seconds": round(sum(took) / len(took), 3) if took else None,
        "slowest_seconds": round(took[-1], 3) if took else None,
        "wait": len(found) - len(took),
        "wait_after_one": after_one,
        "violations": len(wrong),
        "first_violation": wrong[0] if wrong else None,
    }
