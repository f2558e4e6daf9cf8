"""Paths of running applications, joined anew by their coordinator: after a change of hosts, and before the soft state ends.

The coordinator asks the nodes of the sources to JOIN to the nodes of the sinks again, over the routes of now. The nodes on these
routes keep the forwarders' soft state; on routes of before it ends with its lifetime, as it does everywhere once the application
ends. The application's record gets the new paths. No running stage moves by it: that is the re-placement's.

Source: [AgileDART] §IV-A; spec of the dataflow graph, section 3.
"""

from dataclasses import dataclass

import msgspec

from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.autoscaling.autoscaler import coordinates
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.forming.join_protocol import JoinProtocol, Paths
from agiledart_node.records.application import RUNNING, ApplicationRecord
from agiledart_node.records.records import Records
from agiledart_node.recovery.change_plans import stage_plan_of
from agiledart_node.recovery.recovery_service import RecoveryService
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import RegisterValue

RENEWALS = 2
"""Renewals within the lifetime of soft state."""

Wanted = dict[NodeId, tuple[Peer, tuple[Peer, ...]]]
"""Sink node → (its peer, the source nodes whose rows reach a sink there)."""


@dataclass(slots=True)
class _Joined:
    at: Instant
    hosts: frozenset[NodeId]
    is_busy: bool = False


class PathRenewal:
    """Renewals of the paths of all runs that this node coordinates."""

    def __init__(
        self, context: NodeContext, records: Records, recovery_service: RecoveryService, joining: JoinProtocol
    ) -> None:
        self._context, self._records, self._recovery_service, self._joining = (
            context,
            records,
            recovery_service,
            joining,
        )
        self._joined: dict[RunId, _Joined] = {}

    def look(self) -> None:
        """Begin a renewal for each run whose hosts changed, or whose paths are old. A new run was joined when it was formed."""
        now = self._context.now
        coordinators = self._recovery_service.machine.coordinators
        runs = {run: coordinator for run, coordinator in coordinators.items() if coordinates(coordinator)}
        for run in tuple(self._joined):
            if run not in runs:
                del self._joined[run]
        due: list[tuple[RunId, RegisterValue, _Joined]] = []
        for run, coordinator in runs.items():
            hosts = frozenset(coordinator.value.plan.hosts)
            joined = self._joined.setdefault(run, _Joined(now, hosts))
            is_old = now - joined.at >= self._context.config.soft_state_ns // RENEWALS
            is_calm = coordinator.progress.since is None and not joined.is_busy and not self._context.requests.is_full
            if is_calm and (is_old or hosts != joined.hosts):
                joined.at, joined.hosts, joined.is_busy = now, hosts, True
                due.append((run, coordinator.value, joined))
        if due:
            self._context.requests.begin(self._renew_all(due))

    async def _renew_all(self, due: list[tuple[RunId, RegisterValue, _Joined]]) -> None:
        for number, (run, value, joined) in enumerate(due):
            await self._context.requests.pause_after(number)
            self._context.requests.begin(self._renew(run, value, joined))

    async def _renew(self, run: RunId, value: RegisterValue, joined: _Joined) -> None:
        try:
            _, record = await self._records.application(run.app)
            if record is None or record.version != run.version or record.state != RUNNING or record.stopping:
                return
            paths = await self._joining.form(record.number, wanted_paths(value), are_new=True)
            if paths != record.paths:
                await self._records.change(
                    run.app, run.version, lambda stored: _with_paths(stored, paths), record.number
                )
        except CommandRefused:
            return  # a node does not answer: recovery deals with it, and the next renewal tries again
        finally:
            joined.is_busy = False


def wanted_paths(value: RegisterValue) -> Wanted:
    """Return the nodes of the sinks of a run, each with the nodes of the sources that feed it."""
    plan = stage_plan_of(value)
    wanted: dict[NodeId, tuple[Peer, dict[NodeId, Peer]]] = {}
    for source in (stage.index for stage in plan.stages if stage.kind == "source"):
        below = _reached_from(plan, source)
        for sink in (stage.index for stage in plan.stages if stage.kind == "sink" and stage.index in below):
            for end in value.plan.stage(str(sink)):
                entry = wanted.setdefault(end.host.node, (end.host, {}))
                for begin in value.plan.stage(str(source)):
                    entry[1][begin.host.node] = begin.host
    return {sink: (peer, tuple(sources[node] for node in sorted(sources))) for sink, (peer, sources) in wanted.items()}


def _reached_from(plan: StagePlan, source: int) -> set[int]:
    reached, waiting = {source}, [source]
    while waiting:
        for edge in plan.outgoing(waiting.pop()):
            if edge.target not in reached:
                reached.add(edge.target)
                waiting.append(edge.target)
    return reached


def _with_paths(record: ApplicationRecord, paths: Paths) -> ApplicationRecord | None:
    is_running = record.state == RUNNING and not record.stopping
    return msgspec.structs.replace(record, paths=paths) if is_running and record.paths != paths else None
