"""Trips that are fed leave in turns of their own time, none lost, none twice."""

from itertools import islice

from benchmarks.trip_feed import time_blocks

from agiledart_examples.taxi_trips import generate


def test_slices_hold_all_lines_in_order_and_no_more_than_their_span() -> None:
    lines = list(generate(seed=1, count=500))
    found = [block.decode().splitlines() for block in time_blocks(lines, 10.0)]
    told = [line for block in found for line in block]
    assert told == lines[: len(told)]
    assert len(told) >= 450  # the last turn is not over
    for block in found:
        assert not block or _seconds(block[-1]) - _seconds(block[0]) < 10


def test_time_without_trips_gives_empty_slices() -> None:
    early, late = islice(generate(seed=1), 2)
    late = late.replace(",2013-01-07 08:00:01,", ",2013-01-07 08:00:31,")
    assert [len(block) > 0 for block in time_blocks([early, late, late], 10.0)] == [True, False, False]


def _seconds(line: str) -> int:
    hours, minutes, seconds = line.split(",")[3][11:].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds)
