"""Permission to write or read a sink log, and the texts of refusals.

The asked agent and the scheduler check it against the logs' records on the ring. The host with the files checks once more before
users' code can reach them.
"""

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.permissions import FEED_PREFIX, LogOwnership, Principal, log_write_refusal
from agiledart_node.context.node_context import NotAllowed
from agiledart_node.records.application import ApplicationRecord
from agiledart_node.records.records import Records
from agiledart_node.records.sink_directory import SINK_CODEC, sink_key
from agiledart_node.records.summary import logs_of


async def check_logs(
    records: Records, principal: Principal, name: str, last: ApplicationRecord | None, specification: bytes
) -> None:
    """Raise NotAllowed when a sink of this application would write a log of another owner.

    Without an answer of the ring nothing is refused: the host checks as well.

    Args:
        last: the record of the name; its owner will own the next run.
    """
    owner = (last.owner_key if last is not None else b"") or principal.key
    for log_name in dict.fromkeys(logs_of(specification).values()):
        answer = await records.read(sink_key(log_name))
        if not answer.ok:
            continue
        try:
            record = SINK_CODEC.decode(answer.value)
        except RemoteProtocolError:
            continue  # the reader of the record counts that
        log = LogOwnership(record.name, record.application, record.owner)
        if why := log_write_refusal(principal, name, owner, log):
            raise NotAllowed(why, not_to_be_written(log))


def not_to_be_written(log: LogOwnership) -> str:
    """Return the refusal to write a log."""
    if log.application.startswith(FEED_PREFIX):
        return f"{log.name} is a feed: its rows come from writers, not from an application. Write to another name."
    if not log.owner:
        return (
            f"The log {log.name} of {log.application or 'an application'} has no owner: only an admin, or a user with the scope "
            f"app:{log.application or 'NAME'}, may continue it. Write to another name, or ask an admin to submit this."
        )
    return (
        f"The log {log.name} belongs to the key {log.owner.hex()[:16]}…, not to you: you may not write it. "
        "Write to another name, or ask an admin to submit this."
    )


def not_to_be_read(principal: Principal, why: str, log: LogOwnership) -> str:
    """Return the refusal to read a log."""
    scoped = f"agiledart token create --role reader --scope sink:{log.name}"
    if why == "owner":
        return (
            f"The log {log.name} belongs to the key {log.owner.hex()[:16]}…, not to you: you may not read it. "
            f"Its owner can let you:  agiledart share {log.application or 'APP'} {principal.key.hex()}   or an admin:  {scoped}"
        )
    kind, _, application = principal.scope.partition(":")
    rest = f"and {application} has no log {log.name}" if kind == "app" else f"not the log {log.name}"
    return f"This {principal.role} may use {principal.scope} only, {rest}. Create another token:  {scoped}"
