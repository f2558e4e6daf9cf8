"""Data of `agiledart top`: two samples of the mesh, and the rates between them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agiledart_cli.verbs.application_view import BEGUN_STATES, recovery_text, waiting_text
from agiledart_control.control_client import ControlClient
from agiledart_control.errors import CommandRefusedError
from agiledart_node.wire.commands import ListApplications, Nodes, Status

LIVE_STATES = (*BEGUN_STATES, "deploying")

MAX_LIVE = 16
"""Greatest number of applications with figures in one sample; each needs a request to all of its nodes."""

Counts = tuple[int, int]


@dataclass(frozen=True)
class Sample:
    """Responses of one moment: monotonic seconds, `nodes`, `list`, and `status` by application."""

    at: float
    nodes: Mapping[str, Any]
    applications: Sequence[Mapping[str, Any]]
    status: Mapping[str, Mapping[str, Any]]


@dataclass
class StepLine:
    """One step of one application. `busy` (share of a core of each instance), `queue` and `score` are set at a stage's first step.

    Rates are rows a second; None while there is only one sample.
    """

    application: str
    step: str
    instances: int
    nodes: list[str]
    in_rate: float | None = None
    out_rate: float | None = None
    busy: float | None = None
    queue: int | None = None
    dropped: int = 0
    errors: int = 0
    blocked: bool = False
    score: float | None = None
    wanted: int | None = None
    keeps_number: bool = False

    @property
    def times(self) -> str:
        """Return `2`; `2 → 5` while the stage should have another number, `2 held` while a user has fixed the number."""
        if self.keeps_number:
            return f"{self.instances} held"
        return str(self.instances) if self.wanted in (None, self.instances) else f"{self.instances} → {self.wanted}"


@dataclass
class ApplicationLine:
    """One application: the rates of all of its sources and sinks, and its sums."""

    name: str
    version: int
    state: str
    since_seconds: float | None
    in_rate: float | None = None
    out_rate: float | None = None
    records_in: int | None = None
    results: int | None = None
    late: int | None = None
    malformed: int | None = None
    shed: int = 0
    spooled: int = 0
    p99_ms: float | None = None
    reason: str = ""
    silent_nodes: list[str] = field(default_factory=list)


@dataclass
class NodeLine:
    """One node. `busy`: cores that the instances on it use."""

    name: str
    answers: bool
    instances: int | None
    capacity: int | None
    rtt_ms: float | None
    busy: float | None
    applications: list[str]
    is_leaving: bool = False
    is_asked: bool = False


@dataclass(frozen=True)
class TopSnapshot:
    """Content of the table at one moment; `seconds` is the time between the two samples."""

    agent: str
    known: int
    seconds: float
    nodes: list[NodeLine]
    applications: list[ApplicationLine]
    steps: list[StepLine]


def take_sample(client: ControlClient) -> Sample:
    """Request all figures. An application that ends in the meantime has none."""
    nodes = client.ask(Nodes())
    applications = client.ask(ListApplications())["applications"]
    status = {}
    for name in [row["name"] for row in applications if row["state"] in LIVE_STATES][:MAX_LIVE]:
        try:
            status[name] = client.ask(Status(name))
        except CommandRefusedError:
            continue
    return Sample(time.monotonic(), nodes, applications, status)


def compare(before: Sample | None, now: Sample, wall_seconds: float) -> TopSnapshot:
    """Return the content of the table, with the rates since the previous sample."""
    between = now.at - before.at if before is not None else 0.0
    steps: list[StepLine] = []
    cores: dict[str, float] = {}
    applications = []
    for row in now.applications:
        response = now.status.get(row["name"])
        old = before.status.get(row["name"]) if before is not None else None
        if old is not None and response is not None and old["version"] != response["version"]:
            old = None
        lines = _steps(response, old, between, cores) if response is not None else []
        steps += lines
        applications.append(_application(row, response, lines, wall_seconds))
    applications.sort(key=lambda line: (line.state not in LIVE_STATES, line.name))
    nodes = [
        NodeLine(
            name=row["name"],
            answers=row["answers"],
            instances=row.get("instances"),
            capacity=row.get("capacity"),
            rtt_ms=row["rtt_ms"],
            busy=cores.get(row["name"], 0.0) if before is not None and row["answers"] else None,
            applications=row.get("applications") or [],
            is_leaving=bool(row.get("is_leaving")),
            is_asked=row["is_this_node"],
        )
        for row in now.nodes["nodes"]
    ]
    agent = next((node.name for node in nodes if node.is_asked), "")
    return TopSnapshot(agent, now.nodes["known"], between, nodes, applications, steps)


def _application(
    row: Mapping[str, Any], response: Mapping[str, Any] | None, lines: Sequence[StepLine], wall_seconds: float
) -> ApplicationLine:
    changed = row.get("changed_ms")
    since = max(0.0, wall_seconds - changed / 1000) if changed else None
    reason = (row.get("reason") or "").partition("\n")[0] or recovery_text(row)
    line = ApplicationLine(row["name"], row["version"], row["state"], since, reason=reason)
    summary = (response or {}).get("summary") or {}
    if response is None or not summary:
        return line
    kinds = {name: stage["kind"] for stage in response["stages"] for name in stage["name"].split("+")}
    ins = [step.out_rate for step in lines if kinds.get(step.step) == "source" and step.out_rate is not None]
    outs = [step.out_rate for step in lines if kinds.get(step.step) == "sink" and step.out_rate is not None]
    line.in_rate, line.out_rate = (sum(ins) if ins else None), (sum(outs) if outs else None)
    line.records_in, line.late = summary.get("records_in"), summary.get("late")
    line.results = sum(summary.get("results", {}).values())
    line.malformed = sum(summary.get("malformed", {}).values())
    line.shed, line.spooled = sum(summary.get("shed", {}).values()), summary.get("spooled", 0)
    if summary.get("paced"):
        line.p99_ms = max((figures["p99"] for figures in summary.get("latency_ms", {}).values()), default=None)
    line.silent_nodes = list(response.get("silent_nodes", []))
    if not line.reason and (waiting := response.get("waiting")):
        line.reason = waiting_text(waiting[0])
    return line


def _steps(
    response: Mapping[str, Any], old: Mapping[str, Any] | None, between: float, cores: dict[str, float]
) -> list[StepLine]:
    """Return the lines of an application's steps; adds the CPU use of its instances to `cores`, by node."""
    all_lines: list[StepLine] = []
    known = {
        (stage["name"], instance["index"]): instance
        for stage in (old["stages"] if old is not None else ())
        for instance in stage["instances"]
    }
    for stage in response["stages"]:
        instances = stage["instances"]
        nodes = [instance["node"] for instance in instances]
        lines = [StepLine(response["name"], name, len(instances), nodes) for name in stage["name"].split("+")]
        lines[0].score = stage.get("score")
        for line in lines:
            line.wanted, line.keeps_number = stage.get("wanted"), bool(stage.get("keeps_number"))
        lines[0].queue = sum(instance.get("queued_rows", 0) for instance in instances)
        lines[0].blocked = any(instance.get("blocked") for instance in instances)
        for instance in instances:
            past = known.get((stage["name"], instance["index"]))
            seconds = _seconds(past, instance, between)
            share = _rate(past, instance, seconds, "busy_ns") / 1e9 if seconds else None
            if share is not None:
                share = min(1.0, share)
                cores[instance["node"]] = cores.get(instance["node"], 0.0) + share
                lines[0].busy = (lines[0].busy or 0.0) + share / len(instances)
            for line in lines:
                counts = instance.get("steps", {}).get(line.step, {})
                line.dropped += counts.get("dropped", 0)
                line.errors += sum(counts.get(kind, 0) for kind in ("skipped", "dead_letters", "failed", "rejected"))
                if past is not None and seconds:
                    earlier = past.get("steps", {}).get(line.step, {})
                    line.in_rate = (line.in_rate or 0.0) + _rate(earlier, counts, seconds, "rows_in")
                    line.out_rate = (line.out_rate or 0.0) + _rate(earlier, counts, seconds, "rows_out")
        all_lines += lines
    return all_lines


def _seconds(past: Mapping[str, Any] | None, now: Mapping[str, Any], between: float) -> float:
    """Return the seconds in which an instance's counts grew; 0 when they are unknown.

    Reports arrive twice a second, so the time between two requests may miss half a second of counts. The instance reports
    when it last worked; if that agrees with this machine's clock, it is the better measure.
    """
    if past is None:
        return 0.0
    span = (now.get("last_ms", 0) - past.get("last_ms", 0)) / 1000
    return span if between / 2 <= span <= 2 * between else between


def _rate(past: Mapping[str, Any] | None, now: Mapping[str, Any], seconds: float, name: str) -> float:
    """Return the growth of a count a second; never negative, because an instance may have been restarted."""
    return max(0.0, float(now.get(name, 0) - (past or {}).get(name, 0)) / seconds)
