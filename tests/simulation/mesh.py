"""A world of whole nodes with a fake instance host: submissions, crashes and reports without processes."""

from dataclasses import replace
from typing import Any, Self

import msgspec

from agiledart_dataflow.plan.connectors import ConnectorSpecification
from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_dataflow.plan.specification import Specification, StepSpecification
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_node.context.config import NodeConfig
from agiledart_node.wire.commands import Command, ListApplications, Status, Submit
from agiledart_node.wire.effects import RefusedRequest, Replied, StartInstances
from agiledart_node.wire.events import InstanceFinished, InstanceReported
from agiledart_node.wire.responses import RESPONSES
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_simulation.world.network import NetworkConfig
from agiledart_simulation.world.node_ring import TESTER, WALL_MS, NodeRing
from tests.machine_checks import look_at

__all__ = ["WALL_MS", "Mesh", "check_body", "pipeline", "statistics_report", "submission"]


def pipeline(
    name: str = "frequent-routes", source_at: str = "", sink_at: str = "", sources: int = 1, steps: int = 1
) -> Specification:
    """trips (one or several, the second at its own node) → route_of… → count by key → busiest → report."""
    made: list[StepSpecification] = []

    def add(step_name: str, kind: str, inputs: tuple[int, ...] = (), **fields: Any) -> int:
        made.append(StepSpecification(len(made), step_name, kind, inputs, **fields))
        return len(made) - 1

    def source(step_name: str, at: str) -> int:
        return add(step_name, "source", connector=ConnectorSpecification("taxi", "", (), at), at=at)

    words = source_at.split(",")
    heads = [source(f"trips{i + 1 if sources > 1 else ''}", words[i % len(words)]) for i in range(sources)]
    mapped = [add(f"route_of{i + 1 if sources > 1 else ''}", "map", (head,)) for i, head in enumerate(heads)]
    last = mapped[0] if sources == 1 else add("all", "union", tuple(mapped))
    for step in range(steps):
        last = add(f"count{step + 1 if steps > 1 else ''}", "stateful", (last,), keyed=True)
    last = add("busiest", "top", (last,), keyed=False)
    add("report", "sink", (last,), connector=ConnectorSpecification("null", "", (), sink_at), at=sink_at)
    return Specification(name, tuple(made))


def submission(specification: Specification, **fields: Any) -> Submit:
    return Submit(
        specification.name, msgspec.msgpack.encode(specification), b"code", **{"delivery": "at-most-once", **fields}
    )


class Mesh(NodeRing):
    """Nodes a1, a2, …, that a test asks and watches."""

    def __init__(
        self, seed: int, count: int, *, network: NetworkConfig | None = None, start_ns: int = 0, **config: Any
    ) -> None:
        overlay = OverlayConfig.simulation(count) if count > 40 else OverlayConfig.lan()
        settings = replace(NodeConfig(overlay=overlay), **config)
        super().__init__(seed, count, settings, network, checks_wire=True, start_ns=start_ns)
        look_at(self.world, every=31)
        self.commands: dict[int, Command] = {}

    def build(self) -> Self:
        assert self.join_all()
        self.world.run_for(3 * SECOND)
        return self

    # ---- the driver's part

    def _start_instances(self, peer: Peer, effect: StartInstances) -> None:
        part = effect.part
        assert part.bundle == b"code"
        known = part.known_addresses()
        plan_edges = _edges(part)
        for placed in part.instances:
            for above, below in plan_edges:
                if above == placed.stage:
                    assert any(stage == below for stage, _ in known), "started before what it sends to"
        super()._start_instances(peer, effect)

    # ---- users

    def ask(self, name: str, command: Command, delay_ns: int = 0, principal: Principal = TESTER) -> int:
        request = super().ask(name, command, delay_ns, principal)
        self.commands[request] = command
        return request

    def answer(self, request: int, limit_ns: int = 60 * SECOND) -> dict[str, Any]:
        assert self.world.run_until(lambda: request in self.answers, limit_ns, 5 * MILLISECOND), "no answer"
        answer = self.answers[request]
        assert isinstance(answer, Replied), answer
        body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(answer.body))
        check_body(self.commands[request], body)
        return body

    def refusal(self, request: int, limit_ns: int = 60 * SECOND) -> str:
        assert self.world.run_until(lambda: request in self.answers, limit_ns, 5 * MILLISECOND), "no answer"
        answer = self.answers[request]
        assert isinstance(answer, RefusedRequest), answer
        return answer.text

    def submit(self, at: str, specification: Specification, **fields: Any) -> dict[str, Any]:
        return self.answer(self.ask(at, submission(specification, **fields)))

    def status(self, at: str, name: str) -> dict[str, Any]:
        return self.answer(self.ask(at, Status(name)))

    def state_everywhere(self, name: str) -> dict[str, str]:
        """State of an application as `list` reports it at every live node."""
        return self.state_everywhere_but("", name)

    def state_everywhere_but(self, without: str, name: str) -> dict[str, str]:
        """The same, but for one node that cannot answer now."""
        names = [node.peer.name for node in self.world.live if node.peer.name != without]
        asked = {at: self.ask(at, ListApplications()) for at in names}
        states = {}
        for at, request in asked.items():
            rows = self.answer(request)["applications"]
            states[at] = next((row["state"] for row in rows if row["name"] == name), "unknown")
        return states

    def hosts(self, name: str) -> list[str]:
        """Names of live nodes on which instances of an application run now."""
        return sorted(self.names[node] for node, app, _ in self.running if app == name)

    def finish(self, name: str, version: int, at: tuple[str, ...] = ()) -> None:
        """All instances of an application come to their end; `at`: those on these nodes."""
        for (node, app, ver), parts in list(self.running.items()):
            if (app, ver) == (name, version) and (not at or self.names[node] in at):
                for part in parts:
                    for placed in part.instances:
                        report = statistics_report(placed.stage, placed.index)
                        event = InstanceFinished(app, ver, placed.stage, placed.index, report)
                        self.world.inject(node, event)

    def report(self, name: str, version: int, waiting: int = 0) -> None:
        """All instances of an application say how they are; `waiting` records at its source."""
        for (node, app, ver), parts in list(self.running.items()):
            if (app, ver) == (name, version):
                for part in parts:
                    for placed in part.instances:
                        report = {"busy": 0.5, **statistics_report(placed.stage, placed.index, waiting)}
                        self.world.inject(node, InstanceReported(app, ver, placed.stage, placed.index, report))


def check_body(command: Command, body: dict[str, Any]) -> None:
    """Every answer keeps to its documented schema."""
    if isinstance(command, Submit):
        name = "submit-dry-run" if command.dry_run else "submit"
    else:
        kind = type(command).__name__
        name = {"ListApplications": "list", "TraceRoute": "route", "ShareApplication": "share"}.get(kind, kind.lower())
    msgspec.convert(body, RESPONSES[name])
    if body.get("summary"):
        msgspec.convert(body["summary"], RESPONSES["summary"])


def statistics_report(stage: int, index: int, waiting: int = 0) -> dict[str, Any]:
    from agiledart_dataflow.counts.statistics import InstanceStatistics, SourceCounts

    source = SourceCounts(lines=10, records=8, late=1, malformed={"number": 1}, waiting=waiting) if stage == 0 else None
    statistics = InstanceStatistics(stage, index, source=source, finished=True)
    return {"statistics": msgspec.to_builtins(statistics), "first_ms": WALL_MS, "last_ms": WALL_MS + 1500}


def _edges(part: DeploymentPart) -> list[tuple[int, int]]:
    from agiledart_dataflow.plan.stage_plan import StagePlan

    plan = msgspec.msgpack.decode(part.plan, type=StagePlan)
    return [(edge.source, edge.target) for edge in plan.edges]
