"""Topology that writes cleaned taxi trips to a log for Spark: `agiledart submit agiledart_examples.clean_trips:clean_trips`.

It keeps a trip within the grid whose duration, distance and fare are positive; places become cells, money whole cents.
"""

from datetime import datetime
from math import isfinite
from typing import NamedTuple

from agiledart import ReadTime, Sink, Source, Topology, log, taxi
from agiledart_examples.debs2015 import Trip, cell_at, order_of_times

MAX_SECONDS = 6 * 3600
MAX_MILES = 200.0
MAX_DOLLARS = 1_000.0


class CleanTrip(NamedTuple):
    """A valid trip. Cells are squares of 500 m, written `east.south`, 1.1 in the north-west."""

    taxi: str
    pickup_at: datetime
    dropoff_at: datetime
    start_cell: str
    end_cell: str
    seconds: int
    miles: float
    fare_cents: int
    tip_cents: int
    total_cents: int
    payment: str
    read_at: ReadTime


def cents(dollars: float) -> int:
    """Convert an amount of dollars to whole cents."""
    return round(dollars * 100)


def clean(trip: Trip) -> CleanTrip | None:
    """Return the trip with cells and cents; None for impossible numbers."""
    start = cell_at(trip.pickup_longitude, trip.pickup_latitude, 1)
    end = cell_at(trip.dropoff_longitude, trip.dropoff_latitude, 1)
    seconds = round((trip.dropoff_at - trip.pickup_at).total_seconds())
    amounts = (trip.fare, trip.tip, trip.total)
    if start is None or end is None or not 0 < seconds <= MAX_SECONDS:
        return None
    if not (isfinite(trip.miles) and 0 < trip.miles <= MAX_MILES):
        return None
    if not all(isfinite(amount) and 0 <= amount <= MAX_DOLLARS for amount in amounts) or trip.total <= 0:
        return None
    return CleanTrip(
        trip.medallion,
        trip.pickup_at,
        trip.dropoff_at,
        str(start),
        str(end),
        seconds,
        trip.miles,
        cents(trip.fare),
        cents(trip.tip),
        cents(trip.total),
        trip.payment,
        trip.read_at,
    )


def clean_trips(
    trips: Source[Trip] = taxi(),  # noqa: B008  a connector is a value; nothing is opened by naming it
    out: Sink[CleanTrip] = log("clean-trips", partitions=4),  # noqa: B008  as above
) -> Topology:
    """Write valid trips to a log of four partitions."""
    topology = Topology("clean-trips")
    (
        topology.source("trips", trips, rows=Trip, event_time=lambda trip: trip.dropoff_at, check=order_of_times)
        .flat_map(clean)
        .sink("out", out)
    )
    return topology
