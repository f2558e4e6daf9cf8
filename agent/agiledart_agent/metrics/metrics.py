"""An agent's figures for Prometheus, gathered when somebody scrapes and at no other time.

Counts of the core's observations are kept here; everything else is read where it is. Which metrics there are stands in
`metrics_list`.
"""

import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from agiledart_agent.metrics import metrics_list as names
from agiledart_agent.metrics.application_figures import (
    MAX_APPLICATIONS,
    Application,
    ApplicationFigures,
    Counts,
    Labels,
    Now,
    Totals,
)
from agiledart_agent.metrics.metrics_list import COUNTED, LATENCY_BOUNDS_SECONDS, METRICS, Declared
from agiledart_kernel.observe import Observation
from agiledart_overlay.wire.statistics import OverlayStatistics

MAX_AGENT_REASONS = 48
"""Reasons of refusals or drops that are told apart."""

RENDER_SECONDS = 0.5
"""A scrape within so short a time after another gets the same text."""

RENDER_SHARE = 0.05
"""And at least so long that making texts takes no more than this share of the event loop, whoever scrapes how often."""

MAX_RENDERED = 4
"""Formats whose last text is kept for that long."""

_BOUNDS_NS = tuple(int(bound * 1e9) for bound in LATENCY_BOUNDS_SECONDS)


@dataclass(frozen=True)
class SinkLogFigures:
    """What an agent has served of its sink logs.

    Attributes:
        answers: by kind, or by reason of refusal.
        disk: (application, bytes) of each log here.
    """

    readers: int = 0
    answers: Mapping[str, int] = field(default_factory=dict)
    rows_sent: int = 0
    bytes_sent: int = 0
    disk: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class NodeFigures:
    """What an agent knows of itself at one moment.

    Attributes:
        unready: why this node should get no work; empty when it may.
        dropped: messages thrown away outside the overlay machine, by reason.
        executors: (application, process id) of each running executor.
        scheduled: applications that it serves as scheduler; None: it is none.
        waiting: of these, those for which no node has room.
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


class Families:
    """The families of one scrape."""

    def __init__(self) -> None:
        self._families = {declared.name: declared.family() for declared in METRICS}

    def put(self, declared: Declared, value: float, *labels: str) -> None:
        """One sample of a counter, gauge or info (whose value says nothing)."""
        family = self._families[declared.name]
        if isinstance(family, InfoMetricFamily):
            family.add_metric([], dict(zip(declared.labels, labels, strict=True)))
        else:
            assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
            assert len(labels) == len(declared.labels)
            family.add_metric(labels, value)

    def put_histogram(
        self, declared: Declared, counts: Iterable[int], samples: int, total: float, *labels: str
    ) -> None:
        """One histogram in seconds with the usual bounds, counts cumulative."""
        family = self._families[declared.name]
        assert isinstance(family, HistogramMetricFamily)
        buckets = [(str(bound), float(count)) for bound, count in zip(LATENCY_BOUNDS_SECONDS, counts, strict=True)]
        family.add_metric(labels, [*buckets, ("+Inf", float(samples))], total)

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._families.values())


class AgentMetrics(Collector):
    """All metrics of one agent.

    Args:
        look: reads the agent.
        zone: of this node.
        wall_seconds, clock: wall time for the watermark's lag; a clock that only runs forward.
    """

    def __init__(
        self,
        look: Callable[[], NodeFigures],
        zone: str = "",
        *,
        wall_seconds: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look, self._zone, self._wall_seconds, self._clock = look, zone, wall_seconds, clock
        self.applications = ApplicationFigures()
        self.http_refusals: Counter[str] = Counter()
        self._counted: Counter[Declared] = Counter({declared: 0 for declared in COUNTED.values() if declared})
        self._failed_peers: Counter[str] = Counter()
        self._reasons = {declared: Labels(MAX_AGENT_REASONS) for declared in METRICS if "reason" in declared.labels}
        self._log_owners = Labels(MAX_APPLICATIONS)
        self._rendered: dict[str, tuple[float, bytes]] = {}  # content type → (until when it is shown, text)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def observed(self, observation: Observation) -> None:
        """Core code reported something."""
        declared = COUNTED.get(type(observation))
        if declared is names.FAILED_PEERS:
            self._failed_peers[self._reason(declared, str(getattr(observation, "reason", "")))] += 1
        elif declared is not None:
            self._counted[declared] += 1

    def refused_http(self, reason: str) -> None:
        """The metrics port turned somebody away."""
        self.http_refusals[reason] += 1

    def render(self, accept: str) -> tuple[str, bytes]:
        """(content type, text) in the format that an Accept header asks for."""
        encode, content_type = choose_encoder(accept)
        now = self._clock()
        kept = self._rendered.get(content_type)
        if kept is None or now >= kept[0]:
            if content_type not in self._rendered and len(self._rendered) >= MAX_RENDERED:
                self._rendered.clear()
            text = encode(self._registry)
            took = self._clock() - now
            kept = self._rendered[content_type] = (now + max(RENDER_SECONDS, took / RENDER_SHARE), text)
        return content_type, kept[1]

    def collect(self) -> Iterator[Metric]:
        """For prometheus_client: the families, filled."""
        families, figures = Families(), self._look()
        families.put(names.BUILD, 1, _version(), platform.python_version())
        if self._zone:
            families.put(names.ZONE, 1, self._zone)
        families.put(names.READY, 0 if figures.unready else 1)
        self._put_reasons(families, names.REFUSALS, figures.refusals)
        self._put_reasons(families, names.HTTP_REFUSALS, self.http_refusals)
        self._put_overlay(families, figures)
        self._put_executors(families, figures)
        self._put_sink_logs(families, figures.sink_logs)
        wall = self._wall_seconds()
        for label, application in self.applications:
            _put_application(families, label, application, wall)
        yield from families

    def _put_overlay(self, families: Families, figures: NodeFigures) -> None:
        overlay = figures.overlay
        families.put(names.LINKS, figures.links)
        dropped = Counter(figures.dropped)
        if overlay is not None:
            families.put(names.LEAVES, overlay.leaves)
            families.put(names.KNOWN, overlay.known_peers)
            families.put(names.SLOTS, overlay.table_slots)
            families.put(names.RECORDS, overlay.records)
            families.put(names.MESSAGES, sum(count for _, count in overlay.received), "in")
            families.put(names.MESSAGES, sum(count for _, count in overlay.sent), "out")
            dropped.update(dict(overlay.dropped))
        self._put_reasons(families, names.DROPPED, dropped)
        if figures.scheduled is not None:
            families.put(names.SCHEDULED, figures.scheduled)
        families.put(names.WAITING, figures.waiting)
        for reason, count in self._failed_peers.items():
            families.put(names.FAILED_PEERS, count, reason)
        for declared, count in self._counted.items():
            if not declared.labels:
                families.put(declared, count)

    def _put_executors(self, families: Families, figures: NodeFigures) -> None:
        processes: Counter[str] = Counter()
        memory: Counter[str] = Counter()
        for application, pid in figures.executors:
            label = self.applications.label(application)
            processes[label] += 1
            memory[label] += resident_bytes(pid)
        for label, count in processes.items():
            families.put(names.EXECUTORS, count, label)
            families.put(names.EXECUTOR_MEMORY, memory[label], label)

    def _put_sink_logs(self, families: Families, logs: SinkLogFigures) -> None:
        families.put(names.LOG_READERS, logs.readers)
        families.put(names.LOG_ROWS, logs.rows_sent)
        families.put(names.LOG_BYTES, logs.bytes_sent)
        self._put_reasons(families, names.LOG_ANSWERS, logs.answers)
        disk: Counter[str] = Counter()
        for application, size in logs.disk:
            disk[self._log_owners.of(application)] += size
        for label, size in disk.items():
            families.put(names.LOG_DISK, size, label)

    def _put_reasons(self, families: Families, declared: Declared, counts: Mapping[str, int]) -> None:
        merged: Counter[str] = Counter()
        for reason, count in counts.items():
            merged[self._reason(declared, reason)] += count
        for reason, count in merged.items():
            families.put(declared, count, reason)

    def _reason(self, declared: Declared, text: str) -> str:
        return self._reasons[declared].of(text)


def _put_application(families: Families, app: str, application: Application, wall_seconds: float) -> None:
    totals, now = application.look()
    families.put(names.FAILURES, application.failures, app)
    _put_ledger(families, app, totals, now)
    for operator, counts in totals.operators.items():
        families.put(names.ROWS, counts.rows_in, app, operator, "in")
        families.put(names.ROWS, counts.rows_out, app, operator, "out")
        if counts.is_source:
            malformed = sum(count for (source, _), count in totals.malformed.items() if source == operator)
            families.put(names.DROPPED_RECORDS, malformed, app, operator, "malformed")
            _put_source(families, app, operator, counts)
        else:
            families.put(names.DROPPED_RECORDS, counts.filtered, app, operator, "filtered")
            _put_losses(families, app, operator, counts)
        if counts.leads:
            families.put(names.BUSY, counts.busy_ns / 1e9, app, operator)
        if counts.latency is not None:
            cumulative, total_ns = counts.latency.cumulative(_BOUNDS_NS)
            families.put_histogram(names.LATENCY, cumulative, counts.latency.samples, total_ns / 1e9, app, operator)
        if counts.samples:
            families.put(names.LATENCY_SAMPLES, counts.samples_kept, app, operator, "kept")
            families.put(names.LATENCY_SAMPLES, counts.samples_lost, app, operator, "lost")
    for (operator, reason), count in totals.malformed.items():
        families.put(names.MALFORMED, count, app, operator, reason)
    for operator, one in now.items():
        families.put(names.INSTANCES, one.running - one.blocked, app, operator, "running")
        families.put(names.INSTANCES, one.blocked, app, operator, "blocked")
        families.put(names.INSTANCES, one.finished, app, operator, "finished")
        families.put(names.QUEUE, one.waiting + one.queued, app, operator)
        if one.spooled or (operator in totals.operators and totals.operators[operator].spooled_ever):
            families.put(names.SPOOL, one.spooled, app, operator)
        families.put(names.STATE_KEYS, one.state_keys, app, operator)
        if one.event_time is not None:
            families.put(names.LAG, wall_seconds - one.event_time / 1000, app, operator)


def _put_ledger(families: Families, app: str, totals: Totals, now: Mapping[str, Now]) -> None:
    """Where all records of an application went, as far as they passed this node."""
    operators = totals.operators.values()
    steps = [counts for counts in operators if not counts.is_source]
    went = {
        "read": sum(counts.rows_in for counts in operators if counts.is_source),
        "delivered": sum(counts.delivered for counts in steps),
        "late": sum(counts.late for counts in operators),
        "malformed": sum(totals.malformed.values()),
        "shed": sum(sum(counts.shed.values()) for counts in operators),
        "filtered": sum(counts.filtered for counts in steps),
        "taken": sum(counts.taken for counts in steps),
        "skipped": sum(counts.skipped for counts in steps),
        "dead_letter": sum(counts.dead_letters for counts in steps),
        "failed": sum(counts.failed for counts in steps),
    }
    for reason, count in went.items():
        families.put(names.LEDGER, count, app, reason)
    for reason in ("waiting", "spooled", "queued"):
        queued = sum(getattr(one, reason) for one in now.values())
        families.put(names.UNDER_WAY, queued, app, reason)
    families.put(names.IMBALANCES, totals.imbalances, app)


def _put_source(families: Families, app: str, operator: str, counts: Counts) -> None:
    """What a source took in, and what it kept back or let go."""
    families.put(names.SOURCE_RECORDS, counts.records, app, operator)
    families.put(names.LATE, counts.late, app, operator)
    families.put(names.DROPPED_RECORDS, counts.late, app, operator, "late")
    families.put(names.DROPPED_RECORDS, sum(counts.shed.values()), app, operator, "shed")
    for reason, count in counts.shed.items():
        families.put(names.SHED, count, app, operator, reason)
    if counts.spooled_ever:
        families.put(names.SPOOLED, counts.spooled_ever, app, operator)


def _put_losses(families: Families, app: str, operator: str, counts: Counts) -> None:
    """Records that an operator had no use for, where it had any."""
    if counts.late:
        families.put(names.LATE, counts.late, app, operator)
        families.put(names.DROPPED_RECORDS, counts.late, app, operator, "late")
    for policy, reason, count in (
        ("skip", "skipped", counts.skipped),
        ("dead_letter", "dead_letter", counts.dead_letters),
    ):
        if count:
            families.put(names.USER_ERRORS, count, app, operator, policy)
            families.put(names.DROPPED_RECORDS, count, app, operator, reason)
    if counts.failed:
        families.put(names.USER_ERRORS, counts.failed, app, operator, "result")


def bytes_below(directory: str) -> int:
    """Sizes of the files of a sink log: its directory and those of its partitions."""
    total = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    total += bytes_below(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    except OSError:
        pass  # trimmed at this moment
    return total


def resident_bytes(pid: int) -> int:
    """Resident memory of a process; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            for line in status:
                if line.startswith(b"VmRSS:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 0


def _version() -> str:
    try:
        return version("agiledart")
    except PackageNotFoundError:
        return "unknown"
