"""The two queries of the DEBS 2015 Grand Challenge over New York's taxi trips.

`frequent_routes`: the ten most frequent routes of the last 30 minutes. `profitable_areas`: the ten areas with the greatest
ratio of median profit (last 15 minutes) to empty taxis (last 30 minutes). A trip becomes known at its drop-off.

Money is added as decimals: `str` of a float is the decimal number of the file, so fare + tip, medians and ratios are exact to
28 digits. Two areas tie when their numbers are equal, not when binary rounding happens to agree.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from math import floor, isfinite
from typing import Any, NamedTuple

from agiledart import (
    Change,
    Context,
    KeyedOperator,
    Ranking,
    ReadTime,
    Sink,
    Source,
    Topology,
    csv,
    sliding,
    taxi,
)

TOP = 10
ROUTE_WINDOW = timedelta(minutes=30)
PROFIT_WINDOW = timedelta(minutes=15)
EMPTY_WINDOW = timedelta(minutes=30)

# --- the data ---------------------------------------------------------------------------------------------------------


class Trip(NamedTuple):
    """One line of the input: 17 columns, and the time of reading."""

    medallion: str
    hack_license: str
    pickup_at: datetime
    dropoff_at: datetime
    seconds: float
    miles: float
    pickup_longitude: float
    pickup_latitude: float
    dropoff_longitude: float
    dropoff_latitude: float
    payment: str
    fare: float
    surcharge: float
    mta_tax: float
    tip: float
    tolls: float
    total: float
    read_at: ReadTime


class Cell(NamedTuple):
    """A square of the grid; 1.1 is the north-west corner."""

    east: int
    south: int

    def __str__(self) -> str:
        return f"{self.east}.{self.south}"


def order_of_times(trip: Trip) -> str | None:
    """Return why a well-formed line is not a trip: it ended before it began."""
    return "order" if trip.dropoff_at < trip.pickup_at else None


def cell_at(longitude: float, latitude: float, per_500_m: int) -> Cell | None:
    """Return the cell of a place; None outside the grid: 150 km in squares of 500 m, or of a fraction of that."""
    east = (longitude + 74.913585) / (0.005986 / per_500_m) + 0.5
    south = (41.474937 - latitude) / (0.004491556 / per_500_m) + 0.5
    last = 300 * per_500_m
    if not (isfinite(east) and isfinite(south) and 0 <= east < last and 0 <= south < last):
        return None
    return Cell(floor(east) + 1, floor(south) + 1)


class Occasion(NamedTuple):
    """Part of a result about the trip that caused it."""

    pickup_at: datetime
    dropoff_at: datetime
    read_at: ReadTime


# --- query 1: frequent routes -----------------------------------------------------------------------------------------


class CellRoute(NamedTuple):
    """Route between two cells, squares of 500 m."""

    start: Cell
    end: Cell


class Ride(NamedTuple):
    """A trip on a route."""

    route: CellRoute
    occasion: Occasion


class RouteReport(NamedTuple):
    """Line of the result: start and end cells of ten routes, None where there are fewer."""

    pickup_at: datetime
    dropoff_at: datetime
    cells: list[str | None]
    delay: ReadTime


def ride_of(trip: Trip) -> Ride | None:
    """Return the trip's route; None when it leaves the grid."""
    start = cell_at(trip.pickup_longitude, trip.pickup_latitude, 1)
    end = cell_at(trip.dropoff_longitude, trip.dropoff_latitude, 1)
    if start is None or end is None:
        return None
    return Ride(CellRoute(start, end), Occasion(trip.pickup_at, trip.dropoff_at, trip.read_at))


def route_report(ranking: Ranking[Ride, CellRoute, int]) -> RouteReport:
    """Return a ranking as a line of the result."""
    cells: list[str | None] = [str(cell) for entry in ranking.entries for cell in entry.key]
    occasion = ranking.cause.occasion
    return RouteReport(occasion.pickup_at, occasion.dropoff_at, padded(cells, 2 * TOP), occasion.read_at)


def padded(values: list[Any], length: int) -> list[Any]:
    """Return the values, followed by None up to a length."""
    return values + [None] * (length - len(values))


def frequent_routes(
    trips: Source[Trip] = taxi(),  # noqa: B008  a connector is a value; nothing is opened by naming it
    report: Sink[RouteReport] = csv("frequent-routes.csv"),  # noqa: B008  as above
) -> Topology:
    """Build query 1: the ten most frequent routes of the last 30 minutes, at each trip that changes them."""
    topology = Topology("frequent-routes")
    (
        topology.source("trips", trips, rows=Trip, event_time=lambda trip: trip.dropoff_at, check=order_of_times)
        .flat_map(ride_of)
        .key_by(lambda ride: ride.route)
        .window(sliding(ROUTE_WINDOW))
        .count("route-frequency")
        .top("busiest-routes", n=TOP, compare="keys")
        .map(route_report)
        .sink("report", report)
    )
    return topology


# --- query 2: profitable areas ----------------------------------------------------------------------------------------


class TaxiRide(NamedTuple):
    """Trip from the view of its taxi; areas are squares of 250 m."""

    medallion: str
    start: Cell
    end: Cell
    profit: Decimal
    occasion: Occasion


class AreaUpdate(NamedTuple):
    """Event of an area: an empty taxi arrived or left, or a trip from there earned money.

    Only the earning has the occasion, once for each trip.
    """

    area: Cell
    empty_taxis: int = 0
    profit: Decimal | None = None
    occasion: Occasion | None = None


class AreaValue(NamedTuple):
    """Present values of an area."""

    empty_taxis: int
    median_profit: Decimal
    profitability: Decimal


class AreaReport(NamedTuple):
    """Line of the result: ten areas with their values, None where there are fewer."""

    pickup_at: datetime
    dropoff_at: datetime
    areas: list[tuple[str | None, int | None, Decimal | None, Decimal | None]]
    delay: ReadTime


def taxi_ride_of(trip: Trip) -> TaxiRide | None:
    """Return the trip's areas and profit; None when it leaves the grid."""
    start = cell_at(trip.pickup_longitude, trip.pickup_latitude, 2)
    end = cell_at(trip.dropoff_longitude, trip.dropoff_latitude, 2)
    if start is None or end is None:
        return None
    profit = Decimal(str(trip.fare)) + Decimal(str(trip.tip))
    return TaxiRide(trip.medallion, start, end, profit, Occasion(trip.pickup_at, trip.dropoff_at, trip.read_at))


@dataclass
class Stand:
    """Place of a taxi since its last drop-off, and number of its moves."""

    area: Cell | None = None
    moves: int = 0


class Taxis(KeyedOperator[str, TaxiRide, Stand, AreaUpdate]):
    """State by taxi: the place where it stands empty, for 30 minutes or until its next trip."""

    def initial(self, key: str) -> Stand:
        return Stand()

    def on_record(self, key: str, record: TaxiRide, state: Stand, context: Context[AreaUpdate]) -> None:
        if state.area is not None:
            context.emit(AreaUpdate(state.area, empty_taxis=-1))
        state.area = record.end
        state.moves += 1
        context.emit(AreaUpdate(record.end, empty_taxis=+1))
        context.emit(AreaUpdate(record.start, profit=record.profit, occasion=record.occasion))
        context.timer_at(record.occasion.dropoff_at + EMPTY_WINDOW, state.moves)

    def on_timer(self, key: str, payload: int, state: Stand, context: Context[AreaUpdate]) -> None:
        if payload == state.moves and state.area is not None:
            context.emit(AreaUpdate(state.area, empty_taxis=-1))
            context.forget()


@dataclass
class Area:
    """Profits of recent trips in order of size, and how many taxis stand empty."""

    profits: list[Decimal] = field(default_factory=list)
    empty_taxis: int = 0


class Areas(KeyedOperator[Cell, AreaUpdate, Area, Change[Cell, AreaValue, Occasion]]):
    """State by area: median profit of 15 minutes over empty taxis."""

    def __init__(self, *, zero_profit: bool) -> None:
        self._zero_profit = zero_profit

    def initial(self, key: Cell) -> Area:
        return Area()

    def on_record(
        self, key: Cell, record: AreaUpdate, state: Area, context: Context[Change[Cell, AreaValue, Occasion]]
    ) -> None:
        state.empty_taxis += record.empty_taxis
        if record.profit is not None:
            insort(state.profits, record.profit)
            context.timer_at(context.time_ms + PROFIT_WINDOW // timedelta(milliseconds=1), str(record.profit))
        self._emit_value(key, record.occasion, state, context)

    def on_timer(
        self, key: Cell, payload: str, state: Area, context: Context[Change[Cell, AreaValue, Occasion]]
    ) -> None:
        del state.profits[bisect_left(state.profits, Decimal(payload))]
        self._emit_value(key, None, state, context)

    def _emit_value(
        self, key: Cell, cause: Occasion | None, state: Area, context: Context[Change[Cell, AreaValue, Occasion]]
    ) -> None:
        """Emit the present values of the area, and drop its state when it is empty."""
        context.emit(Change(key, self._value(state), cause))
        if not state.profits and not state.empty_taxis:
            context.forget()

    def _value(self, state: Area) -> AreaValue | None:
        """Return the values of an area; None if it is not listed: no empty taxi, or no recent trip (unless that counts as zero)."""
        profits, taxis = state.profits, state.empty_taxis
        if not taxis or not (profits or self._zero_profit):
            return None
        if not profits:
            return AreaValue(taxis, Decimal(0), Decimal(0))
        middle = len(profits) // 2
        median = profits[middle] if len(profits) % 2 else (profits[middle - 1] + profits[middle]) / 2
        return AreaValue(taxis, median, median / taxis)


def profitability(value: AreaValue) -> Decimal:
    """Return the value by which areas are ranked."""
    return value.profitability


def area_report(ranking: Ranking[Occasion, Cell, AreaValue]) -> AreaReport:
    """Return a ranking as a line of the result."""
    areas: list[Any] = [(str(entry.key), *entry.value) for entry in ranking.entries]
    areas += [(None, None, None, None)] * (TOP - len(areas))
    return AreaReport(ranking.cause.pickup_at, ranking.cause.dropoff_at, areas, ranking.cause.read_at)


def profitable_areas(
    trips: Source[Trip] = taxi(),  # noqa: B008  a connector is a value; nothing is opened by naming it
    report: Sink[AreaReport] = csv("profitable-areas.csv"),  # noqa: B008  as above
    *,
    zero_profit: bool = False,
) -> Topology:
    """Build query 2: the ten most profitable areas, at each trip that changes any value of the ten.

    Args:
        trips, report: source of trips and sink of results.
        zero_profit: also list areas with empty taxis but no recent trip, with median 0.
    """
    topology = Topology("profitable-areas")
    (
        topology.source("trips", trips, rows=Trip, event_time=lambda trip: trip.dropoff_at, check=order_of_times)
        .flat_map(taxi_ride_of)
        .key_by(lambda job: job.medallion)
        .stateful("taxis", Taxis())
        .key_by(lambda news: news.area)
        .stateful("areas", Areas(zero_profit=zero_profit))
        .top("best-areas", n=TOP, rank=profitability)
        .map(area_report)
        .sink("report", report)
    )
    return topology
