"""Declaration of a metric: its name, kind, labels and meaning, and how its figures are read at a scrape.

Names are `agiledart_<component>_<noun>_<unit>[_total]` in base units. Labels hold values of bounded sets only, never
the id of a node, a key or a message.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agiledart_agent.metrics.application_figures import ApplicationScrape
from agiledart_agent.metrics.gate_figures import GateFigures
from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_kernel.observation import Observation
from agiledart_overlay.wire.statistics import OverlayStatistics


@dataclass(frozen=True)
class SinkLogFigures:
    """Figures of the sink logs that an agent serves.

    Attributes:
        answers: by kind, or by reason of refusal.
        disk: (application, bytes) of each log here.
        batches_left_out, bytes_left_out: that readers did not need.
        rewritten: segments that became columns.
        writers: connected writers of feeds; feed_answers: to them, as `answers`; rows_published: of batches that counted.
    """

    readers: int = 0
    answers: Mapping[str, int] = field(default_factory=dict)
    rows_sent: int = 0
    bytes_sent: int = 0
    disk: tuple[tuple[str, int], ...] = ()
    batches_left_out: int = 0
    bytes_left_out: int = 0
    rewritten: int = 0
    writers: int = 0
    feed_answers: Mapping[str, int] = field(default_factory=dict)
    rows_published: int = 0


@dataclass(frozen=True)
class RecoveryFigures:
    """Figures of the runs of an agent that survive their hosts.

    Attributes:
        commit_ages: (application, seconds) of each run that it coordinates.
        missing: (application, number of missing nodes) of the same.
        snapshots, snapshot_bytes, snapshot_pause_ns, snapshot_longest_ns: of snapshots that were saved here.
        rebuilt: snapshots rebuilt here.
        fragments, fragment_bytes: stored for other nodes.
        damaged: of these, found damaged and dropped.
        lacking: fragments of snapshots saved here that no node has.
        traffic: bytes of fragments by direction.
        answers: to hosts, by kind or reason.
        refused_files: votes, attempts and parts that the disk did not take.
    """

    commit_ages: tuple[tuple[str, float], ...] = ()
    missing: tuple[tuple[str, int], ...] = ()
    snapshots: int = 0
    snapshot_bytes: int = 0
    snapshot_pause_ns: int = 0
    snapshot_longest_ns: int = 0
    rebuilt: int = 0
    fragments: int = 0
    fragment_bytes: int = 0
    damaged: int = 0
    lacking: int = 0
    traffic: Mapping[str, int] = field(default_factory=dict)
    answers: Mapping[str, int] = field(default_factory=dict)
    refused_files: int = 0


@dataclass(frozen=True)
class NodeFigures:
    """Figures of an agent at one moment.

    Attributes:
        unready: why this node should get no work; empty when it may.
        dropped: messages thrown away outside the overlay machine, by reason.
        executors: (application, process id) of each running executor.
        scheduled: applications that it serves as scheduler; None: it is no scheduler.
        waiting: of these, those for which no node has free capacity.
        alone: it reaches no other node of a network that has or had some.
        clock_off_seconds: seconds by which the clock is ahead of most others; None: there is no node yet.
        scaling_scores, scaling_instances: (application, stage, figure) of stages with limits whose application it
            coordinates.
        placement_objectives: (application, value of the objective) of applications that it coordinates, where figures are
            known; placements_wanted: (application, 1: a move is wanted and not made; 0); placement_bound_distances:
            (application, share).
        placement_moves: ((application, reason), number of moves started here); mopa_messages: sent, by kind;
            planner_seconds: that searches took;
            plans: number of questions to the planner, by outcome.
        gates: figures of the gates beside this agent.
        links_by_kind: peers with a link, by its kind; reservations: at relays.
        circuits: that pass here now; relayed_bytes: of all so far; relay_refusals: circuits that were refused, by
            reason.
    """

    unready: str = ""
    overlay: OverlayStatistics | None = None
    links: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    refusals: Mapping[str, int] = field(default_factory=dict)
    executors: tuple[tuple[str, int], ...] = ()
    sink_logs: SinkLogFigures = SinkLogFigures()
    scheduled: int | None = None
    waiting: int = 0
    recovery: RecoveryFigures = RecoveryFigures()
    alone: bool = False
    clock_off_seconds: float | None = None
    scaling_scores: tuple[tuple[str, str, float], ...] = ()
    scaling_instances: tuple[tuple[str, str, int], ...] = ()
    placement_objectives: tuple[tuple[str, float], ...] = ()
    placements_wanted: tuple[tuple[str, int], ...] = ()
    placement_bound_distances: tuple[tuple[str, float], ...] = ()
    placement_moves: tuple[tuple[tuple[str, str], int], ...] = ()
    mopa_messages: Mapping[str, int] = field(default_factory=dict)
    planner_seconds: float = 0.0
    plans: Mapping[str, int] = field(default_factory=dict)
    circuits: int = 0
    relayed_bytes: int = 0
    relay_refusals: Mapping[str, int] = field(default_factory=dict)
    links_by_kind: Mapping[str, int] = field(default_factory=dict)
    reservations: int = 0
    gates: tuple[GateFigures, ...] = ()


class ChangeFigures(Protocol):
    """Changes of stages that have ended.

    Attributes:
        finalised: number by kind, reason and state.
        changeover_pauses: longest pause of a key group in the last change of each application, seconds.
    """

    finalised: Counter[tuple[str, str, str]]
    moved_bytes: int
    changeover_pauses: dict[str, float]


@dataclass(frozen=True)
class Scrape:
    """All figures from which metrics are read, at the moment of one scrape.

    Attributes:
        counted: number of reports of an observation, by its reason (`""`: it has none).
        phases: nanoseconds of recoveries by phase.
        changes: of stages that have ended.
        app_label, log_label: the value of the label `app` for an application, and for the owner of a sink log.
    """

    node: NodeFigures
    zone: str
    http_refusals: Mapping[str, int]
    counted: Mapping[type[Observation], Counter[str]]
    phases: Mapping[str, int]
    applications: tuple[ApplicationScrape, ...]
    changes: ChangeFigures
    app_label: Callable[[str], str]
    log_label: Callable[[str], str]


Figure = float | LatencyHistogram
Value = Figure | Mapping[str, Figure] | Mapping[str, int] | None
"""A figure, figures by the last label, or no value."""

Samples = Iterable[tuple[tuple[str, ...], Figure]]
"""Values of the labels, and the figure."""


@dataclass(frozen=True)
class MetricDeclaration:
    """One metric.

    Attributes:
        kind: `counter`, `gauge`, `histogram` or `info`.
        labels: its only labels.
        read: returns its samples.
        observation: the observation of core code that it counts.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[Scrape], Samples]
    observation: type[Observation] | None = None


def kind_of(name: str) -> str:
    """Return the kind of a metric: a counter's name ends with `_total`, and no gauge's does."""
    return "counter" if name.endswith("_total") else "gauge"


def samples_of(value: Value, *labels: str) -> Iterator[tuple[tuple[str, ...], Figure]]:
    """Yield the samples of a value under these first labels."""
    if isinstance(value, Mapping):
        for label, figure in value.items():
            yield (*labels, label), figure
    elif value is not None:
        yield labels, value
