"""Metrics in the formats of Prometheus.

Only a scrape loads this module: prometheus_client brings an HTTP server and its libraries, 2 MB that an agent without scrapes
does not need.
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from agiledart_agent.metrics.metric_declarations import MetricDeclaration, Samples
from agiledart_dataflow.counts.latency import LatencyHistogram

LATENCY_BOUNDS_SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
)  # fmt: skip
"""Upper bounds of the latency histogram's buckets."""

_BOUNDS_NS = tuple(int(bound * 1e9) for bound in LATENCY_BOUNDS_SECONDS)


class PrometheusText(Collector):
    """Text of an agent's metrics, with those of its process.

    Args:
        read: returns each declaration with its samples of this moment.
    """

    def __init__(self, read: Callable[[], Iterable[tuple[MetricDeclaration, Samples]]]) -> None:
        self._read = read
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def format_of(self, accept: str) -> tuple[str, Callable[[], bytes]]:
        """Return the content type that an Accept header requests, and what makes the text."""
        encode, content_type = choose_encoder(accept)
        return content_type, lambda: encode(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the filled families, for prometheus_client."""
        for declaration, samples in self._read():
            yield _family(declaration, samples)


def _family(declaration: MetricDeclaration, samples: Samples) -> Metric:
    """Return the metric of one scrape."""
    name, text, labels = declaration.name, declaration.help, declaration.labels
    match declaration.kind:
        case "counter":
            return _filled(CounterMetricFamily(name.removesuffix("_total"), text, labels=labels), labels, samples)
        case "gauge":
            return _filled(GaugeMetricFamily(name, text, labels=labels), labels, samples)
        case "histogram":
            return _histogram(HistogramMetricFamily(name, text, labels=labels), samples)
    info = InfoMetricFamily(name.removesuffix("_info"), text, labels=labels)
    for values, _ in samples:
        info.add_metric([], dict(zip(labels, values, strict=True)))
    return info


def _filled(
    family: CounterMetricFamily | GaugeMetricFamily, names: tuple[str, ...], samples: Samples
) -> CounterMetricFamily | GaugeMetricFamily:
    for labels, figure in samples:
        assert len(labels) == len(names)
        assert isinstance(figure, int | float)
        family.add_metric(labels, figure)
    return family


def _histogram(family: HistogramMetricFamily, samples: Samples) -> HistogramMetricFamily:
    """Return the histogram in seconds with the bounds above, counts cumulative."""
    for labels, figure in samples:
        assert isinstance(figure, LatencyHistogram)
        cumulative, total_ns = figure.cumulative(_BOUNDS_NS)
        buckets = [(str(bound), float(count)) for bound, count in zip(LATENCY_BOUNDS_SECONDS, cumulative, strict=True)]
        family.add_metric(labels, [*buckets, ("+Inf", float(figure.samples))], total_ns / 1e9)
    return family
