"""A world of whole nodes with a fake instance host: submissions, crashes and reports without processes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from agiledart_dataflow.connectors import ConnectorSpecification
from agiledart_dataflow.deployment import DeploymentPart
from agiledart_dataflow.formation_messages import LogLine, TapRow, TapRows
from agiledart_dataflow.specification import Specification, StepSpecification
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.machine import Completed, Effect, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.bodies import BODIES
from agiledart_node.commands import Command, ListApplications, Status, Submit
from agiledart_node.config import NodeConfig
from agiledart_node.effects import (
    DrainSources,
    Progressed,
    ReadLogs,
    ReadTap,
    RefusedRequest,
    Replied,
    StartInstances,
    StartSources,
    StopInstances,
)
from agiledart_node.events import Asked, ClockRead, InstanceFinished, InstanceReported
from agiledart_node.node import NODE_CODEC, Node
from agiledart_overlay.config import OverlayConfig
from agiledart_overlay.events import JoinRing
from agiledart_simulation.network import NetworkConfig
from agiledart_simulation.ring import simulated_ids
from agiledart_simulation.world import World

WALL_MS = 1_357_516_800_000
"""Wall time of the virtual world's beginning: 2013-01-07."""


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
    return Submit(specification.name, msgspec.msgpack.encode(specification), b"code", **fields)


class Mesh:
    """Nodes a1, a2, …; requests are answered into `answers`."""

    def __init__(
        self, seed: int, count: int, *, network: NetworkConfig | None = None, start_ns: int = 0, **config: Any
    ) -> None:
        overlay = OverlayConfig.simulation(count) if count > 40 else OverlayConfig.lan()
        self.config = replace(NodeConfig(overlay=overlay), **config)
        self.start_ns = start_ns
        self.world: World[Node] = World(seed, self._make, network, NODE_CODEC, self._on_effect)
        self.ids = simulated_ids(seed, count)
        self.names = {node: f"a{i + 1}" for i, node in enumerate(self.ids)}
        self.answers: dict[int, Any] = {}
        self.progress: dict[int, list[str]] = {}
        self.commands: dict[int, Command] = {}
        self.running: dict[tuple[NodeId, str, int], list[DeploymentPart]] = {}
        self.flowing: dict[tuple[NodeId, str, int], bool] = {}
        self.drained: dict[tuple[NodeId, str, int], bool] = {}
        self.start_failure: Callable[[Peer, DeploymentPart], str] = lambda peer, part: ""
        self._request = 0

    def _make(self, peer: Peer, random: RandomStream) -> Node:
        return Node(peer, self.config, random)

    def node(self, name: str) -> NodeId:
        return next(node for node, known in self.names.items() if known == name)

    def machine(self, name: str) -> Node:
        return self.world.nodes[self.node(name)].machine

    def start(self, node: NodeId, *seeds: NodeId) -> None:
        self.world.start(Peer(node, 1, self.names[node]))
        self.world.inject(node, ClockRead(WALL_MS + self.world.now // 1_000_000))
        self.world.inject(node, JoinRing(tuple(self.world.nodes[seed].peer for seed in seeds)))

    def build(self, interval_ns: int = 20 * MILLISECOND) -> "Mesh":
        random = RandomStream(self.world.seed, "mesh")
        self.start(self.ids[0])
        for index, node in enumerate(self.ids[1:], start=1):
            self.world.run_for(interval_ns)
            self.start(node, self.ids[random.index(index)], self.ids[0])
        assert self.world.run_until(lambda: all(n.machine.joined for n in self.world.live), 300 * SECOND)
        self.world.run_for(3 * SECOND)
        return self

    # ---- the driver's part

    def _on_effect(self, peer: Peer, effect: Effect) -> None:
        node = peer.node
        if isinstance(effect, Replied | RefusedRequest):
            assert effect.request not in self.answers, "two answers to one request"
            self.answers[effect.request] = effect
        elif isinstance(effect, Progressed):
            self.progress.setdefault(effect.request, []).append(effect.text)
        elif isinstance(effect, StartInstances):
            self._start_instances(peer, effect)
        elif isinstance(effect, StopInstances):
            self.running.pop((node, effect.application, effect.version), None)
            self.flowing.pop((node, effect.application, effect.version), None)
        elif isinstance(effect, StartSources):
            self.flowing[node, effect.application, effect.version] = True
        elif isinstance(effect, DrainSources):
            self.drained[node, effect.application, effect.version] = True
        elif isinstance(effect, ReadLogs):
            line = LogLine(effect.after + 1, WALL_MS, "count", f"hello from {peer.name}")
            self.world.inject(node, Completed(effect.request, (line,)))
        elif isinstance(effect, ReadTap):
            row = TapRow(effect.after + 1, 0, WALL_MS, f'{{"seen": "{effect.step}"}}')
            self.world.inject(node, Completed(effect.request, TapRows(0, (row,), 7)))

    def _start_instances(self, peer: Peer, effect: StartInstances) -> None:
        part = effect.part
        assert part.bundle == b"code"
        reason = self.start_failure(peer, part)
        if reason:
            self.world.inject(peer.node, Failed(effect.request, reason), self.start_ns)
            return
        known = part.known_addresses()
        plan_edges = _edges(part)
        for placed in part.instances:
            for above, below in plan_edges:
                if above == placed.stage:
                    assert any(stage == below for stage, _ in known), "started before what it sends to"
        self.running.setdefault((peer.node, part.application, part.version), []).append(part)
        result = {placed.copy: f"{peer.name}:{placed.stage}.{placed.index}" for placed in part.instances}
        self.world.inject(peer.node, Completed(effect.request, result), self.start_ns)

    # ---- users

    def ask(self, name: str, command: Command) -> int:
        self._request += 1
        self.commands[self._request] = command
        self.world.inject(self.node(name), Asked(self._request, command, "tester"))
        return self._request

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
        """State of an application as `list` tells it at every live node."""
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

    def crash(self, name: str, *, silent: bool = False) -> None:
        node = self.node(name)
        self.world.crash(node, silent=silent)
        for key in [key for key in self.running if key[0] == node]:
            del self.running[key]

    def hosts(self, name: str) -> list[str]:
        """Names of live nodes on which instances of an application run now."""
        return sorted(self.names[node] for node, app, _ in self.running if app == name)

    def finish(self, name: str, version: int) -> None:
        """All instances of an application come to their end."""
        for (node, app, ver), parts in list(self.running.items()):
            if (app, ver) == (name, version):
                for part in parts:
                    for placed in part.instances:
                        report = statistics_report(placed.stage, placed.index)
                        event = InstanceFinished(app, ver, placed.stage, placed.index, report)
                        self.world.inject(node, event)

    def report(self, name: str, version: int) -> None:
        for (node, app, ver), parts in list(self.running.items()):
            if (app, ver) == (name, version):
                for part in parts:
                    for placed in part.instances:
                        report = {"busy": 0.5, **statistics_report(placed.stage, placed.index)}
                        self.world.inject(node, InstanceReported(app, ver, placed.stage, placed.index, report))


def check_body(command: Command, body: dict[str, Any]) -> None:
    """Every answer keeps to its documented schema."""
    if isinstance(command, Submit):
        name = "submit-dry-run" if command.dry_run else "submit"
    else:
        name = type(command).__name__.lower().replace("listapplications", "list")
    msgspec.convert(body, BODIES[name])
    if body.get("summary"):
        msgspec.convert(body["summary"], BODIES["summary"])


def statistics_report(stage: int, index: int) -> dict[str, Any]:
    from agiledart_dataflow.statistics import InstanceStatistics, SourceCounts

    source = SourceCounts(lines=10, records=8, late=1, malformed={"number": 1}) if stage == 0 else None
    statistics = InstanceStatistics(stage, index, source=source, finished=True)
    return {"statistics": msgspec.to_builtins(statistics), "first_ms": WALL_MS, "last_ms": WALL_MS + 1500}


def _edges(part: DeploymentPart) -> list[tuple[int, int]]:
    from agiledart_dataflow.stages import StagePlan

    plan = msgspec.msgpack.decode(part.plan, type=StagePlan)
    return [(edge.source, edge.target) for edge in plan.edges]
