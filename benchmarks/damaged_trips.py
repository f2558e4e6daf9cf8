"""Clean taxi trips of which one in a hundred is damaged in one of four variants: input of `benchmarks.day_of_pipeline`."""

from collections.abc import Iterator
from datetime import datetime
from zlib import crc32

from agiledart import Sink, Source, Topology, log, taxi
from agiledart_examples.clean_trips import CleanTrip, clean
from agiledart_examples.debs2015 import Trip, order_of_times

ONE_IN = 100


def damaged(trip: CleanTrip) -> CleanTrip:
    """Return a trip as it is, or damaged; the same trip always in the same way."""
    number = crc32(f"{trip.taxi} {trip.pickup_at:%Y%m%d%H%M%S}".encode())
    if number % ONE_IN:
        return trip
    variants = (
        trip._replace(seconds=0),  # its speed is a division by zero
        trip._replace(miles=float(trip.seconds)),
        trip._replace(total_cents=trip.fare_cents - 1),
        trip._replace(seconds=-1, fare_cents=-5),
    )
    return variants[number // ONE_IN % len(variants)]


def failed_expectations(trip: CleanTrip) -> tuple[str, ...]:
    """Return the expectations of a new project that a trip fails, in their order."""
    met = {
        "takes time": trip.seconds > 0,
        "plausible speed": trip.seconds != 0 and trip.miles * 3600 / trip.seconds < 120,
        "has a fare": trip.total_cents >= trip.fare_cents and trip.fare_cents > 0,
    }
    return tuple(name for name, is_met in met.items() if not is_met)


def trips_until(lines: Iterator[str], end: datetime) -> Iterator[list[str]]:
    """Yield the cells of generated lines whose drop-off is before `end`."""
    for line in lines:
        cells = line.split(",")
        if cells[3] >= str(end):
            return
        yield cells


def damaged_trips(
    trips: Source[Trip] = taxi(),  # noqa: B008  a connector is a value; nothing is opened by naming it
    out: Sink[CleanTrip] = log("damaged-trips", partitions=2),  # noqa: B008  as above
) -> Topology:
    """Write valid trips to a log, one in a hundred damaged."""
    topology = Topology("damaged-trips")
    (
        topology.source("trips", trips, rows=Trip, event_time=lambda trip: trip.dropoff_at, check=order_of_times)
        .flat_map(clean)
        .map(damaged)
        .sink("out", out)
    )
    return topology
