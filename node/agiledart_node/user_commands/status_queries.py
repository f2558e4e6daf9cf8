"""Answers to users' queries about applications: list and status. Their bodies: docs/reference/control-api.md."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.instants import Duration
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal, refusal_before_lookup
from agiledart_node.context.node_context import CommandRefused, NodeContext, did_you_mean
from agiledart_node.context.pending_requests import PeerRequest
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.hosting.application_watcher import ApplicationWatcher
from agiledart_node.hosting.hosted_application import report_copy, report_key
from agiledart_node.records.application import (
    MINORITY,
    RECOVERING,
    RUNNING,
    ApplicationRecord,
    Rival,
    is_old,
)
from agiledart_node.records.permission_checks import check, check_unseen
from agiledart_node.records.records import Records
from agiledart_node.records.summary import latency_logs_of, logs_of, scalars_of, statistics_of, summary_of
from agiledart_node.user_commands.scaling_advice import with_scores
from agiledart_node.user_commands.waiting_causes import WaitingFacts, receivers_of, waiting_causes
from agiledart_node.wire.application_responses import (
    ApplicationRow,
    HistoryRow,
    ListResponse,
    RivalRow,
    StageRow,
    StatusResponse,
    WaitingRow,
)
from agiledart_node.wire.awaited_input_row import awaited_input_of
from agiledart_node.wire.change_responses import ChangeRow
from agiledart_node.wire.checkpoint_responses import InstanceSnapshotRow
from agiledart_node.wire.formation_messages import (
    QueryReports,
    Reports,
)
from agiledart_node.wire.recovery_messages import QueryRecovery, RecoveryStatus
from agiledart_node.wire.recovery_responses import TAKEOVER, WAITING, EpochRow, RecoveryRow
from agiledart_node.wire.route_responses import routes_of


class StatusQueries:
    """Queries that only read; each method answers one request or raises CommandRefused.

    Attributes:
        on_ended_long_ago: callback for applications that ended long ago.
    """

    def __init__(
        self,
        context: NodeContext,
        records: Records,
        hosting: ApplicationHost,
        watching: ApplicationWatcher,
    ) -> None:
        self._context, self._records, self._hosting, self._watching = context, records, hosting, watching
        self.on_ended_long_ago: Callable[[list[ApplicationRecord]], None] = lambda _: None

    async def record(self, name: str, principal: Principal, verb: str) -> ApplicationRecord:
        """Return the record of an application that must exist and that the user may use this way."""
        check_unseen(principal, verb, name)
        _, record = await self._records.application(name)
        if record is None or record.is_forgotten:
            names = [] if principal.scope else list(await self._records.names())
            known = (
                f" Applications: {', '.join(names[:20])}"
                if names
                else " There is none; submit one: agiledart submit FILE:NAME"
            )
            raise CommandRefused(
                f"No application {name!r}.{did_you_mean(name, names)}{'' if principal.scope else known}"
            )
        check(principal, verb, name, record)
        return record

    async def list_applications(self, request: int, principal: Principal) -> None:
        """Answer `list` with the applications that the user may see."""
        names = tuple(
            name for name in await self._records.names() if not refusal_before_lookup(principal, "status", name)
        )
        records, unreadable = await self._records.applications(names)
        self.on_ended_long_ago([record for record in records if is_old(record, self._context.wall_ms)])
        current = [
            record for record in records if not record.is_forgotten and not is_old(record, self._context.wall_ms)
        ]
        fresh = await self._watching.refresher.all_refreshed(current)
        statuses = await self.statuses(fresh)
        rows = [with_status(row_of(record), statuses.get(record.name)) for record in fresh]
        self._context.reply(request, ListResponse(rows, unreadable))

    async def status(self, request: int, name: str, principal: Principal) -> None:
        """Answer `status` with the record, and live figures while the application runs."""
        record = await self._watching.refresher.refreshed(await self.record(name, principal, "status"))
        reports: dict[tuple[int, int], dict[str, Any]] = {}
        silent: list[Peer] = []
        if not record.is_final and record.nodes:
            reports, silent = await self.live_reports(record)
        names = record.names()
        statuses = await self.statuses([record])
        summary = record.summary or (summary_of(record.specification, reports) if reports else {})
        row = with_status(row_of(record), statuses.get(record.name))
        stages = with_scores(_stages(record, reports, names), statuses.get(record.name), record.held)
        silent_nodes = [names[peer.node] for peer in silent]
        body = StatusResponse(
            **msgspec.structs.asdict(row),
            run=f"{record.number:016x}",
            rivals=[_rival_row(rival) for rival in record.rivals],
            paths=[[names[peer.node] for peer in path] for path in record.paths],
            nodes=[names[peer.node] for peer in record.nodes],
            silent_nodes=silent_nodes,
            history=[HistoryRow(entry.at_ms, entry.state, entry.text) for entry in record.history],
            stages=stages,
            summary=summary,
            logs=logs_of(record.specification),
            latency_logs=latency_logs_of(record.name, record.specification),
            reasons=record.reasons,
            data_paths=record.data_paths,
            clocks=self._wrong_clocks(record.hosts()),
            delivery=record.delivery,
            duplicated=sum(summary.get("duplicated", {}).values()),
            lost=sum(loss.rows for loss in record.losses),
            losses=[(loss.attempt, loss.source, loss.rows) for loss in record.losses],
            waiting=[] if record.is_final else _waiting(record, row, stages, silent_nodes),
            edges=record.stage_edges,
        )
        self._context.reply(request, body)

    async def statuses(
        self, records: list[ApplicationRecord], *, snapshots: bool = False, begin: bool = False
    ) -> dict[str, RecoveryStatus]:
        """Return the status that the coordinators of runs with a register report; hosts and guards vote, and one voter leads.

        Without a leader, while some voters do not answer, nothing is committed until they are back or another voter leads.
        """
        asked: dict[int, tuple[str, Peer]] = {}
        questions: dict[int, PeerRequest | None] = {}
        # Any host or guard may lead, so all of them are asked.
        for record in records:
            if record.by_epoch and record.state == RUNNING:
                voters = {peer.node: peer for peer in (*record.guards, *record.hosts())}
                for peer in voters.values():
                    number = self._context.requests.number()
                    asked[number] = record.name, peer
                    questions[number] = PeerRequest(
                        peer, QueryRecovery(number, record.name, record.version, snapshots, begin), RecoveryStatus
                    )
        reported: dict[str, RecoveryStatus] = {}
        answers = await self._context.requests.answers(questions, Duration(self._context.config.report_timeout_ns))
        silent: dict[str, list[Peer]] = {}
        for number, (name, peer) in asked.items():
            answer = answers.get(number)
            if not isinstance(answer, RecoveryStatus):
                silent.setdefault(name, []).append(peer)
            elif answer.epoch.get("attempt", -1) >= 0 and (name not in reported or _knows_more(answer, reported[name])):
                reported[name] = answer
        for record in records:
            if record.name not in reported and (peers := silent.get(record.name)):
                reported[record.name] = _row_without_coordinator(record, peers)
        return reported

    async def changes(self, record: ApplicationRecord) -> list[ChangeRow]:
        """Return the changes of an application's stages, from its coordinator, or from its record when it has ended.

        Empty when no node coordinates it, or the coordinator does not answer.
        """
        status = None if record.is_final else (await self.statuses([record])).get(record.name)
        known = status.changes if status is not None else record.changes
        try:
            return msgspec.convert(list(known), list[ChangeRow])
        except msgspec.ValidationError:
            return []  # from a node of another version

    async def summary(self, record: ApplicationRecord) -> dict[str, Any]:
        """Return the figures of a running application; empty when none of its nodes answers."""
        reports, _ = await self.live_reports(record)
        return summary_of(record.specification, reports) if reports else {}

    async def live_reports(self, record: ApplicationRecord) -> tuple[dict[tuple[int, int], dict[str, Any]], list[Peer]]:
        """Return the reports of an application's instances, and the hosts that did not answer."""
        answers = await self._context.requests.ask_all(
            record.hosts(),
            lambda number, _: QueryReports(number, record.name, record.version),
            Reports,
            Duration(self._context.config.report_timeout_ns),
        )
        reports, silent = {}, []
        for peer, answer in answers:
            if answer is None:
                silent.append(peer)
                continue
            held = record.instances_on(peer.node)
            for key, report in answer.reports.items():
                copy = report_copy(key)
                if copy in held and isinstance(report, dict):
                    reports[copy] = report
        return reports, silent

    def reports(self, sender: Peer, message: QueryReports) -> None:
        """Answer another agent with the figures of local instances."""
        key = (message.application, message.version)
        hosted = self._hosting.table.get(key)
        last = {report_key(copy): report for copy, report in sorted(self._hosting.figures(key).items())}
        reports = {**last, **(hosted.aged_reports(self._context.now) if hosted is not None else {})}
        self._context.send(sender, Reports(message.request, reports))

    def _wrong_clocks(self, others: Sequence[Peer]) -> list[str]:
        """Return the clock differences of this node and these hosts, as texts."""
        nodes = dict.fromkeys((self._context.me.node, *(peer.node for peer in others)))
        return [text for node in nodes if (text := self._context.clocks.describe_difference(node))]


def _knows_more(status: RecoveryStatus, other: RecoveryStatus) -> bool:
    """Return whether one of two statuses is the better one.

    Of two nodes that both believe to lead, the later attempt counts, then the later epoch. A node whose voters answer knows more
    than
    one that waits for them, or works on without them.
    """

    def rank(answer: RecoveryStatus) -> tuple[int, int, int, bool]:
        cut_off = {MINORITY: 2, "waiting": 1}.get(answer.recovery.get("phase", ""), 0)
        is_timed = answer.epoch.get("age_s") is not None
        return answer.epoch["attempt"], int(answer.epoch.get("committed", 0)), -cut_off, is_timed

    return rank(status) > rank(other)


def _row_without_coordinator(record: ApplicationRecord, silent: list[Peer]) -> RecoveryStatus:
    """Return the status of a run that none of the answering voters coordinates.

    While all hosts answer, a voter that hosts nothing is lost: rows go on, and another voter takes its place within seconds.
    """
    hosts = {peer.node for peer in record.hosts()}
    phase = WAITING if any(peer.node in hosts for peer in silent) else TAKEOVER
    names = [peer.name or peer.node.short for peer in silent]
    row = RecoveryRow(record.attempt, 0, "no node coordinates it", phase, names, 0.0, 0, 0, 0)
    return RecoveryStatus(0, msgspec.to_builtins(row), {})


def with_status(row: ApplicationRow, status: RecoveryStatus | None) -> ApplicationRow:
    """Return the row with the report of the run's coordinator; a malformed report is ignored."""
    if status is None:
        return row
    try:
        recovery = msgspec.convert(status.recovery, RecoveryRow) if status.recovery else None
        epoch = msgspec.convert(status.epoch, EpochRow) if status.epoch else None
    except msgspec.ValidationError:
        return row
    state = row.state
    if recovery is not None and state == RUNNING and recovery.phase != TAKEOVER:
        state = MINORITY if recovery.phase == MINORITY else RECOVERING
    return msgspec.structs.replace(row, state=state, recovery=recovery, epoch=epoch)


def snapshot_rows(status: RecoveryStatus, plan: StagePlan) -> list[InstanceSnapshotRow]:
    """Return the snapshots that a coordinator reported, by the names of their stages."""
    names = {str(stage.index): stage.name for stage in plan.stages}
    rows: list[InstanceSnapshotRow] = []
    for plain in status.snapshots:
        try:
            row = msgspec.convert(plain, InstanceSnapshotRow)
        except msgspec.ValidationError:
            continue  # of a node with another version
        rows.append(msgspec.structs.replace(row, stage=names.get(row.stage, row.stage)))
    return rows


def row_of(record: ApplicationRecord) -> ApplicationRow:
    """Return the row of a record, which has fields of the same names."""
    return msgspec.convert(record, ApplicationRow, from_attributes=True)


def _rival_row(rival: Rival) -> RivalRow:
    return RivalRow(
        f"{rival.number:016x}",
        rival.version,
        rival.state,
        rival.reason,
        rival.submitted_to,
        rival.at_ms,
        rival.is_unverified,
    )


def _waiting(
    record: ApplicationRecord, row: ApplicationRow, stages: list[StageRow], silent_nodes: list[str]
) -> list[WaitingRow]:
    """Return the causes for which an application waits; without its plan those that no edge is needed for."""
    try:
        plan = msgspec.msgpack.decode(record.plan, type=StagePlan) if record.plan else None
    except msgspec.MsgspecError:
        plan = None
    edges = [] if plan is None else [(edge.source, edge.target) for edge in plan.edges]
    facts = WaitingFacts(row.name, row.state, row.reason, stages, edges, row.recovery, row.epoch, silent_nodes)
    return waiting_causes(facts)


def _stages(
    record: ApplicationRecord, reports: dict[tuple[int, int], dict[str, Any]], names: dict[NodeId, str]
) -> list[StageRow]:
    """Return one row for each stage, with one row for each instance."""
    rows = []
    for number, stage in enumerate(record.stages):
        instances = []
        for place in sorted(record.assignment, key=lambda place: (place.stage, place.index)):
            if place.stage == number:
                report = reports.get((number, place.index), {})
                plain = scalars_of(report)
                if receivers := receivers_of(report):
                    plain["blocked_by"] = receivers
                if routes := routes_of(report):
                    plain["routes"] = msgspec.to_builtins(routes)
                if (awaited := awaited_input_of(report)) is not None:
                    plain["awaited_input"] = msgspec.to_builtins(awaited)
                statistics = statistics_of(report)
                if statistics is not None:
                    plain["queued_rows"] = statistics.queued_rows
                    plain["state_keys"] = statistics.state_keys
                    plain["event_time"] = statistics.event_time
                    plain["finished"] = statistics.finished
                    plain["steps"] = {name: counts.by_public_name() for name, counts in statistics.steps.items()}
                instances.append({**plain, "index": place.index, "node": names[record.nodes[place.node].node]})
        rows.append(StageRow(stage.name, stage.kind, stage.parallelism, instances))
    return rows
