"""Run of many submissions, and its figures: schedulers, look-ups, operators per node, time in the pending queue.

`single_master` is the baseline that the papers compare with: the same nodes and the same code, but one scheduler takes every
application, one at a time.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_node.context.config import NodeConfig
from agiledart_simulation.checkers.schedulers import schedulers_of
from agiledart_simulation.runs.workload import SchedulingObservations, Workload
from agiledart_simulation.world.network import NetworkConfig
from agiledart_simulation.world.node_ring import NodeRing
from agiledart_simulation.world.paused_garbage_collection import paused_garbage_collection

EVERYTHING = 1 << 20
"""Application limit of a scheduler that is never full."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run.

    Args:
        nodes, zones, applications: how many.
        scope: `zone` or `region`.
        interval_ns: time between two submissions; 0: all at once.
        service_ns: time that a scheduler takes to plan one application, one after the other; 0: none, and several at once.
        single_master: one scheduler takes everything.
        cores: of the nodes, in turn.
    """

    seed: int = 1
    nodes: int = 10_000
    zones: int = 20
    applications: int = 1_000
    scope: str = "zone"
    interval_ns: int = 0
    service_ns: int = 0
    single_master: bool = False
    cores: tuple[int, ...] = (1,)

    def config(self) -> NodeConfig:
        """Return the settings of all nodes."""
        config = replace(NodeConfig.simulation(self.nodes), scheduler_scope=self.scope)
        if self.service_ns:
            config = replace(config, planning_slots=1, planning_ns=self.service_ns)
        if self.single_master:
            config = replace(config, scheduler_scope="region", apps_per_scheduler=EVERYTHING)
            config = replace(config, max_conversations=max(config.max_conversations, 4 * self.applications))
        return config


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Figures of a run.

    Args:
        running, refused: applications that run, and reasons of those that do not.
        schedulers: at the end; `served`: how many applications each of them serves, by domain.
        elected: scheduler slots taken in the whole run; `elections` begun; `missed`: of these, begun although a scheduler with
            capacity existed.
        how: look-ups by where the scheduler was found: cache, walk, claim, election.
        hops: of each look-up, in the order of their ends.
        spread: schedulers by the zone in which they stand.
        mapped: nodes by how many operators the mapping put there; `hosted`: sources and sinks included.
        queued_s, running_s: of each application that runs, in the order of submission: in the pending queue, and in all.
        relaxed: placements that had to give up a rule.
        by_cores: mapped operators per node, by the cores of the node.
        events: of the virtual world.
    """

    running: int
    refused: tuple[str, ...]
    schedulers: int
    served: dict[str, list[int]]
    elected: int
    elections: int
    missed: int
    how: dict[str, int]
    hops: tuple[int, ...]
    spread: dict[str, int]
    mapped: dict[int, int]
    hosted: dict[int, int]
    queued_s: tuple[float, ...]
    running_s: tuple[float, ...]
    relaxed: int
    by_cores: dict[int, float]
    events: int

    @property
    def spread_max_over_min(self) -> float:
        """Return the ratio of most to least schedulers of a zone; infinite when a zone has none."""
        least = min(self.spread.values())
        return max(self.spread.values()) / least if least else float("inf")

    def mapped_below(self, operators: int) -> float:
        """Return the share of the nodes with fewer mapped operators."""
        nodes = sum(self.mapped.values())
        return sum(count for held, count in self.mapped.items() if held < operators) / nodes if nodes else 1.0


def run_submissions(options: RunOptions, network: NetworkConfig | None = None) -> RunFigures:
    """Assemble a ring, submit everything, wait for all answers; see `RunFigures`."""
    (figures,) = run_growing(options, (options.applications,), network)
    return figures


def run_growing(
    options: RunOptions, counts: Sequence[int], network: NetworkConfig | None = None
) -> Iterator[RunFigures]:
    """Run more and more applications; yield the figures each time when so many of them have their answer.

    Args:
        counts: rising; the last one is that of `options`. All figures are those since the beginning.
    """
    with paused_garbage_collection():
        yield from _run(options, counts, network)


def _run(options: RunOptions, counts: Sequence[int], network: NetworkConfig | None) -> Iterator[RunFigures]:
    scheduling = SchedulingObservations()
    ring = NodeRing(
        options.seed,
        options.nodes,
        options.config(),
        network,
        zones=options.zones,
        observations=scheduling.observe,
        cores=options.cores,
    )
    scheduling.ring = ring
    ring.assemble()
    workload = Workload(ring, options.applications, options.seed)
    ring.note_names(workload.pinned())
    ring.world.run_for(500 * MILLISECOND)
    before = ring.world.events
    for count in counts:
        more = count - len(workload.submitted)
        workload.run(options.interval_ns, 600 * SECOND + 2 * more * options.service_ns, more)
        yield _figures(ring, workload, scheduling, ring.world.events - before)


def _figures(ring: NodeRing, workload: Workload, scheduling: SchedulingObservations, events: int) -> RunFigures:
    """Return the current figures."""
    done = workload.submitted
    responses = [(application.response, application.running_ns) for application in done if application.response]
    refused = [application.refusal or "no answer" for application in done if not application.response]
    spread = dict.fromkeys(sorted(dict.fromkeys(ring.zones.values())), 0)
    for node in ring.live:
        if node.schedulers.role.scheduler_slot is not None:
            spread[node.me.zone] += 1
    how: dict[str, int] = {}
    for look_up in scheduling.look_ups:
        how[look_up.how] = how.get(look_up.how, 0) + 1
    return RunFigures(
        running=len(responses),
        refused=tuple(refused),
        schedulers=sum(spread.values()),
        served=schedulers_of(ring.live),
        elected=len(scheduling.elected),
        elections=len(scheduling.begun),
        missed=scheduling.missed,
        how=dict(sorted(how.items())),
        hops=tuple(look_up.hops for look_up in scheduling.look_ups),
        spread=spread,
        mapped=workload.operators_per_node(),
        hosted=workload.operators_per_node(pinned=True),
        queued_s=tuple(body["queued_seconds"] for body, _ in responses),
        running_s=tuple(took / SECOND for _, took in responses),
        relaxed=sum(bool(body["relaxed"]) for body, _ in responses),
        by_cores=_operators_by_cores(ring, workload),
        events=events,
    )


def _operators_by_cores(ring: NodeRing, workload: Workload) -> dict[int, float]:
    held = workload.operators_of_nodes()
    return {
        cores: round(sum(count for node, count in held.items() if ring.cores[node] == cores) / nodes, 4)
        for cores, nodes in sorted(Counter(ring.cores.values()).items())
    }
