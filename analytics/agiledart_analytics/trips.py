"""Jobs on clean taxi trips: functions from a DataFrame of `CleanTrip` rows to a DataFrame.

Money stays in whole cents and ties are broken by name, so that a result is the same on any number of cores and equals that of a
plain program. Windows and days are those of the drop-off time in the data.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WINDOW: Final = "15 minutes"
TOP: Final = 10


def busiest_routes(trips: "DataFrame") -> "DataFrame":
    """Return for each 15 minutes the ten routes with the most trips, and their revenue."""
    from pyspark.sql import functions as f

    counted = _by_window(trips, "start_cell", "end_cell")
    return _top(counted, ["window_start"], ["start_cell", "end_cell"]).select(
        "window_start", "rank", "start_cell", "end_cell", "trips", f.col("revenue_cents")
    )


def revenue(trips: "DataFrame") -> "DataFrame":
    """Return for each 15 minutes trips, revenue, and the mean of a trip."""
    from pyspark.sql import functions as f

    return (
        _by_window(trips)
        .withColumn("mean_cents", f.round(f.col("revenue_cents") / f.col("trips"), 2))
        .orderBy("window_start")
    )


def revenue_by_area(trips: "DataFrame") -> "DataFrame":
    """Return for each 15 minutes and area of the pick-up (500 m) trips and revenue, the greatest first."""
    from pyspark.sql import functions as f

    return (
        _by_window(trips, "start_cell")
        .withColumnRenamed("start_cell", "area")
        .orderBy("window_start", f.desc("revenue_cents"), "area")
    )


def daily_routes(trips: "DataFrame") -> "DataFrame":
    """Return for each day the ten routes with the most trips."""
    counted = _by_day(trips, "start_cell", "end_cell")
    return _top(counted, ["day"], ["start_cell", "end_cell"]).select(
        "day", "rank", "start_cell", "end_cell", "trips", "revenue_cents"
    )


def daily_areas(trips: "DataFrame") -> "DataFrame":
    """Return for each day the ten areas of pick-ups with the greatest revenue."""
    counted = _by_day(trips, "start_cell").withColumnRenamed("start_cell", "area")
    return _top(counted, ["day"], ["area"], by="revenue_cents").select("day", "rank", "area", "trips", "revenue_cents")


def _sums() -> "list[Column]":
    from pyspark.sql import functions as f

    return [f.count(f.lit(1)).alias("trips"), f.sum("total_cents").alias("revenue_cents")]


def _by_window(trips: "DataFrame", *keys: str) -> "DataFrame":
    from pyspark.sql import functions as f

    grouped = trips.groupBy(f.window("dropoff_at", WINDOW).alias("w"), *keys).agg(*_sums())
    return grouped.select(f.col("w.start").alias("window_start"), *keys, "trips", "revenue_cents")


def _by_day(trips: "DataFrame", *keys: str) -> "DataFrame":
    from pyspark.sql import functions as f

    return trips.groupBy(f.to_date("dropoff_at").alias("day"), *keys).agg(*_sums())


def _top(counted: "DataFrame", within: list[str], names: list[str], by: str = "trips") -> "DataFrame":
    """Return the first ten rows of each group by number, then by name."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.partitionBy(*within).orderBy(f.desc(by), *names)
    return counted.withColumn("rank", f.row_number().over(order)).where(f.col("rank") <= TOP).orderBy(*within, "rank")
