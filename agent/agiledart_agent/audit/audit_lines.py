"""From a request to the line of the audit about it."""

from typing import Final

import msgspec

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.permissions import LogOwnership, Principal
from agiledart_node.records.command_verifier import command_terms
from agiledart_node.wire.audit_messages import AuditLine
from agiledart_node.wire.commands import VERB_BY_COMMAND, Command, Submit

MAX_WORDS: Final = 240
"""Characters of what users wrote."""

_OWN_COLUMNS: Final = ("name", "after")


def audit_line_of(command: Command, principal: Principal, requester: str, origin: str) -> AuditLine:
    """The line about a request that is allowed and done, without number and time."""
    return AuditLine(
        number=0,
        at_ms=0,
        requester=requester,
        key=principal.key.hex(),
        action=VERB_BY_COMMAND[type(command)],
        application=_application(command)[:MAX_WORDS],
        details=_details(command),
        origin=origin,
        allowed=True,
        reason="",
        outcome="",
    )


def refused(line: AuditLine, reason: str, text: str) -> AuditLine:
    """The same, not allowed, or (without a reason) come to nothing."""
    return msgspec.structs.replace(line, allowed=not reason, reason=reason, outcome=text[:MAX_WORDS])


def refused_log_read_line(principal: Principal, origin: str, log: LogOwnership, reason: str, text: str) -> AuditLine:
    """The line about somebody who wanted the rows of a log that it may not read."""
    requester = f"{principal.role} {principal.key.hex()[:16]}"
    details = f"log={log.name}"
    return AuditLine(
        0,
        0,
        requester,
        principal.key.hex(),
        "read log",
        log.application,
        details,
        origin,
        False,
        reason,
        text[:MAX_WORDS],
    )


def is_audited(command: Command) -> bool:
    """Whether this is noted also when it is allowed: orders."""
    try:
        return command_terms(command) is not None
    except RemoteProtocolError:  # it makes no sense, and will be refused for that
        return True


def _application(command: Command) -> str:
    if isinstance(command, Submit) and not command.name:
        try:
            terms = command_terms(command)
        except RemoteProtocolError:
            return ""
        return terms.application if terms is not None else ""
    return str(getattr(command, "name", ""))


def _details(command: Command) -> str:
    """What else the command says, but for content (bytes) and what has its usual value."""
    usual = {field.name: field.default for field in msgspec.structs.fields(command)}
    said = (
        f"{name}={value}"
        for name, value in msgspec.structs.asdict(command).items()
        if name not in _OWN_COLUMNS and not isinstance(value, bytes) and value != usual[name] and value not in ({}, "")
    )
    return " ".join(said)[:MAX_WORDS]
