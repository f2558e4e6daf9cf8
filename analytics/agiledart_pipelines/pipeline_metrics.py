"""Prometheus metrics of a pipeline that updates again and again."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

if TYPE_CHECKING:
    from agiledart_pipelines.runner import PipelineRunner


class PipelineMetrics(Collector):
    """Figures of a runner at the moment of a scrape. Labels are tables, partitions of logs and expectations: bounded sets."""

    def __init__(self, runner: "PipelineRunner") -> None:
        self._runner = runner

    def collect(self) -> Iterator[Any]:
        """Yield the metrics; docs/how-to/data-pipeline.md lists them."""
        figures = self._runner.progress.figures()
        rows = CounterMetricFamily("agiledart_pipeline_rows", "Rows that a table read.", labels=["table"])
        late = CounterMetricFamily(
            "agiledart_pipeline_late_rows", "Rows that a table's watermark dropped.", labels=["table"]
        )
        spent = CounterMetricFamily(
            "agiledart_pipeline_batch_seconds", "Time of a table's micro-batches.", labels=["table"]
        )
        lag = GaugeMetricFamily(
            "agiledart_pipeline_lag_rows", "Committed rows of a log that are not read yet.", labels=["log"]
        )
        for family, name in ((rows, "rows"), (late, "late"), (spent, "seconds"), (lag, "lag")):
            for label, value in figures[name].items():
                family.add_metric([label], value)
            yield family
        failed = GaugeMetricFamily(
            "agiledart_pipeline_quarantined_rows", "Rows in quarantine.", labels=["table", "reason"]
        )
        ended = GaugeMetricFamily("agiledart_pipeline_updated_timestamp_seconds", "End of the last complete update.")
        update = GaugeMetricFamily("agiledart_pipeline_update_seconds", "Duration of the last complete update.")
        last = self._runner.last_update
        if last is not None:
            for table, reasons in last.quarantined.items():
                for reason, number in reasons.items():
                    failed.add_metric([table, reason], number)
            ended.add_metric([], last.ended_at)
            update.add_metric([], last.seconds)
        yield from (failed, ended, update)


def serve_metrics(runner: "PipelineRunner", host: str, port: int) -> Any:
    """Serve the metrics at an address, in a thread, and return the server."""
    registry = CollectorRegistry()
    registry.register(PipelineMetrics(runner))
    server, _ = start_http_server(port, host, registry)
    return server
