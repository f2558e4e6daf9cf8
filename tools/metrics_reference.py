"""Writes docs/reference/metrics.md from the metrics themselves: `python -m tools.metrics_reference`. A test compares."""

import sys
from pathlib import Path

from agiledart_agent.metrics.agent_metrics import COUNTED, METRICS
from agiledart_agent.metrics.application_figures import MAX_APPLICATIONS, MAX_OPERATORS, MAX_REASONS
from agiledart_agent.metrics.prometheus_text import LATENCY_BOUNDS_SECONDS
from agiledart_agent.settings import DEFAULT_METRICS

TARGET = Path(__file__).resolve().parent.parent / "docs" / "reference" / "metrics.md"

HEAD = f"""# Metrics

Made from the agent's list of metrics by `python -m tools.metrics_reference`; do not edit.

Every agent serves `/metrics` (Prometheus text, or OpenMetrics when the scraper asks for it), `/livez` (200 while the event
loop answers) and `/readyz` (200 while the node is a member of the ring and not leaving, else 503 with the reason) at
`http://{DEFAULT_METRICS}`; `--metrics HOST:PORT`, or `metrics` in the table `[agent]`, moves it, an empty value turns it off.
`agent.json` in the state directory says where it is. The port has no TLS and no password: see
[the how-to](../how-to/prometheus.md) before you bind it to anything but loopback.

* A scrape reads what is there; between scrapes nothing is gathered. Scrapes within half a second (longer when there is so much that
  making the text takes more than a twentieth of it) get the same text.
* Counters grow as long as the agent lives, also over the end of an application; gauges of an application go with it.
* Executors have no port: their figures come through their agent, twice a second, or once while they do little.
* Labels are bounded. `app`: the first {MAX_APPLICATIONS} applications of this node (one that has ended makes room), then `other`;
  `operator`: {MAX_OPERATORS} of each application, then `other`; `reason` of malformed records: {MAX_REASONS} pairs of source and
  reason of each application, then `other`. The id of a node, a key or a record never stands in a label.
* An operator's `busy`, queue and instances are those of the *stage* that it leads: operators are fused into stages.

| Metric | Kind | Labels | Meaning |
|---|---|---|---|
"""

TAIL = f"""
The latency histogram's upper bounds are {", ".join(f"{bound:g}" for bound in LATENCY_BOUNDS_SECONDS)} seconds; it is made from the
executors' own finer histogram (exact to 3 %).

The process itself is described by the usual `process_*` metrics (`process_resident_memory_bytes`,
`process_cpu_seconds_total`, `process_open_fds`, …) of the Prometheus client.

## What each observation counts as

Core code reports observations; each is counted by one metric or by none, on purpose.
"""


def reference() -> str:
    """The whole page."""
    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels) or '–'} | {metric.help} |\n"
        for metric in METRICS
    ]
    counted = [
        f"* `{observed.__name__}`: {f'`{declared.name}`' if declared else 'none'}\n"
        for observed, declared in COUNTED.items()
    ]
    return HEAD + "".join(rows) + TAIL + "\n" + "".join(counted)


if __name__ == "__main__":
    TARGET.write_text(reference())
    sys.exit(0)
