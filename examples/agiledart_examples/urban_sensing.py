"""Urban sensing: readings of 90,000 sensors of seven cities, split by kind, summarised by city and minute, and merged.

`agiledart run agiledart_examples.urban_sensing:urban_sensing`. The paper [AgileDART] gives neither windows nor outputs. Here they
are the mean, least and greatest value of each city and kind in tumbling windows of a minute.
"""

from datetime import timedelta
from typing import Any, NamedTuple

from agiledart import Sink, Source, Stream, Topology, col, count, csv, lit, plugin, tumbling

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
    """Return the summaries of one kind."""
    return (
        readings.where(col(kind).is_not_null(), f"{kind}-present")
        .select("city", value=col(kind).fill_null(0.0), name=f"{kind}-values")
        .key_by(col("city"))
        .window(tumbling(WINDOW))
        .aggregate(
            f"{kind}-summary",
            readings=count(),
            mean=col("value").mean(),
            least=col("value").min(),
            greatest=col("value").max(),
        )
        .select(
            "city",
            kind=lit(kind),
            start_ms=col("start_ms"),
            readings=col("readings"),
            mean=col("mean"),
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
