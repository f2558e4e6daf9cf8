"""Cost per row of the measurements for scaling: the sample of key groups and the samples of counts, on and off, in pairs.

    python -m benchmarks.measuring_costs [--pairs 8] [--rows 200000] [-o json]

A keyed stage and its sink in one host get frames as from a link. Off: no code samples keys, and reports have counts only,
which are needed anyway. A report is made twice for each second of CPU time. CPU time is counted; ratios are of neighbours.
"""

import argparse
import asyncio
import json
import os
import statistics
import time
from typing import Any

from tests.unit.executor.test_instance_host import Pipeline

from agiledart import Topology, null, records
from agiledart_dataflow.counts.key_sample import KeySample
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.position import covering
from agiledart_dataflow.runtime.channels import ReceivingChannel
from agiledart_executor.instances.running_instance import RunningInstance
from benchmarks.path_costs import TRIPS, PathTrip

SIZES = (10, 100, 750)
REPORT_S = 0.5


class Unmeasured(RunningInstance):
    """Instance whose reports have no measurements for scaling."""

    def _measures(self, statistics: Any) -> None:
        return None


def zone(trip: PathTrip) -> int:
    """Return the key of a trip."""
    return trip.zone


def job() -> Topology:
    """Build a job: a running count by key into a null sink."""
    made = Topology("measured")
    trips = made.source("trips", records([], row_type=PathTrip), event_time=lambda trip: trip.at)
    trips.key_by(zone).running_count("counts").sink("report", null())
    return made


def frames(size: int, rows: int) -> list[Batch]:
    """Return the rows as frames."""
    made = []
    for start in range(0, rows, size):
        part = [TRIPS[number % len(TRIPS)] for number in range(start, start + size)]
        positions = [(number, 1, 0, number) for number in range(start, start + size)]
        made.append(Batch(part, positions, covering(positions[-1])))
    return made


def spent(given: list[Batch], *, on: bool) -> float:
    """Return the CPU seconds for these frames."""

    async def play() -> float:
        pipeline = Pipeline([], at_least="positions", made=job())
        host, (_, middle, sink) = pipeline.host, pipeline.running
        assert middle.instance is not None
        assert sink.instance is not None
        if on:
            middle.keys = KeySample({0: zone})
        else:
            for instance in pipeline.running:
                instance.__class__ = Unmeasured
        end = middle.inputs[0, 0]
        end.channel = ReceivingChannel(4)
        end.acknowledge = lambda frames, watermarks: None
        began = reported = time.process_time()
        first = 0
        for number, batch in enumerate(given):
            host.receive(middle, 0, 0, number, first, batch, is_last=True)
            first += len(batch)
            while middle.instance.queued_rows or sink.instance.queued_rows:  # noqa: ASYNC110  each turn of the loop is work
                await asyncio.sleep(0)
            if not number % 64 and time.process_time() - reported >= REPORT_S:
                reported = time.process_time()
                for instance in pipeline.running:
                    instance.report()
        took = time.process_time() - began
        assert not pipeline.broken
        assert sink.instance.statistics().steps["report"].rows_in == first
        return took

    return asyncio.run(play())


def compared(size: int, rows: int, pairs: int) -> dict[str, Any]:
    """Return the figures of all pairs for frames of one size."""
    given = frames(size, rows)
    spent(given, on=True)
    took: dict[bool, list[float]] = {False: [], True: []}
    for number in range(pairs):
        for on in (False, True) if number % 2 else (True, False):
            took[on].append(spent(given, on=on))
    ratios = [on / off for on, off in zip(took[True], took[False], strict=True)]
    return {
        "rows_a_frame": size,
        "rows": rows,
        "ratio": round(statistics.median(ratios), 4),
        "ratio_of_least": round(min(took[True]) / min(took[False]), 4),
        "microseconds_a_row": round(min(took[True]) / rows * 1e6, 3),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args()
    for size in SIZES:
        figures = compared(size, given.rows, given.pairs)
        text = f"frames of {size} rows: {figures['ratio']} times (least of each {figures['ratio_of_least']})"
        print(json.dumps(figures) if given.output == "json" else text, flush=True)


if __name__ == "__main__":
    main()
