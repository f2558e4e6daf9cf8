"""An agent's figures for Prometheus, gathered when somebody scrapes and at no other time.

Counts of the core's observations are kept here; everything else is read where it is. Which metrics there are is told by
`node_metrics` and `application_metrics`.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agiledart_agent.metrics import application_metrics, node_metrics, recovery_metrics, scaling_metrics
from agiledart_agent.metrics.application_figures import MAX_APPLICATIONS, ApplicationFigures, BoundedLabels
from agiledart_agent.metrics.metric_declarations import MetricDeclaration, NodeFigures, Samples, Scrape
from agiledart_kernel.observation import Observation
from agiledart_overlay.wire.observations import MessageDropped, RingLeft
from agiledart_recovery.wire.observations import ChangeFinalised, ChangeMeasured, RunRecovered

METRICS: tuple[MetricDeclaration, ...] = (
    *node_metrics.METRICS,
    *recovery_metrics.METRICS,
    *scaling_metrics.METRICS,
    *application_metrics.METRICS,
)
"""In the order of the reference. Figures of the process itself (`process_*`) come from prometheus_client."""

COUNTED: Mapping[type[Observation], MetricDeclaration | None] = {
    **{one.observation: one for one in METRICS if one.observation is not None},
    **dict.fromkeys(recovery_metrics.NOT_COUNTED),
    RingLeft: None,  # at the end of the process: nobody scrapes it any more
    MessageDropped: None,  # the overlay's own statistics have it
}
"""What each observation of core code counts as."""

MAX_AGENT_REASONS = 48
"""Reasons of refusals or drops that are told apart."""

RENDER_SECONDS = 0.5
"""A scrape within so short a time after another gets the same text."""

RENDER_SHARE = 0.05
"""And at least so long that making texts takes no more than this share of the event loop, whoever scrapes how often."""

MAX_RENDERED = 4
"""Formats whose last text is kept for that long."""


class AgentMetrics(Collector):
    """All metrics of one agent.

    Args:
        look: reads the agent.
        zone: of this node.
        wall_seconds, clock: wall time for the watermark's lag; a clock that only runs forward.
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
        self._reasons = {one.name: BoundedLabels(MAX_AGENT_REASONS) for one in METRICS if one.labels == ("reason",)}
        self._log_owners = BoundedLabels(MAX_APPLICATIONS)
        self._rendered: dict[str, tuple[float, bytes]] = {}  # content type → (until when it is shown, text)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def observed(self, observation: Observation) -> None:
        """Core code reported something."""
        declared = COUNTED.get(type(observation))
        if isinstance(observation, RunRecovered):
            self._phases.update(observation.took)
        if isinstance(observation, ChangeFinalised):
            self._changes.finalise(self.applications.label(observation.run.app), observation.change)
        if isinstance(observation, ChangeMeasured):
            self._changes.measure(self.applications.label(observation.run.app), observation.change)
        if declared is not None:
            reasons = self._reasons.get(declared.name)
            reason = str(getattr(observation, "reason", ""))
            self._counted[type(observation)][reasons.of(reason) if reasons is not None else ""] += 1

    def refused_http(self, reason: str) -> None:
        """The metrics port turned somebody away."""
        self.http_refusals[reason] += 1

    def render(self, accept: str) -> tuple[str, bytes]:
        """(content type, text) in the format that an Accept header asks for."""
        encode, content_type = choose_encoder(accept)
        now = self._clock()
        kept = self._rendered.get(content_type)
        if kept is None or now >= kept[0]:
            if content_type not in self._rendered and len(self._rendered) >= MAX_RENDERED:
                self._rendered.clear()
            text = encode(self._registry)
            took = self._clock() - now
            kept = self._rendered[content_type] = (now + max(RENDER_SECONDS, took / RENDER_SHARE), text)
        return content_type, kept[1]

    def collect(self) -> Iterator[Metric]:
        """For prometheus_client: the families, filled."""
        node = self._look()
        self.applications.leads_stage(sorted({name for name, _ in node.recovery.commit_ages}))
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
        for declared in METRICS:
            samples = declared.read(scrape)
            reasons = self._reasons.get(declared.name)
            yield declared.family(samples if reasons is None else _bounded(samples, reasons))


def _bounded(samples: Samples, reasons: BoundedLabels) -> Samples:
    """Counts by reason, with those beyond the limit put together."""
    merged: Counter[str] = Counter()
    for (reason,), count in samples:
        assert isinstance(count, int)
        merged[reasons.of(reason)] += count
    return [((reason,), count) for reason, count in merged.items()]
