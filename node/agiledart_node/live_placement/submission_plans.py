"""Plans for submissions by strategies that take long: the topology has the builder's expectations, since nothing runs yet."""

from collections.abc import Mapping
from dataclasses import replace

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.forming.blueprint import Blueprint
from agiledart_node.live_placement.measured_topology import measured_topology
from agiledart_node.live_placement.plan_solver import PlanSolver
from agiledart_node.records.application import SPECIFICATION_CODEC
from agiledart_placement.files.network_file import NetworkDescription
from agiledart_placement.problem.objective import Objective
from agiledart_placement.registry import PlacementChoice


class SubmissionPlans:
    """Makes placement problems of submissions."""

    def __init__(self, solver: PlanSolver) -> None:
        self._solver = solver

    async def solve(
        self, blueprint: Blueprint, pinned: Mapping[int, Peer], network: NetworkDescription, choice: PlacementChoice
    ) -> tuple[Mapping[tuple[int, int], NodeId], str]:
        """Return the node of every instance, and the strategy's words; without nodes: why there are none."""
        specification = SPECIFICATION_CODEC.decode(blueprint.specification)
        plan = blueprint.stage_plan
        description = measured_topology(blueprint.name, plan, specification, {}, {}, network.ids).description
        names = {node: state.name for node, state in network.hosts.items()}
        if missing := [peer.name or peer.node.short for peer in pinned.values() if peer.node not in names]:
            return {}, f"{choice.strategy}: {missing[0]} does not answer"
        on = tuple(
            (names[pinned[stage.stage].node],) if stage.stage in pinned else places
            for stage, places in zip(description.stages, description.on, strict=True)
        )
        solved = await self._solver.solve(choice, Objective(choice.objective), network, replace(description, on=on))
        return ({}, solved) if isinstance(solved, str) else (solved.nodes, solved.text)
