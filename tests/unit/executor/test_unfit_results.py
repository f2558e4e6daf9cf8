"""Results that cannot travel, such as a number beyond 64 bits: under a policy that goes on they are counted, others come."""

from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from agiledart import Topology, col, collect, sum_of, tumbling
from agiledart_executor.local_runs.local_run import LocalRun, run_topology
from agiledart_kernel.errors import UserCodeError

LARGE = 1 << 62


class Row(NamedTuple):
    at: int
    k: str
    n: int


ROWS = [*(Row(ms, "a", LARGE) for ms in range(4)), Row(4, "b", 1), Row(5, "b", 2)]
Policy = Any


def run(build: Any, policy: Policy) -> tuple[LocalRun, list[str]]:
    topology, told = Topology("t"), list[str]()
    build(topology.source("rows", ROWS, event_time="at", rows=Row), policy).sink("out", collect)
    return run_topology(topology, on_log=told.append), told


def window(rows: Any, policy: Policy) -> Any:
    windows = rows.key_by(lambda row: row.k).window(tumbling(timedelta(minutes=1)))
    return windows.aggregate("sums", sum_of(lambda row: row.n), on_error=policy)


def named_window(rows: Any, policy: Policy) -> Any:
    windows = rows.key_by(col("k")).window(tumbling(timedelta(minutes=1)))
    return windows.aggregate("sums", total=col("n").sum(), on_error=policy)


def mapped(rows: Any, policy: Policy) -> Any:
    return rows.map(lambda row: Row(row.at, row.k, row.n * 8), "larger", returns=Row, on_error=policy)


def test_a_sum_beyond_64_bits_is_not_put_out() -> None:
    for build in (window, named_window):
        done, told = run(build, "skip")
        (pane,) = done.collected["out"]
        assert 3 in pane
        counts = done.summary.steps["sums"]
        assert (counts.rows_out, counts.failed, counts.taken) == (1, 1, 6)
        assert any("sums" in text and str(4 * LARGE) in text for text in told)


def test_a_row_of_a_map_that_cannot_travel_is_skipped() -> None:
    done, told = run(mapped, "skip")
    assert [row.n for row in done.collected["out"]] == [8, 16]
    counts = done.summary.steps["larger"]
    assert (counts.rows_in, counts.rows_out, counts.skipped) == (6, 2, 4)
    assert "larger" in told[0]


@pytest.mark.parametrize("build", [window, mapped])
def test_without_such_a_policy_it_ends_the_run(build: Any) -> None:
    with pytest.raises(UserCodeError, match="its rows are not"):
        run(build, "fail")


def test_many_rows_of_one_that_cannot_travel_are_counted() -> None:
    def many(rows: Any, policy: Policy) -> Any:
        return rows.flat_map(lambda row: [row._replace(n=row.n << 3)] * 5, "many", returns=Row, on_error=policy)

    done, _ = run(many, "skip")
    assert len(done.collected["out"]) == 10
    counts = done.summary.steps["many"]
    assert (counts.rows_in, counts.rows_out, counts.failed) == (6, 10, 20)


def test_a_running_value_that_cannot_travel_is_skipped() -> None:
    def running(rows: Any, policy: Policy) -> Any:
        return rows.key_by(lambda row: row.k).running("total", sum_of(lambda row: row.n), on_error=policy)

    done, _ = run(running, "skip")
    counts = done.summary.steps["total"]
    assert (counts.rows_in, counts.rows_out, counts.taken, counts.skipped) == (6, 5, 5, 1)
