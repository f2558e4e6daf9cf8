"""Report at the end of the demo: one JSON object, or a few lines of text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from agiledart_cli.output import count, duration, milliseconds
from agiledart_cli.verbs.application_view import malformed_text

FREQUENT, PROFITABLE = "frequent-routes", "profitable-areas"
QUERIES = (FREQUENT, PROFITABLE)


@dataclass
class DemoResult:
    """Figures of one demo.

    Attributes:
        status: query → last status body of the control API.
        seconds: phase → how long it took.
        plug: the killed agent and the cost; {} without a kill.
        spark: Spark's figures and results, the reason why it was skipped, or its error; {} without Spark.
    """

    agents: int
    executors: int
    parallelism: int
    source: str
    results: Path
    status: Mapping[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    spark: dict[str, Any] = field(default_factory=dict)
    plug: dict[str, Any] = field(default_factory=dict)

    def summary(self, query: str) -> Mapping[str, Any]:
        """Return the totals of a query."""
        totals = self.status[query].get("summary") or {}
        assert isinstance(totals, Mapping)
        return totals

    def document(self) -> dict[str, Any]:
        """Return the JSON object of `agiledart demo -o json`; docs/reference/cli.md describes its fields."""
        first = self.summary(FREQUENT)
        return {
            "agents": self.agents,
            "executors": self.executors,
            "parallelism": self.parallelism,
            "input": self.source,
            "records_in": first.get("records_in", 0),
            "malformed": first.get("malformed", {}),
            "late": first.get("late", 0),
            "outliers": {query: self.summary(query).get("outliers", 0) for query in QUERIES},
            "results": {query: sum(self.summary(query).get("results", {}).values()) for query in QUERIES},
            "latency_ms": {query: self.latency(query) for query in QUERIES},
            "paced": any(self.summary(query).get("paced", False) for query in QUERIES),
            "placement": {
                f"{query}/{stage}": nodes
                for query in QUERIES
                for stage, nodes in self.status[query].get("placement", {}).items()
            },
            "state": {query: self.status[query]["state"] for query in QUERIES},
            "seconds_to_running": {query: self.status[query].get("seconds_to_running") for query in QUERIES},
            "wall_seconds": round(self.seconds["wall"], 3),
            "ring_seconds": round(self.seconds["ring"], 3),
            "flow_seconds": round(self.seconds["flow"], 3),
            "rss_mb": self.memory,
            "files": {query: str(self.results / f"{query}.csv") for query in QUERIES},
            "spark": self.spark,
            "plug": self.plug,
        }

    def latency(self, query: str) -> dict[str, float]:
        """Return p50, p95 and p99 of a query in milliseconds from reading to writing; of the slowest sink if several."""
        sinks = self.summary(query).get("latency_ms", {})
        figures = [sinks[name] for name in sorted(sinks)]
        return {p: max((float(figure[p]) for figure in figures), default=0.0) for p in ("p50", "p95", "p99")}


def print_report(result: DemoResult) -> None:
    """Print the last lines of a demo on stdout."""
    body = result.document()
    read = body["records_in"]
    malformed = sum(body["malformed"].values())
    for query in QUERIES:
        outliers = body["outliers"][query]
        counted = result.summary(query).get("records_in", read) - outliers - _left_out(result.summary(query))
        click.echo(
            f"{query}: {count(result.summary(query).get('records_in', read))} trips read = {count(counted)} counted"
            f" + {count(outliers)} outside the grid + {count(result.summary(query).get('late', 0))} late"
            f" + {count(sum(result.summary(query).get('malformed', {}).values()))} malformed"
        )
    kind = "latency" if body["paced"] else "backlog (the input was not paced)"
    for query in QUERIES:
        figures = body["latency_ms"][query]
        click.echo(
            f"  {query}: {count(body['results'][query])} results in {body['files'][query]}   {kind} p50"
            f" {milliseconds(figures['p50'])}, p95 {milliseconds(figures['p95'])}, p99 {milliseconds(figures['p99'])}"
        )
    if malformed:
        click.echo(f"  malformed: {malformed_text(body['malformed'])}")
    click.echo(f"  {memory_line(result.memory)}")
    if result.plug:
        click.echo(
            f"  {result.plug['killed']} was killed: {duration(result.plug['seconds_to_next_result'])} to the next result;"
            f" {'; '.join(result.plug.get('history', ()))}"
        )
    reads = [result.summary(query).get("records_in", read) for query in QUERIES]
    rates = [number / body["flow_seconds"] if body["flow_seconds"] else 0.0 for number in reads]
    if len(set(reads)) > 1:
        click.echo("  each query reads its own copy of the stream; they stopped at different trips")
    click.echo(
        f"Done in {duration(result.seconds['wall'])}: ring {duration(result.seconds['ring'])},"
        f" flow {duration(result.seconds['flow'])} ({' + '.join(map(count, rates))} trips/s"
        f" of {' + '.join(QUERIES)})."
    )
    click.echo("Next: `agiledart up` keeps a mesh running; docs/tutorial/ writes a topology in ten minutes.")


def _left_out(summary: Mapping[str, Any]) -> int:
    return int(summary.get("late", 0)) + int(sum(summary.get("malformed", {}).values()))


def memory_line(memory: Mapping[str, float]) -> str:
    """Return the peak memory as text: `peak memory: agents 44–52 MB, executors 31–38 MB`."""
    agents = [mb for name, mb in memory.items() if "/" not in name]
    executors = [mb for name, mb in memory.items() if "/" in name]
    parts = [f"{name} {_range(values)}" for name, values in (("agents", agents), ("executors", executors)) if values]
    return f"peak memory: {', '.join(parts) or 'unknown'}"


def _range(values: list[float]) -> str:
    low, high = round(min(values)), round(max(values))
    return f"{low} MB" if low == high else f"{low}–{high} MB"
