"""The commands `checkpoint list` and `checkpoint take`: the saved state of an application, and a new epoch at once."""

from typing import Final

import msgspec

from agiledart_dataflow.plan.delivery import SAVING
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.instants import SECOND, Duration
from agiledart_kernel.permissions import Principal
from agiledart_node.context.node_context import CommandRefused, NodeContext, NotAllowed
from agiledart_node.records.application import RUNNING, ApplicationRecord
from agiledart_node.user_commands.retained_checkpoints import RetainedCheckpoints
from agiledart_node.user_commands.status_queries import StatusQueries, row_of, snapshot_rows, with_status
from agiledart_node.wire.checkpoint_commands import Checkpoints
from agiledart_node.wire.recovery_messages import RecoveryStatus
from agiledart_node.wire.recovery_responses import CheckpointsResponse

POLL_INTERVAL_NS: Final = Duration(SECOND // 2)
MAX_POLLS: Final = 150
"""Polls for the commit of the epoch: a little longer than an epoch may take."""


async def checkpoints(
    context: NodeContext,
    status_queries: StatusQueries,
    retained_checkpoints: RetainedCheckpoints,
    request: int,
    command: Checkpoints,
    principal: Principal,
) -> None:
    """Answer `checkpoint list` or `checkpoint take`; without a name, with all retained checkpoints. Raises CommandRefused."""
    if not command.take and not command.name:
        mine = retained_checkpoints.allowed(await retained_checkpoints.retained(), principal, "checkpoint")
        rows = await retained_checkpoints.rows(mine)
        context.reply(request, CheckpointsResponse("", 0, "kept", None, None, [], rows))
        return
    if not command.take and await _answer_with_retained(
        context, status_queries, retained_checkpoints, request, command, principal
    ):
        return
    record = await status_queries.record(command.name, principal, "checkpoint")
    if not record.by_epoch:
        raise CommandRefused(
            f"{record.name} is not saved by epochs, so its state is lost with its hosts. Submit it with {SAVING}."
        )
    if record.state != RUNNING:
        raise CommandRefused(
            f"{record.name} is {record.state}: its rows are committed, and nothing else is kept of it."
        )
    status = await _checkpoint_status(status_queries, record, begin=False)
    if command.take:
        status = await _take_now(context, status_queries, record, status)
    retained = retained_checkpoints.allowed(
        await retained_checkpoints.retained(application=record.name), principal, "checkpoint"
    )
    rows = await retained_checkpoints.rows(retained)
    context.reply(request, msgspec.structs.replace(_response(record, status), retained=rows))


async def _answer_with_retained(
    context: NodeContext,
    status_queries: StatusQueries,
    retained_checkpoints: RetainedCheckpoints,
    request: int,
    command: Checkpoints,
    principal: Principal,
) -> bool:
    """Answer with retained checkpoints, if the name is a checkpoint's, or no run of that application is active.

    Return False when the user may see none of them and an application of that name has a record.
    """
    about = [
        retained
        for retained in await retained_checkpoints.retained()
        if command.name in (retained[0].name, retained[0].run.app)
    ]
    if not about:
        return False
    mine = retained_checkpoints.allowed(about, principal, "checkpoint")
    named = [retained for retained in mine if retained[0].name == command.name]
    try:
        record = None if named else await status_queries.record(command.name, principal, "checkpoint")
    except CommandRefused as refusal:
        # The record may be forgotten or belong to another user, while the user's own checkpoints remain.
        if not mine and isinstance(refusal, NotAllowed):
            raise
        record = None
    if record is not None and (record.state == RUNNING or not mine):
        return False
    if not mine:
        retained_checkpoints.check(principal, "checkpoint", about[0][0])
    chosen = named or mine
    version, state = (record.version, record.state) if record is not None else (chosen[0][0].run.version, "kept")
    context.reply(
        request,
        CheckpointsResponse(command.name, version, state, None, None, [], await retained_checkpoints.rows(chosen)),
    )
    return True


async def _checkpoint_status(
    status_queries: StatusQueries, record: ApplicationRecord, *, begin: bool
) -> RecoveryStatus | None:
    return (await status_queries.statuses([record], snapshots=True, begin=begin)).get(record.name)


async def _take_now(
    context: NodeContext, status_queries: StatusQueries, record: ApplicationRecord, status: RecoveryStatus | None
) -> RecoveryStatus:
    """Return the status once an epoch is committed that began after the request."""
    before = _committed(status)
    begin = True
    for _ in range(MAX_POLLS):
        status = await _checkpoint_status(status_queries, record, begin=begin)
        begin = before < 0 or status is None  # no coordinator has received the request yet
        if status is not None and before < 0:
            before = _committed(status)
        elif status is not None and _committed(status) > before:
            return status
        await context.requests.pause(POLL_INTERVAL_NS)
    recovery = status.recovery if status is not None else {}
    doing = f": it is recovering ({recovery.get('phase')}: {recovery.get('reason')})" if recovery else ""
    waits = ", ".join(recovery.get("waits_for", ()))
    raise CommandRefused(
        f"No epoch of {record.name} was committed within {MAX_POLLS * POLL_INTERVAL_NS // SECOND} s{doing}"
        f"{f'; it waits for {waits}' if waits else ''}. Look at agiledart status {record.name}."
    )


def _committed(status: RecoveryStatus | None) -> int:
    return int(status.epoch.get("committed", -1)) if status is not None else -1


def _response(record: ApplicationRecord, status: RecoveryStatus | None) -> CheckpointsResponse:
    row = with_status(row_of(record), status)
    plan = msgspec.msgpack.decode(record.plan, type=StagePlan)
    snapshots = snapshot_rows(status, plan) if status is not None else []
    return CheckpointsResponse(record.name, record.version, row.state, row.recovery, row.epoch, snapshots)
