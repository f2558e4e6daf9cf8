"""Re-placement of the runs that this node coordinates. Each look evaluates other hosts; a worthwhile move is reported or made.

    loads of the nodes, reports of the hosts → problem of each run → the best move → the controller → one change request

Memory of a controller is lost with its coordinator: the next one looks anew, and rests as after a move where the register has one,
because it knows no times. The application's record
names the stages that a user has moved, because that must not be lost.

Source: spec of placement §10.
"""

from collections import deque
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from agiledart_kernel.errors import ConfigurationError, RemoteProtocolError, TopologyError
from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import SetTimer
from agiledart_kernel.peer import Peer
from agiledart_node.autoscaling.autoscaler import ChangeRequester, coordinates, hosts_reports
from agiledart_node.autoscaling.place_wishes import PlaceWishes
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.forming.network_of_loads import network_of_loads
from agiledart_node.forming.surveyor import Loads
from agiledart_node.live_placement.move_controller import (
    ADVISE,
    MOPA,
    MOVE,
    NOTHING,
    OFF,
    ON,
    MoveController,
    MoveDecision,
    MoveProposal,
    SmoothedFigures,
)
from agiledart_node.live_placement.move_evaluator import MoveEvaluator
from agiledart_node.live_placement.placement_explanation import MovableUnit
from agiledart_node.live_placement.plan_solver import PlanSolver
from agiledart_node.live_placement.run_problem import RunProblem, run_problem
from agiledart_node.live_placement.wish_proposals import wish_proposals
from agiledart_node.records.application import RUNNING, SPECIFICATION_CODEC, ApplicationRecord
from agiledart_node.records.command_verifier import moves_of, placement_of
from agiledart_node.records.records import Records
from agiledart_node.recovery.change_plans import stage_plan_of
from agiledart_node.recovery.recovery_service import RecoveryService
from agiledart_node.wire.change_messages import MOVE as MOVE_WISH
from agiledart_node.wire.change_messages import ChangeRequest
from agiledart_placement.files.network_file import NetworkDescription
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.problem import SLOTS
from agiledart_placement.problem.request import StreamLoad
from agiledart_placement.registry import PlacementChoice
from agiledart_recovery.attempts.coordinator import Coordinator
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import ChangeOutcome, RegisterValue

TIMER: Final = ("node", "placement")

MAX_HOSTS: Final = 48
"""Nodes that a look takes into account: hosts of the runs first, then the nearest others."""

MAX_DECISIONS: Final = 8
"""Decisions of a run that `explain placement` shows."""

LONGEST_REASON: Final = 200

BY_PLACEMENT: Final = "placement: "
"""Beginning of the reason of changes that this service requests."""


class Surveys(Protocol):
    """Interface of `forming.surveyor`."""

    def loads(self, peers: list[Peer], timeout: int, *, wants_round_trips: bool = False) -> Awaitable[Loads]:
        """Return the loads of these nodes; silent ones are missing."""
        ...


@dataclass(slots=True)
class _PlacedRun:
    """One coordinated run.

    Attributes:
        is_busy: its hosts are being asked, or its move is under way.
        value: of its objective at the last look; None: it could not be computed.
        decisions: the last ones that differ, oldest first, as `RecoveryStatus` carries them.
    """

    controller: MoveController
    figures: SmoothedFigures = field(default_factory=SmoothedFigures)
    is_busy: bool = False
    value: float | None = None
    decisions: deque[dict[str, object]] = field(default_factory=lambda: deque(maxlen=MAX_DECISIONS))


class ReplacementService:
    """Looks at the placement of coordinated runs, and requests moves.

    Args:
        surveying: asks nodes for their loads.
        solver: plans of strategies that take long.
    """

    def __init__(
        self,
        context: NodeContext,
        records: Records,
        recovery_service: RecoveryService,
        requests: ChangeRequester,
        surveying: Surveys,
        solver: PlanSolver,
    ) -> None:
        self._context, self._records, self._recovery_service = context, records, recovery_service
        self._requests, self._surveying, self._solver = requests, surveying, solver
        self._runs: dict[RunId, _PlacedRun] = {}
        self._is_looking = False
        self.moves: dict[tuple[str, str], int] = {}
        """Moves started here, by (application, reason): see `MoveProposal.reason`, and `wish` of hosts."""
        self.wishes = PlaceWishes(context, recovery_service, self._takes_wishes)

    def look(self) -> None:
        """Start the timer if this node coordinates a run whose placement it looks at."""
        if not self._is_looking and self._coordinated_runs():
            self._begin()

    def statuses(self, run: RunId) -> tuple[dict[str, object], ...]:
        """Return the last decisions about a run, oldest first."""
        placed = self._runs.get(run)
        return tuple(placed.decisions) if placed is not None else ()

    def objectives(self) -> tuple[tuple[str, float], ...]:
        """Return (application, value of its objective) of all runs with a value, for metrics."""
        return tuple((run.app, placed.value) for run, placed in self._runs.items() if placed.value is not None)

    def wanted(self) -> tuple[tuple[str, int], ...]:
        """Return (application, whether a move is wanted and not made) of runs that may move and have a decision, for metrics."""
        decided = (
            (run, placed.decisions[-1])
            for run, placed in self._runs.items()
            if placed.decisions and placed.controller.mode in (ON, MOPA)
        )
        return tuple((run.app, int(row["action"] == ADVISE)) for run, row in decided)

    def _takes_wishes(self, run: RunId) -> bool:
        """Return whether the hosts of a run may wish; before the first look at it nothing is known about that."""
        return run in self._runs and self._runs[run].controller.mode == MOPA

    def _coordinated_runs(self) -> dict[RunId, Coordinator]:
        coordinators = self._recovery_service.machine.coordinators
        return {run: coordinator for run, coordinator in coordinators.items() if coordinates(coordinator)}

    def _begin(self) -> None:
        self._is_looking = True
        self._context.emit(SetTimer(TIMER, Instant(self._context.now + self._context.config.placement_look_ns)))

    def on_timer(self) -> None:
        """Begin a look at all coordinated runs."""
        coordinated, self._is_looking = self._coordinated_runs(), False
        self._runs = {run: placed for run, placed in self._runs.items() if run in coordinated}
        self.wishes.keep(coordinated)
        if not coordinated:
            return
        if not self._context.requests.is_full:
            self._context.requests.begin(self._look(coordinated))
        self._begin()

    async def _look(self, coordinators: Mapping[RunId, Coordinator]) -> None:
        requests = self._context.requests
        records: dict[RunId, ApplicationRecord] = {}
        for number, run in enumerate(coordinators):
            await requests.pause_after(number)
            if (record := await self._record(run)) is not None:
                records[run] = record
        coordinated = {run: coordinators[run] for run in records if coordinates(coordinators[run])}
        if not coordinated:
            return
        known = {peer.node: peer for peer in self._context.known()}
        peers = {
            node: known.get(node, peer)
            for coordinator in coordinated.values()
            for node, peer in coordinator.value.plan.hosts.items()
        }
        for run, coordinator in coordinated.items():
            for candidates in self.wishes.of(run, coordinator.value).values():
                for peer in candidates:
                    if len(peers) < MAX_HOSTS:
                        peers.setdefault(peer.node, peer)
        for peer in self._context.nearest_of(self._context.known()):
            if len(peers) < MAX_HOSTS:
                peers.setdefault(peer.node, peer)
        timeout = self._context.config.report_timeout_ns
        loads = await self._surveying.loads(list(peers.values())[:MAX_HOSTS], timeout, wants_round_trips=True)
        network = network_of_loads(loads, keeps_unknown=True)
        for number, (run, coordinator) in enumerate(coordinated.items()):
            await requests.pause_after(number)
            if not coordinates(coordinator):
                continue
            placed = self._runs.get(run)
            if placed is None:
                placed = self._runs[run] = _PlacedRun(MoveController(self._mode(records[run])))
                placed.controller.resume(self._context.now, _earlier_moves(coordinator.value))
            if not placed.is_busy:
                placed.is_busy = True
                try:
                    await self._look_at(run, coordinator, placed, network, records[run])
                finally:
                    placed.is_busy = False

    async def _record(self, run: RunId) -> ApplicationRecord | None:
        """Return the record of a run that is looked at; None: it does not run, its moves are off, or the ring does not answer."""
        try:
            _, record = await self._records.application(run.app)
        except CommandRefused:
            return None
        if record is None or record.version != run.version or record.state != RUNNING or record.stopping:
            return None
        return record if self._mode(record) != OFF else None

    def _mode(self, record: ApplicationRecord) -> str:
        """Return the user's signed word about moves, else this agent's setting."""
        return moves_of(record.signed_command) or self._context.config.placement_moves

    async def _look_at(
        self,
        run: RunId,
        coordinator: Coordinator,
        placed: _PlacedRun,
        network: NetworkDescription,
        record: ApplicationRecord,
    ) -> None:
        try:
            specification = SPECIFICATION_CODEC.decode(record.specification)
            plan = stage_plan_of(coordinator.value)
        except (CommandRefused, RemoteProtocolError):
            return  # the ring did not answer, or another version wrote it; the next look tries again
        reports = await hosts_reports(self._context, run, coordinator.value)
        if not coordinates(coordinator):
            return
        value = coordinator.value
        now = {
            (stage.index, index): assignment.host.node
            for stage in plan.stages
            for index, assignment in enumerate(value.plan.stage(str(stage.index)))
        }
        problem = run_problem(run.app, plan, specification, reports, network, now)
        if problem.missing or problem.unknown_links:
            placed.value = None
            return
        wishes = self.wishes.of(run, value)
        figures = placed.figures.update(_figures(problem, value) | _wish_figures(wishes))
        if not placed.controller.is_due(figures):
            return
        problem = _with_averages(problem, figures)
        try:
            choice = self._context.config.placement_choice(placement_of(record.signed_command))
            is_default = placed.controller.mode == MOPA and ":" not in placement_of(record.signed_command)
            objective = Objective("usage" if is_default else choice.objective)
            explanation = problem.explained(objective)
        except ConfigurationError:
            placed.value = None  # a pair of nodes without a delay
            return
        placed.value = explanation.value
        evaluator = MoveEvaluator(problem, value, objective)
        proposals = (
            wish_proposals(evaluator, explanation, wishes)
            if placed.controller.mode == MOPA
            else self._best_moves(placed.controller, evaluator, explanation.units)
        )
        if placed.controller.mode != MOPA and not choice.is_inline and explanation.units:
            planned = await self._planned(choice, evaluator, explanation.value, record.placed_by_user)
            if not coordinates(coordinator) or coordinator.value.plan != value.plan:
                return  # it has changed while the planner searched; the next look judges anew
            proposals += [planned] if planned is not None else []
        obstacle = self._obstacle(run, coordinator)
        decision = placed.controller.decide(self._context.now, figures, proposals, obstacle, record.placed_by_user)
        self._note(placed, decision)
        if decision.action == MOVE and decision.proposal is not None:
            await self._move(run, placed, decision.proposal, decision.why)

    def _best_moves(
        self, controller: MoveController, evaluator: MoveEvaluator, units: Iterable[MovableUnit]
    ) -> list[MoveProposal]:
        """Return the best move of each unit that has one."""
        now, moves = self._context.now, []
        for unit in units:
            left = controller.left_nodes(now, evaluator.name_of(unit.instances[0]))
            if (move := evaluator.best_of(unit, left)) is not None:
                moves.append(move)
        return moves

    async def _planned(
        self, choice: PlacementChoice, evaluator: MoveEvaluator, value: float, held: Collection[str]
    ) -> MoveProposal | None:
        """Return the plan of a strategy that takes long; None: there is none, or the placement now is as good."""
        names = {node: state.name for node, state in evaluator.problem.network.hosts.items()}
        topology = evaluator.problem.pinned_topology(names, held)
        solved = await self._solver.solve(
            choice, evaluator.objective, evaluator.problem.network, topology, evaluator.problem.now
        )
        return None if isinstance(solved, str) else evaluator.plan(solved.nodes, value, solved.value)

    def _obstacle(self, run: RunId, coordinator: Coordinator) -> str:
        if coordinator.progress.since is not None:
            return "it is being restarted"
        changes = self._requests.running_changes(run)
        return f"a {changes[0].kind} is under way" if changes else ""

    def _note(self, placed: _PlacedRun, decision: MoveDecision) -> None:
        """Add a decision to those that are shown, unless it only repeats the last one."""
        proposal = decision.proposal
        row: dict[str, object] = {
            "action": decision.action,
            "why": decision.why[:LONGEST_REASON],
            "instance": ", ".join((proposal.instance, *(i for i, _, _ in proposal.others)))
            if proposal is not None
            else "",
            "node": ", ".join((proposal.node_name, *(name for _, _, name in proposal.others)))
            if proposal is not None
            else "",
            "gain": proposal.gain if proposal is not None else None,
            "cost": proposal.cost if proposal is not None else None,
            "gained": proposal.gained if proposal is not None else None,
            "at_ms": self._context.wall_ms,
        }
        last = placed.decisions[-1] if placed.decisions else {}
        if all(last.get(key) == row[key] for key in ("action", "instance", "node")) and decision.action != MOVE:
            placed.decisions.pop()
        placed.decisions.append(row)

    async def _move(self, run: RunId, placed: _PlacedRun, proposal: MoveProposal, why: str) -> None:
        moves = ((proposal.instance, proposal.node, proposal.node_name), *proposal.others)
        wishes = [ChangeRequest(MOVE_WISH, instance, node=node) for instance, node, _ in moves]
        placed.controller.started(self._context.now, proposal)
        failure = ""
        try:
            changes = await self._requests.request(run, wishes, f"{BY_PLACEMENT}{why}"[:LONGEST_REASON])
            reason = "wish" if placed.controller.mode == MOPA and not proposal.ends_violation else proposal.reason
            self.moves[run.app, reason] = self.moves.get((run.app, reason), 0) + 1
            outcomes = await self._requests.finalised(run, changes) if changes else ()
            failed = [outcome for outcome in outcomes if outcome.fate is not ChangeOutcome.DONE]
            failure = f"{failed[0].fate.value}: {failed[0].why}" if failed else ""
        except (CommandRefused, TopologyError) as refusal:
            failure = str(refusal)
        placed.controller.finished(is_done=not failure)
        if failure:
            self._note(placed, MoveDecision(NOTHING, f"the move failed: {failure}", proposal))


def _earlier_moves(value: RegisterValue) -> list[bool]:
    """Return whether each move that placement has asked for took place, oldest first; one under way counts as failed."""
    return [change.fate is ChangeOutcome.DONE for change in value.changes if change.reason.startswith(BY_PLACEMENT)]


def _figures(problem: RunProblem, value: RegisterValue) -> dict[str, float]:
    """Return the figures whose change is a reason to look: measured ones, members, numbers, the attempt."""
    hosts = frozenset(problem.now.values())
    view, description = problem.network.view, problem.measured.description
    figures = {"attempt": float(value.attempt)}
    for node, state in problem.network.hosts.items():
        figures[f"node {node.hex}"] = 2.0 if state.is_draining else 1.0
        figures |= {f"label {node.hex} {label}": 1.0 for label in state.offers}
        figures[f"room {node.hex}"] = max(0.0, state.resources.get(SLOTS, 0.0) - state.used.get(SLOTS, 0.0))
    for (a, b), link in view.links().items():
        if a in hosts and (a < b or b not in hosts):
            figures[f"delay {a.hex}-{b.hex}"] = link.delay_ms
    for number, load in enumerate(description.loads):
        figures[f"rate {number}"] = load.rate
        figures[f"bytes {number}"] = load.bytes
    for stage in description.stages:
        figures[f"instances {stage.stage}"] = float(stage.parallelism)
        figures[f"time {stage.stage}"] = stage.execution_ms
    return figures


def _wish_figures(wishes: Mapping[tuple[int, int], Sequence[Peer]]) -> dict[str, float]:
    """Return one figure for each wish; another first candidate is a reason to look."""
    return {f"wish {stage}.{index} {nodes[0].node.hex}": 1.0 for (stage, index), nodes in wishes.items()}


def _with_averages(problem: RunProblem, figures: Mapping[str, float]) -> RunProblem:
    """Return the problem with averages of rates and times; nodes average their round trips themselves."""
    description = problem.measured.description
    loads = tuple(StreamLoad(figures[f"rate {n}"], figures[f"bytes {n}"]) for n in range(len(description.loads)))
    stages = tuple(replace(stage, execution_ms=figures[f"time {stage.stage}"]) for stage in description.stages)
    measured = replace(problem.measured, description=replace(description, loads=loads, stages=stages))
    return replace(problem, measured=measured)
