"""STATS of RIoTBench: block average, Kalman filter with sliding regression, distinct count; then series to plot."""

from dataclasses import dataclass, field
from typing import NamedTuple

from agiledart import Context, KeyedOperator, Sink, Source, Topology, csv, null, plugin
from agiledart_examples.riotbench.estimators import BlockAverage, DistinctCount, Kalman, SlidingRegression
from agiledart_examples.riotbench.messages import FieldValue, FieldValues, numbered_messages
from agiledart_examples.riotbench.workloads import CITY


@dataclass
class SeriesState:
    """State of a sensor's (or a city's) field.

    Attributes:
        count: values so far.
        series: Kalman estimates that wait to be plotted together.
    """

    count: int = 0
    average: BlockAverage = field(default_factory=BlockAverage)
    kalman: Kalman = field(default_factory=Kalman)
    regression: SlidingRegression = field(default_factory=SlidingRegression)
    series: list[float] = field(default_factory=list)

    def update(self, value: float) -> tuple[int, float, float | None, float | None, float | None]:
        """Take a value; return its number, the Kalman estimate, the next value, the mean of the next ten, the block average."""
        self.count += 1
        average = self.average.update(value, CITY.average)
        estimate = self.kalman.update(value)
        predicted = self.regression.update(estimate)
        return (
            self.count,
            estimate,
            None if predicted is None else predicted.next,
            None if predicted is None else predicted.mean,
            average,
        )


class CityReading(NamedTuple):
    """Line of the aggregates of Sense Your City."""

    timestamp: str
    city: str
    temperature: float | None
    humidity: float | None
    light: float | None
    dust: float | None
    airquality_raw: float | None


class CityValue(NamedTuple):
    """Value of one field of a city."""

    timestamp: str
    city: str
    field: str
    value: float


class CityEstimate(NamedTuple):
    """Result for a value of a city's field; None where there is no prediction yet, and between complete blocks."""

    timestamp: str
    city: str
    field: str
    n: int
    kalman: float
    next_value: float | None
    next_ten: float | None
    block_average: float | None


class SensorEstimate(NamedTuple):
    """Result for a value of a sensor's field, by the number of its message."""

    message: int
    id: str
    field: str
    n: int
    kalman: float
    next_value: float | None
    next_ten: float | None
    block_average: float | None


class Series(NamedTuple):
    """Kalman estimates of a sensor's field that are plotted together."""

    id: str
    field: str
    values: list[float]


class Distinct(NamedTuple):
    """Estimated number of different sensors up to a message."""

    message: int
    sensors: float


def city_values(row: CityReading) -> list[CityValue]:
    """Split a reading into a row for each field that it has."""
    return [
        CityValue(row.timestamp, row.city, name, value)
        for name, value in zip(CITY.fields, row[2:], strict=True)
        if value is not None
    ]


class CityStatistics(KeyedOperator[tuple[str, str], CityValue, SeriesState, CityEstimate]):
    """Estimates of each city and field, in the order in which its values are read."""

    def initial(self, key: tuple[str, str]) -> SeriesState:
        return SeriesState()

    def on_record(
        self, key: tuple[str, str], record: CityValue, state: SeriesState, context: Context[CityEstimate]
    ) -> None:
        context.emit(CityEstimate(record.timestamp, record.city, record.field, *state.update(record.value)))


class SensorStatistics(KeyedOperator[tuple[str, str], FieldValue, SeriesState, SensorEstimate]):
    """Estimates of each sensor and field; the side output `series` has estimates to plot."""

    def initial(self, key: tuple[str, str]) -> SeriesState:
        return SeriesState()

    def on_record(
        self, key: tuple[str, str], record: FieldValue, state: SeriesState, context: Context[SensorEstimate]
    ) -> None:
        if record.value is None:
            return
        estimate = SensorEstimate(record.number, record.id, record.field, *state.update(record.value))
        context.emit(estimate)
        state.series.append(estimate.kalman)
        if len(state.series) == CITY.accumulated:
            context.emit_to("series", Series(*key, state.series.copy()))
            state.series.clear()


class SensorCount(KeyedOperator[str, FieldValue, DistinctCount, Distinct]):
    """Approximate number of different sensors of a field."""

    def initial(self, key: str) -> DistinctCount:
        return DistinctCount([0] * 2**CITY.distinct_bits)

    def on_record(self, key: str, record: FieldValue, state: DistinctCount, context: Context[Distinct]) -> None:
        context.emit(Distinct(record.number, state.update(record.id)))


def city_and_field(row: CityValue) -> tuple[str, str]:
    """Return the key of a city's statistics."""
    return (row.city, row.field)


def sensor_and_field(row: FieldValue) -> tuple[str, str]:
    """Return the key of a sensor's statistics."""
    return (row.id, row.field)


def field_of(row: FieldValue) -> str:
    """Return the key of the distinct count."""
    return row.field


def is_temperature(row: FieldValue) -> bool:
    """Return whether the row counts its sensor; the benchmark counts sensors of temperature."""
    return row.field == "temperature"


def stats_cities(
    readings: Source[CityReading] = plugin("example", stream="cities"),  # noqa: B008  a connector is a value
    estimates: Sink[CityEstimate] = csv("stats-cities.csv"),  # noqa: B008  as above
) -> Topology:
    """Build STATS over the means of cities.

    Args:
        readings: CSV with the columns timestamp, city, temperature, humidity, light, dust, airquality_raw, by header.
        estimates: sink of one row for each value.
    """
    topology = Topology("stats-cities")
    (
        topology.source("readings", readings, rows=CityReading)
        .flat_map(city_values)
        .key_by(city_and_field)
        .stateful("statistics", CityStatistics())
        .sink("estimates", estimates)
    )
    return topology


def stats_city(
    messages: Source[str] = plugin("example", stream="city"),  # noqa: B008  a connector is a value
    estimates: Sink[SensorEstimate] = csv("stats-city.csv"),  # noqa: B008  as above
    distinct: Sink[Distinct] = null(),  # noqa: B008  as above
    series: Sink[Series] = null(),  # noqa: B008  as above
) -> Topology:
    """Build STATS over sensors of cities.

    Args:
        messages: lines `milliseconds,SenML`.
        estimates: sink of one row for each value.
        distinct: sink of the approximate number of sensors so far, for each message.
        series: sink of 20 Kalman estimates each, to plot.
    """
    topology = Topology("stats-city")
    observations = numbered_messages(topology, messages, CITY).flat_map(
        FieldValues(CITY.fields), "observations", returns=FieldValue
    )
    statistics = observations.key_by(sensor_and_field).stateful("statistics", SensorStatistics())
    statistics.sink("estimates", estimates)
    statistics.side("plots", "series", rows=Series).sink("series", series)
    sensors = observations.filter(is_temperature).key_by(field_of)
    sensors.stateful("distinct-count", SensorCount()).sink("distinct", distinct)
    return topology
