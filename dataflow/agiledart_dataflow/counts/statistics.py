"""Counts of instances: rows in and out of each step, every drop with its reason, latencies. Mergeable across processes."""

from dataclasses import dataclass, field

import msgspec

from agiledart_dataflow.counts.latency import LatencySummary
from agiledart_dataflow.counts.service_compliance import ServiceCompliance


class StepCounts(msgspec.Struct, gc=False, array_like=True):
    """Counts of the rows of one step.

    Attributes:
        rows_in, rows_out: rows that entered and left it.
        dropped: rows without any result (a filter rejected them, a `flat_map` gave nothing).
        skipped, dead_letters: rows for which it raised and its error policy continued, without the row or with it put aside.
        late: rows that came too late for it.
        taken: rows that went into its state: a window, a running value, a table, a match in progress.
        failed: results and timers of it that raised; no record is at fault.
        rejected: rows that a sink, or the system behind it, could not take.
    """

    rows_in: int = 0
    rows_out: int = 0
    dropped: int = 0
    skipped: int = 0
    dead_letters: int = 0
    late: int = 0
    taken: int = 0
    failed: int = 0
    rejected: int = 0

    def become(self, other: "StepCounts") -> None:
        """Replace the counts by those from before."""
        for name, count in msgspec.structs.asdict(other).items():
            setattr(self, name, count)

    def add(self, other: "StepCounts") -> None:
        """Add the counts of another instance."""
        others = msgspec.structs.asdict(other)
        for name, count in msgspec.structs.asdict(self).items():
            setattr(self, name, count + others[name])

    def by_public_name(self) -> dict[str, int]:
        """Return the counts by the names that `status` and `run -o json` use."""
        return msgspec.structs.asdict(self)


class SourceCounts(msgspec.Struct, array_like=True):
    """Counts of the lines of one source: `lines = records + late + malformed + shed + spooled + waiting`, at every moment.

    Where steps run at the source, the rows that they made, `made`, stand beside the lines.

    Attributes:
        spooled: records that are in the spool now; `spooled_ever`: that went through it.
        dead_letters: malformed lines that went to the side output.
        early: records (of those counted above) whose clock was too fast, so that they waited for their time.
        before: lines that an earlier run has read, after which this one began; in none of the others.
        lost_behind: number of lines after which this attempt began without the log that held the later ones; None: it did not.
        steps: counts of the steps that run before its rows have event times, by name, in order.
    """

    lines: int = 0
    records: int = 0
    late: int = 0
    malformed: dict[str, int] = {}
    waiting: int = 0
    paced: bool = False
    shed: dict[str, int] = {}
    spooled: int = 0
    spooled_ever: int = 0
    early: int = 0
    dead_letters: int = 0
    before: int = 0
    lost_behind: int | None = None
    steps: dict[str, StepCounts] = {}

    @property
    def made(self) -> int:
        """Number of rows that these steps made beyond those that they took; below zero: that they dropped."""
        return sum(counts.rows_out - counts.rows_in for counts in self.steps.values())

    @property
    def malformed_records(self) -> int:
        """Number of malformed lines, for whatever reason."""
        return sum(self.malformed.values())

    @property
    def is_useless(self) -> bool:
        """True when lines were read, and all of them were malformed."""
        return 0 < self.lines == self.malformed_records


class DuplicateCounts(msgspec.Struct, array_like=True):
    """Upper bound of the rows that one sink emitted again, since the run began, because its run was restarted.

    Attributes:
        rows: of all attempts.
        attempts: (attempt, rows that it emitted again) of the last ones.
        is_known: False where an earlier attempt counted on a node that is lost: then there may be more.
    """

    rows: int = 0
    attempts: list[tuple[int, int]] = []
    is_known: bool = True


@dataclass
class DuplicatesBySink:
    """Duplicates at the sinks of an application, by sink; `unknown`: sinks where there may be more."""

    rows: dict[str, int] = field(default_factory=dict)
    attempts: dict[tuple[int, str], int] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)

    def add(self, sink: str, counts: DuplicateCounts) -> None:
        """Add the counts of one instance of a sink."""
        self.rows[sink] = self.rows.get(sink, 0) + counts.rows
        for attempt, rows in counts.attempts:
            self.attempts[attempt, sink] = self.attempts.get((attempt, sink), 0) + rows
        if not counts.is_known:
            self.unknown.add(sink)


PASSED_ROWS = "passed_rows"
"""Key of a report: rows that came to and left the steps of an instance so far. It grows exactly when rows pass."""


class InstanceStatistics(msgspec.Struct, array_like=True):
    """Statistics of one instance so far.

    Attributes:
        stage, index: identity of the instance.
        steps: counts by name of step.
        source: of a source's instance.
        latency: `LatencyHistogram.to_plain` of a sink's instance.
        queued_rows: rows that wait in its merge.
        state_keys: number of keys in its state.
        event_time: event time (ms) up to which it is complete, None before the first watermark.
        finished: True when END_OF_INPUT has passed through it.
        sent: (edge, target instance, rows) sent to each channel that leaves it.
        received: (edge, source instance, rows) that came by each channel that enters it.
        duplicates: of a sink's instance that aborts no rows, in a run that survives its hosts.
    """

    stage: int
    index: int
    steps: dict[str, StepCounts] = {}
    source: SourceCounts | None = None
    latency: list[tuple[int, int]] = []
    queued_rows: int = 0
    state_keys: int = 0
    event_time: int | None = None
    finished: bool = False
    sent: list[tuple[int, int, int]] = []
    received: list[tuple[int, int, int]] = []
    duplicates: DuplicateCounts | None = None


class Summary(msgspec.Struct, frozen=True):
    """Summary of a run, by the names that users know.

    Attributes:
        records_in: data lines of all sources, counted once.
        malformed: malformed lines, by reason.
        late: records before the newest seen, beyond the source's tolerance.
        outliers: rows that the first step after a source dropped.
        results: rows written, by sink.
        latency: read-to-write, by sink; only for rows with a `ReadTime`.
        paced: True when a source was paced by event time, so that `latency` is a latency (else it is a backlog).
        steps: counts of each step.
        shed: rows dropped at sources because the mesh was slower than they came, by reason.
        waiting, spooled: rows that wait at sources, in memory and on disk; `spooled_ever`: that ever went to disk.
        duplicated: rows emitted again because the run was restarted, by sink that aborts none.
        duplicates_by_attempt: the same by attempt, of the last ones, as (attempt, sink, rows).
        service_levels: compliance of the sinks that have a service level.
        uncounted: of these sinks, those where there may be more, because they moved from a node that is lost.
    """

    records_in: int
    malformed: dict[str, int]
    late: int
    outliers: int
    results: dict[str, int]
    latency: dict[str, LatencySummary]
    paced: bool
    steps: dict[str, StepCounts]
    shed: dict[str, int] = {}
    waiting: int = 0
    spooled: int = 0
    spooled_ever: int = 0
    duplicated: dict[str, int] = {}
    duplicates_by_attempt: list[tuple[int, str, int]] = []
    uncounted: list[str] = []
    service_levels: list[ServiceCompliance] = []
