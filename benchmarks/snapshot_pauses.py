"""How long rows wait for snapshots of large keyed state, in one process: at once, in slices, or changes only.

    python -m benchmarks.snapshot_pauses [--step keyed] [--keys 150000] [--rate 20000] [--seconds 30] [-o json]

One keyed step with 430 bytes of state a key (150,000 keys are 64 MB, 600,000 are 256), or another of `snapshot_subjects`: windows
over rows and over columns, a ranking, state on disk. Batches of 100 rows come at a fixed rate, half of the rows for a hundredth of
the keys; every ten seconds there is a barrier. The clock is a virtual one: each batch and each slice takes the CPU time of the
thread that it really took, so that other load on the machine does not count.
`pause_ms` are the times at once for which rows waited: barriers and slices, each by itself. `batch_ms` is from when a batch
comes until it is done; `look_ratio` what a row costs with a store of which a snapshot may be open ÷ with one that notes keys
and does no more, of rounds in pairs; `gc_ms_max` the longest look of the garbage collector.
"""

import argparse
import gc
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from agiledart_dataflow.operators.keyed_step import KeyedStep
from agiledart_dataflow.runtime.increments import Increments
from agiledart_dataflow.state.async_instance_snapshot import AsyncInstanceSnapshot, AsyncStateSnapshot
from agiledart_dataflow.state.entries import KeyEntry
from agiledart_dataflow.state.key_groups import snapshot_of
from agiledart_dataflow.state.store import MemoryStore
from agiledart_executor.process.python_gc import collect_rarely
from agiledart_executor.snapshots.slice_scheduler import LONG_NS, LONGEST_SLICES, PAUSE_SECONDS, SLICE_NS
from agiledart_executor.snapshots.snapshot_file import SnapshotHeader, SnapshotWriter
from agiledart_kernel.randomness import RandomStream
from benchmarks.snapshot_subjects import SUBJECTS, Subject, filled

BATCH: Final = 100
EPOCH: Final = 10.0
RUNS: Final = ("none", "slices", "at once")

cpu_ns = time.thread_time_ns


class PacedBatches:
    """Batches and barriers by the virtual clock."""

    def __init__(self, subject: Subject, keys: list[str], run: str, folder: Path) -> None:
        self._subject, self._step, self._keys, self._run, self._folder = subject, subject.operator, keys, run, folder
        self._random = RandomStream(7, "rows")
        self._increments = Increments(self._step)
        self._open: AsyncInstanceSnapshot | None = None
        self._writer: SnapshotWriter | None = None
        self._barrier, self._since, self._next_slice = 0, 0.0, 0.0
        self.clock = 0.0
        self.pauses: list[float] = []
        self.batches: list[float] = []
        self.took: list[float] = []
        self.sizes: list[int] = []
        self.work = 0.0
        self.spent = 0.0

    def play(self, rate: int, seconds: float) -> None:
        """Play rows for so many seconds."""
        next_epoch = EPOCH / 10
        for number in range(int(rate * seconds / BATCH)):
            arrival = number * BATCH / rate
            keys = [self._key() for _ in range(BATCH)]
            while self._open is not None and max(self.clock, self._next_slice) < arrival:
                self.clock = max(self.clock, self._next_slice)
                self._slice()
            self.clock = max(self.clock, arrival)
            if self._run != "none" and self.clock >= next_epoch and self._open is None:
                next_epoch = self.clock + EPOCH
                self._pause(self._begin)
            elif self._open is not None and self.clock >= self._next_slice:
                self._slice()
            began = cpu_ns()
            self._subject.feed(keys, number)
            took = (cpu_ns() - began) / 1e9
            self.spent += took
            self.clock += took
            self.batches.append(self.clock - arrival)

    def _key(self) -> str:
        count = len(self._keys)
        return self._keys[self._random.index(count // 100 if self._random.index(2) else count)]

    def _pause(self, call: Callable[[], None]) -> None:
        began = cpu_ns()
        call()
        took = (cpu_ns() - began) / 1e9
        self.pauses.append(took)
        self.work += took
        self.clock += took

    def _begin(self) -> None:
        self._barrier += 1
        if self._run == "at once":
            state = snapshot_of(self._step)
            self.sizes.append(sum(len(data) for _, data in state.groups) + len(state.rest))
            return
        made = self._increments.at(self._barrier)
        if not isinstance(made, AsyncStateSnapshot):  # this state has no asynchronous snapshot
            self.sizes.append(len(msgspec.msgpack.encode(made)))
            return
        self._open, self._since = AsyncInstanceSnapshot(1, b"", made, b""), self.clock
        header = SnapshotHeader(1, 1, self._barrier, 0, 0, ("sums",), onto=self._increments.onto(self._barrier))
        self._writer = SnapshotWriter(self._folder, header)
        self._writer.begin()
        self._next_slice = self.clock + PAUSE_SECONDS

    def _slice(self) -> None:
        element = self._open
        assert element is not None
        times = min(LONGEST_SLICES, 1 + int((self.clock - self._since) * 1e9) // LONG_NS)

        def some() -> None:
            until = cpu_ns() + SLICE_NS * times
            while element.step() and cpu_ns() < until:
                pass

        self._pause(some)
        pieces = element.taken()
        self._next_slice = self.clock + PAUSE_SECONDS
        writer = self._writer
        assert writer is not None
        writer.add(pieces)  # executors do this in another thread, so rows do not wait for it
        if element.is_over:
            writer.end_block()
            digest, size = writer.end()
            self._increments.written(self._barrier, digest)
            self._pause(lambda: self._increments.committed(self._barrier))
            self.sizes.append(size)
            self.took.append(self.clock - self._since)
            self._open = None


def look_ratio(keys: list[str], rounds: int) -> tuple[float, float, float]:
    """A row's cost with a store that could have a snapshot open ÷ with one that only notes keys: of rounds in pairs."""
    few = keys[:20_000]
    subjects = filled("keyed", few), filled("keyed", few)
    plain, ready = (cast(KeyedStep, subject.operator) for subject in subjects)
    ready.take_dirty_keys()
    dirty_keys: dict[str, None] = {}
    find = cast(MemoryStore, plain.store).get

    def get(key: str) -> KeyEntry | None:
        dirty_keys[key] = None
        return find(key)

    cast(Any, plain.store).get = get
    ratios = []
    for number in range(rounds):
        costs = {}
        dirty_keys.clear()
        ready.take_dirty_keys()
        for subject in subjects if number % 2 else subjects[::-1]:
            began = cpu_ns()
            for _ in range(3):
                subject.feed(few, number)
            costs[subject.operator is ready] = cpu_ns() - began
        ratios.append(costs[True] / costs[False])
    return min(ratios), statistics.median(ratios), max(ratios)


def share(values: list[float], part: float) -> float:
    """Return the value below which this share of the values lies, in milliseconds."""
    return round(sorted(values)[min(len(values) - 1, int(part * len(values)))] * 1e3, 3) if values else 0.0


class Collector:
    """Record of the garbage collector's longest run in each generation, in ns of CPU time."""

    def __init__(self) -> None:
        self.longest = {0: 0, 1: 0, 2: 0}
        self._began = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = cpu_ns()
        else:
            self.longest[info["generation"]] = max(self.longest[info["generation"]], cpu_ns() - self._began)


def figures(flow: PacedBatches, collector: Collector) -> dict[str, Any]:
    """Return the figures of one run."""
    return {
        "pause_ms": {"p99": share(flow.pauses, 0.99), "max": share(flow.pauses, 1.0), "count": len(flow.pauses)},
        "batch_ms": {name: share(flow.batches, part) for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))},
        "row_us": round(flow.spent / len(flow.batches) / BATCH * 1e6, 3),
        "work_ms_an_epoch": round(flow.work / max(1, len(flow.sizes)) * 1e3, 1),
        "megabytes": [round(size / 1e6, 1) for size in flow.sizes],
        "took_s": [round(seconds, 2) for seconds in flow.took],
        "memory_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "gc_ms_max": {f"generation {number}": round(ns / 1e6, 2) for number, ns in collector.longest.items()},
    }


def runs(chosen: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Carry out each run in order, over the same state."""
    keys = [f"meter-{number:07d}" for number in range(chosen.keys)]
    subject = filled(chosen.step, keys)
    gc.collect()
    for run in chosen.runs.split(","):
        collector = Collector()
        gc.callbacks.append(collector)
        with tempfile.TemporaryDirectory(prefix="snapshots-") as folder:
            flow = PacedBatches(subject, keys, run, Path(folder))
            flow.play(chosen.rate, chosen.seconds)
        gc.callbacks.remove(collector)
        yield run, figures(flow, collector)
    if chosen.rounds and chosen.step == "keyed":
        yield "look_ratio", dict(zip(("min", "median", "max"), look_ratio(keys, chosen.rounds), strict=True))


def main(arguments: list[str] | None = None) -> int:
    """Print the figures of each run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.snapshot_pauses", description=__doc__.splitlines()[0])
    parser.add_argument("--step", choices=SUBJECTS, default="keyed")
    parser.add_argument("--keys", type=int, default=150_000, help="of a keyed step 430 bytes of state each")
    parser.add_argument("--rate", type=int, default=20_000, help="rows a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--runs", default=",".join(RUNS), help="the peak of memory is of all so far")
    parser.add_argument("--rounds", type=int, default=25, help="of the cost of a look at a key")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    chosen = parser.parse_args(arguments)
    collect_rarely()
    document: dict[str, Any] = {"keys": chosen.keys, "rate": chosen.rate, "step": chosen.step}
    for name, outcome in runs(chosen):
        document[name] = outcome
        if chosen.output == "text":
            print(f"{name}: {json.dumps(outcome)}", flush=True)
    if chosen.output == "json":
        print(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
