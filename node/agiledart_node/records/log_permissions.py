"""Whose the logs are that a submission wants to write, and what those are told who may not.

Asked where an application is submitted and again where it is claimed, of the logs' records on the ring; the host that has the files
asks once more before users' code can reach them.
"""

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.permissions import LogOwnership, Principal, log_write_refusal
from agiledart_node.context.node_context import NotAllowed
from agiledart_node.records.application import ApplicationRecord
from agiledart_node.records.records import Records
from agiledart_node.records.sink_directory import SINK_CODEC, sink_key
from agiledart_node.records.summary import logs_of


async def check_logs(
    records: Records, principal: Principal, name: str, last: ApplicationRecord | None, specification: bytes
) -> None:
    """Raise NotAllowed when a sink of this application would write a log that belongs to somebody else.

    A ring that does not answer refuses nothing: the host looks, too.

    Args:
        last: the record of the name; who owns that will own the next run.
    """
    owner = (last.owner_key if last is not None else b"") or principal.key
    for log_name in dict.fromkeys(logs_of(specification).values()):
        answer = await records.read(sink_key(log_name))
        if not answer.ok:
            continue
        try:
            found = SINK_CODEC.decode(answer.value)
        except RemoteProtocolError:
            continue  # whoever reads it counts that
        log = LogOwnership(found.name, found.application, found.owner)
        if why := log_write_refusal(principal, name, owner, log):
            raise NotAllowed(why, not_to_be_written(log))


def not_to_be_written(log: LogOwnership) -> str:
    """The sentence for whoever may not write a log."""
    if not log.owner:
        return (
            f"The log {log.name} is of {log.application or 'an application'} and older than owners are: it goes on for an admin, "
            f"or who has the scope app:{log.application or 'NAME'}. Write to another name, or have an admin submit this."
        )
    return (
        f"The log {log.name} belongs to the key {log.owner.hex()[:16]}…, not to you: you may not write it. "
        "Write to another name, or have an admin submit this."
    )


def not_to_be_read(principal: Principal, why: str, log: LogOwnership) -> str:
    """The sentence for whoever may not read a log."""
    scoped = f"agiledart token create --role reader --scope sink:{log.name}"
    if why == "owner":
        return (
            f"The log {log.name} belongs to the key {log.owner.hex()[:16]}…, not to you: you may not read it. "
            f"Its owner can let you:  agiledart share {log.application or 'APP'} {principal.key.hex()}   or an admin:  {scoped}"
        )
    kind, _, application = principal.scope.partition(":")
    rest = f"and {application} has no log {log.name}" if kind == "app" else f"not the log {log.name}"
    return f"This {principal.role} may use {principal.scope} only, {rest}. Make another token:  {scoped}"
