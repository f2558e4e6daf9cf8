"""Prometheus metrics of a pipeline that updates again and again."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

if TYPE_CHECKING:
    from agiledart_pipelines.runner import PipelineRunner

_PREFIX: Final = "agiledart_pipeline_"
COUNTERS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "rows": ("Rows that a table read.", ("table",)),
    "late_rows": ("Rows that a table's watermark dropped.", ("table",)),
    "batch_seconds": ("Time of a table's micro-batches.", ("table",)),
}
GAUGES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "lag_rows": ("Committed rows of a log's partition that are not read yet, at the last update.", ("log",)),
    "lag_seconds": ("Age of the oldest row of a log's partition that is not read yet, at the last update.", ("log",)),
    "unread_ratio": (
        "Unread rows as a share of those that a log's partition retains; near 1 rows are removed unread.",
        ("log",),
    ),
    "log_missing_since_timestamp_seconds": ("Time since which a log does not answer; absent while it does.", ("log",)),
    "quarantined_rows": ("Rows in quarantine that fail an expectation.", ("table", "reason")),
    "updated_timestamp_seconds": ("End of the last complete update.", ()),
    "update_seconds": ("Duration of the last complete update.", ()),
}
"""Name without the prefix → help, labels. Labels are tables, partitions of logs and expectations: bounded sets."""


class PipelineMetrics(Collector):
    """Figures of a runner at the moment of a scrape."""

    def __init__(self, runner: "PipelineRunner") -> None:
        self._runner = runner

    def collect(self) -> Iterator[Any]:
        """Yield the metrics; docs/how-to/data-pipeline.md lists them."""
        figures = self._runner.progress.figures()
        for (name, (text, labels)), values in zip(COUNTERS.items(), figures.values(), strict=True):
            counter = CounterMetricFamily(_PREFIX + name, text, labels=labels)
            for label, value in values.items():
                counter.add_metric([label], value)
            yield counter
        samples = self._gauges()
        for name, (text, labels) in GAUGES.items():
            gauge = GaugeMetricFamily(_PREFIX + name, text, labels=labels)
            for names, value in samples.get(name, ()):
                gauge.add_metric(names, value)
            yield gauge

    def _gauges(self) -> dict[str, list[tuple[list[str], float]]]:
        """Return gauge → samples, of the last update."""
        last = self._runner.last_update
        if last is None:
            return {}
        return {
            "lag_rows": [([key], float(lag.rows)) for key, lag in last.lags.items()],
            "lag_seconds": [([key], lag.seconds) for key, lag in last.lags.items()],
            "unread_ratio": [([key], lag.unread_share) for key, lag in last.lags.items()],
            "log_missing_since_timestamp_seconds": [([log], since) for log, since in last.missing.items()],
            "quarantined_rows": [
                ([table, reason], float(number))
                for table, reasons in last.quarantined.items()
                for reason, number in reasons.items()
            ],
            "updated_timestamp_seconds": [([], last.ended_at)],
            "update_seconds": [([], last.seconds)],
        }


def serve_metrics(runner: "PipelineRunner", host: str, port: int) -> Any:
    """Serve the metrics at an address, in a thread, and return the server. Raises `OSError` for a port that is taken."""
    registry = CollectorRegistry()
    registry.register(PipelineMetrics(runner))
    server, _ = start_http_server(port, host, registry)
    return server
