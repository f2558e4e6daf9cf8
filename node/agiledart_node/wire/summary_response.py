"""Response schema of an application's totals: rows, latencies, and whether they add up."""

from agiledart_dataflow.counts.service_compliance import ServiceCompliance
from agiledart_node.wire.response import Response


class LatencyRow(Response, frozen=True):
    """Latency from read to write of one sink, milliseconds."""

    samples: int
    p50: float
    p95: float
    p99: float
    largest: float


class StepRow(Response, frozen=True):
    """Row counts of one step.

    Args:
        dropped: rows without a result.
        skipped, dead_letters: rows for which its code raised and its error policy continued.
        late: rows that arrived too late for it.
        taken: rows absorbed into its state: a window, a running value, a table, a partial match.
        failed: results and timers for which its code raised.
        rejected: rows that a sink, or the system behind it, could not take.
    """

    rows_in: int
    rows_out: int
    dropped: int
    skipped: int = 0
    dead_letters: int = 0
    late: int = 0
    taken: int = 0
    failed: int = 0
    rejected: int = 0


class SummaryResponse(Response, frozen=True):
    """Totals of an application, live or at its end.

    Args:
        records_in: data lines of all sources, each counted once.
        malformed: lines that were not valid records, by reason.
        late: records older than the source's tolerance.
        outliers: rows dropped by the first step after a source.
        results: rows written, by sink.
        latency_ms: by sink; a latency only when `paced`, otherwise a backlog.
        first_ms, last_ms: time of the first record read and of the last record written.
        shed: rows discarded at sources because the mesh was too slow for them, by reason.
        waiting, spooled: rows that wait at sources, in memory and on disk; `spooled_ever`: rows ever written to disk.
        instances_reporting: instances whose measurements are in the totals.
        imbalances: places where the ledger does not add up (rows lost, duplicated or miscounted); normally empty.
        duplicated: upper limit of the rows that non-transactional sinks received again after restarts, by sink.
            `duplicates_by_attempt`: (attempt, sink, rows) of the last attempts.
        uncounted: sinks with possible further duplicates, because they moved away from a lost node.
        service_levels: of sinks with a service level, and estimates for other steps that have one.
    """

    records_in: int
    malformed: dict[str, int]
    late: int
    outliers: int
    results: dict[str, int]
    latency_ms: dict[str, LatencyRow]
    paced: bool
    steps: dict[str, StepRow]
    instances_reporting: int
    first_ms: int = 0
    last_ms: int = 0
    wall_seconds: float = 0.0
    shed: dict[str, int] = {}
    waiting: int = 0
    spooled: int = 0
    spooled_ever: int = 0
    imbalances: list[str] = []
    duplicated: dict[str, int] = {}
    duplicates_by_attempt: list[tuple[int, str, int]] = []
    uncounted: list[str] = []
    service_levels: list[ServiceCompliance] = []
