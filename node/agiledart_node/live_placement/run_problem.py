"""Placement problem of one run on live measures, for explanations and for moves."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agiledart_dataflow.plan.specification import Specification
from agiledart_dataflow.plan.stage_plan import Stage, StagePlan
from agiledart_kernel.node_id import NodeId
from agiledart_node.live_placement.measured_topology import MeasuredTopology, measured_topology
from agiledart_node.live_placement.placement_explanation import PlacementExplanation, explained
from agiledart_placement.files.network_file import NetworkDescription
from agiledart_placement.files.topology_file import TopologyDescription, joined_request
from agiledart_placement.problem.network_view import FigureSource
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.problem import SLOTS
from agiledart_placement.problem.request import HostState, PlacementRequest

Instances = Mapping[tuple[int, int], NodeId]
"""(stage, index) → node."""

Reports = Mapping[tuple[int, int], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class RunProblem:
    """Problem of one run.

    Attributes:
        plan: stages, edges, rules.
        now: the placement.
        network: nodes that answered, as if the run were not there.
        measured: the topology with its rates and times.
    """

    plan: StagePlan
    now: Instances
    network: NetworkDescription
    measured: MeasuredTopology

    @property
    def missing(self) -> tuple[NodeId, ...]:
        """Hosts of the run whose figures are missing; without them nothing can be computed."""
        return tuple(dict.fromkeys(node for node in self.now.values() if node not in self.network.hosts))

    @property
    def unknown_links(self) -> tuple[tuple[NodeId, NodeId], ...]:
        """Links that rows cross now and of which no delay is known; with one, nothing can be computed."""
        crossed = {
            (a, b): True
            for edge in self.plan.edges
            for (above, _), a in self.now.items()
            for (below, _), b in self.now.items()
            if (above, below) == (edge.source, edge.target) and a != b
        }
        view = self.network.view
        return tuple(pair for pair in crossed if view.link(*pair).source is FigureSource.UNKNOWN)

    @property
    def request(self) -> PlacementRequest:
        """The problem as strategies take it."""
        return joined_request(self.network, [self.measured.description])

    def why_it_stays(self, stage: int) -> str:
        """Return why a stage never moves while rows flow; empty: it may."""
        return stays(self.plan.stages[stage])

    def pinned_topology(self, names: Mapping[NodeId, str], held: Collection[str] = ()) -> TopologyDescription:
        """Return the topology with all that does not move on its nodes, as `agiledart place` must leave it.

        Args:
            names: of nodes.
            held: names of further stages that stay.
        """
        on = tuple(
            tuple(
                dict.fromkeys(
                    names[self.now[stage.index, n]] for n in range(stage.parallelism) if (stage.index, n) in self.now
                )
            )
            if (stays(stage) or stage.name in held) and (stage.index, 0) in self.now
            else places
            for stage, places in zip(self.plan.stages, self.measured.description.on, strict=True)
        )
        return replace(self.measured.description, on=on)

    def explained(self, objective: Objective) -> PlacementExplanation:
        """Return the judgement of the placement now; `missing` must be empty."""
        movable = [stage.index for stage in self.plan.stages if not stays(stage)]
        return explained(self.request, self.now, movable, objective, self.rule_of)

    def rule_of(self, instance: tuple[int, int], node: NodeId) -> str:
        """Return the rule that forbids an instance on a node, in words."""
        state = self.network.hosts[node]
        rule = self.plan.stages[instance[0]].rules.broken_by(state.name, state.zone, state.offers)
        return rule or f"{state.name} is drained or leaving"


def run_problem(
    name: str,
    plan: StagePlan,
    specification: Specification,
    reports: Reports,
    network: NetworkDescription,
    now: Instances,
) -> RunProblem:
    """Return the problem of a run, from the reports of its instances and the network of all nodes."""
    speeds = {copy: network.hosts[node].speed for copy, node in now.items() if node in network.hosts}
    measured = measured_topology(name, plan, specification, reports, speeds, network.ids)
    return RunProblem(plan, now, without_own_instances(network, now), measured)


def without_own_instances(network: NetworkDescription, now: Instances) -> NetworkDescription:
    """Return the network as if the application did not run: its instances are placed anew, so they must not count twice."""
    own: dict[NodeId, int] = {}
    for node in now.values():
        own[node] = own.get(node, 0) + 1

    def freed(state: HostState) -> HostState:
        used = dict(state.used)
        used[SLOTS] = max(0.0, used.get(SLOTS, 0.0) - own.get(state.node, 0))
        return replace(state, used=used)

    return replace(network, hosts={node: freed(state) for node, state in network.hosts.items()})


def stays(stage: Stage) -> str:
    """Return why a stage never moves while rows flow; empty: it may."""
    if stage.kind != "operator":
        return f"it is a {stage.kind}: it stays on the node that has its data"
    return f"it is pinned to {stage.at} by its topology" if stage.at else ""
