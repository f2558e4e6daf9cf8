"""List of jobs: names, questions, and default sinks. Needs no Spark."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agiledart_analytics import latency_percentiles, trips
from agiledart_kernel.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LATENCY_COLUMNS: Final = ("application", "version", "sink", "observed_at", "latency_ms")
TRIPS_SINK: Final = "clean-trips"
TRIPS_COLUMNS: Final = ("start_cell", "end_cell", "dropoff_at", "total_cents")


@dataclass(frozen=True)
class AnalyticsJob:
    """Job that answers one question.

    Attributes:
        sink: default log; "": the job is about an application and reads its latency logs.
        needs: columns that the job needs.
        measure: column that a plot shows.
    """

    name: str
    what: str
    sink: str
    needs: tuple[str, ...]
    compute: "Callable[[DataFrame], DataFrame]"
    measure: str

    @property
    def is_about_an_application(self) -> bool:
        """Return whether the job needs the name of an application."""
        return not self.sink


def _trips_job(name: str, what: str, compute: "Callable[[DataFrame], DataFrame]", measure: str) -> AnalyticsJob:
    return AnalyticsJob(name, what, TRIPS_SINK, TRIPS_COLUMNS, compute, measure)


JOBS: Final[dict[str, AnalyticsJob]] = {
    job.name: job
    for job in (
        AnalyticsJob(
            "latency",
            "latency percentiles of an application, by sink",
            "",
            LATENCY_COLUMNS,
            latency_percentiles.percentiles,
            "p99_ms",
        ),
        AnalyticsJob(
            "latency-by-minute",
            "the same for each minute",
            "",
            LATENCY_COLUMNS,
            latency_percentiles.percentiles_by_minute,
            "p99_ms",
        ),
        _trips_job("busiest-routes", "the ten busiest routes of each 15 minutes", trips.busiest_routes, "trips"),
        _trips_job("revenue", "trips and revenue of each 15 minutes", trips.revenue, "revenue_cents"),
        _trips_job("revenue-by-area", "revenue of each 15 minutes and area", trips.revenue_by_area, "revenue_cents"),
        _trips_job("daily-routes", "the ten busiest routes of each day", trips.daily_routes, "trips"),
        _trips_job("daily-areas", "the ten areas of each day that earned most", trips.daily_areas, "revenue_cents"),
    )
}


def find_job(name: str) -> AnalyticsJob:
    """Return the job of a name. Raises `ConfigurationError` with all names."""
    if name not in JOBS:
        raise ConfigurationError(f"There is no job {name!r}; there are {', '.join(JOBS)}.")
    return JOBS[name]
