"""Plans of strategies that take long, from the planner process. Every answer is verified here; a failure is a reason in words.

The caller goes on without a plan: with the placement now, or with the default strategy.

Source: spec of placement §10.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Completed, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_node.context.node_context import NodeContext
from agiledart_node.live_placement.placement_explanation import violation_text
from agiledart_node.wire.placement_effects import SolvePlacement
from agiledart_placement.evaluation.evaluator import Violation, evaluate
from agiledart_placement.files.network_file import NetworkDescription, network_document
from agiledart_placement.files.topology_file import TopologyDescription, joined_request, topology_document
from agiledart_placement.plan_question import PlanAnswer, PlanQuestion
from agiledart_placement.problem.network_view import FigureSource, TableNetwork
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.problem import SLOTS, Problem
from agiledart_placement.problem.request import HostState
from agiledart_placement.registry import PlacementChoice

SOLVE_SECONDS: Final = 10.0
"""Time of one search."""

_DRIVER_NS: Final = 120 * SECOND
"""Time for the driver's answer. It covers the start of the process on a busy board, and other plans before this one."""

Nodes = Mapping[tuple[int, int], NodeId]


@dataclass(frozen=True, slots=True)
class SolvedPlan:
    """A verified plan.

    Attributes:
        nodes: (stage, index) → node.
        value: of the objective, as evaluated here.
        text: words of the strategy about it.
    """

    nodes: Nodes
    value: float
    text: str


MAX_BOUNDS: Final = 256
"""Applications whose distance to the bound is remembered; the oldest plan goes first."""


class PlanSolver:
    """Asks the planner process.

    Attributes:
        outcomes: number of answers, by `planned` and `failed`.
        seconds: that all searches took.
        bound_distances: application → distance of its last plan to the bound, as a share.
    """

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self.outcomes: dict[str, int] = {}
        self.seconds = 0.0
        self.bound_distances: dict[str, float] = {}

    async def solve(
        self,
        choice: PlacementChoice,
        objective: Objective,
        network: NetworkDescription,
        topology: TopologyDescription,
        start: Nodes | None = None,
    ) -> SolvedPlan | str:
        """Return a plan, or why there is none, in words.

        Args:
            network: pairs of nodes without a delay may be marked unknown; a plan uses none of them.
            topology: with everything that stays on its nodes.
            start: placement now.
        """
        needed: dict[str, int] = {}
        for stage, places in zip(topology.stages, topology.on, strict=True):
            if places is not None and len(places) == 1:
                needed[places[0]] = needed.get(places[0], 0) + stage.parallelism
        usable = known_part(network, needed)
        if missing := sorted(needed - usable.ids.keys()):
            return self._failed(f"{choice.strategy}: no node has measured the delays of {', '.join(missing)} yet")
        question = PlanQuestion(
            choice.strategy,
            objective.name,
            network_document(usable),
            topology_document(_with_known_places(topology, usable)),
            _start(start, topology, usable),
            SOLVE_SECONDS,
        )
        number = self._context.requests.number()
        answer = (await self._context.ask_driver(number, SolvePlacement(number, question), _DRIVER_NS)).get(number)
        if isinstance(answer, Completed) and isinstance(answer.result, PlanAnswer):
            return self._verified(choice, objective, network, topology, start, answer.result)
        reason = answer.reason if isinstance(answer, Failed) else "the planner did not answer"
        return self._failed(f"{choice.strategy}: {reason}")

    def _verified(
        self,
        choice: PlacementChoice,
        objective: Objective,
        network: NetworkDescription,
        topology: TopologyDescription,
        start: Nodes | None,
        answer: PlanAnswer,
    ) -> SolvedPlan | str:
        self.seconds += max(0.0, answer.seconds)
        if answer.refusal:
            return self._failed(answer.refusal)
        nodes: dict[tuple[int, int], NodeId] = {}
        for stage in topology.stages:
            names = answer.placement.get(stage.name, [])
            if len(names) != stage.parallelism or any(name not in network.ids for name in names):
                return self._failed(
                    f"{choice.strategy}: its answer does not place {stage.name} on nodes of this network"
                )
            nodes |= {(stage.stage, index): network.ids[name] for index, name in enumerate(names)}
        problem = Problem(joined_request(network, [topology]))
        try:
            evaluation = evaluate(problem, nodes, objective)
            known = {_key(violation) for violation in evaluate(problem, start, objective).violations} if start else ()
        except ConfigurationError as error:
            return self._failed(f"{choice.strategy}: {error}")
        if broken := [violation for violation in evaluation.violations if _key(violation) not in known]:
            return self._failed(f"{choice.strategy}: its answer breaks a rule: {violation_text(broken[0])}")
        self.outcomes["planned"] = self.outcomes.get("planned", 0) + 1
        if answer.gap is not None:
            self.bound_distances.pop(topology.name, None)
            self.bound_distances[topology.name] = answer.gap
            while len(self.bound_distances) > MAX_BOUNDS:
                del self.bound_distances[next(iter(self.bound_distances))]
        gap = f", at most {answer.gap:.1%} above the least" if answer.gap else ""
        return SolvedPlan(
            nodes,
            evaluation.value,
            f"{choice.strategy}: {objective.name} {evaluation.value:.4g} ({answer.status}{gap})",
        )

    def _failed(self, reason: str) -> str:
        self.outcomes["failed"] = self.outcomes.get("failed", 0) + 1
        return reason


def _key(violation: Violation) -> tuple[object, ...]:
    """Return what a broken constraint is about, without amounts."""
    return tuple(violation.get(name) for name in ("kind", "node", "resource", "from", "to", "operator", "other"))


def known_part(network: NetworkDescription, needed: Mapping[str, int]) -> NetworkDescription:
    """Return the network without nodes that take nothing, and without nodes of which some delay is unknown.

    Args:
        needed: name of a node → instances that must stay there; it stays as long as possible, and has room for them.
    """
    hosts = {
        node: replace(state, resources={**state.resources, SLOTS: _slots(state, needed)})
        for node, state in network.hosts.items()
        if not (state.is_draining or state.unfit) or state.name in needed
    }
    links = network.view.links()
    unknown: dict[NodeId, dict[NodeId, bool]] = {node: {} for node in hosts}
    for (a, b), figures in links.items():
        if figures.source is FigureSource.UNKNOWN and a in hosts and b in hosts:
            unknown[a][b] = unknown[b][a] = True
    while any(unknown.values()):
        worst = max(unknown, key=lambda node: (bool(unknown[node]), hosts[node].name not in needed, len(unknown[node])))
        for others in unknown.values():
            others.pop(worst, None)
        del unknown[worst]
    left = {node: hosts[node] for node in unknown}
    inside = {pair: figures for pair, figures in links.items() if pair[0] in left and pair[1] in left}
    positions = {node: place for node in left if (place := network.view.position(node)) is not None}
    return replace(
        network,
        hosts=left,
        ids={state.name: node for node, state in left.items()},
        view=TableNetwork(inside, positions, network.view.default),
    )


def _slots(state: HostState, needed: Mapping[str, int]) -> float:
    """Return the instances that a node may hold: one that takes nothing keeps what must stay."""
    least = state.used.get(SLOTS, 0.0) + needed.get(state.name, 0)
    return least if state.is_draining or state.unfit else max(least, state.resources.get(SLOTS, 0.0))


def _with_known_places(topology: TopologyDescription, network: NetworkDescription) -> TopologyDescription:
    """Return the topology without candidates that the network lacks."""
    on = tuple(
        None if places is None else tuple(name for name in places if name in network.ids) for places in topology.on
    )
    return replace(topology, on=on)


def _start(start: Nodes | None, topology: TopologyDescription, network: NetworkDescription) -> dict[str, list[str]]:
    """Return a placement by names; empty: there is none, or the network lacks one of its nodes."""
    names: dict[str, list[Any]] = {}
    for stage in topology.stages:
        nodes: Sequence[NodeId | None] = [(start or {}).get((stage.stage, index)) for index in range(stage.parallelism)]
        if any(node not in network.hosts for node in nodes):
            return {}
        names[stage.name] = [network.hosts[node].name for node in nodes if node is not None]
    return names
