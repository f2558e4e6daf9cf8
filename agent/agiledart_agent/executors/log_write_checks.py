"""Whose the logs on this node are that a run wants to write: asked before an executor opens their folders to users' code.

Whoever may write a log's folder reads what is in it. So a run starts only where every log that its sinks name is its owner's, or
there is none yet; a log of the system that belongs to somebody else, of an application that had the name before, is not kept on.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from agiledart_agent.sink_logs.log_read_authoriser import ownership_of_log
from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_executor.user_code.application_folders import logs_here
from agiledart_kernel.errors import OperationFailed, Refused
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.permissions import LogOwnership, Principal, log_write_refusal
from agiledart_kernel.signed_commands import scope_of_signer, signer_of
from agiledart_node.records.log_permissions import not_to_be_written
from agiledart_sink_log.layout import log_directory, read_description


def add_owner(part: DeploymentPart) -> DeploymentPart:
    """The part with the key that it belongs to: of one that was made before parts said so, who submitted it."""
    if part.owner:
        return part
    try:
        return msgspec.structs.replace(part, owner=signer_of(part.signed_command)[1])
    except Refused:  # nothing is signed in this world
        return part


def log_write_refusal_text(part: DeploymentPart, home: NodeId, root: Path) -> str:
    """The sentence for the first log of this node that the run may not write; empty: it may write all."""
    return next(map(not_to_be_written, _foreign(part, root, logs_here(part, home).of_users)), "")


def may_continue_latency_logs(part: DeploymentPart, home: NodeId, root: Path) -> bool:
    """Whether the run may go on with the logs of its sinks' latencies that lie here."""
    return not any(_foreign(part, root, logs_here(part, home).of_latencies))


def _foreign(part: DeploymentPart, root: Path, names: Iterable[str]) -> Iterator[LogOwnership]:
    try:
        role, key = signer_of(part.signed_command)
        principal = Principal(role, scope_of_signer(part.signed_command), key)
    except Refused:  # nothing is signed in this world
        return
    for name in names:
        try:
            found = read_description(log_directory(root, name))
        except OperationFailed:  # whoever opens it tells better
            continue
        if found is not None and log_write_refusal(principal, part.application, part.owner, ownership_of_log(found)):
            yield ownership_of_log(found)
