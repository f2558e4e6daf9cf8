"""Finalisation of a committed change: the instances on this node, the places of all others, and the application's record.

A node that is left without instances closes the run at the next commit, not at once: instances elsewhere may still wait for the
last
acknowledgements of those that have left here.
"""

from collections.abc import Callable

import msgspec

from agiledart_dataflow.plan.deployment import DeploymentPart, InstancePlace, PlacedInstance
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.codec import Codec
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.hosting.hosted_application import HostedApplication, Key
from agiledart_node.records.application import RUNNING, ApplicationRecord, HistoryEntry, kept_history
from agiledart_node.records.records import Records
from agiledart_node.recovery.hosted_run import HostedRun, entries_of
from agiledart_node.recovery.register_bootstrap import copy_of
from agiledart_recovery.wire.register_value import Plan, RegisterValue

_PLAN: Codec[StagePlan] = Codec(StagePlan)


def follows(part: DeploymentPart, plan: Plan) -> bool:
    """Return whether a part belongs to this plan, as far as stages, numbers and tables are concerned."""
    return not plan.body or part.plan == plan.body


def part_under(part: DeploymentPart, plan: Plan, me: NodeId, slots: dict[tuple[int, int], int]) -> DeploymentPart:
    """Return the part of a node under a plan in the register.

    Args:
        slots: executors of the instances that the node has.
    """
    nodes: dict[NodeId, Peer] = {peer.node: peer for peer in part.nodes}
    nodes.update(plan.hosts)
    position = {node: number for number, node in enumerate(nodes)}
    mine = tuple(
        PlacedInstance(*copy, slots.get(copy, 0))
        for copy in (copy_of(assignment.instance) for assignment in plan.at(me))
    )
    return msgspec.structs.replace(
        part,
        plan=plan.body or part.plan,
        nodes=tuple(nodes.values()),
        assignment=tuple(
            InstancePlace(*copy_of(assignment.instance), position[assignment.host.node])
            for assignment in plan.assignments
        ),
        instances=mine,
        executors=max([part.executors, *(placed.executor + 1 for placed in mine)]),
    )


def in_plan(record: ApplicationRecord, part: DeploymentPart, text: str, wall_ms: int) -> ApplicationRecord:
    """Return the record of an application whose stages have changed."""
    return msgspec.structs.replace(
        record,
        nodes=part.nodes,
        assignment=part.assignment,
        plan=part.plan,
        stages=entries_of(record, part.plan),
        history=kept_history(record.history, HistoryEntry(wall_ms, RUNNING, text)),
    )


class ChangeFinaliser:
    """Runs that this node hosts, when their stages change.

    Args:
        runs: runs that this node hosts, with their code.
        keep: writes the part of a run to the disk.
    """

    def __init__(
        self,
        context: NodeContext,
        records: Records,
        hosting: ApplicationHost,
        runs: dict[Key, HostedRun],
        keep: Callable[[Key, DeploymentPart], None],
    ) -> None:
        self._context, self._records, self._hosting, self._runs, self._keep = context, records, hosting, runs, keep
        self._emptied: dict[Key, int] = {}

    def adopt(self, part: DeploymentPart, plan: Plan) -> HostedApplication:
        """Return the hosted run, after adding it under the current plan if it is missing.

        A guard knows a run under the plan of its deployment, and a former host under the plan of its departure: they receive no
        changes.
        Without this step the next commit would finalise instances that wait here for the next plan, as if they were not in it.
        """
        hosted = self._hosting.adopt(part)
        hosted.has_register = True
        if not follows(hosted.part, plan):
            self._hosting.moved(hosted, part_under(hosted.part, plan, self._context.me.node, hosted.instances))
        self._hosting.flow(hosted)
        return hosted

    def hosted(self, key: Key) -> HostedApplication | None:
        """Return a run that this node hosts; None when it does not."""
        return self._hosting.table.get(key)

    def empty(self, hosted: HostedApplication) -> None:
        """Close a run that has no instances here."""
        hosted.has_moved = True
        self._hosting.close(hosted, "its instances run on other nodes")

    def left(self, hosted: HostedApplication) -> None:
        """Close a run that a change has left empty here, once an attempt runs without this node."""
        if self._emptied.pop(hosted.key, None) is not None and not hosted.instances:
            self.empty(hosted)

    def committed(self, key: Key, value: RegisterValue, slots: dict[tuple[int, int], int]) -> None:
        """Finalise a change when the committed epoch carries one.

        Args:
            slots: executors of instances that waited here.
        """
        run, hosted = self._runs.get(key), self._hosting.table.get(key)
        if run is None or hosted is None or hosted.is_closing:
            return
        if not follows(hosted.part, value.plan):
            self._follow(run, hosted, value, slots)
        elif self._emptied.get(key, value.committed.epoch) < value.committed.epoch:
            del self._emptied[key]
            if not hosted.instances:
                self.empty(hosted)

    def _follow(
        self, run: HostedRun, hosted: HostedApplication, value: RegisterValue, slots: dict[tuple[int, int], int]
    ) -> None:
        """Apply a committed plan: update the hosted instances, the part on the disk, and the record."""
        me = self._context.me.node
        part = part_under(hosted.part, value.plan, me, hosted.instances | slots)
        hosted.instances = {placed.copy: placed.executor for placed in part.instances}
        hosted.planned = len(hosted.instances)
        for table in (hosted.reports, hosted.reported_at, hosted.finished, hosted.acknowledged):
            for copy in [copy for copy in table if copy not in hosted.instances]:
                del table[copy]
        self._hosting.moved(hosted, part)
        self._hosting.on_capacity_changed()
        stored = part_under(run.part, value.plan, me, hosted.instances)
        run.part = msgspec.structs.replace(stored, bundle=run.part.bundle)
        self._keep(hosted.key, run.part)
        self._emptied.pop(hosted.key, None)
        if not hosted.instances:
            self._emptied[hosted.key] = value.committed.epoch
        if part.coordinator.node == me:
            self._context.requests.begin(self._note(hosted, part, value))

    async def _note(self, hosted: HostedApplication, part: DeploymentPart, value: RegisterValue) -> None:
        names = {str(stage.index): stage.name for stage in _PLAN.decode(part.plan).stages}
        descriptions = [
            f"{change.kind} of {names.get(change.stage, change.stage)}: {change.before} to {change.after}"
            for change in value.plan.changes
        ]
        text = "; ".join(descriptions) or "changed"
        await self._records.change(
            *hosted.key,
            lambda record: (
                None
                if record.is_final or record.plan == part.plan
                else in_plan(record, part, text, self._context.wall_ms)
            ),
        )
