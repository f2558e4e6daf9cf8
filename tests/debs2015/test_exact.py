"""The shipped queries are exact: on the real stream, on generated ones, and on both with every kind of fault.

Each case says its seeds in its name; `pytest -k` with that name replays it.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from agiledart_examples.taxi_trips import generate
from tests.data import TAXI_SAMPLE, data_path
from tests.debs2015.checking import QUERIES, Query, check, check_both, write_lines
from tests.oracle.debs2015 import answer, read_lines
from tests.oracle.mutate import mutate, small_world


@pytest.mark.parametrize("query", QUERIES)
def test_real_stream(query: Query, tmp_path: Path) -> None:
    source = data_path(TAXI_SAMPLE)
    check(query, source, tmp_path, answer(read_lines(source)))


@pytest.mark.parametrize(("seed", "parallelism"), [(1, 1), (2, 4)])
def test_generated_stream(seed: int, parallelism: int, tmp_path: Path) -> None:
    check_both(list(generate(seed, 800)), tmp_path, parallelism=parallelism)


@pytest.mark.parametrize(("seed", "parallelism"), [(11, 1), (12, 3)])
def test_generated_stream_with_faults(seed: int, parallelism: int, tmp_path: Path) -> None:
    lines = mutate(generate(seed, 800), seed).lines
    check_both(lines, tmp_path, parallelism=parallelism, schedule_seed=seed)


@pytest.mark.parametrize("seed", range(8))
def test_small_world_with_faults_under_a_hostile_schedule(seed: int, tmp_path: Path) -> None:
    lines = mutate(small_world(seed, 400), seed).lines
    check_both(lines, tmp_path, parallelism=1 + seed % 4, schedule_seed=seed)


TRIP = small_world(0, 1)[0]
OUTLIER = ",".join([*TRIP.split(",")[:6], "0", "0", *TRIP.split(",")[8:]])


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [""],
        ["x"] * 3,
        [TRIP],
        [TRIP, TRIP],
        [OUTLIER],
        [OUTLIER, TRIP],
        [TRIP.encode()],
        [TRIP.encode() + b"\r\n", b"\r\n", b"\xff\xfe\xfa,\x80\n", TRIP.encode() + b"\r"],
        [TRIP.replace("CSH", "x" * 3_000_000)],
    ],
    ids=["empty", "blank", "no-trip", "one", "twice", "outlier", "outlier-first", "no-line-feed", "bytes", "long"],
)
def test_nearly_empty_streams(lines: Sequence[str | bytes], tmp_path: Path) -> None:
    check_both(lines, tmp_path, parallelism=2)


def test_trips_before_and_far_after_our_time(tmp_path: Path) -> None:
    early = TRIP.replace("2013-01-01", "0001-01-01").replace("2012-12-31", "0001-01-01")
    late = TRIP.replace("2013-01-01", "9999-12-31").replace("2012-12-31", "9999-12-31")
    check_both([early, TRIP, late], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [1, 4])
def test_real_stream_at_every_parallelism(parallelism: int, tmp_path: Path) -> None:
    check_both(read_lines(data_path(TAXI_SAMPLE)), tmp_path, parallelism=parallelism)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_real_stream_with_faults(seed: int, tmp_path: Path) -> None:
    lines = mutate(read_lines(data_path(TAXI_SAMPLE)), seed).lines
    check_both(lines, tmp_path, parallelism=seed + 2, schedule_seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 22))
def test_long_generated_stream_with_faults(seed: int, tmp_path: Path) -> None:
    lines = mutate(generate(seed, 6_000), seed, rate=0.02).lines
    check_both(lines, tmp_path, parallelism=2 * (seed - 19))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_more_small_worlds(seed: int, tmp_path: Path) -> None:
    lines = mutate(
        small_world(seed, 500, taxis=5 + seed % 40, places=3 + seed % 12), seed, rate=0.03 * (seed % 6)
    ).lines
    check_both(lines, tmp_path, parallelism=1 + seed % 4, schedule_seed=seed if seed % 2 else None)


def test_the_check_itself_can_fail(tmp_path: Path) -> None:
    lines = small_world(1, 200)
    source = write_lines(tmp_path / "trips.csv.gz", lines)
    expected = answer(lines)
    expected.areas[5], expected.areas[6] = expected.areas[6], expected.areas[5]
    with pytest.raises(AssertionError, match="line 6 of"):
        check("profitable-areas", source, tmp_path, expected)


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4])
def test_expiry_just_before_the_last_line_reaches_every_instance(parallelism: int, tmp_path: Path) -> None:
    """The last trip is an hour after all others, whose routes lie in other instances than its own."""
    fields = TRIP.split(",")
    lines = []
    for place in range(12):
        time = "2013-01-01 10:00:00" if place == 11 else "2013-01-01 09:00:00"
        spot = [f"{-74.02 + 0.006 * place:.6f}", "40.75"]
        lines.append(",".join([str(place), *fields[1:2], time, time, *fields[4:6], *spot, *spot, *fields[10:]]))
    assert [
        route for route in check_both(lines, tmp_path, parallelism=parallelism).routes[-1][4:] if route != "NULL"
    ] == []
