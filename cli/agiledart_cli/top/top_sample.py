"""What `agiledart top` knows: two samples of the mesh, and the rates between them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agiledart_cli.control_client import ControlClient
from agiledart_cli.errors import CommandRefusedError
from agiledart_cli.verbs.application_view import BEGUN_STATES, recovery_text
from agiledart_node.wire.commands import ListApplications, Nodes, Status

LIVE_STATES = (*BEGUN_STATES, "deploying")

MAX_LIVE = 16
"""Applications whose figures are asked for in one sample; each costs a question to all of its nodes."""

Counts = tuple[int, int]


@dataclass(frozen=True)
class Sample:
    """The answers of one moment: monotonic seconds, `nodes`, `list`, and `status` by application."""

    at: float
    nodes: Mapping[str, Any]
    applications: Sequence[Mapping[str, Any]]
    status: Mapping[str, Mapping[str, Any]]


@dataclass
class StepLine:
    """One step of one application. `busy` (share of a core of each instance), `queue` and `score` stand at a stage's first step.

    Rates are rows a second; None: not known yet, as there is only one sample.
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
        """`2`; `2 → 5` while the stage should have another number, `2 held` while a user's number holds."""
        if self.keeps_number:
            return f"{self.instances} held"
        return str(self.instances) if self.wanted in (None, self.instances) else f"{self.instances} → {self.wanted}"


@dataclass
class ApplicationLine:
    """One application: rates over all of its sources and sinks, and its sums."""

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
    """Everything that is shown at one moment; `seconds` is the time between the two samples."""

    agent: str
    known: int
    seconds: float
    nodes: list[NodeLine]
    applications: list[ApplicationLine]
    steps: list[StepLine]


def take_sample(client: ControlClient) -> Sample:
    """Ask for everything. An application that ends meanwhile is left out of the figures."""
    nodes = client.ask(Nodes())
    applications = client.ask(ListApplications())["applications"]
    status = {}
    for one in [one for one in applications if one["state"] in LIVE_STATES][:MAX_LIVE]:
        try:
            status[one["name"]] = client.ask(Status(one["name"]))
        except CommandRefusedError:
            continue
    return Sample(time.monotonic(), nodes, applications, status)


def compare(before: Sample | None, now: Sample, wall_seconds: float) -> TopSnapshot:
    """What is to be shown, with rates since the sample before."""
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
        line.p99_ms = max((one["p99"] for one in summary.get("latency_ms", {}).values()), default=None)
    line.silent_nodes = list(response.get("silent_nodes", []))
    return line


def _steps(
    response: Mapping[str, Any], old: Mapping[str, Any] | None, between: float, cores: dict[str, float]
) -> list[StepLine]:
    """The lines of one application's steps; adds the cores that its instances use to `cores`, by node."""
    found: list[StepLine] = []
    known = {
        (stage["name"], one["index"]): one
        for stage in (old["stages"] if old is not None else ())
        for one in stage["instances"]
    }
    for stage in response["stages"]:
        instances = stage["instances"]
        nodes = [one["node"] for one in instances]
        lines = [StepLine(response["name"], name, len(instances), nodes) for name in stage["name"].split("+")]
        lines[0].score = stage.get("score")
        for line in lines:
            line.wanted, line.keeps_number = stage.get("wanted"), bool(stage.get("keeps_number"))
        lines[0].queue = sum(one.get("queued_rows", 0) for one in instances)
        lines[0].blocked = any(one.get("blocked") for one in instances)
        for one in instances:
            past = known.get((stage["name"], one["index"]))
            seconds = _seconds(past, one, between)
            share = _rate(past, one, seconds, "busy_ns") / 1e9 if seconds else None
            if share is not None:
                share = min(1.0, share)
                cores[one["node"]] = cores.get(one["node"], 0.0) + share
                lines[0].busy = (lines[0].busy or 0.0) + share / len(instances)
            for line in lines:
                counts = one.get("steps", {}).get(line.step, {})
                line.dropped += counts.get("dropped", 0)
                line.errors += sum(counts.get(kind, 0) for kind in ("skipped", "dead_letters", "failed"))
                if past is not None and seconds:
                    earlier = past.get("steps", {}).get(line.step, {})
                    line.in_rate = (line.in_rate or 0.0) + _rate(earlier, counts, seconds, "rows_in")
                    line.out_rate = (line.out_rate or 0.0) + _rate(earlier, counts, seconds, "rows_out")
        found += lines
    return found


def _seconds(past: Mapping[str, Any] | None, now: Mapping[str, Any], between: float) -> float:
    """The span in which an instance's counts grew; 0 when it cannot be told.

    Reports come twice a second, so the time between two questions may miss half a second of counts. The instance says
    when it last worked; where that fits to our own clock it is the better measure.
    """
    if past is None:
        return 0.0
    span = (now.get("last_ms", 0) - past.get("last_ms", 0)) / 1000
    return span if between / 2 <= span <= 2 * between else between


def _rate(past: Mapping[str, Any] | None, now: Mapping[str, Any], seconds: float, name: str) -> float:
    """Growth of a count a second; never negative (an instance may have been started again)."""
    return max(0.0, float(now.get(name, 0) - (past or {}).get(name, 0)) / seconds)
