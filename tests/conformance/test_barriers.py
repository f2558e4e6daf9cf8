"""Numbered barriers pass through any graph: once at each instance, no deadlock, same results; and a run goes on from each."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from agiledart import Topology, collect, null, sliding, sum_of, tumbling
from agiledart_dataflow.runtime.ledger import audit
from agiledart_kernel.randomness import RandomStream
from tests.reference.inline_host import InlineHost


class Row(NamedTuple):
    """A row."""

    at: int
    key: str
    value: int


def rows_of(seed: int, count: int) -> list[Row]:
    random = RandomStream(seed, "rows")
    times = sorted(random.index(80) for _ in range(count))
    return [Row(at, random.choice("aaab"), random.index(9)) for at in times]  # one key has most of them


LEFT, RIGHT, NONE = rows_of(1, 60), rows_of(2, 40), list[Row]()


def time_of(row: Row) -> int:
    return row.at


def chain(topology: Topology, left: list[Row], right: list[Row]) -> None:
    """Stateless, in order of arrival."""
    topology.source("left", left, rows=Row, event_time=time_of).filter(lambda row: row.value > 1, "some").sink(
        "out", collect
    )


def windows(topology: Topology, left: list[Row], right: list[Row]) -> None:
    """Windows that need times only where there is one instance, and positions where there are more."""
    source = topology.source("left", left, rows=Row, event_time=time_of)
    source.key_by(lambda row: row.key).window(tumbling(timedelta(milliseconds=9))).aggregate(
        "sums", sum_of(lambda row: row.value)
    ).sink("out", collect)


def aligned(topology: Topology, left: list[Row], right: list[Row]) -> None:
    """Two inputs in order of arrival, because no downstream step can tell the difference: barriers hold a channel back."""
    source = topology.source("left", left, rows=Row, event_time=time_of)
    other = topology.source("right", right, rows=Row, event_time=time_of)
    both = source.map(lambda row: row, "same", returns=Row).union(other, name="both")
    both.key_by(lambda row: row.key).window(tumbling(timedelta(milliseconds=9))).count("counts").sink("nothing", null())
    both.sink("neither", null())


def merged(topology: Topology, left: list[Row], right: list[Row]) -> None:
    """Fan-out, union, sliding windows: all by position."""
    source = topology.source("left", left, rows=Row, event_time=time_of)
    other = topology.source("right", right, rows=Row, event_time=time_of)
    both = source.filter(lambda row: row.value > 1, "some").union(other, name="both")
    both.key_by(lambda row: row.key).window(sliding(timedelta(milliseconds=5))).aggregate(
        "sums", sum_of(lambda row: row.value)
    ).sink("out", collect)
    source.sink("also", collect)


GRAPHS = [chain, windows, aligned, merged]
Build = Callable[[Topology, list[Row], list[Row]], None]


def host(build: Build, left: list[Row], right: list[Row], parallelism: int, seed: int, **options: Any) -> InlineHost:
    topology = Topology("barriers")
    build(topology, left, right)
    return InlineHost(topology, parallelism=parallelism, seed=seed, **options)


def everybody(run: InlineHost) -> set[Any]:
    """Instances that take part in a checkpoint."""
    return {*run.instances, *((source.stage, 0) for source in run.sources)}


def figures(run: InlineHost) -> dict[str, tuple[int, int]]:
    """Rows into and out of each step."""
    found: dict[str, tuple[int, int]] = {}
    for one in run.statistics():
        for name, counts in one.steps.items():
            before = found.get(name, (0, 0))
            found[name] = before[0] + counts.rows_in, before[1] + counts.rows_out
    return found


def test_the_enumerated_inputs_include_the_order_of_arrival() -> None:
    plan = host(aligned, LEFT, RIGHT, 3, 1).program.plan
    assert {edge.carries for edge in plan.edges} == {"times", "rows"}
    assert {edge.carries for edge in host(merged, LEFT, RIGHT, 3, 1).program.plan.edges} == {"positions", "rows"}


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("build", GRAPHS)
@pytest.mark.parametrize("right", [RIGHT, NONE], ids=["both", "one-silent"])
def test_barriers_change_nothing_and_a_run_resumes_from_each(
    build: Build, right: list[Row], seed: int, parallelism: int
) -> None:
    plain = host(build, LEFT, right, parallelism, seed)
    expected = plain.run(), figures(plain)
    with_barriers = host(build, LEFT, right, parallelism, seed + 100, barriers=3, window=1 + seed % 2)
    assert (with_barriers.run(), figures(with_barriers)) == expected
    assert audit(with_barriers.program.specification, with_barriers.statistics(), with_barriers.program.plan) == []
    lines = [LEFT, right][: len(with_barriers.sources)]
    for snapshots in with_barriers.snapshots.values():
        if not everybody(with_barriers) <= set(snapshots):
            continue  # a source had ended before it
        again = host(build, LEFT, right, parallelism, seed + 200)
        again.resume(snapshots, lines)
        assert (again.run(), figures(again)) == expected
        assert audit(again.program.specification, again.statistics(), again.program.plan) == []


def test_some_checkpoints_were_complete() -> None:
    """Else the test above would look at nothing."""
    complete = 0
    for build in GRAPHS:
        for seed in range(4):
            run = host(build, LEFT, RIGHT, 3, seed + 100, barriers=3, window=1 + seed % 2)
            run.run()
            complete += sum(everybody(run) <= set(snapshots) for snapshots in run.snapshots.values())
    assert complete > 20
