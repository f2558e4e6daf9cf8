"""Run of the scenario `placing`: re-placement at a coordinator while links slow down, nodes die, and others change the same runs.

The service that looks, the rule that decides, the plans and the request of a change are those of agents; the network, the reports
and the change protocol are virtual. Always: M1 no rule is broken by a move, M2 a run has one change at a time, M3 at most one move
a minute, M4 none while a run is brought back, M5 pinned stages and those that a user has moved stay, M6 a failed move delays the
next, M7 no move to a node that is dead, drained or full, M8 none to a node of which no delay is known. In the end: M9 nothing is
wished for any more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from types import SimpleNamespace
from typing import Any, Final, cast

from agiledart_dataflow.plan.placement_rules import NO_RULES, PlacementRules
from agiledart_kernel.instants import MILLISECOND, SECOND, Duration, Instant
from agiledart_kernel.machine import CancelTimer, Effect, Send, SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.autoscaling.replacement_service import TIMER, ReplacementService
from agiledart_node.context.config import NodeConfig
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.context.pending_requests import PendingRequests
from agiledart_node.live_placement.move_controller import MOPA, NOTHING, ON
from agiledart_node.live_placement.plan_solver import PlanSolver
from agiledart_node.records.stage_rules import NodeTraits
from agiledart_node.recovery.change_requests import ChangeRequests
from agiledart_node.wire.change_messages import MOVE, ChangeRequest
from agiledart_node.wire.formation_messages import NodeLoad, QueryReports, Reports, RoundTrip
from agiledart_node.wire.mopa_messages import RequestPlace
from agiledart_node.wire.placement_effects import SolvePlacement
from agiledart_placement.latency_space.points import distance
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import ChangeOutcome, Plan
from agiledart_simulation.runs.placed_run import PlacedRun, placed_run
from agiledart_simulation.runs.run_report import RunReport
from agiledart_simulation.runs.scenario import Scenario
from agiledart_simulation.runs.virtual_mopa_hosts import VirtualMopaHosts, drawn_point
from agiledart_simulation.runs.virtual_planner import VirtualPlanner
from agiledart_simulation.world.latency_models import Latency
from agiledart_simulation.world.trace import Trace

CALM_NS: Final = 120 * SECOND
_MOST_COMPLAINTS: Final = 50
_ANSWER_NS: Final = 50 * MILLISECOND

MOPA_SEEDS: Final = 4
"""One seed of so many has runs whose hosts wish for places (`moves = mopa`)."""

BACK_NS: Final = 90 * SECOND
"""Time after which a link is fast again, a node is back, or a lie ends."""

STRUCK: Final = 0.15
"""Share of moves whose target dies before the move is done, where nodes die."""


@dataclass
class VirtualNode:
    """A node with its capacity, labels and faults."""

    peer: Peer
    capacity: int
    labels: tuple[str, ...]
    is_dead: bool = False
    is_drained: bool = False
    is_void: bool = False
    """It answers without round trips, and no other node has measured it."""


class PlacingRun:
    """One run of the scenario `placing`."""

    def __init__(self, scenario: Scenario, *, trace: Trace | None = None, latency: Latency | None = None) -> None:
        self.scenario, self.trace = scenario, trace or Trace()
        self.random = random = RandomStream(scenario.seed, "placing")
        self.now, self._order, self.events, self.messages = 0, 0, 0, 0
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._timers: dict[object, int] = {}
        self.violations: dict[str, None] = {}
        self.reached: dict[str, int] = {}
        count = max(3, min(9, scenario.nodes))
        self.nodes = [
            VirtualNode(
                Peer(NodeId((number + 1) << 100), 1, f"n{number}", zone=f"z{number % 3}"),
                3 + random.index(4),
                ("gpu",) if random.uniform() < 0.5 else (),
            )
            for number in range(count)
        ]
        self.moves = MOPA if scenario.seed % MOPA_SEEDS == 0 else ON
        points = [drawn_point(scenario.seed, node.peer) for node in self.nodes]
        self.delays = {(a, b): random.between(2, 60) for a in range(count) for b in range(a)}
        if self.moves == MOPA:
            self.delays = {(a, b): distance(points[a], points[b]) for a, b in self.delays}
        self._measured = dict(self.delays)
        self.planner = VirtualPlanner(scenario.seed, self._note)
        self.runs = self._draw_runs()
        self._void_nodes: frozenset[NodeId] = frozenset()
        self.mopa_hosts = VirtualMopaHosts(self, scenario.seed, points, self.runs)
        self._make_node()
        if self.moves == MOPA:
            self.mopa_hosts.patrol()
        self._draw_faults()

    # ---- the world

    def _draw_runs(self) -> dict[RunId, PlacedRun]:
        runs = {}
        for number in range(1 + self.random.index(3)):
            rules = [_drawn_rules(self.random, self.nodes, step) for step in range(1 + self.random.index(3))]
            hosts = [self.random.choice(self.nodes).peer]
            for rule in rules:
                hosts.append(self._allowed(rule, hosts[-1]))
            hosts.append(self.random.choice(self.nodes).peer)
            run = placed_run(number, rules, hosts, self.random, self.complain)
            runs[run.id] = run
        return runs

    def _allowed(self, rule: PlacementRules, before: Peer) -> Peer:
        """Return a node that a step's rules allow."""
        good = [
            node.peer
            for node in self.nodes
            if not rule.broken_by(node.peer.name, node.peer.zone, node.labels)
            and not (rule.apart_from and node.peer.node == before.node)
        ]
        return self.random.choice(good)

    def _make_node(self) -> None:
        """Make the node that coordinates all runs; it is none of those above. A second one knows what the registers have."""
        me = Peer(NodeId(1), 1, "coordinator")
        self.requests = PendingRequests(
            RandomStream(self.scenario.seed, "requests", self.reached.get("coordinator", 0)),
            Duration(400 * MILLISECOND),
            256,
        )
        self.requests.now, self._timers = Instant(self.now), {}
        world = self

        class ShownContext(SimpleNamespace):
            @property
            def now(self) -> int:
                return world.now

            wall_ms = 0

        context = cast(
            "Any",
            ShownContext(
                config=NodeConfig(placement=self.planner.strategy, placement_moves=self.moves),
                send=lambda to, message: self.mopa_hosts.deliver(me, to, message),
                requests=self.requests,
                me=me,
                emit=self.requests.effects.append,
                ask_driver=self._ask_driver,
                known=lambda: tuple(node.peer for node in self.nodes if not node.is_dead),
                nearest_of=lambda peers: peers,
            ),
        )
        coordinators = {run.id: run.coordinator for run in self.runs.values()}
        recovery = cast("Any", SimpleNamespace(machine=SimpleNamespace(coordinators=coordinators), change=self._change))
        records = cast("Any", SimpleNamespace(application=self._record))
        self.changes = ChangeRequests(context, records, recovery, cast("Any", None), self._loads)
        self.service = ReplacementService(context, records, recovery, self, self, PlanSolver(context))
        self.service.look()
        self._handle()

    def _ask_driver(self, request: int, effect: Effect, timeout: int) -> Any:
        """Emit an effect and wait for its answer; see `NodeContext`."""
        self.requests.effects.append(effect)
        return self.requests.answers({request: None}, Duration(timeout))

    async def _record(self, name: str) -> tuple[int, Any]:
        return 1, self.runs[RunId(name, 1)].record

    async def _loads(self, peers: Sequence[Peer], timeout: int) -> Any:
        return await self.loads(list(peers), timeout)

    async def loads(self, peers: list[Peer], timeout: int, *, wants_round_trips: bool = False) -> Any:
        """Return the loads of nodes; the dead are silent. See `forming.surveyor`."""
        await self.requests.pause(Duration(_ANSWER_NS))
        by_node = {node.peer.node: number for number, node in enumerate(self.nodes)}
        answers = {}
        if wants_round_trips:
            self._void_nodes = frozenset(node.peer.node for node in self.nodes if node.is_void)
        for peer in peers:
            number = by_node[peer.node]
            node = self.nodes[number]
            if node.is_dead:
                continue
            trips: tuple[RoundTrip, ...] = ()
            if wants_round_trips and not node.is_void:
                trips = tuple(
                    RoundTrip(other.peer.node, round(2_000 * self._measured[max(number, n), min(number, n)]))
                    for n, other in enumerate(self.nodes)
                    if n != number and not other.is_void
                )
            load = NodeLoad(
                0,
                self._held(node),
                (),
                node.capacity,
                1,
                node.is_drained,
                (),
                labels=node.labels,
                cores=1,
                round_trips=trips,
            )
            answers[peer.node] = (node.peer, load)
        return answers

    def _held(self, node: VirtualNode) -> int:
        return sum(run.instances_on(node.peer.node) for run in self.runs.values())

    # ---- the change protocol

    async def request(self, run: RunId, wishes: Sequence[ChangeRequest], reason: str) -> Any:
        """Request changes as placement does; see `ChangeRequester`."""
        return await self.changes.request(run, wishes, reason)

    async def finalised(self, run: RunId, changes: Any) -> Any:
        """Return the outcomes of changes; see `ChangeRequester`."""
        return await self.changes.finalised(run, changes)

    def running_changes(self, run: RunId) -> Any:
        """Return the changes under way; see `ChangeRequester`."""
        return self.changes.running_changes(run)

    def _change(self, run: RunId, plan: Plan) -> str:
        placed = self.runs[run]
        by_placement = any(change.reason.startswith("placement:") for change in plan.changes)
        traits = {
            node.peer.node: NodeTraits(node.peer.node, node.peer.name, node.peer.zone, "", node.labels)
            for node in self.nodes
            if not node.is_dead and not node.is_drained
        }
        free = {node.peer.node: node.capacity - self._held(node) for node in self.nodes}
        if by_placement:
            self._note("move")
            for change in plan.changes:
                (assignment,) = plan.stage(change.stage)
                self._check_known(placed, change.stage, assignment.host)
                if "die" in self.scenario.kinds and self.random.uniform() < STRUCK:
                    target = next(node for node in self.nodes if node.peer.node == assignment.host.node)
                    self.at(self.now + SECOND, partial(self._die, target))
        refusal = placed.start(self.now, plan, traits, free, by_placement=by_placement)
        fate = self.random.choice((ChangeOutcome.DONE,) * 4 + (ChangeOutcome.DROPPED, ChangeOutcome.ROLLED_BACK))
        self.at(self.now + int(self.random.between(2, 8) * SECOND), partial(self._change_ends, placed, plan, fate))
        return refusal

    def _check_known(self, placed: PlacedRun, stage: str, host: Peer) -> None:
        (before,) = placed.value.plan.stage(stage)
        if before.host.node != host.node and host.node in self._void_nodes:
            self.complain(f"M8: {placed.id.app} moves to {host.name}, of which no delay is known")

    def _change_ends(self, placed: PlacedRun, plan: Plan, fate: ChangeOutcome) -> None:
        if placed.changing is None or placed.changing[0] is not plan:
            return
        dead = [node.peer.name for node in self.nodes if node.is_dead and plan.at(node.peer.node)]
        if dead:
            fate = ChangeOutcome.ROLLED_BACK
            self._note("target-dead")
        self._note(fate.value)
        placed.end(self.now, fate, "drawn")

    # ---- MOPA among the hosts

    def wished(self, sender: Peer, message: RequestPlace) -> None:
        """Deliver a wish to the coordinator; see `MopaWorldView`."""
        self._note("wish")
        self.service.wishes.asked(sender, message)

    # ---- faults

    def _draw_faults(self) -> None:
        kinds = self.scenario.kinds
        when = CALM_NS
        for _ in range(self.scenario.steps):
            when += int(self.random.between(0.2, 1) * self.scenario.step_ms * MILLISECOND)
            self.at(when, partial(self._fault, self.random.choice(kinds)))
        self.ends = when + BACK_NS + SECOND

    def _fault(self, kind: str) -> None:
        self._note(kind)
        node, run = self.random.choice(self.nodes), self.random.choice(list(self.runs.values()))
        if kind == "slow":
            self._slow(self.random.choice(list(self.delays)))
        elif kind == "die":
            self._die(node)
        elif kind == "drain":
            node.is_drained = True
            self.at(self.now + BACK_NS, lambda: setattr(node, "is_drained", False))
        elif kind == "void":
            node.is_void = True
            self.at(self.now + BACK_NS, lambda: setattr(node, "is_void", False))
        elif kind == "lag":
            stale = dict(self._measured)
            self.at(self.now + BACK_NS // 3, lambda: self._measured.update(stale))
        elif kind == "lie":
            pair = self.random.choice(list(self.delays))
            self._measured[pair] = self.random.choice((0.001, 900.0))
            self.at(self.now + BACK_NS, lambda: self._measured.update({pair: self.delays[pair]}))
        elif kind == "silent":
            key = (self.random.index(len(run.rates)), 0)
            run.void[key] = True
            self.at(self.now + BACK_NS, lambda: run.void.pop(key, None))
        elif kind == "planner":
            self.planner.break_it()
            self.at(self.now + BACK_NS, self.planner.mend)
        elif kind == "coordinator":
            self._make_node()
        elif kind == "user":
            self._user(run)
        else:
            self._scale(run)

    def _slow(self, pair: tuple[int, int]) -> None:
        fast = self.delays[pair]
        self.delays[pair] = self._measured[pair] = fast * 10

        def mend() -> None:
            self.delays[pair] = self._measured[pair] = fast

        self.at(self.now + BACK_NS, mend)

    def _die(self, node: VirtualNode) -> None:
        """Let a node die: its runs are brought back on other nodes, whatever they cost."""
        left = [other for other in self.nodes if not other.is_dead and other is not node]
        if len(left) < 2 or node.is_dead:
            return
        node.is_dead = True
        for run in self.runs.values():
            if run.instances_on(node.peer.node):
                if run.changing is not None:
                    run.end(self.now, ChangeOutcome.ROLLED_BACK, "a node was lost")
                run.recovers_until = self.now + int(self.random.between(5, 40) * SECOND)
                run.replaced(node.peer, self.random.choice(left).peer)
                self.at(run.recovers_until, partial(setattr, run, "recovers_until", 0))
        self.at(self.now + BACK_NS, lambda: setattr(node, "is_dead", False))

    def _user(self, run: PlacedRun) -> None:
        """Let a user move a stage, which then stays; or let it go again."""
        if run.record.placed_by_user:
            run.record.placed_by_user = ()
            return
        to = self.random.choice(self.nodes).peer
        self._begin(self._user_moves(run, to))

    async def _user_moves(self, run: PlacedRun, to: Peer) -> None:
        try:
            await self.changes.request(run.id, [ChangeRequest(MOVE, "s0", node=to.node)], "asked by ann")
        except CommandRefused:
            self._note("user-refused")
            return
        run.record.placed_by_user, run.held_at = ("s0",), self.now

    def _scale(self, run: PlacedRun) -> None:
        """Let self scaling change the run, as far as it may now: here, it puts a stage in a new generation where it is."""
        if self.changes.running_changes(run.id) or run.recovers_until:
            self._note("scale-waits")
            return
        (host,) = (assignment.host for assignment in run.value.plan.stage("1"))
        others = [n.peer for n in self.nodes if n.peer.node != host.node and not n.is_dead]
        self._begin(self._scaling(run, self.random.choice(others)))

    async def _scaling(self, run: PlacedRun, to: Peer) -> None:
        try:
            await self.changes.request(run.id, [ChangeRequest(MOVE, "s0", node=to.node)], "secant: busy")
        except CommandRefused:
            self._note("scale-refused")

    # ---- time

    def at(self, when: int, call: Callable[[], object]) -> None:
        """Schedule an action at an instant."""
        self._order += 1
        heappush(self._due, (max(when, self.now), self._order, cast("Callable[[], None]", call)))

    def _begin(self, conversation: Any) -> None:
        self.requests.begin(conversation)
        self._handle()

    def _handle(self) -> None:
        """Carry out the effects of the node."""
        while self.requests.effects:
            effects, self.requests.effects[:] = list(self.requests.effects), []
            for effect in effects:
                if isinstance(effect, SetTimer):
                    self._timers[effect.name] = effect.at
                    self.at(effect.at, partial(self._timer, effect.name, effect.at))
                elif isinstance(effect, SolvePlacement):
                    self.messages += 1
                    delay, answer = self.planner.answer(effect)
                    self.at(self.now + delay, partial(self.requests.resolve, effect.request, answer))
                elif isinstance(effect, CancelTimer):
                    self._timers.pop(effect.name, None)
                elif isinstance(effect, Send) and isinstance(effect.message, QueryReports):
                    self.messages += 1
                    self.at(self.now + _ANSWER_NS, partial(self._answer, effect.to, effect.message))

    def _answer(self, to: Peer, message: QueryReports) -> None:
        node = next(node for node in self.nodes if node.peer.node == to.node)
        if not node.is_dead:
            run = self.runs[RunId(message.application, message.version)]
            self.requests.reply_received(to, message.request, Reports(message.request, run.reports_of(to)))

    def _timer(self, name: object, at: int) -> None:
        if self._timers.get(name) != at:
            return
        del self._timers[name]
        if name == TIMER:
            self.service.on_timer()
        else:
            self.requests.timer(cast("tuple[str, str, int]", name))

    def run_until(self, until: int) -> None:
        """Let time pass."""
        while self._due and self._due[0][0] <= until and not self.violations:
            self.now, _, call = heappop(self._due)
            self.requests.now = Instant(self.now)
            self.events += 1
            call()
            self._handle()
        if not self.violations:
            self.now = until

    def complain(self, line: str) -> None:
        """Report a violation."""
        if len(self.violations) < _MOST_COMPLAINTS:
            self.violations[f"{line} at {self.now / SECOND:.3f} s"] = None

    def _note(self, kind: str) -> None:
        self.reached[kind] = self.reached.get(kind, 0) + 1
        self.trace.add(self.now, NodeId(0), None, kind, None)

    # ---- the run

    def run(self) -> RunReport:
        """Apply faults, let it rest, check that nothing is wished for in the end."""
        self.run_until(self.ends)
        began = self.now
        for run in self.runs.values():
            run.record.placed_by_user = ()
        limit = began + self.scenario.quiet_s * SECOND
        while not self.violations and self.now < limit:
            self.run_until(self.now + 300 * SECOND)
            if not self._wishes():
                break
        if not self.violations and (wishes := self._wishes()):
            self.complain(f"M9: after {self.scenario.quiet_s} quiet seconds there is still a wish: {wishes[0]}")
        return RunReport(
            violations=tuple(self.violations),
            events=self.events,
            messages=self.messages + self.mopa_hosts.messages,
            digest=self.trace.digest,
            virtual_s=round(self.now / SECOND, 3),
            quiet_ns=self.now - began,
            reached=tuple(sorted(self.reached.items())),
        )

    def _wishes(self) -> list[str]:
        """Return the moves that are still wanted."""
        shown = [(run, rows[-1]) for run in self.runs if (rows := self.service.statuses(run))]
        return [f"{run.app}: {row['instance']} to {row['node']}" for run, row in shown if row["action"] != NOTHING]


def _drawn_rules(random: RandomStream, nodes: Sequence[VirtualNode], step: int) -> PlacementRules:
    draw = random.uniform()
    if draw < 0.25 and any("gpu" in node.labels for node in nodes):
        return PlacementRules(labels=("gpu",))
    if draw < 0.4:
        return PlacementRules(zone=f"z{random.index(2)}")
    if draw < 0.55 and step:
        return PlacementRules(apart_from=(("node", f"s{step - 1}"),))
    return NO_RULES
