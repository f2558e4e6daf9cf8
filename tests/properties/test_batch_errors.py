"""`map_batches(…, on_error=…)`: only the rows at fault are dropped, however rows are cut into batches."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import Stream, Topology, UserCodeError, collect, records
from agiledart_dataflow.user_code.error_policy import ErrorPolicy
from agiledart_executor.local_runs.local_run import LocalRun, run_topology
from agiledart_kernel.errors import TopologyError
from tests.properties.test_columnar_steps import Trip, results
from tests.properties.test_resizing_batches import batches, copies, in_order, in_windows, plain, tables, with_arrays


def refuses(vehicle: int) -> bool:
    """Whether the functions here raise for this vehicle."""
    return vehicle == 1


def dearer(batch: dict) -> Any:  # type: ignore[type-arg]  # of arrays
    if any(map(refuses, batch["vehicle"])):
        raise LookupError("vehicle 1")
    return {**batch, "fare": batch["fare"] + batch["vehicle"]}


def dearer_row(trip: Trip) -> Trip:
    if refuses(trip.vehicle):
        raise LookupError("vehicle 1")
    return trip._replace(fare=trip.fare + trip.vehicle)


def copied(batch: dict) -> Any:  # type: ignore[type-arg]  # of arrays
    dearer(batch)
    return with_arrays(batch)


def copied_row(trip: Trip) -> list[Trip]:
    dearer_row(trip)
    return copies(trip)


@pytest.mark.parametrize("behind", [plain, in_windows, in_order])
@pytest.mark.parametrize("resizes", [False, True])
def test_batches_drop_the_same_rows_as_single_rows(behind: Callable[[Stream[Trip]], Any], resizes: bool) -> None:
    @given(tables, batches, st.sampled_from(("skip", "dead_letter")), st.integers(1, 3))
    @settings(max_examples=15, deadline=None)
    def holds(rows: list[Trip], sizes: list[tuple[int, bool]], policy: ErrorPolicy, parallelism: int) -> None:
        made = []
        for in_batches in (True, False):
            topology = Topology("refused")
            stream = topology.source("trips", records([]), event_time="at", rows=Trip)
            if in_batches:
                function = copied if resizes else dearer
                step: Any = stream.map_batches(function, "step", resizes=resizes, on_error=policy)
            elif resizes:
                step = stream.flat_map(copied_row, "step", returns=Trip, on_error=policy)
            else:
                step = stream.map(dearer_row, "step", returns=Trip, on_error=policy)
            behind(step).sink("out", collect)
            made.append(results(topology, rows, sizes, parallelism=parallelism if in_batches else 1))
        assert made[0] == made[1]

    holds()


def run(policy: ErrorPolicy, vehicles: list[int], function: Any = dearer) -> tuple[LocalRun, list[str]]:
    """One batch of these vehicles."""
    topology = Topology("once")
    rows = [Trip(at, "a", vehicle, 1.0, None) for at, vehicle in enumerate(vehicles)]
    stream = topology.source("trips", records(rows), event_time="at", rows=Trip)
    step: Any = stream.map_batches(function, "dearer", on_error=policy)
    step.sink("out", collect)
    if policy == "dead_letter":
        step.errors("letters").sink("bad", collect)
    logs: list[str] = []
    return run_topology(topology, on_log=logs.append), logs


def test_dropped_rows_are_counted_and_reported() -> None:
    made, logs = run("skip", [0, 1, 2, 1, 3])
    assert [row.vehicle for row in made.collected["out"]] == [0, 2, 3]
    counts = made.summary.steps["dearer"]
    assert (counts.rows_in, counts.rows_out, counts.skipped, counts.dropped) == (5, 3, 2, 0)
    assert any("dearer" in text and "vehicle=1" in text for text in logs)


def test_dead_letters_are_the_rows_at_fault() -> None:
    made, _ = run("dead_letter", [1, 0, 1])
    assert [(letter.record.at, letter.step) for letter in made.collected["bad"]] == [(0, "dearer"), (2, "dearer")]
    assert "vehicle 1" in made.collected["bad"][0].error
    assert made.summary.steps["dearer"].dead_letters == 2


def test_a_function_is_called_rarely_when_few_rows_are_at_fault() -> None:
    calls: list[int] = []

    def counted(batch: dict) -> Any:  # type: ignore[type-arg]  # of arrays
        calls.append(len(batch["vehicle"]))
        return dearer(batch)

    made, _ = run("skip", [*[0] * 300, 1, *[0] * 300], counted)
    assert len(made.collected["out"]) == 600
    assert len(calls) <= 1 + 2 * 10


def test_fail_is_the_default_and_wrong_results_always_fail() -> None:
    with pytest.raises(UserCodeError, match="vehicle 1"):
        run("fail", [0, 1])
    with pytest.raises(UserCodeError, match="it took 2 rows and returned 1"):
        run("skip", [0, 2], lambda batch: batch.slice(1))
    with pytest.raises(TopologyError, match="on_error is one of"):
        run("ignore", [0])  # type: ignore[arg-type]  # that is the point


def in_place(batch: dict) -> Any:  # type: ignore[type-arg]  # of arrays
    batch["fare"] *= 2
    return dearer(batch)


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_function_that_mutates_shared_rows_fails_under_any_policy(policy: ErrorPolicy) -> None:
    with pytest.raises(UserCodeError, match=r"test_batch_errors\.py:\d+ in dearer: .* read-only: .*change a copy"):
        run(policy, [0, 1, 2], in_place)
