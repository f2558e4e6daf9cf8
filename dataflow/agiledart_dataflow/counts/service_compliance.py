"""Compliance with service levels: of a sink from its latencies, of another step from the rows that wait and are served.

Source: [Hochreiner 2017] §5.4.
"""

from collections.abc import Iterable

import msgspec

from agiledart_dataflow.counts.interval_measures import IntervalMeasures
from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_kernel.instants import SECOND
from agiledart_kernel.level_factors import LEVELS


class ServiceCompliance(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Shares of rows that kept the levels of a step.

    Attributes:
        slo_ms: time that a row may take: to a sink from its reading on, in another step in this step alone.
        rows: sampled rows of a sink; rows of the last five seconds of another step.
        real_time, near_real_time, relaxed: shares within 1, 2 and 5 times that time; null: no row is measured.
        is_estimate: from the rows that wait and are served, without their way between nodes.
    """

    step: str
    slo_ms: float
    rows: int = 0
    real_time: float | None = None
    near_real_time: float | None = None
    relaxed: float | None = None
    is_estimate: bool = False

    def shares(self) -> dict[str, float]:
        """Return level → share; empty: no row is measured."""
        given = {"real_time": self.real_time, "near_real_time": self.near_real_time, "relaxed": self.relaxed}
        return {level: share for level, share in given.items() if share is not None}


def of_sink(step: str, slo_ms: float, latencies: LatencyHistogram | None) -> ServiceCompliance:
    """Return the compliance of a sink: from the reading of a record to the writing of its result."""
    if latencies is None or not latencies.samples:
        return ServiceCompliance(step, slo_ms)
    bounds = [round(slo_ms * 1e6 * factor) for factor in LEVELS.values()]
    within, _ = latencies.cumulative(bounds)
    return _compliance(step, slo_ms, latencies.samples, within, is_estimate=False)


def of_step(step: str, slo_ms: float, instances: Iterable[IntervalMeasures]) -> ServiceCompliance:
    """Return an estimate for a step: the time of a row is its service time, and that of the rows that wait before it (Little)."""
    rows, within = 0, [0, 0, 0]
    for measures in instances:
        taken = measures.rows or measures.waiting[-1]  # no row passes and some wait: those are late
        if not taken:
            continue
        rows += taken
        if not measures.rows:
            continue
        service_ns = measures.busy_ns / measures.rows
        waiting = sum(measures.waiting) / len(measures.waiting)
        needed_ms = (service_ns + waiting * measures.span_ns / measures.rows) / (SECOND / 1000)
        for place, factor in enumerate(LEVELS.values()):
            within[place] += taken if needed_ms <= slo_ms * factor else 0
    return (
        _compliance(step, slo_ms, rows, within, is_estimate=True)
        if rows
        else ServiceCompliance(step, slo_ms, is_estimate=True)
    )


def _compliance(step: str, slo_ms: float, rows: int, within: list[int], *, is_estimate: bool) -> ServiceCompliance:
    real_time, near_real_time, relaxed = (round(count / rows, 6) for count in within)
    return ServiceCompliance(step, slo_ms, rows, real_time, near_real_time, relaxed, is_estimate)
