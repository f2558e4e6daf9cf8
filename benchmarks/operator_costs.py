"""`python -m benchmarks.operator_costs`: CPU µs a row of operators with state by key, in memory and on disk.

The operator alone, without the instance around it: 100,000 rows in batches of 1,000, positions as on an edge. Keys are drawn
evenly, so that with 50,000 of them and 20,000 in memory more than half of the rows of a step on disk miss.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from agiledart import Context, KeyedOperator, Topology, collect, count_of, counted, never, session, sliding
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.operators.base import Operator
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.program import compile_program
from agiledart_executor.state.disk_stores import disk_stores
from agiledart_kernel.randomness import RandomStream

ROWS, BATCH = 100_000, 1_000
ROUNDS = 3


class CostRow(NamedTuple):
    """Input row of the operators."""

    at: int
    key: int
    value: int


class Counting(KeyedOperator[int, CostRow, list[int], int]):
    """Operator with the least possible state: a count by key."""

    def initial(self, key: int) -> list[int]:
        return [0]

    def on_record(self, key: int, record: CostRow, state: list[int], context: Context[int]) -> None:
        state[0] += 1
        if not state[0] % 10:
            context.emit(state[0])


def ms(count: int) -> timedelta:
    """Return a duration of so many milliseconds."""
    return timedelta(milliseconds=count)


STEPS: dict[str, Callable[[Any], Any]] = {
    "stateful": lambda keyed: keyed.stateful("x", Counting(), keep="disk"),
    "stateful with time to live": lambda keyed: keyed.stateful("x", Counting(), time_to_live=ms(5_000), keep="disk"),
    "running count": lambda keyed: keyed.running_count("x", keep="disk"),
    "distinct": lambda keyed: keyed.distinct("x", keep="disk"),
    "deduplicate": lambda keyed: keyed.distinct("x", time_to_live=ms(5_000), keep="disk"),
    "session": lambda keyed: keyed.window(session(ms(200))).count("x"),
    "count window": lambda keyed: keyed.window(counted(10)).aggregate("x", count_of()),
    "sliding": lambda keyed: keyed.window(sliding(ms(2_000))).count("x"),
    "pattern": lambda keyed: keyed.pattern(
        "x", lambda row: row.value == 1, never(lambda row: row.value == 2), lambda row: row.value == 3, within=ms(500)
    ),
}


def rows_of(keys: int) -> list[CostRow]:
    """Return rows, one for each tenth of a millisecond of event time."""
    random = RandomStream(1, "rows")
    return [CostRow(number // 10, random.index(keys), random.index(100)) for number in range(ROWS)]


def operators(build: Callable[[Any], Any], folder: Path) -> Iterator[tuple[str, Operator]]:
    """Return the operator of a topology, in memory and, where possible, on disk."""
    topology = Topology("costs")
    rows: list[CostRow] = []
    stream = topology.source("rows", rows, rows=CostRow, event_time=lambda row: row.at)
    build(stream.key_by(lambda row: row.key)).sink("out", collect)
    program = compile_program(topology, plan_stages(topology.specification(), 1, "positions"))
    in_memory = program.operator(1)
    assert in_memory is not None
    yield "memory", in_memory
    if (state := program.steps(1)[0].state) is not None and state.keep == "disk":
        on_disk = program.operator(1, None, disk_stores(folder))
        assert on_disk is not None
        yield "disk", on_disk


def cpu_per_row(operator: Operator, rows: list[CostRow]) -> float:
    """Return the CPU µs per row."""
    positions: list[Position] = [(row.at, 1, 0, number) for number, row in enumerate(rows)]
    began = time.process_time()
    for start in range(0, len(rows), BATCH):
        at = positions[start : start + BATCH]
        operator.run(rows[start : start + BATCH], at, (*at[-1], 0))
    return (time.process_time() - began) / len(rows) * 1e6


def main() -> None:
    """Print the table."""
    print(f"{'operator':<28}{'keys':>8}{'memory':>9}{'disk':>9}   CPU µs a row, least of {ROUNDS}")
    for name, build in STEPS.items():
        for keys in (300, 50_000):
            rows = rows_of(keys)
            best: dict[str, float] = {}
            with tempfile.TemporaryDirectory() as folder:
                for _ in range(ROUNDS):
                    for where, operator in operators(build, Path(folder)):
                        best[where] = min(best.get(where, 1e9), cpu_per_row(operator, rows))
            disk = f"{best['disk']:9.2f}" if "disk" in best else f"{'–':>9}"
            print(f"{name:<28}{keys:>8,}{best['memory']:9.2f}{disk}")


if __name__ == "__main__":
    main()
