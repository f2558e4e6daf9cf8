"""What instances count:

Rows in and out of each step, every drop with its reason, latencies. Mergeable across processes.
"""

from dataclasses import dataclass, field

import msgspec

from agiledart_dataflow.counts.latency import LatencySummary


class StepCounts(msgspec.Struct, gc=False, array_like=True):
    """Rows of one step.

    Attributes:
        rows_in, rows_out: that entered and left it.
        dropped: that left nothing behind (a filter said no, a `flat_map` gave nothing).
        skipped, dead_letters: for which it raised and its error policy went on, without the row or with it put aside.
        late: that came too late for it.
        taken: that went into its state: a window, a running value, a table, a match under way.
        failed: results and timers of it that raised; no record is at fault.
    """

    rows_in: int = 0
    rows_out: int = 0
    dropped: int = 0
    skipped: int = 0
    dead_letters: int = 0
    late: int = 0
    taken: int = 0
    failed: int = 0

    def become(self, other: "StepCounts") -> None:
        """Take over what was counted before."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(other, name))

    def add(self, other: "StepCounts") -> None:
        """Add what another instance counted."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def body(self) -> dict[str, int]:
        """The same under the names that `status` and `run -o json` give them."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class SourceCounts(msgspec.Struct, array_like=True):
    """Lines of one source: `lines = records + late + malformed + shed + spooled + waiting`, at every moment.

    Attributes:
        spooled: records that lie in the spool now; `spooled_ever`: that went through it.
        dead_letters: of the malformed ones, that went to the side output.
        early: records (of those counted above) whose clock was too fast, so that they waited for their time.
        before: lines that an earlier run has read, behind which this one began; in none of the others.
        lost_behind: this life began behind so many lines without the log in which those after them lay; None: it did not.
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

    @property
    def malformed_records(self) -> int:
        """Lines that were none, for whatever reason."""
        return sum(self.malformed.values())

    @property
    def is_useless(self) -> bool:
        """Something was read, and not one record of it."""
        return 0 < self.lines == self.malformed_records


class DuplicateCounts(msgspec.Struct, array_like=True):
    """Rows that one sink was given again because its run was brought back, since the run began. At most so many were seen twice.

    Attributes:
        rows: of all lives; `lives`: (life, rows that it brought again) of the last ones.
        is_known: False where an earlier life counted on a node that is lost: then there may be more.
    """

    rows: int = 0
    attempts: list[tuple[int, int]] = []
    is_known: bool = True


@dataclass
class DuplicatesBySink:
    """What came again at the sinks of an application, by sink; `unknown`: where there may be more."""

    rows: dict[str, int] = field(default_factory=dict)
    attempts: dict[tuple[int, str], int] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)

    def add(self, sink: str, counts: DuplicateCounts) -> None:
        """What one instance of a sink counted."""
        self.rows[sink] = self.rows.get(sink, 0) + counts.rows
        for attempt, rows in counts.attempts:
            self.attempts[attempt, sink] = self.attempts.get((attempt, sink), 0) + rows
        if not counts.is_known:
            self.unknown.add(sink)


class InstanceStatistics(msgspec.Struct, array_like=True):
    """What one instance has done so far.

    Attributes:
        stage, index: which instance.
        steps: counts by name of step.
        source: of a source's instance.
        latency: `LatencyHistogram.to_plain` of a sink's instance.
        queued_rows: rows that wait in its merge.
        state_keys: keys that it remembers.
        event_time: event time (ms) up to which it is complete, None before the first mark.
        finished: True when END_OF_INPUT has passed through it.
        sent: (edge, target instance, rows) handed to each channel that leaves it.
        received: (edge, source instance, rows) that came by each channel that enters it.
        repeats: of a sink's instance that takes no rows back, in a run that survives its hosts.
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
    """What a run did, by the names that users know.

    Attributes:
        records_in: data lines of all sources, counted once.
        malformed: lines that were none, by reason.
        late: records before the newest seen, beyond the source's tolerance.
        outliers: rows that the first step after a source dropped.
        results: rows written, by sink.
        latency: read-to-write, by sink; only for rows with a `ReadTime`.
        paced: True when a source was paced by event time, so that `latency` is one (else it is a backlog).
        steps: what each step counted.
        shed: rows let go at sources because the mesh was slower than they came, by reason.
        waiting, spooled: rows that wait at sources, in memory and on disk; `spooled_ever`: that ever went to disk.
        repeated: rows given again because the run was brought back, by sink that takes none back; `duplicates_by_attempt`: the same by
            life, of the last ones, as (life, sink, rows).
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
