"""Late rows: windows that listen for them, the side outputs that take them, on any schedule."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import Topology, collect, hopping, tumbling
from agiledart.testing import run_local
from tests.conformance.operator_cases import ALL, key, ms, summary
from tests.conformance.test_operators import PARALLELISM, ROWS, SCHEDULES
from tests.reference.inline_host import InlineHost
from tests.reference.lateness import arrivals, late_panes
from tests.reference.rows import Row

SETTINGS = settings(max_examples=60, deadline=None)


def left(rows: Sequence[Row], noise: Sequence[int]) -> list[Row]:
    """Rows of one source, in disorder."""
    return [row for _, row in sorted(zip(noise, rows, strict=False), key=lambda pair: pair[0] + pair[1].at)]


NOISE = st.lists(st.integers(0, 14), min_size=40, max_size=40)


@given(ROWS, NOISE, st.integers(0, 4), st.integers(1, 8), PARALLELISM, SCHEDULES)
@SETTINGS
def test_late_rows_update_windows_within_the_allowed_lateness(
    rows: list[Row], noise: list[int], tolerance: int, lateness: int, parallelism: int, seed: int | None
) -> None:
    rows = left(rows, noise)
    topology = Topology("late")
    source = topology.source("rows", rows, rows=Row, event_time=lambda row: row.at, max_out_of_order=ms(tolerance))
    source.late("too-late").sink("late", collect)
    keyed = source.key_by(key)
    patient = keyed.window(hopping(ms(6), ms(3), allowed_lateness=ms(lateness))).aggregate("patient", ALL)
    patient.sink("renewed", collect)
    patient.late("late-windows").sink("rejected", collect)
    keyed.window(tumbling(ms(6))).count("strict").sink("once", collect)
    result = run_local(topology, parallelism=parallelism, schedule_seed=seed)
    assert isinstance(result, dict)
    panes, rejected = late_panes(rows, tolerance, lateness, lateness, 6, 3, summary)
    assert result["renewed"] == panes
    assert result["rejected"] == rejected
    assert result["late"] == arrivals(rows, tolerance, lateness)[1]
    assert result["once"] == late_panes(rows, tolerance, 0, lateness, 6, 6, len)[0]


@given(ROWS, NOISE, st.integers(0, 4), st.integers(1, 3), st.integers(0, 1_000_000))
@SETTINGS
def test_late_rows_are_handled_with_one_credit_and_restarts(
    rows: list[Row], noise: list[int], tolerance: int, parallelism: int, seed: int
) -> None:
    rows = left(rows, noise)
    topology = Topology("late")
    source = topology.source("rows", rows, rows=Row, event_time=lambda row: row.at, max_out_of_order=ms(tolerance))
    source.key_by(key).window(tumbling(ms(5), allowed_lateness=ms(4))).aggregate("x", ALL).sink("out", collect)
    source.late("too-late").sink("late", collect)
    host = InlineHost(topology, parallelism=parallelism, seed=seed, restarts=0.3)
    result = host.run()
    assert result["out"] == late_panes(rows, tolerance, 4, 4, 5, 5, summary)[0]
    assert result["late"] == arrivals(rows, tolerance, 4)[1]
    (counts,) = [one.source for one in host.statistics() if one.source is not None]
    assert counts.lines == counts.records + counts.late
    assert counts.late == len(result["late"])


@given(ROWS, NOISE, st.integers(0, 4), PARALLELISM, SCHEDULES)
@SETTINGS
def test_without_allowed_lateness_late_rows_only_go_to_the_side_output(
    rows: list[Row], noise: list[int], tolerance: int, parallelism: int, seed: int | None
) -> None:
    rows = left(rows, noise)
    topology = Topology("late")
    source = topology.source("rows", rows, rows=Row, event_time=lambda row: row.at, max_out_of_order=ms(tolerance))
    source.key_by(key).window(tumbling(ms(6))).aggregate("x", ALL).sink("out", collect)
    source.late("too-late").map(lambda row: row, name="same").sink("late", collect)
    result = run_local(topology, parallelism=parallelism, schedule_seed=seed)
    assert isinstance(result, dict)
    assert result["late"] == arrivals(rows, tolerance, 0)[1]
    assert sorted(result["out"]) == sorted(late_panes(rows, tolerance, 0, 0, 6, 6, summary)[0])
