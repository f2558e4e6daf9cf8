"""Cost of each part of the data path, per tuple and per batch.

    python -m benchmarks.path_costs [--rounds 7] [--markdown]

Each part runs over the same 20,000 rows in batches of 10, 100 and 1,000; variants alternate within a round and CPU time is
counted. A line through the medians gives the cost per tuple (its slope) and per batch (what is left at no rows).
"""

import argparse
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from agiledart import Topology, all_of, count_of, mean_of, null, sum_of, tumbling
from agiledart_dataflow.aggregation.panes import PaneWindow
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.batch_codec import BatchCodec
from agiledart_dataflow.data.carries import Carries
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.partitioning import KeyRouter, split_by_key
from agiledart_dataflow.data.position import covering
from agiledart_dataflow.operators.chain import RowChain
from agiledart_dataflow.operators.loop_text import RowStep
from agiledart_dataflow.plan.connectors import Reading
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.channels import SendingChannel
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.program import Program, compile_program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_dataflow.state.owner_table import owners_by_key
from agiledart_dataflow.state.plain_codec import PlainCodec

ROWS = 20_000
SIZES = (10, 100, 1_000)


class PathTrip(NamedTuple):
    """A row like those of the taxi data, after parsing."""

    at: int
    zone: int
    vehicle: str
    fare: float
    tip: float


TRIPS = [PathTrip(n // 20, n * 7_919 % 300, f"vehicle {n % 1_000}", n % 97 / 4, n % 31 / 8) for n in range(ROWS)]


def identity(row: PathTrip) -> PathTrip:
    """A step that does nothing."""
    return row


def batches(size: int, carries: Carries) -> list[Batch]:
    """Return the rows cut into batches, with the times or positions that the edge carries."""
    made = []
    for start in range(0, ROWS, size):
        rows = TRIPS[start : start + size]
        positions = [(row.at, 1, 0, start + n) for n, row in enumerate(rows)]
        order: Any = {"rows": None, "times": [row.at for row in rows], "positions": positions}[carries]
        made.append(Batch(rows, order, covering(positions[-1])))
    return made


class Script:
    """Reader that returns one batch at a time."""

    stamps = True

    def __init__(self, given: list[Batch]) -> None:
        self._given = iter(given)

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        """Return the next rows."""
        batch = next(self._given, None)
        return Reading([], 0, {}, exhausted=True) if batch is None else Reading(batch.held, len(batch), {})

    def close(self) -> None:
        """Do nothing: the reader holds no resource."""


def program(carries: Carries) -> Program:
    """Compile a job of a source, one map and a sink."""
    made = Topology("costs")
    made.source("rows", TRIPS[:1], event_time=lambda row: row.at).map(identity, returns=PathTrip).sink("out", null())
    return compile_program(made, plan_stages(made.specification(), 1, carries))


def nowhere(edge: int, target: int, batch: Batch) -> None:
    """Discard emitted batches."""


def chained(steps: int, carries: Carries) -> Callable[[list[Batch]], None]:
    """Return a function that plays batches through the generated loop alone."""
    run = RowChain([RowStep(f"s{n}", "map", identity) for n in range(steps)], carries=carries).run

    def play(given: list[Batch]) -> None:
        for batch in given:
            run(batch.held, batch.order)

    return play


def staged(carries: Carries) -> Callable[[list[Batch]], None]:
    """Return a function that plays batches through a stage with one map: inbox, loop, outbox, counts."""
    compiled = program(carries)

    def play(given: list[Batch]) -> None:
        instance = Instance(compiled, 1, 0)
        for batch in given:
            instance.offer(0, 0, batch)
            instance.work(nowhere)

    return play


def read(carries: Carries) -> Callable[[list[Batch]], None]:
    """Return a function that plays batches through a source: event times, lateness, numbers."""
    compiled = program(carries)

    def play(given: list[Batch]) -> None:
        source = SourceInstance(compiled, 0, Script(given))
        while not source.finished:
            polled = source.poll(0, 0, 10_000)
            if polled.batch is not None:
                source.send(polled.batch, nowhere)

    return play


def windowed(carries: Carries) -> Callable[[list[Batch]], None]:
    """Return a function that plays batches through a window: count, sum and mean by zone and 50 ms."""

    def play(given: list[Batch]) -> None:
        aggregator = all_of(count_of(), sum_of(lambda row: row.fare), mean_of(lambda row: row.tip))
        window = tumbling(timedelta(milliseconds=50))
        codec = PlainCodec("w", lambda: Any)
        made = PaneWindow("w", lambda row: row.zone, window, aggregator, codec, positions=carries == "positions")
        for batch in given:
            made.run(batch.held, batch.order, batch.watermark)

    return play


def keyed(given: list[Batch]) -> None:
    """Split rows to four instances by key."""
    router = KeyRouter(owners_by_key(4))
    for batch in given:
        split_by_key(batch.held, batch.order, lambda row: row.zone, router, 4)


def channelled(given: list[Batch]) -> None:
    """Put batches into a channel, take frames out and acknowledge them at once."""
    channel = SendingChannel()
    for batch in given:
        channel.put(batch)
        while channel.next_frame() is not None:
            channel.acknowledge(channel.frames_sent, channel.watermarks_sent)


def encoded(carries: Carries) -> Callable[[list[Batch]], None]:
    """Return a function that encodes batches to bytes and decodes them."""
    codec = BatchCodec(PathTrip, carries)

    def play(given: list[Batch]) -> None:
        for batch in given:
            codec.decode(codec.encode(batch))

    return play


def columnar(given: list[Batch]) -> None:
    """Turn rows into columns and read the columns as rows' values."""
    for batch in given:
        columns = Columns.from_rows(batch.held, PathTrip)
        for number in range(5):
            columns.column(number)


def columns_encoded(given: list[Batch]) -> None:
    """Encode columns to bytes and decode them."""
    codec = BatchCodec(PathTrip, "rows")
    for batch in given:
        codec.decode(codec.encode(Batch(batch.columns(PathTrip), None, batch.watermark)))


PARTS: list[tuple[str, Carries, Callable[[list[Batch]], None]]] = [
    ("source: event time, lateness, numbers", "rows", read("rows")),
    ("the same, with times", "times", read("times")),
    ("the same, with positions", "positions", read("positions")),
    ("generated loop of one map", "rows", chained(1, "rows")),
    ("each further map in it", "rows", chained(2, "rows")),
    ("stage of one map: inbox, loop, outbox, counts", "rows", staged("rows")),
    ("the same, with times", "times", staged("times")),
    ("the same, merged by position", "positions", staged("positions")),
    ("window: count, sum, mean by key, with times", "times", windowed("times")),
    ("the same, with positions", "positions", windowed("positions")),
    ("rows to four instances by key", "rows", keyed),
    ("channel: credit, joining, marks", "rows", channelled),
    ("MessagePack and back", "rows", encoded("rows")),
    ("the same, with positions", "positions", encoded("positions")),
    ("rows into columns", "rows", columnar),
    ("Arrow IPC of columns and back", "rows", columns_encoded),
]


def measured(rounds: int) -> list[dict[int, float]]:
    """Return for each part, by batch size, the median CPU seconds for all rows."""
    given = {
        (size, carries): batches(size, carries)
        for size in SIZES
        for carries in dict.fromkeys(carries for _, carries, _ in PARTS)
    }
    seen: list[dict[int, list[float]]] = [{size: [] for size in SIZES} for _ in PARTS]
    for _ in range(rounds):
        for number, (_, carries, play) in enumerate(PARTS):
            for size in SIZES:
                fresh = [Batch(batch.held, batch.order, batch.watermark) for batch in given[size, carries]]
                began = time.process_time()
                play(fresh)
                seen[number][size].append(time.process_time() - began)
    return [{size: statistics.median(times) for size, times in times_by_size.items()} for times_by_size in seen]


def fitted(seconds: dict[int, float]) -> tuple[float, float]:
    """Return (µs per tuple, µs per batch), by least squares over relative errors of the three sizes."""
    weights = [(size, total / ROWS * size * 1e6) for size, total in seconds.items()]  # µs of one batch
    a = sum(size * size / cost / cost for size, cost in weights)
    b = sum(size / cost / cost for size, cost in weights)
    c = sum(1 / cost / cost for _, cost in weights)
    p = sum(size / cost for size, cost in weights)
    q = sum(1 / cost for _, cost in weights)
    bottom = a * c - b * b
    return (p * c - q * b) / bottom, (a * q - b * p) / bottom


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    figures = measured(given.rounds)
    line = "| {} | {} | {} |" if given.markdown else "{:<50} {:>12} {:>12}"
    print(line.format("part", "µs per tuple", "µs per batch"))
    if given.markdown:
        print("|---|---|---|")
    for (name, _, _), seconds in zip(PARTS, figures, strict=True):
        tuple_us, batch_us = fitted(seconds)
        if name.startswith("each further"):
            before = fitted(figures[3])
            tuple_us, batch_us = tuple_us - before[0], batch_us - before[1]
        print(line.format(name, f"{tuple_us:.3f}", f"{batch_us:.1f}"))


if __name__ == "__main__":
    main()
