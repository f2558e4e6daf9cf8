"""Latencies sampled at one sink, kept in a system log `_latency.APP` beside the logs of users.

Nothing here may delay or fail an application. Samples wait in memory until the next report (twice a second). Then a separate thread
opens the log, writes and fsyncs, however slow that is. Lost samples are counted, and a failure is reported once.
Decision 0008.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from agiledart_dataflow.counts.sampling import sampled_among
from agiledart_dataflow.data.batch import Held, Order, place
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.data.schema import ReadTime, fields_of, read_time_index
from agiledart_kernel.errors import OperationFailed
from agiledart_sink_log.log_writer import LogOptions, LogWriter
from agiledart_sink_log.partition_writer import SYNC_SECONDS
from agiledart_sink_log.row_form import encoded, row_form

MAX_WAITING: Final = 20_000
"""Samples that may wait for a slow disk, as many as half a second brings at a million results a second; more are lost."""

RETRY_SECONDS: Final = 60.0
"""Seconds after which a log that could not be written is tried again."""

TIMEOUT_SECONDS: Final = 1.0
"""Longest wait in seconds for the disk at the start and at the end of a sink."""


class LatencySample(NamedTuple):
    """Row of the log.

    Attributes:
        application, version: the run.
        sink: the step that wrote the result.
        source: the step that read the record behind the result.
        sequence: number of that record among those of its source, from 0.
        observed_at: when the result was handed to the sink.
        latency_ms: milliseconds since the record was read.
    """

    application: str
    version: int
    sink: str
    source: str
    sequence: int
    observed_at: ReadTime
    latency_ms: float


@dataclass(frozen=True)
class LatencyKeeping:
    """Limits of each sink's latency log; `max_bytes` 0 keeps none."""

    max_bytes: int = 0
    max_age_ms: int = 0


NO_LATENCIES: Final = LatencyKeeping()


@dataclass(frozen=True)
class SampledSink:
    """Origin of latencies: the run, the sink's step, the steps of the application's sources in order, the owner's key."""

    application: str
    version: int
    step: str
    sources: tuple[str, ...]
    owner: bytes = b""


class LatencyLog:
    """Log of the latencies of a sample of the rows that a sink writes.

    Args:
        name: of the log.
        sink: origin of the latencies.
        row_type: of the sink's rows; must have a `ReadTime`.
        keeping: limits of the log.
        root: folder above `sink-logs`.
        clock: wall clock in nanoseconds.

    Attributes:
        kept, lost: numbers of samples.
    """

    def __init__(
        self,
        name: str,
        sink: SampledSink,
        row_type: Any,
        keeping: LatencyKeeping,
        root: Path,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        place = read_time_index(row_type)
        assert place is not None
        self._read_time = attrgetter(fields_of(row_type)[place].name)
        self._name, self._sink, self._keeping, self._root, self._clock = name, sink, keeping, root, clock
        self.kept = self.lost = 0
        self._waiting: list[LatencySample] = []
        self._log: LogWriter | None = None
        self._retry_at = self._written_at = 0.0
        self._is_failure_logged = self._dirty = self._ended = False
        self._thread = ThreadPoolExecutor(1, "latency-log")
        self._work: Future[None] = self._thread.submit(self._write, [])

    # ---- on the executor's loop

    def __call__(self, held: Held, order: Order) -> None:
        """Sample rows that the sink has written."""
        chosen = sampled_among(order)
        if not chosen:
            return
        if len(self._waiting) + len(chosen) > MAX_WAITING:
            self.lost += len(chosen)
            return
        now, sink, sources = self._clock(), self._sink, self._sink.sources
        for row, (_, _, source, sequence, *_) in zip(*self._picked(held, order, chosen), strict=True):
            self._waiting.append(
                LatencySample(
                    sink.application,
                    sink.version,
                    sink.step,
                    sources[source] if 0 <= source < len(sources) else "",
                    sequence,
                    ReadTime(now),
                    round(max(0, now - self._read_time(row)) / 1e6, 6),
                )
            )

    @staticmethod
    def _picked(held: Held, order: Order, chosen: list[int]) -> tuple[list[Any], list[Position]]:
        """Return the chosen rows and their positions."""
        if isinstance(held, list):
            return [held[number] for number in chosen], [place(order, number) for number in chosen]
        import numpy as np  # the rows are columns, so NumPy is loaded already

        return held.take(np.array(chosen)).rows(), [place(order, number) for number in chosen]

    def hand_over(self) -> None:
        """Start writing the waiting samples, unless the last write is still running."""
        if (self._waiting or self._dirty) and not self._ended and self._work.done():
            self._work = self._thread.submit(self._write, self._taken())

    async def opened(self) -> None:
        """Wait briefly for the log to open, so that readers find it as soon as its application runs."""
        await asyncio.wait((asyncio.wrap_future(self._work),), timeout=TIMEOUT_SECONDS)

    async def ended(self) -> None:
        """Write the waiting samples and close the log, after the sink's last row."""
        await asyncio.wait((asyncio.wrap_future(self._end()),), timeout=TIMEOUT_SECONDS)

    def close(self) -> None:
        """Close the log at the end of the process, like `ended` but blocking; may be called twice."""
        with contextlib.suppress(TimeoutError):
            self._end().result(TIMEOUT_SECONDS)

    def figures(self) -> dict[str, int]:
        """Return the counts for the agent."""
        return {"kept": self.kept, "lost": self.lost}

    def _taken(self) -> list[LatencySample]:
        taken, self._waiting = self._waiting, []
        return taken

    def _end(self) -> "Future[None]":
        if not self._ended:
            self._ended = True
            self._work = self._thread.submit(self._close, self._taken())
            self._thread.shutdown(wait=False)
        return self._work

    # ---- on its own thread

    def _write(self, samples: list[LatencySample]) -> None:
        now = time.monotonic()
        if samples:
            self._written_at = now
        self._dirty = now - self._written_at < 2 * SYNC_SECONDS  # beyond that time every row is on the disk
        if self._log is None and now < self._retry_at:
            self.lost += len(samples)
            return
        try:
            if self._log is None:
                self._log = self._opened()
            if samples:
                for body, count in encoded(samples):
                    self._log.partitions[0].append(body, count)
            self._log.commit()
        except (OperationFailed, OSError) as error:
            self.lost += len(samples)
            self._give_up(str(error))
        else:
            self.kept += len(samples)

    def _opened(self) -> LogWriter:
        form, sink = row_form(LatencySample), self._sink
        options = LogOptions(1, self._keeping.max_bytes, self._keeping.max_age_ms)
        return LogWriter(
            self._root, self._name, options, form.text, form.fields, sink.application, sink.version, self._clock,
            owner=sink.owner,
        )  # fmt: skip

    def _give_up(self, why: str) -> None:
        log, self._log, self._dirty = self._log, None, False
        self._retry_at = time.monotonic() + RETRY_SECONDS
        if log is not None:
            with contextlib.suppress(OperationFailed, OSError):
                log.close()
        if not self._is_failure_logged:
            self._is_failure_logged = True
            text = f"{self._sink.step}: its latencies are not kept ({why}); the application goes on"
            print(text, file=sys.stderr, flush=True)  # noqa: T201  shown by `agiledart logs`

    def _close(self, samples: list[LatencySample]) -> None:
        if samples:
            self._write(samples)
        if self._log is not None:
            log, self._log = self._log, None
            try:
                log.close()
            except (OperationFailed, OSError) as error:
                self._give_up(str(error))
