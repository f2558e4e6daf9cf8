"""Answers to `explain scaling` and `explain recovery`. Their bodies: docs/reference/control-api.md."""

import msgspec

from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.errors import RemoteProtocolError, TopologyError
from agiledart_kernel.permissions import Principal
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.hosting.application_watcher import ApplicationWatcher
from agiledart_node.records.application import SPECIFICATION_CODEC
from agiledart_node.user_commands.recovery_facts import recovery_facts
from agiledart_node.user_commands.scaling_advice import advice, with_decisions
from agiledart_node.user_commands.status_queries import StatusQueries, row_of, snapshot_rows
from agiledart_node.wire.scaling_responses import ScalingResponse
from agiledart_scaling.registry import policy_named


class ExplanationQueries:
    """Why stages have their numbers of instances, and what a failure would cost."""

    def __init__(self, context: NodeContext, status_queries: StatusQueries, watching: ApplicationWatcher) -> None:
        self._context, self._status_queries, self._watching = context, status_queries, watching

    async def scaling(self, request: int, name: str, stage: str, principal: Principal) -> None:
        """Answer `explain scaling` with the policy's proposal for each stage of a running application, or for one stage."""
        record = await self._watching.refresher.refreshed(await self._status_queries.record(name, principal, "explain"))
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
            changes = [row for row in await self._status_queries.changes(record) if chosen in ("", row.stage)]
            self._context.reply(
                request, ScalingResponse(record.name, record.version, record.state, policy, [], changes, [])
            )
            return
        reports, silent = await self._status_queries.live_reports(record)
        names = record.names()
        status = (await self._status_queries.statuses([record])).get(record.name)
        rows = advice(plan, specification, reports, policy_named(policy))
        rows = with_decisions(rows, status.scaling if status is not None else (), record.held)
        body = ScalingResponse(
            record.name,
            record.version,
            record.state,
            policy,
            [row for row in rows if chosen in ("", row.name)],
            [row for row in await self._status_queries.changes(record) if chosen in ("", row.stage)],
            [names[peer.node] for peer in silent],
        )
        self._context.reply(request, body)

    async def recovery(self, request: int, name: str, principal: Principal) -> None:
        """Answer `explain recovery` with the facts that decide the cost of a failure."""
        record = await self._watching.refresher.refreshed(await self._status_queries.record(name, principal, "explain"))
        try:
            plan = msgspec.msgpack.decode(record.plan, type=StagePlan) if record.plan else None
            specification = SPECIFICATION_CODEC.decode(record.specification)
        except (msgspec.MsgspecError, RemoteProtocolError):
            raise CommandRefused(f"The plan of {name} cannot be read; another version of agiledart made it.") from None
        if plan is None:
            raise CommandRefused(f"{name} is {record.state}: it was never planned.")
        placement = row_of(record).placement
        status = (await self._status_queries.statuses([record], snapshots=True)).get(record.name)
        saved = snapshot_rows(status, plan) if status is not None else []
        epoch = status.epoch if status is not None else {}
        about = recovery_facts(
            specification,
            plan,
            record.delivery,
            placement,
            version=record.version,
            state=record.state,
            saved=saved,
            standbys=epoch.get("standbys"),
        )
        self._context.reply(request, about)
