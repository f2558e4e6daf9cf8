"""Checks of the logs that a run wants to write, made before an executor opens their folders to users' code.

A process that may write a log's folder can read the log. So a run starts only where every log that its sinks name
belongs to its owner, or does not exist yet. A system log of another owner, whose application had the name before, is
not continued.
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
    """Return the part with its owner's key: in parts made before they had the key, it is the submitter's."""
    if part.owner:
        return part
    try:
        return msgspec.structs.replace(part, owner=signer_of(part.signed_command)[1])
    except Refused:  # nothing is signed in this network
        return part


def log_write_refusal_text(part: DeploymentPart, home: NodeId, root: Path) -> str:
    """Return the sentence for the first log of this node that the run may not write; empty: it may write all."""
    return next(map(not_to_be_written, _foreign(part, root, logs_here(part, home).of_users)), "")


def may_continue_latency_logs(part: DeploymentPart, home: NodeId, root: Path) -> bool:
    """Return whether the run may continue the logs of its sinks' latencies on this node."""
    return not any(_foreign(part, root, logs_here(part, home).of_latencies))


def _foreign(part: DeploymentPart, root: Path, names: Iterable[str]) -> Iterator[LogOwnership]:
    try:
        role, key = signer_of(part.signed_command)
        principal = Principal(role, scope_of_signer(part.signed_command), key)
    except Refused:  # nothing is signed in this network
        return
    for name in names:
        try:
            described = read_description(log_directory(root, name))
        except OperationFailed:  # the opener of the log reports the error better
            continue
        if described is not None and log_write_refusal(
            principal, part.application, part.owner, ownership_of_log(described)
        ):
            yield ownership_of_log(described)
