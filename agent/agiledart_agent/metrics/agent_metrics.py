"""Metrics of an agent for Prometheus, gathered at a scrape and at no other time.

This module keeps counts of the core's observations; it reads everything else where it is. `node_metrics`,
`recovery_metrics`, `scaling_metrics` and `application_metrics` declare the metrics.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from agiledart_agent.metrics import application_metrics, lease_metrics, node_metrics, recovery_metrics, scaling_metrics
from agiledart_agent.metrics.application_figures import MAX_APPLICATIONS, ApplicationFigures, BoundedLabels
from agiledart_agent.metrics.metric_declarations import MetricDeclaration, NodeFigures, Samples, Scrape
from agiledart_kernel.observation import HasReason, Observation
from agiledart_overlay.wire.observations import MessageDropped, RingLeft
from agiledart_recovery.wire.observations import ChangeFinalised, ChangeMeasured, RunRecovered

if TYPE_CHECKING:
    from agiledart_agent.metrics.prometheus_text import PrometheusText

METRICS: tuple[MetricDeclaration, ...] = (
    *node_metrics.METRICS,
    *recovery_metrics.METRICS,
    *scaling_metrics.METRICS,
    *lease_metrics.METRICS,
    *application_metrics.METRICS,
)
"""All metrics, in the order of the reference. Figures of the process itself (`process_*`) come from prometheus_client.
"""

COUNTED: Mapping[type[Observation], MetricDeclaration | None] = {
    **{metric.observation: metric for metric in METRICS if metric.observation is not None},
    **dict.fromkeys(recovery_metrics.NOT_COUNTED),
    RingLeft: None,  # at the end of the process, when no scrape follows
    MessageDropped: None,  # the overlay's own statistics have it
}
"""Metric that counts each observation of core code."""

MAX_AGENT_REASONS = 48
"""Distinct reasons of refusals or drops; others share one label."""

RENDER_SECONDS = 0.5
"""A scrape within this time after another gets the same text."""

RENDER_SHARE = 0.05
"""Largest share of the event loop for making texts, however often the agent is scraped: it extends the time above."""

MAX_RENDERED = 4
"""Formats whose last text is kept for that long."""


class AgentMetrics:
    """All metrics of one agent.

    Args:
        look: reads the agent.
        zone: of this node.
        wall_seconds: wall time for the watermark's lag.
        clock: a clock that only runs forward.
    """

    def __init__(
        self,
        look: Callable[[], NodeFigures],
        zone: str = "",
        *,
        wall_seconds: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look, self._zone, self._wall_seconds, self._clock = look, zone, wall_seconds, clock
        self.applications = ApplicationFigures()
        self.http_refusals: Counter[str] = Counter()
        self._counted = {observation: Counter[str]() for observation in COUNTED}
        self._phases: Counter[str] = Counter()
        self._changes = scaling_metrics.ChangeCounts()
        self._reasons = {
            metric.name: BoundedLabels(MAX_AGENT_REASONS) for metric in METRICS if metric.labels == ("reason",)
        }
        self._log_owners = BoundedLabels(MAX_APPLICATIONS)
        self._rendered: dict[str, tuple[float, bytes]] = {}  # content type → (time until which it is served, text)
        self._text: PrometheusText | None = None

    def observed(self, observation: Observation) -> None:
        """Count an observation of core code."""
        declaration = COUNTED.get(type(observation))
        if isinstance(observation, RunRecovered):
            self._phases.update(observation.took)
        if isinstance(observation, ChangeFinalised):
            self._changes.finalise(self.applications.label(observation.run.app), observation.change)
        if isinstance(observation, ChangeMeasured):
            self._changes.measure(self.applications.label(observation.run.app), observation.change)
        if declaration is not None:
            reasons = self._reasons.get(declaration.name)
            reason = str(observation.reason) if isinstance(observation, HasReason) else ""
            self._counted[type(observation)][reasons.of(reason) if reasons is not None else ""] += 1

    def refused_http(self, reason: str) -> None:
        """Count a refusal of the metrics port."""
        self.http_refusals[reason] += 1

    def render(self, accept: str) -> tuple[str, bytes]:
        """Return (content type, text) in the format that an Accept header requests."""
        content_type, make_text = self._prometheus_text().format_of(accept)
        now = self._clock()
        cached = self._rendered.get(content_type)
        if cached is None or now >= cached[0]:
            if content_type not in self._rendered and len(self._rendered) >= MAX_RENDERED:
                self._rendered.clear()
            text = make_text()
            duration = self._clock() - now
            cached = self._rendered[content_type] = (now + max(RENDER_SECONDS, duration / RENDER_SHARE), text)
        return content_type, cached[1]

    def _prometheus_text(self) -> "PrometheusText":
        """Return what makes the texts. The first scrape loads it."""
        if self._text is None:
            from agiledart_agent.metrics.prometheus_text import PrometheusText

            self._text = PrometheusText(self._samples)
        return self._text

    def _samples(self) -> Iterator[tuple[MetricDeclaration, Samples]]:
        """Yield each metric with its samples of this moment."""
        node = self._look()
        self.applications.set_coordinated(sorted({name for name, _ in node.recovery.commit_ages}))
        scrape = Scrape(
            node=node,
            zone=self._zone,
            http_refusals=self.http_refusals,
            counted=self._counted,
            phases=self._phases,
            applications=self.applications.look(self._wall_seconds()),
            changes=self._changes,
            app_label=self.applications.label,
            log_label=self._log_owners.of,
        )
        for declaration in METRICS:
            samples = declaration.read(scrape)
            reasons = self._reasons.get(declaration.name)
            yield declaration, samples if reasons is None else _bounded(samples, reasons)


def _bounded(samples: Samples, reasons: BoundedLabels) -> Samples:
    """Return counts by reason, with those beyond the limit merged."""
    merged: Counter[str] = Counter()
    for (reason,), count in samples:
        assert isinstance(count, int)
        merged[reasons.of(reason)] += count
    return [((reason,), count) for reason, count in merged.items()]
