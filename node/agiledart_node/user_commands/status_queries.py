"""Answers to users' queries: list, status, nodes, route, logs, info. Their bodies: docs/reference/control-api.md."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.errors import RemoteProtocolError, TopologyError
from agiledart_kernel.instants import Duration
from agiledart_kernel.machine import Completed
from agiledart_kernel.node_id import NodeId, key_of_name
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal, refusal_before_lookup
from agiledart_node.context.display_names import display_names
from agiledart_node.context.node_context import CommandRefused, NodeContext, did_you_mean
from agiledart_node.context.pending_requests import PeerRequest
from agiledart_node.forming.network_of_loads import network_of_loads
from agiledart_node.forming.surveyor import Surveyor
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.hosting.application_watcher import ApplicationWatcher
from agiledart_node.hosting.hosted_application import report_copy, report_key
from agiledart_node.records.application import (
    MINORITY,
    RECOVERING,
    RUNNING,
    SPECIFICATION_CODEC,
    ApplicationRecord,
    Rival,
    is_old,
)
from agiledart_node.records.permission_checks import check, check_unseen
from agiledart_node.records.records import Records
from agiledart_node.records.summary import latency_logs_of, logs_of, scalars_of, statistics_of, summary_of
from agiledart_node.user_commands.recovery_facts import recovery_facts
from agiledart_node.user_commands.scaling_advice import advice, with_decisions, with_scores
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
from agiledart_node.wire.effects import ReadLogs
from agiledart_node.wire.formation_messages import (
    ROUTED_CODEC,
    LogLine,
    LogLines,
    QueryLogs,
    QueryReports,
    Reports,
    RouteProbe,
    TraceHops,
)
from agiledart_node.wire.lease_responses import lease_row
from agiledart_node.wire.log_responses import LogRow, LogsResponse
from agiledart_node.wire.node_responses import (
    HopRow,
    InfoResponse,
    LatencyPositionRow,
    NodeIdentityRow,
    NodeRow,
    NodesResponse,
    RouteResponse,
)
from agiledart_node.wire.recovery_messages import QueryRecovery, RecoveryStatus
from agiledart_node.wire.recovery_responses import TAKEOVER, WAITING, EpochRow, RecoveryRow
from agiledart_node.wire.route_responses import routes_of
from agiledart_node.wire.scaling_responses import ScalingResponse
from agiledart_overlay.wire.effects import Delivered
from agiledart_overlay.wire.events import RouteMessage
from agiledart_placement.files.network_file import network_document
from agiledart_scaling.registry import policy_named

MAX_LINES = 1_000
"""Log lines of one node in one answer."""

MAX_NODES = 256
"""Nodes in one answer of `nodes`."""


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
        surveying: Surveyor,
        watching: ApplicationWatcher,
    ) -> None:
        self._context, self._records, self._hosting = context, records, hosting
        self._surveying, self._watching = surveying, watching
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

    async def scaling(self, request: int, name: str, stage: str, principal: Principal) -> None:
        """Answer `explain scaling` with the policy's proposal for each stage of a running application, or for one stage."""
        record = await self._watching.refresher.refreshed(await self.record(name, principal, "explain"))
        if not record.nodes or (record.is_final and not record.changes):
            raise CommandRefused(f"{name} is {record.state}: only what runs is measured.")
        try:
            plan = msgspec.msgpack.decode(record.plan, type=StagePlan)
            specification = SPECIFICATION_CODEC.decode(record.specification)
            chosen = plan.stage_named(stage).name if stage else ""
        except TopologyError as error:
            raise CommandRefused(str(error), 2) from None
        except (msgspec.MsgspecError, RemoteProtocolError):
            raise CommandRefused(f"The plan of {name} cannot be read; another version of agiledart made it.") from None
        policy = self._context.config.scaling_policy
        if record.is_final:  # its past changes are still shown
            changes = [row for row in await self.changes(record) if chosen in ("", row.stage)]
            self._context.reply(
                request, ScalingResponse(record.name, record.version, record.state, policy, [], changes, [])
            )
            return
        reports, silent = await self.live_reports(record)
        names = record.names()
        status = (await self.statuses([record])).get(record.name)
        rows = advice(plan, specification, reports, policy_named(policy))
        rows = with_decisions(rows, status.scaling if status is not None else (), record.held)
        body = ScalingResponse(
            record.name,
            record.version,
            record.state,
            policy,
            [row for row in rows if chosen in ("", row.name)],
            [row for row in await self.changes(record) if chosen in ("", row.stage)],
            [names[peer.node] for peer in silent],
        )
        self._context.reply(request, body)

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

    async def recovery(self, request: int, name: str, principal: Principal) -> None:
        """Answer `explain recovery` with the facts that decide the cost of a failure."""
        record = await self._watching.refresher.refreshed(await self.record(name, principal, "explain"))
        try:
            plan = msgspec.msgpack.decode(record.plan, type=StagePlan) if record.plan else None
            specification = SPECIFICATION_CODEC.decode(record.specification)
        except (msgspec.MsgspecError, RemoteProtocolError):
            raise CommandRefused(f"The plan of {name} cannot be read; another version of agiledart made it.") from None
        if plan is None:
            raise CommandRefused(f"{name} is {record.state}: it was never planned.")
        placement = row_of(record).placement
        status = (await self.statuses([record], snapshots=True)).get(record.name)
        saved = snapshot_rows(status, plan) if status is not None else []
        about = recovery_facts(
            specification, plan, record.delivery, placement, version=record.version, state=record.state, saved=saved
        )
        self._context.reply(request, about)

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

    def _coordinate(self, peer: Peer) -> LatencyPositionRow | None:
        """Return the position of a node in the latency space."""
        overlay = self._context.overlay
        place = overlay.coordinate if peer.node == self._context.me.node else overlay.coordinate_of(peer.node)
        if place is None:
            return None
        point = [round(axis / 1e3, 3) for axis in (place.x, place.y, place.z)]
        return LatencyPositionRow(point, round(place.height / 1e3, 3), round(place.error / 1e6, 3))

    async def nodes(self, request: int, *, with_network: bool = False) -> None:
        """Answer `nodes` with this node and the nodes that it knows; with a network of `agiledart place` when requested."""
        peers = self._context.known()
        loads = await self._surveying.loads(
            list(peers[:MAX_NODES]), self._context.config.report_timeout_ns, wants_round_trips=with_network
        )
        names = display_names(peers)
        rows = []
        for peer in peers[:MAX_NODES]:
            answer = loads.get(peer.node)
            row = NodeRow(
                **_member(peer, names),
                outside=peer.reach.outside,
                open=peer.reach.is_open,
                held_by=[names.get(node, node.short) for node in peer.reach.holders],
                is_this_node=peer.node == self._context.me.node,
                rtt_ms=self._rtt_ms(peer),
                answers=answer is not None,
                coordinate=self._coordinate(peer),
            )
            if answer is not None:
                load = answer[1]
                row = msgspec.structs.replace(
                    row,
                    instances=load.operators,
                    capacity=load.capacity,
                    executors=load.executors,
                    applications=list(load.applications),
                    is_leaving=load.is_draining and not load.stays,
                    is_draining=load.stays,
                    schedules=load.schedules,
                    clock_s=self._clock_s(peer),
                    software=load.software,
                    specification=load.specification,
                    labels=list(load.labels),
                    cores=load.cores or None,
                    speed=load.speed_permille / 1e3 if load.speed_permille else None,
                    busy=None if load.busy_permille is None else load.busy_permille / 1e3,
                    free_memory_mb=load.free_memory_mb,
                    lease=None if load.lease is None else lease_row(load.lease),
                )
            rows.append(row)
        network = network_of_loads(loads) if with_network else None
        self._context.reply(
            request,
            NodesResponse(
                rows,
                len(peers),
                clocks=list(self._context.clocks.skewed_clocks()),
                network=None if network is None else network_document(network),
                notes=[] if network is None else list(network.notes),
            ),
        )

    def _wrong_clocks(self, others: Sequence[Peer]) -> list[str]:
        """Return the clock differences of this node and these hosts, as texts."""
        nodes = dict.fromkeys((self._context.me.node, *(peer.node for peer in others)))
        return [text for node in nodes if (text := self._context.clocks.describe_difference(node))]

    def _clock_s(self, peer: Peer) -> float | None:
        off = self._context.clocks.skew_ms(peer.node)
        return None if off is None else round(off / 1e3, 1)

    def _rtt_ms(self, peer: Peer) -> float | None:
        rtt = self._context.overlay.rtt_ns(peer.node)
        return round(rtt / 1e6, 3) if rtt else None

    def key_of(self, text: str) -> NodeId:
        """Return the key that a user means: `name:TEXT`, the name of a known node, or hex digits."""
        kind, colon, rest = text.partition(":")
        if colon and kind == "name":
            return key_of_name("name", rest)
        if colon and kind == "application":
            return key_of_name("application", rest)
        for peer in self._context.known():
            if peer.name == text:
                return peer.node
        try:
            return NodeId.from_hex(text.lower())
        except ValueError:
            raise CommandRefused(
                f"invalid key {text!r}: give 1 to 32 hex digits, name:TEXT, application:NAME, or the name of a node "
                f"({', '.join(sorted(peer.name for peer in self._context.known() if peer.name)[:20])}).",
                2,
            ) from None

    async def route(self, request: int, text: str) -> None:
        """Answer `route` with the hops to the root of a key."""
        key = self.key_of(text)
        began, number = self._context.now, self._context.requests.number()
        self._context.deliver_to_overlay(RouteMessage(key, ROUTED_CODEC.encode(RouteProbe(number))))
        answers = await self._context.requests.answers(
            {number: None}, Duration(3 * self._context.config.report_timeout_ns)
        )
        hops = answers.get(number)
        if not isinstance(hops, TraceHops):
            raise CommandRefused(f"The root of {key.short}… did not answer the route probe. Try again.")
        names = display_names((*hops.path, *self._context.known()))
        rows = [HopRow(**_member(peer, names), rtt_from_here_ms=self._rtt_ms(peer)) for peer in hops.path]
        duration_ms = round((self._context.now - began) / 1e6, 3)
        self._context.reply(request, RouteResponse(key.hex, len(rows) - 1, rows, duration_ms))

    def probed(self, effect: Delivered, probe: RouteProbe) -> None:
        """Report the path of a probe to its source, as root of the key."""
        self._context.send(effect.source, TraceHops(probe.request, effect.path))

    def traced(self, sender: Peer, message: TraceHops) -> None:
        """Take the answer of a key's root."""
        path = message.path
        if path and path[0].node == self._context.me.node and path[-1].node == sender.node:
            self._context.requests.resolve(message.request, message)

    async def logs(self, request: int, name: str, after: dict[str, int], principal: Principal) -> None:
        """Answer `logs` with the lines of all hosts, in the order of their wall times."""
        record = await self.record(name, principal, "logs")
        hosts = record.hosts()
        names = display_names(hosts)
        answers = await self._context.requests.ask_all(
            hosts,
            lambda number, peer: QueryLogs(number, name, max(0, after.get(names[peer.node], 0))),
            LogLines,
            Duration(self._context.config.report_timeout_ns),
        )
        rows, silent, reached = [], [], dict(after)
        for peer, answer in answers:
            node = names[peer.node]
            if answer is None:
                silent.append(node)
                continue
            for line in answer.lines:
                rows.append(LogRow(node, line.number, line.at_ms, line.step, line.text))
                reached[node] = max(reached.get(node, 0), line.number)
        rows.sort(key=lambda row: (row.at_ms, row.node, row.number))
        self._context.reply(request, LogsResponse(name, record.state, rows, reached, silent))

    async def local_logs(self, sender: Peer, message: QueryLogs) -> None:
        """Answer another agent with the log lines kept here."""
        number = self._context.requests.number()
        effect = ReadLogs(number, message.application, message.after, MAX_LINES)
        answers = await self._context.ask_driver(number, effect, self._context.config.report_timeout_ns)
        answer = answers.get(number)
        lines: tuple[LogLine, ...] = ()
        if isinstance(answer, Completed) and isinstance(answer.result, tuple | list):
            lines = tuple(line for line in answer.result if isinstance(line, LogLine))[:MAX_LINES]
        self._context.send(sender, LogLines(message.request, lines))

    async def info(self, request: int) -> None:
        """Answer `info` with what this node knows about itself; the driver adds its own figures."""
        context = self._context
        known = context.known()
        body = InfoResponse(
            **_member(context.me, display_names(known)),
            joined=context.overlay.joined,
            is_leaving=context.is_leaving,
            is_draining=context.is_draining,
            known_nodes=len(known),
            instances=self._hosting.operators,
            capacity=context.config.capacity,
            executors=context.config.executors,
            applications=list(self._hosting.applications),
            overlay=msgspec.to_builtins(context.overlay.statistics()),
            ignored_messages=dict(sorted(context.dropped.items())),
        )
        context.reply(request, body)


def _member(peer: Peer, names: dict[NodeId, str]) -> dict[str, Any]:
    """Return the first fields of a row about a node."""
    name = names.get(peer.node, peer.name)
    return msgspec.structs.asdict(
        NodeIdentityRow(name, peer.node.hex, peer.incarnation, peer.address, peer.zone, peer.host)
    )


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
