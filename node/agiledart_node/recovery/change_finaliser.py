"""A change is committed: what this node runs of the run now, where the rest of it runs, and what its record says.

A node that is left with nothing lets the run go at the next commit, not at once: instances elsewhere may still wait for the last
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
    """Whether a part is of this plan, as far as stages, numbers and tables go."""
    return not plan.body or part.plan == plan.body


def part_under(part: DeploymentPart, plan: Plan, me: NodeId, slots: dict[tuple[int, int], int]) -> DeploymentPart:
    """The part of a node under a plan in the register.

    Args:
        slots: executors of the copies that it has.
    """
    nodes: dict[NodeId, Peer] = {peer.node: peer for peer in part.nodes}
    nodes.update(plan.hosts)
    position = {node: number for number, node in enumerate(nodes)}
    mine = tuple(PlacedInstance(*copy, slots.get(copy, 0)) for copy in (copy_of(one.instance) for one in plan.at(me)))
    return msgspec.structs.replace(
        part,
        plan=plan.body or part.plan,
        nodes=tuple(nodes.values()),
        assignment=tuple(InstancePlace(*copy_of(one.instance), position[one.host.node]) for one in plan.assignments),
        instances=mine,
        executors=max([part.executors, *(placed.executor + 1 for placed in mine)]),
    )


def in_plan(record: ApplicationRecord, part: DeploymentPart, text: str, wall_ms: int) -> ApplicationRecord:
    """The record of an application whose stages have changed."""
    return msgspec.structs.replace(
        record,
        nodes=part.nodes,
        assignment=part.assignment,
        plan=part.plan,
        stages=entries_of(record, part.plan),
        history=kept_history(record.history, HistoryEntry(wall_ms, RUNNING, text)),
    )


class ChangeFinaliser:
    """What there is of runs at this node, when they change.

    Args:
        runs: that this node hosts, with their code.
        keep: puts the part of a run on the disk.
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
        """Take a run up here under the plan that holds, or find it.

        A guard has a run under the plan with which it was deployed, and who has left it under the one of then: nobody tells them of
        changes. What comes here for the next plan would be settled by the next commit as by a change in which nothing is here.
        """
        hosted = self._hosting.adopt(part)
        hosted.has_register = True
        if not follows(hosted.part, plan):
            self._hosting.moved(hosted, part_under(hosted.part, plan, self._context.me.node, hosted.instances))
        self._hosting.flow(hosted)
        return hosted

    def hosted(self, key: Key) -> HostedApplication | None:
        """One that is taken up."""
        return self._hosting.table.get(key)

    def empty(self, hosted: HostedApplication) -> None:
        """Let one go that has nothing here."""
        hosted.has_moved = True
        self._hosting.close(hosted, "its instances run on other nodes")

    def left(self, hosted: HostedApplication) -> None:
        """A life is lived without this node: what a change has left here empty goes."""
        if self._emptied.pop(hosted.key, None) is not None and not hosted.instances:
            self.empty(hosted)

    def committed(self, key: Key, value: RegisterValue, slots: dict[tuple[int, int], int]) -> None:
        """An epoch is committed; when it carried a change, things are as the change says.

        Args:
            slots: executors of copies that waited here.
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
        me = self._context.me.node
        part = part_under(hosted.part, value.plan, me, hosted.instances | slots)
        hosted.instances = {placed.copy: placed.executor for placed in part.instances}
        hosted.planned = len(hosted.instances)
        for table in (hosted.reports, hosted.reported_at, hosted.finished, hosted.acknowledged):
            for copy in [copy for copy in table if copy not in hosted.instances]:
                del table[copy]
        self._hosting.moved(hosted, part)
        self._hosting.on_capacity_changed()
        kept = part_under(run.part, value.plan, me, hosted.instances)
        run.part = msgspec.structs.replace(kept, bundle=run.part.bundle)
        self._keep(hosted.key, run.part)
        self._emptied.pop(hosted.key, None)
        if not hosted.instances:
            self._emptied[hosted.key] = value.committed.epoch
        if part.coordinator.node == me:
            self._context.requests.begin(self._note(hosted, part, value))

    async def _note(self, hosted: HostedApplication, part: DeploymentPart, value: RegisterValue) -> None:
        names = {str(stage.index): stage.name for stage in _PLAN.decode(part.plan).stages}
        told = [
            f"{one.kind} of {names.get(one.stage, one.stage)}: {one.before} to {one.after}"
            for one in value.plan.changes
        ]
        text = "; ".join(told) or "changed"
        await self._records.change(
            *hosted.key,
            lambda record: (
                None
                if record.is_final or record.plan == part.plan
                else in_plan(record, part, text, self._context.wall_ms)
            ),
        )
