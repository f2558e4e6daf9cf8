"""Urban sensing: readings of 90,000 sensors of seven cities, split by kind, summarised by city and minute, and merged.

`agiledart run agiledart_examples.urban_sensing:urban_sensing`. The paper [AgileDART] gives neither windows nor outputs. Here they
are the mean, least and greatest value of each city and kind in tumbling windows of a minute.
"""

from datetime import timedelta
from math import inf
from typing import Any, NamedTuple

from agiledart import Sink, Source, Stream, Topology, col, csv, lit, plugin, tumbling, when

WINDOW = timedelta(minutes=1)

KINDS = ("pollution", "dust", "light", "sound", "temperature", "humidity")


class UrbanReading(NamedTuple):
    """Reading of a sensor; None where a value is missing.

    Attributes:
        at_ms: milliseconds since 1970.
        pollution: air quality in mV, higher is worse.
    """

    at_ms: int
    city: str
    sensor: str
    temperature: float | None
    humidity: float | None
    light: float | None
    dust: float | None
    pollution: float | None
    sound: float | None


class CitySummary(NamedTuple):
    """Values of a kind in a city and minute."""

    city: str
    kind: str
    start_ms: int
    readings: int
    mean: float
    least: float
    greatest: float


def _summaries(readings: Stream[UrbanReading], kind: str) -> Stream[Any]:
    """Return the summaries of one kind. Missing values are left out within the window, so that no stage lies before it."""
    value = col(kind)
    return (
        readings.key_by(col("city"))
        .window(tumbling(WINDOW))
        .aggregate(
            f"{kind}-summary",
            readings=when(value.is_null()).then(0).otherwise(1).sum(),
            total=value.fill_null(0.0).sum(),
            least=value.fill_null(inf).min(),
            greatest=value.fill_null(-inf).max(),
        )
        .where(col("readings") > 0, f"{kind}-present")
        .select(
            "city",
            kind=lit(kind),
            start_ms=col("start_ms"),
            readings=col("readings"),
            mean=col("total") / col("readings"),
            least=col("least"),
            greatest=col("greatest"),
            name=f"{kind}-named",
        )
        .map(summary, f"{kind}-row", returns=CitySummary)
    )


def summary(row: Any) -> CitySummary:
    """Return the row of one kind with the type that all kinds share."""
    return CitySummary(*row)


def urban_sensing(
    readings: Source[UrbanReading] = plugin("example", stream="urban"),  # noqa: B008  a connector is a value
    summaries: Sink[CitySummary] = csv("urban-sensing.csv"),  # noqa: B008  as above
) -> Topology:
    """Build urban sensing.

    Args:
        readings: CSV with the columns at_ms, city, sensor, temperature, humidity, light, dust, pollution, sound.
        summaries: sink of one row for each city, kind and minute.
    """
    topology = Topology("urban-sensing")
    source = topology.source("readings", readings, rows=UrbanReading, event_time="at_ms")
    first, *others = [_summaries(source, kind) for kind in KINDS]
    first.union(*others, name="merge").sink("summaries", summaries)
    return topology
