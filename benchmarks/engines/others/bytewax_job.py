"""J1 and J2 as a user of Bytewax would write them.

    python -m benchmarks.engines.others.bytewax_job window|replay|fold j1|zone|vehicle FILE

`window` is its window operator (`fold_window` on event time) as its guide has it, `replay` the same with all settings that
make it cheap for a recorded file: no row comes late, and no key need be woken. `fold` is the faster way by hand: a `stateful_batch`
that closes its own windows, which takes the order of the input for granted.
"""

import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.connectors.files import FileSource
from bytewax.dataflow import Dataflow
from bytewax.operators import windowing
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from benchmarks.engines.jobs import (
    FARE,
    RATIO,
    TS,
    VEHICLE,
    WINDOW_MS,
    ZONE,
    RowSums,
    WindowSums,
    derive,
    keep,
    parse,
    print_result,
)

BATCH = 1_000
UTC = timezone.utc  # noqa: UP017  this module runs in the oldest Python that the engine has wheels for
NOW = datetime(2026, 1, 1, tzinfo=UTC)
"""System time given to Bytewax, which stands still. Bytewax's watermark advances with system time, so in a run that takes longer
than its events punctual rows would count as late."""

WAITS: dict[str, dict[str, Any]] = {
    "window": {"wait_for_system_duration": timedelta(seconds=5)},
    "replay": {"wait_for_system_duration": timedelta(0), "to_system_utc": lambda _: None},
}
"""Settings of Bytewax's clock for late rows. By default it wakes a key at the system time of its window's end; with an end in the
past it examines all keys again at every batch."""


class RowSink(DynamicSink[Any]):
    """Sink that adds up the arriving rows."""

    def __init__(self, sums: RowSums) -> None:
        self.sums = sums

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSinkPartition[Any]:
        partition: Any = StatelessSinkPartition
        return type("Partition", (partition,), {"write_batch": lambda _, items: self.sums.add(items)})()


class WindowSink(DynamicSink[Any]):
    """Sink that adds up windows: (key, (window, [count, fares, ratios]))."""

    def __init__(self, sums: WindowSums) -> None:
        self.sums = sums

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSinkPartition[Any]:
        add = self.sums.add

        def write(_: Any, items: Any) -> None:
            for key, (_window, (count, fares, ratios)) in items:
                add(int(key), count, fares, ratios / count)

        partition: Any = StatelessSinkPartition
        return type("Partition", (partition,), {"write_batch": write})()


class Fold(op.StatefulBatchLogic[Any, Any, Any]):
    """Open window of one key."""

    def __init__(self) -> None:
        self.window: int | None = None
        self.state = [0, 0.0, 0.0]

    def on_batch(self, values: Any) -> Any:
        out: list[Any] = []
        for row in values:
            window = row[TS] // WINDOW_MS
            if window != self.window:
                if self.window is not None:
                    out.append((self.window, self.state))
                self.window, self.state = window, [0, 0.0, 0.0]
            state = self.state
            state[0] += 1
            state[1] += row[FARE]
            state[2] += row[RATIO]
        return out, op.StatefulBatchLogic.RETAIN

    def on_notify(self) -> Any:
        return [], op.StatefulBatchLogic.RETAIN

    def on_eof(self) -> Any:
        return [(self.window, self.state)], op.StatefulBatchLogic.DISCARD

    def notify_at(self) -> Any:
        return None

    def snapshot(self) -> Any:
        return self.window, self.state


def flow(variant: str, job: str, path: str, sums: Any) -> Any:
    """Return the dataflow of a job."""
    dataflow = Dataflow(job)
    stream: Any = op.input("in", dataflow, FileSource(Path(path), batch_size=BATCH))
    stream = op.map("parse", stream, parse)
    stream = op.filter("keep", stream, keep)
    stream = op.map("derive", stream, derive)
    if job == "j1":
        op.output("out", stream, RowSink(sums))
        return dataflow
    key = ZONE if job == "zone" else VEHICLE
    keyed = op.key_on("key", stream, lambda row: str(row[key]))
    if variant == "fold":
        op.output("out", op.stateful_batch("window", keyed, lambda _: Fold()), WindowSink(sums))
        return dataflow

    def add(state: list[Any], row: Any) -> list[Any]:
        state[0] += 1
        state[1] += row[FARE]
        state[2] += row[RATIO]
        return state

    def merge(left: list[Any], right: list[Any]) -> list[Any]:
        return [a + b for a, b in zip(left, right, strict=True)]

    clock = windowing.EventClock(
        lambda row: datetime.fromtimestamp(row[TS] / 1000, UTC), now_getter=lambda: NOW, **WAITS[variant]
    )
    tumbling = windowing.TumblingWindower(
        length=timedelta(milliseconds=WINDOW_MS), align_to=datetime(2013, 1, 1, tzinfo=UTC)
    )
    windows = windowing.fold_window("window", keyed, clock, tumbling, lambda: [0, 0.0, 0.0], add, merge)
    op.output("out", windows.down, WindowSink(sums))
    return dataflow


if __name__ == "__main__":
    variant_, job_, data = sys.argv[1:]
    done: RowSums | WindowSums = RowSums() if job_ == "j1" else WindowSums()
    dataflow_ = flow(variant_, job_, data, done)
    began = time.perf_counter()
    run_main(dataflow_)
    print_result(**done.result(), seconds=time.perf_counter() - began)
