"""Placement rules of applications, for recovery's choice of the hosts that take instances over.

A node whose labels are not known yet is forbidden to a stage that needs one. Voters of such runs ask for labels beforehand.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.records.stage_rules import NodeTraits, broken_rule, has_rules, partners
from agiledart_node.recovery.change_plans import stage_plan_of
from agiledart_node.recovery.register_bootstrap import copy_of
from agiledart_recovery.host_rules import HostFit
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.wire.names import InstanceId
from agiledart_recovery.wire.register_value import Assignment, RegisterValue

MAX_PLANS: Final = 64
"""Decoded plans that are kept."""

MAX_ASKED: Final = 16
"""Nodes that are asked for their labels at one time."""


class PlacementHostRules:
    """Rules of the runs in whose registers this node votes."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._plans: dict[bytes, StagePlan | None] = {}
        self._asked: dict[NodeId, int] = {}  # node without known labels → the round in which it was asked last
        self._rounds = 0

    def fit(
        self, value: RegisterValue, assignment: Assignment, host: Peer, hosts: Mapping[InstanceId, Peer]
    ) -> HostFit:
        """Return how well a host fits an instance; see `HostRules`."""
        plan = self._ruled_plan(value)
        if plan is None:
            return HostFit.ALLOWED
        if self.forbidding(value, assignment, host):
            return HostFit.FORBIDDEN
        stage, index = copy_of(assignment.instance)
        here = self._traits(host)
        others = {copy_of(instance): self._traits(peer) for instance, peer in hosts.items()}
        # A host that a stage with the same nodes may not use would part them.
        parted = any(
            other.rules.broken_by(here.name, here.zone, here.labels) for other in partners(plan, plan.stages[stage])
        )
        is_broken = parted or broken_rule(plan, plan.stages[stage], index, here, others)
        return HostFit.BREAKS_PAIR if is_broken else HostFit.ALLOWED

    def forbidding(self, value: RegisterValue, assignment: Assignment, host: Peer) -> str:
        """Return the rule about the host alone that forbids it; see `HostRules`."""
        plan = self._ruled_plan(value)
        if plan is None:
            return ""
        stage = plan.stages[copy_of(assignment.instance)[0]]
        here = self._traits(host)
        rule = stage.rules.broken_by(here.name, here.zone, here.labels)
        return rule and f"{stage.name}: {rule}"

    def _traits(self, peer: Peer) -> NodeTraits:
        is_me = peer.node == self._context.me.node
        labels = self._context.config.labels if is_me else self._context.labels.of(peer) or ()
        return NodeTraits(peer.node, peer.name or peer.node.short, peer.zone, peer.host, labels)

    async def learn(self, machine: RecoveryMachine, ask: Callable[[list[Peer]], Awaitable[object]]) -> None:
        """Ask nodes for their labels where a run that this node may coordinate needs some.

        Args:
            ask: asks nodes for their loads, which carry labels.
        """
        values = [known for coordinator in machine.coordinators.values() if (known := coordinator.known) is not None]
        plans = [plan for value in values if (plan := self._ruled_plan(value)) is not None]
        if any(stage.rules.labels for plan in plans for stage in plan.stages):
            unknown = self._context.labels.unknown(self._context.nearest_of(self._context.overlay.known_peers()))
            if unknown:
                await ask(self._next_asked(unknown))

    def _next_asked(self, unknown: list[Peer]) -> list[Peer]:
        """Return the nodes that were not asked for longest, so that silent ones do not keep the others from their turn."""
        self._rounds += 1
        asked = {peer.node: self._asked.get(peer.node, 0) for peer in unknown}
        chosen = sorted(unknown, key=lambda peer: asked[peer.node])[:MAX_ASKED]
        self._asked = asked | {peer.node: self._rounds for peer in chosen}
        return chosen

    def _ruled_plan(self, value: RegisterValue) -> StagePlan | None:
        """Return the stages of a run with rules; None: it has none, or another version wrote it."""
        body = value.plan.body
        if body not in self._plans:
            try:
                plan = stage_plan_of(value)
            except (CommandRefused, RemoteProtocolError):
                return None
            while len(self._plans) >= MAX_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[body] = plan if has_rules(plan.stages) else None
        return self._plans[body]
