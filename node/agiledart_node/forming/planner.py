"""Plans: from a submission and the loads of nodes to the placement, the guards and the assumptions of the plan.

Source: the project's dataflow specification §4.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from agiledart_dataflow.plan.delivery import DEFAULT, Delivery
from agiledart_dataflow.plan.specification import FORMAT, release
from agiledart_kernel.grants import SKEW_SECONDS
from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_node.context.display_names import display_names
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.forming.balanced_shares import balanced_shares, places_of
from agiledart_node.forming.blueprint import Blueprint
from agiledart_node.forming.deployer import Deployment
from agiledart_node.forming.join_protocol import Paths
from agiledart_node.forming.network_of_loads import network_of_loads
from agiledart_node.forming.surveyor import Loads, Surveyor
from agiledart_node.records.application import ApplicationRecord
from agiledart_node.records.command_verifier import placement_of
from agiledart_node.records.data_paths import reasons_of
from agiledart_node.records.signed_entries import signed_entries_for
from agiledart_node.records.stage_rules import NodeTraits, has_rules, ruled_demand, unfulfilled
from agiledart_node.wire.checkpoint_commands import CheckpointOrigin
from agiledart_node.wire.formation_messages import NodeLoad
from agiledart_placement.files.network_file import NetworkDescription
from agiledart_placement.problem.request import HostState, Obstacle, Placement, PlacementRequest, StageDemand
from agiledart_placement.registry import STRATEGIES, PlacementChoice, strategy_named

MAX_EXECUTORS = 64
"""Executor processes of one application on one node."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A submission as a scheduler receives it.

    Args:
        executors: requested executor processes per node; 0: the node's own number.
        submitted_to: the agent that the user asked.
        pinned: stage → the node that must run it.
        domain: zone or region whose schedulers serve it.
        ticket: number of the submission, also in its record.
        began: time of the user's request, by this node's clock.
        principal: the user's grant: its key owns the application.
        delivery: guarantee when a host dies.
        signed: the command as the user has signed it.
        origin: the checkpoint from which it starts, stored on the asked agent.
    """

    blueprint: Blueprint
    bundle: bytes
    executors: int
    submitter: str
    submitted_to: Peer
    pinned: dict[int, Peer]
    domain: str
    ticket: int
    began: Instant
    principal: Principal
    delivery: Delivery = DEFAULT
    signed: bytes = b""
    origin: CheckpointOrigin | None = None


Solve = Callable[
    [Blueprint, Mapping[int, Peer], NetworkDescription, PlacementChoice],
    Awaitable[tuple[Mapping[tuple[int, int], NodeId], str]],
]
"""Function that asks a planner process: blueprint, pinned stages, network, choice → nodes of all instances, and what its strategy
says; without nodes: why there are none."""


async def _no_solver(*_: object) -> tuple[Mapping[tuple[int, int], NodeId], str]:
    return {}, "this node has no planner"


class Planner:
    """Makes plans.

    Attributes:
        solve: asks the planner process; the node sets it.
    """

    def __init__(self, context: NodeContext, surveying: Surveyor) -> None:
        self._context, self._surveying = context, surveying
        self.solve: Solve = _no_solver

    def choice_of(self, signed: bytes) -> PlacementChoice:
        """Return the strategy and objective of a submission: those of the user's command, else of this agent."""
        return self._context.config.placement_choice(placement_of(signed))

    async def survey(self, blueprint: Blueprint, pinned: dict[int, Peer], paths: Paths) -> Loads:
        """Return loads of the nodes on the paths and around them. Raises CommandRefused when a pinned node is missing."""
        nodes: dict[NodeId, Peer] = {}
        for path in paths:
            for peer in path:
                nodes.setdefault(peer.node, peer)
        count = sum(stage.parallelism for stage in blueprint.stages)
        plan = blueprint.stage_plan
        is_ruled = has_rules(plan.stages)
        if is_ruled:  # nodes that rules allow may lie anywhere
            nodes |= {peer.node: peer for peer in self._context.known() if peer.node not in nodes}
        loads = await self._surveying.with_candidates(list(nodes.values()), count)
        if is_ruled and (refusal := unfulfilled(plan, _traits(loads))):
            raise CommandRefused(refusal, 2)
        asking = next((stage.name for stage in plan.stages if stage.standby), "")
        if asking and len(loads) < 2 and len(loads := await self._surveying.wider(loads)) < 2:
            raise CommandRefused(
                f"{asking} asks for a standby, and {self._context.me.name} knows no second node that could be one. Start an agent"
                " on another host, or leave the standby out.",
                2,
            )
        for stage, peer in pinned.items():
            if peer.node not in loads:
                raise CommandRefused(f"{blueprint.stages[stage].name}: {peer.name or peer.node.short} does not answer.")
            if loads[peer.node][1].is_draining:
                raise CommandRefused(f"{blueprint.stages[stage].name}: {peer.name or peer.node.short} is leaving.")
            load = loads[peer.node][1]
            if self._unfit(peer, load) is Obstacle.VERSION:
                there, here = release(load.software, load.specification), release(self._context.config.software, FORMAT)
                raise CommandRefused(
                    f"{blueprint.stages[stage].name}: {peer.name or peer.node.short} runs {there}, you submitted with {here}: "
                    "install the same agiledart on both, or put this step elsewhere."
                )
            if self._unfit(peer, load) is Obstacle.CLOCK:
                clock = self._context.clocks.describe_difference(peer.node)
                raise CommandRefused(
                    f"{blueprint.stages[stage].name}: {clock}; other nodes reject its signatures when its clock is off by more "
                    f"than {SKEW_SECONDS} s. Set it there (sudo timedatectl set-ntp true), then submit again."
                )
        return loads

    def _unfit(self, peer: Peer, load: NodeLoad) -> Obstacle | None:
        """Return why a node can take no instance at all, regardless of its capacity."""
        if load.specification != FORMAT:
            return Obstacle.VERSION
        return Obstacle.CLOCK if self._context.clocks.is_skewed(peer.node) else None

    async def place(
        self,
        blueprint: Blueprint,
        pinned: dict[int, Peer],
        paths: Paths,
        loads: Loads,
        full: dict[NodeId, bool],
        choice: PlacementChoice,
    ) -> Placement:
        """Place every instance; `full` are nodes that take nothing more.

        A strategy that takes long runs in the planner process. Without its plan the default strategy places, and says so.

        Raises:
            NoCapacity: no nodes have room.
        """
        if choice.is_inline:
            return self._place_inline(blueprint, pinned, paths, loads, full, choice.strategy)
        timeout = self._context.config.report_timeout_ns
        peers = [peer for peer, _ in loads.values()]
        measured = await self._surveying.loads(peers, timeout, wants_round_trips=True)
        unfit = dict.fromkeys(full, Obstacle.FULL)
        for node, (peer, load) in measured.items():
            if (obstacle := self._unfit(peer, load)) is not None:
                unfit[node] = obstacle
        network = network_of_loads(measured, unfit, keeps_unknown=True)
        nodes, text = await self.solve(blueprint, pinned, network, choice)
        free = [stage for stage in range(len(blueprint.stages)) if stage not in pinned]
        if nodes:
            return Placement(nodes, reasons=dict.fromkeys(free, text), is_planned=True)
        usual = self._place_inline(blueprint, pinned, paths, loads, full, STRATEGIES[0])
        return replace(usual, reasons=dict.fromkeys(free, f"{STRATEGIES[0]} placed it, because {text}"))

    def _place_inline(
        self,
        blueprint: Blueprint,
        pinned: dict[int, Peer],
        paths: Paths,
        loads: Loads,
        full: dict[NodeId, bool],
        strategy: str,
    ) -> Placement:
        places = places_of(loads)
        hosts = {
            node: HostState(
                node,
                load.operators,
                load.capacity,
                blueprint.name in load.applications,
                load.is_draining or node in full,
                self._unfit(peer, load),
                offers=load.labels,
                candidates=tuple(peer.node for peer in load.candidates),
                neighbours=tuple(peer.node for peer in load.neighbours),
                zone=peer.zone,
                host=peer.host,
                places=places[node],
            )
            for node, (peer, load) in sorted(loads.items())
        }
        names = {peer.name: node for node, (peer, _) in loads.items() if peer.name}
        plan = blueprint.stage_plan
        stages = tuple(
            ruled_demand(
                StageDemand(number, stage.name, stage.parallelism, pinned[number].node if number in pinned else None),
                plan,
                names,
            )
            for number, stage in enumerate(blueprint.stages)
        )
        routes = tuple(tuple(peer.node for peer in path) for path in paths)
        balance = self._context.config.max_ops_balanced
        return strategy_named(strategy).place(PlacementRequest(stages, blueprint.edges, routes, hosts, balance))

    def deployment(
        self,
        record: ApplicationRecord,
        submission: Submission,
        loads: Loads,
        placement: Placement,
        attempt: int,
        limits: dict[NodeId, int],
    ) -> Deployment:
        """Return the plan in the form in which it is sent."""
        blueprint, pinned = submission.blueprint, submission.pinned
        peers = {node: peer for node, (peer, _) in loads.items()}
        used = sorted(dict.fromkeys(placement.nodes.values(), True))
        coordinator = min((pinned[sink] for sink in blueprint.sinks), key=lambda peer: peer.node)
        # Guards: near the coordinator, and hosts of nothing, so that a lost host takes none of them along.
        near = [peer for peer in loads[coordinator.node][1].candidates if peer.node in peers and peer.node not in used]
        executors = {node: min(submission.executors or loads[node][1].executors, MAX_EXECUTORS) for node in used}
        return Deployment(
            blueprint,
            record.name,
            record.version,
            record.number,
            attempt,
            submission.bundle,
            tuple(peers[node] for node in used),
            tuple(
                near[
                    : self._context.config.voting_guards
                    if submission.delivery.is_saved
                    else self._context.config.guards
                ]
            ),
            dict(placement.nodes),
            executors,
            coordinator,
            submission.domain,
            submission.delivery,
            submission.signed,
            record.owner_key,
            limits,
            reasons_of(placement, loads, len(blueprint.stages), self.balanced_shares(loads)),
            signed_entries_for(record, submission.principal.key),
            goes_on=submission.origin is not None,
        )

    def limits(self, submission: Submission, placement: Placement, loads: Loads) -> dict[NodeId, int]:
        """Return the instances that each host may have for this placement to keep the balance rule, unless the rule was dropped.

        Nodes of pinned stages have no alternative and no limit.
        """
        shares = self.balanced_shares(loads)
        choice = self.choice_of(submission.signed)
        strategy = choice.strategy if choice.is_inline else STRATEGIES[0]
        if placement.is_planned or "balance" in placement.relaxed or not strategy_named(strategy).keeps_balance:
            return {}
        pinned = {peer.node: True for peer in submission.pinned.values()}
        planned: dict[NodeId, int] = {}
        for node in placement.nodes.values():
            planned[node] = planned.get(node, 0) + 1
        fits = (node for node, more in planned.items() if loads[node][1].operators + more <= shares[node])
        return {node: shares[node] for node in fits if node not in pinned}

    def balanced_shares(self, loads: Loads) -> dict[NodeId, int]:
        """Return the instances of all applications from which on each node counts as full."""
        return balanced_shares(loads, self._context.config.max_ops_balanced)


def _traits(loads: Loads) -> list[NodeTraits]:
    names = display_names(tuple(peer for peer, _ in loads.values()))
    return [
        NodeTraits(node, names[node], peer.zone, peer.host, load.labels) for node, (peer, load) in sorted(loads.items())
    ]


def could_fit(plan: Deployment, loads: Loads) -> bool:
    """Return whether every host could take its part of a plan if it ran nothing else."""
    planned: dict[NodeId, int] = {}
    for node in plan.placement.values():
        planned[node] = planned.get(node, 0) + 1
    return all(count <= loads[node][1].capacity for node, count in planned.items())
