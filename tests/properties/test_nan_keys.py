"""NaN is no key, of no operator, in neither form of rows, at no parallelism: such rows go to the error policy."""

import re
from collections.abc import Callable
from datetime import timedelta
from math import isnan, nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import (
    KeyedStream,
    Stream,
    Topology,
    UserCodeError,
    col,
    collect,
    count,
    counted,
    hopping,
    records,
    session,
    sliding,
    tumbling,
)
from tests.properties.test_columnar_steps import Trip, cuts, results

MS = timedelta(milliseconds=20)
HALF = timedelta(milliseconds=10)
KEYS: dict[str, Callable[[Stream[Trip]], KeyedStream[Any, Trip]]] = {
    "column": lambda trips: trips.key_by(col("fare")),
    "columns": lambda trips: trips.key_by(col("zone"), col("fare")),
    "optional column": lambda trips: trips.key_by(col("tip")),
    "expression": lambda trips: trips.key_by(col("fare") * 2.0),
    "function": lambda trips: trips.key_by(lambda trip: trip.fare),
    "function of a tuple in a tuple": lambda trips: trips.key_by(lambda trip: (trip.zone, (trip.vehicle, trip.fare))),
    "function of a tuple": lambda trips: trips.key_by(lambda trip: (trip.zone, trip.tip)),
}
VERBS: dict[str, Callable[[KeyedStream[Any, Trip]], Stream[Any]]] = {
    "tumbling": lambda keyed: keyed.window(tumbling(MS)).count("step", on_error="skip"),
    "hopping": lambda keyed: keyed.window(hopping(MS, HALF)).count("step", on_error="skip"),
    "named": lambda keyed: keyed.window(tumbling(MS)).aggregate("step", trips=count(), on_error="skip"),
    "session": lambda keyed: keyed.window(session(HALF)).count("step", on_error="skip"),
    "counted": lambda keyed: keyed.window(counted(2)).count("step", on_error="skip"),
    "sliding": lambda keyed: keyed.window(sliding(MS)).count("step", on_error="skip"),
    "running": lambda keyed: keyed.running("step", trips=count(), on_error="skip"),
    "running_count": lambda keyed: keyed.running_count("step", on_error="skip"),
    "distinct": lambda keyed: keyed.distinct("step", on_error="skip"),
}
numbers = st.sampled_from([nan, 1.0, 2.5, -0.0, float("inf")])
tables = st.lists(
    st.builds(Trip, st.integers(0, 90), st.sampled_from("ab"), st.integers(0, 9), numbers, st.none() | numbers),
    max_size=40,
).map(lambda rows: sorted(rows, key=lambda row: row.at))


def key_parts(key: str, trip: Trip) -> tuple[float | None, ...]:
    """The floats in a trip's key."""
    return (trip.tip,) if key in ("optional column", "function of a tuple") else (trip.fare,)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("verb", VERBS)
def test_rows_with_nan_in_their_key_are_dropped(key: str, verb: str) -> None:
    @given(tables, cuts, st.integers(1, 3))
    @settings(max_examples=12, deadline=None)
    def holds(rows: list[Trip], sizes: list[tuple[int, bool]], parallelism: int) -> None:
        rows = [*rows, Trip(200, "a", 0, 7.0, 7.0)]  # dropped rows advance time, too: by now every window is empty
        topology = Topology("keys")
        trips = topology.source("trips", records([]), event_time="at", rows=Trip)
        VERBS[verb](KEYS[key](trips)).sink("out", collect)
        sound = [row for row in rows if not any(part is not None and isnan(part) for part in key_parts(key, row))]
        given_all = results(topology, rows, sizes, parallelism=parallelism)
        assert repr(given_all) == repr(results(topology, sound, [(7, False)], parallelism=parallelism))

    holds()


@pytest.mark.parametrize("in_columns", [True, False])
@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("key", KEYS)
def test_without_a_policy_the_application_fails_with_the_reason(key: str, parallelism: int, in_columns: bool) -> None:
    topology = Topology("keys")
    trips = topology.source("trips", records([]), event_time="at", rows=Trip)
    KEYS[key](trips).window(tumbling(MS)).count("step").sink("out", collect)
    rows = [Trip(1, "a", 1, 1.0, 1.0), Trip(2, "a", 1, nan, nan)]
    with pytest.raises(UserCodeError, match="NaN equals nothing") as found:
        results(topology, rows, [(2, in_columns)], parallelism=parallelism)
    place = rf"{Path(__file__).name}:\d+ " if key.startswith("function") else ""  # an expression has no line
    assert re.match(rf"{place}in (key_by of )?step: TypeError: NaN", str(found.value))
