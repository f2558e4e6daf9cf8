"""Damaged trips: one in a hundred, always the same, and each fails the expectations of a new project."""

from collections import Counter
from itertools import islice

from benchmarks.damaged_trips import damaged, failed_expectations
from benchmarks.day_of_pipeline import PlainTables
from benchmarks.day_of_trips import trip

from agiledart_examples.clean_trips import CleanTrip, clean
from agiledart_examples.taxi_trips import generate


def clean_trips(count: int) -> list[CleanTrip]:
    made = (clean(trip(line.split(","))) for line in generate(seed=1))
    return list(islice((row for row in made if row is not None), count))


def test_a_hundredth_of_the_trips_is_damaged_in_four_variants() -> None:
    trips = clean_trips(8_000)
    changed = [damaged(row) for row in trips if damaged(row) != row]
    assert 40 < len(changed) < 120
    assert changed == [damaged(row) for row in trips if damaged(row) != row]
    reasons = Counter(map(failed_expectations, changed))
    variants = {("takes time", "plausible speed"), ("plausible speed",), ("has a fare",), ("takes time", "has a fare")}
    assert variants <= set(reasons)
    assert () not in reasons


def test_a_plain_loop_has_each_row_in_gold_or_in_quarantine() -> None:
    plain = PlainTables()
    assert plain.add(1, 0.1) > plain.rows > 500
    good = sum(trips for trips, _ in plain.quarters.values())
    assert good == sum(trips for trips, _ in plain.areas.values()) == plain.rows - plain.quarantine.total()
    assert all(start[-5:] in ("00:00", "15:00", "30:00", "45:00") for start, _, _ in plain.quarters)
