"""Figures of the applications on this node, summed over instances: counts that only grow, and gauges of the moment.

Reports of instances replace each other and vanish with their run. This module keeps a run's counts when it ends, so a
counter never goes back while its application keeps its label. Everything is bounded: up to `MAX_APPLICATIONS` have a
label of their own. A new one replaces the one that ended longest ago, or shares `other` while all run. Operators and
reasons beyond their bounds share `other`, too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from agiledart_agent.metrics.route_counts import RouteCounts, success_by_path
from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.counts.statistics import InstanceStatistics
from agiledart_dataflow.runtime.ledger import misses
from agiledart_node.records.summary import statistics_of

MAX_APPLICATIONS = 32
"""Applications with a label of their own. A new one replaces the one that ended longest ago."""

MAX_OPERATORS = 32
"""Operators of one application with a label of their own; the first ones named."""

MAX_REASONS = 16
"""Pairs of source and reason of one application with a label of their own for malformed records."""

MAX_LABEL = 96
"""Characters of a label's value."""

MAX_CLOSED = 1_024
"""Ended runs that are remembered, so that a late report does not revive one."""

OTHER = "other"

SHED_REASONS = ("oldest", "sample", "spool_full", "disk_full")
"""Why sources drop rows. A report may contain any reason, a label may not."""

InstanceKey = tuple[str, int, int, int]
"""(application, version, stage, index)."""


class BoundedLabels:
    """Texts that may stand in a label: the first so many, then `other`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[tuple[str, str], str] = {}

    def of(self, text: str, within: str = "") -> str:
        """Return the label's value for a text. `within`: the thing in which the text is unique."""
        key = within, text
        if (known := self._known.get(key)) is not None:
            return known
        if len(self._known) >= self._limit:
            return OTHER
        self._known[key] = text[:MAX_LABEL] or OTHER
        return self._known[key]


@dataclass
class OperatorCounts:
    """Counts of one operator of one application, over all instances on this node.

    Attributes:
        busy_ns: time in which its instances worked, for the operator that leads its stage.
        records: of a source.
        late: of a source, or rows too late for this operator.
        malformed, shed: by reason.
        spooled_ever: records put on disk because the mesh was slower than rows came.
        skipped, dead_letters: records for which its code raised; failed: results and timers that did.
        taken: records that went into its state.
        delivered: rows that it, a sink, wrote; rejected: that it could not.
        duplicated: of them, rows that it was given again because the run was restarted.
    """

    rows_in: int = 0
    rows_out: int = 0
    filtered: int = 0
    records: int = 0
    late: int = 0
    skipped: int = 0
    dead_letters: int = 0
    failed: int = 0
    taken: int = 0
    delivered: int = 0
    rejected: int = 0
    duplicated: int | None = None
    spooled_ever: int = 0
    malformed: dict[str, int] = field(default_factory=dict)
    shed: dict[str, int] = field(default_factory=dict)
    busy_ns: int = 0
    is_source: bool = False
    leads_stage: bool = False
    latency: LatencyHistogram | None = None
    slo_ms: float | None = None
    samples_kept: int = 0
    samples_lost: int = 0
    samples: bool = False


@dataclass
class ApplicationTotals:
    """Counters of one application.

    Attributes:
        imbalances: places in its instances where counts do not add up.
        resent: frames between executors that were sent again over another link.
        duplicate_frames: frames that arrived twice.
        routes: paths of these frames.
    """

    operators: dict[str, OperatorCounts] = field(default_factory=dict)
    imbalances: int = 0
    resent: int = 0
    duplicate_frames: int = 0
    routes: RouteCounts = field(default_factory=RouteCounts)

    def copy(self) -> "ApplicationTotals":
        """Return a copy to which a caller may add."""
        copied = ApplicationTotals({}, self.imbalances, self.resent, self.duplicate_frames, self.routes.copy())
        for name, counts in self.operators.items():
            own = {"malformed": dict(counts.malformed), "shed": dict(counts.shed), "latency": None}
            copied.operators[name] = again = OperatorCounts(**{**vars(counts), **own})
            if counts.latency is not None:
                again.latency = LatencyHistogram()
                again.latency.merge(counts.latency)
        return copied

    def add(
        self,
        statistics: InstanceStatistics,
        report: Mapping[str, Any],
        operators: BoundedLabels,
        reasons: BoundedLabels,
    ) -> None:
        """Add the counts of one instance."""
        self.imbalances += len(misses(statistics))
        self.resent += _whole(report.get("frames_resent"))
        self.duplicate_frames += _whole(report.get("frames_doubled"))
        self.routes.add(report)
        for position, (name, steps) in enumerate(statistics.steps.items()):
            label = operators.of(name)
            counts = self.operators.setdefault(label, OperatorCounts())
            counts.rows_in += steps.rows_in
            counts.rows_out += steps.rows_out
            counts.filtered += steps.dropped
            counts.skipped += steps.skipped
            counts.dead_letters += steps.dead_letters
            counts.late += steps.late
            counts.failed += steps.failed
            counts.taken += steps.taken
            if statistics.source is None and not statistics.sent:  # nothing leaves a sink, and only a sink
                counts.delivered += steps.rows_out
                counts.rejected += steps.rejected
                if statistics.duplicates is not None:
                    counts.duplicated = (counts.duplicated or 0) + statistics.duplicates.rows
            if position == 0:
                counts.leads_stage = True
                counts.busy_ns += _whole(report.get("busy_ns"))
            if statistics.source is not None and position == 0:
                counts.is_source = True
                counts.records += statistics.source.records
                counts.late += statistics.source.late
                counts.spooled_ever += statistics.source.spooled_ever
                for reason, count in statistics.source.shed.items():
                    known = reason if reason in SHED_REASONS else OTHER
                    counts.shed[known] = counts.shed.get(known, 0) + count
                for reason, count in statistics.source.malformed.items():
                    known = reasons.of(reason, within=label)
                    counts.malformed[known] = counts.malformed.get(known, 0) + count
            if statistics.latency:
                counts.latency = counts.latency or LatencyHistogram()
                counts.latency.merge(LatencyHistogram.from_plain(statistics.latency))
                counts.slo_ms = _slo_ms(report, name)
            if position == 0 and isinstance(samples := report.get("latency_samples"), dict):
                counts.samples = True
                counts.samples_kept += _whole(samples.get("kept"))
                counts.samples_lost += _whole(samples.get("lost"))


def _slo_ms(report: Mapping[str, Any], step: str) -> float | None:
    """Return the service level of a step in a report; None where it has none."""
    levels = report.get("slo_ms")
    value = levels.get(step) if isinstance(levels, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


@dataclass
class StageGauges:
    """Gauges of an operator that leads a stage; sums over its instances on this node.

    Attributes:
        queued: rows in merges and outputs; waiting: records in memory at a source; spooled: on its disk.
        event_time: the oldest event time (ms) up to which a running instance is complete; lag_seconds: how long ago
            that was.
        has_spooled: its operator, a source, ever wrote to disk.
        unsaved: instances that could not be saved at their last barrier.
    """

    queued: int = 0
    waiting: int = 0
    spooled: int = 0
    state_keys: int = 0
    blocked: int = 0
    running: int = 0
    finished: int = 0
    event_time: int | None = None
    lag_seconds: float | None = None
    has_spooled: bool = False
    unsaved: int = 0

    def add(self, statistics: InstanceStatistics, report: Mapping[str, Any]) -> None:
        """Add one instance."""
        self.queued += _whole(report.get("waiting_rows"))
        if statistics.source is None:
            self.queued += statistics.queued_rows
        else:  # its queue is the input that waits there
            self.waiting += statistics.source.waiting
            self.spooled += statistics.source.spooled
        self.state_keys += statistics.state_keys
        self.unsaved += bool(report.get("unsaved"))
        if statistics.finished:
            self.finished += 1
            return
        self.running += 1
        self.blocked += report.get("blocked") is True
        if statistics.event_time is not None:
            oldest = self.event_time
            self.event_time = statistics.event_time if oldest is None else min(oldest, statistics.event_time)


@dataclass(frozen=True)
class ApplicationScrape:
    """Applications of one label at one moment.

    `now`: gauges of each stage, by the operator that leads it; `success`: of links, by path.
    """

    label: str
    totals: ApplicationTotals
    now: dict[str, StageGauges]
    failures: int
    success: dict[str, float]


@dataclass
class LabelledApplication:
    """Applications of one label: one, or all that share `other`."""

    past: ApplicationTotals = field(default_factory=ApplicationTotals)
    live: dict[InstanceKey, dict[str, Any]] = field(default_factory=dict)
    operators: BoundedLabels = field(default_factory=lambda: BoundedLabels(MAX_OPERATORS))
    reasons: BoundedLabels = field(default_factory=lambda: BoundedLabels(MAX_REASONS))
    failures: int = 0

    def fold(self, name: str, version: int) -> None:
        """Keep the counts of an application's runs up to this version, which have ended, and drop their gauges."""
        for copy in [copy for copy in self.live if copy[0] == name and copy[1] <= version]:
            report = self.live.pop(copy)
            if (statistics := statistics_of(report)) is not None:
                self.past.add(statistics, report, self.operators, self.reasons)

    def look(self, label: str, wall_seconds: float) -> ApplicationScrape:
        """Return the counters of all runs, and the gauges at this wall time."""
        totals, now = self.past.copy(), dict[str, StageGauges]()
        for report in self.live.values():
            if (statistics := statistics_of(report)) is not None:
                totals.add(statistics, report, self.operators, self.reasons)
                leader = self.operators.of(next(iter(statistics.steps), OTHER))
                now.setdefault(leader, StageGauges()).add(statistics, report)
        for leader, gauges in now.items():
            gauges.has_spooled = leader in totals.operators and totals.operators[leader].spooled_ever > 0
            if gauges.event_time is not None:
                gauges.lag_seconds = wall_seconds - gauges.event_time / 1000
        return ApplicationScrape(label, totals, now, self.failures, success_by_path(self.live.values()))


class ApplicationFigures:
    """All applications of this node, by the value of their label `app`."""

    def __init__(self) -> None:
        self._applications: dict[str, LabelledApplication] = {}
        self._closed: dict[str, int] = {}
        self._coordinated: frozenset[str] = frozenset()

    def label(self, name: str) -> str:
        """Return the label's value for an application: its name when it has run here, or is coordinated here now."""
        short = name[:MAX_LABEL]
        return short if short in self._applications or short in self._coordinated else OTHER

    def set_coordinated(self, names: Iterable[str]) -> None:
        """Set the applications that this node coordinates now, also those without instances here; of many the first."""
        self._coordinated = frozenset(name[:MAX_LABEL] for name in islice(dict.fromkeys(names), MAX_APPLICATIONS))

    def reported(self, name: str, version: int, stage: int, index: int, report: dict[str, Any]) -> None:
        """Take an instance's report, which replaces its last one."""
        if version > self._closed.get(name, 0):
            application = self._application(name)
            copy = name, version, stage, index
            if copy not in application.live:
                application.fold(name, version - 1)
            application.live[copy] = report

    def started(self, name: str) -> None:
        """Create the counters of an application whose instances are about to start, so that a first failure is seen as a rise."""
        self._application(name)

    def failed(self, name: str) -> None:
        """Count an instance that failed."""
        self._application(name).failures += 1

    def ended(self, name: str, version: int) -> None:
        """Close a run that has ended; later reports of it are ignored."""
        closed = max(version, self._closed.pop(name, 0))
        if len(self._closed) >= MAX_CLOSED:
            del self._closed[next(iter(self._closed))]
        self._closed[name] = closed
        label = self.label(name)
        if application := self._applications.get(label):
            application.fold(name, version)
            if not application.live:  # the last one that ended stands last
                self._applications[label] = self._applications.pop(label)

    def look(self, wall_seconds: float) -> tuple[ApplicationScrape, ...]:
        """Return all applications at this wall time."""
        return tuple(application.look(label, wall_seconds) for label, application in self._applications.items())

    def _application(self, name: str) -> LabelledApplication:
        short = name[:MAX_LABEL] or OTHER
        application = self._applications.get(short)
        if application is None:
            if short != OTHER and len(self._applications) - (OTHER in self._applications) >= MAX_APPLICATIONS:
                idle = next(
                    (label for label, candidate in self._applications.items() if not candidate.live and label != OTHER),
                    "",
                )
                if not idle:
                    return self._applications.setdefault(OTHER, LabelledApplication())
                del self._applications[idle]
            application = self._applications[short] = LabelledApplication()
        return application


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
