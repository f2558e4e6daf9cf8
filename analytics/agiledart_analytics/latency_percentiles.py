"""Jobs on the latencies that agents sample at sinks: functions from a DataFrame of `LatencySample` rows to a DataFrame.

Percentiles are exact and are values that occurred: the smallest latency that this share of the samples does not exceed, as in
`agiledart status`. An application that was started several times has a row for each run (`version`).
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SHARES: Final = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
_RUN: Final = ("application", "version", "sink")


def percentiles(samples: "DataFrame") -> "DataFrame":
    """Return for each run and sink the number of samples, p50, p95, p99 and the largest, in milliseconds."""
    return samples.groupBy(*_RUN).agg(*_figures()).orderBy(*_RUN)


def percentiles_by_minute(samples: "DataFrame") -> "DataFrame":
    """Return the same for each minute in which results were written."""
    from pyspark.sql import functions as f

    minutes = samples.withColumn("minute", f.date_trunc("minute", "observed_at"))
    return minutes.groupBy(*_RUN, "minute").agg(*_figures()).orderBy(*_RUN, "minute")


def _figures() -> "list[Column]":
    from pyspark.sql import functions as f

    ranked = [
        f.expr(f"percentile_disc({share}) WITHIN GROUP (ORDER BY latency_ms)").alias(name)
        for name, share in SHARES.items()
    ]
    return [f.count(f.lit(1)).alias("samples"), *ranked, f.max("latency_ms").alias("max_ms")]
