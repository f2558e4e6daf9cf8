"""Cost of rows that a merge holds for a silent input: saved at each barrier, and restored after a failure.

    python -m benchmarks.held_rows [--megabytes 64]

One process, CPU and wall time: the pause at the barrier (encoding), and the time to restore an instance from the bytes. Fetching
and decrypting the bytes cost what they cost for any state (decision 0016).
"""

import argparse
import time
from typing import NamedTuple

from agiledart import Topology, null, records
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.position import covering
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.program import Program, compile_program
from agiledart_kernel.limits import MAX_BATCH_ROWS

TEXT = "x" * 380


class Reading(NamedTuple):
    """A row of about 420 bytes with its position."""

    at: int
    key: int
    value: float
    text: str


def union_of_two() -> Program:
    """Two sources that meet in a union by position."""
    made = Topology("held")
    left, right = (
        made.source(name, records([], row_type=Reading), event_time=lambda row: row.at) for name in ("live", "silent")
    )
    left.union(right, name="both").sink("out", null())
    return compile_program(made, plan_stages(made.specification(), 1, "positions"))


def main() -> None:
    """Measure and print one line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=64)
    wanted = parser.parse_args().megabytes * 1_000_000
    program = union_of_two()
    stage = next(stage.index for stage in program.plan.stages if len(program.plan.incoming(stage.index)) == 2)
    instance = Instance(program, stage, 0)
    held = 0
    while held * 420 < wanted:
        numbers = range(held, held + MAX_BATCH_ROWS)
        positions = [(number, 1, 0, number) for number in numbers]
        rows = [Reading(number, number % 97, number / 3, TEXT) for number in numbers]
        instance.offer(*instance.inputs[0], Batch(rows, positions, covering(positions[-1])))
        held += len(rows)
    began, cpu = time.perf_counter(), time.process_time()
    snapshot = instance.snapshot()
    encoded, encoded_cpu = time.perf_counter() - began, time.process_time() - cpu
    began, cpu = time.perf_counter(), time.process_time()
    restored = Instance(program, stage, 0)
    restored.restore(snapshot)
    took, took_cpu = time.perf_counter() - began, time.process_time() - cpu
    assert restored.queued_rows == held
    print(
        f"{held:,} rows held, {len(snapshot) / 1e6:.1f} MB: barrier {encoded * 1e3:.0f} ms ({encoded_cpu * 1e3:.0f} CPU),"
        f" restored in {took:.2f} s ({took_cpu:.2f} CPU)"
    )


if __name__ == "__main__":
    main()
