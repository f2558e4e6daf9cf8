"""Audit lines: from a request to the line about it."""

from typing import Final

import msgspec

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.permissions import LogOwnership, Principal
from agiledart_node.records.command_verifier import command_terms
from agiledart_node.wire.audit_messages import AuditLine
from agiledart_node.wire.commands import VERB_BY_COMMAND, Command, Submit, named_application
from agiledart_node.wire.lease_messages import RenewHostLease

MAX_WORDS: Final = 240
"""Longest text of a user in a line, in characters."""

_OWN_COLUMNS: Final = ("name", "after")


def audit_line_of(command: Command, principal: Principal, requester: str, origin: str) -> AuditLine:
    """Return the line about a request that is permitted and done, without number and time."""
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
    """Return the line of a request that was refused, or (without a reason) failed."""
    return msgspec.structs.replace(line, allowed=not reason, reason=reason, outcome=text[:MAX_WORDS])


def refused_log_read_line(principal: Principal, origin: str, log: LogOwnership, reason: str, text: str) -> AuditLine:
    """Return the line about a requester that may not read the rows of a log."""
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
    """Return whether this command is audited also when it is permitted: it needs a signature. Renewals of leases are too many."""
    if isinstance(command, RenewHostLease):
        return False
    try:
        return command_terms(command) is not None
    except RemoteProtocolError:  # the command makes no sense, and will be refused for that
        return True


def _application(command: Command) -> str:
    if isinstance(command, Submit) and not command.name:
        try:
            terms = command_terms(command)
        except RemoteProtocolError:
            return ""
        return terms.application if terms is not None else ""
    return named_application(command)


def _details(command: Command) -> str:
    """Return the other arguments of the command, except content (bytes) and default values."""
    usual = {field.name: field.default for field in msgspec.structs.fields(command)}
    arguments = (
        f"{name}={_text(value)}"
        for name, value in msgspec.structs.asdict(command).items()
        if name not in _OWN_COLUMNS and not isinstance(value, bytes) and value != usual[name] and value not in ({}, "")
    )
    return " ".join(arguments)[:MAX_WORDS]


def _text(value: object) -> str:
    """Return an argument for people: of a nested one the fields that are texts or numbers."""
    if not isinstance(value, msgspec.Struct):
        return str(value)
    fields = msgspec.structs.asdict(value).items()
    return ",".join(
        f"{name}:{field}" for name, field in fields if isinstance(field, str | int) and field not in ("", 0)
    )
