"""Messages between agents for `agiledart audit`, and the audit lines that they carry."""

from typing import Annotated

import msgspec

from agiledart_kernel.machine import Effect, Message
from agiledart_kernel.peer import Peer

_Words = Annotated[str, msgspec.Meta(max_length=256)]


class AuditFilter(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Selection of audit lines.

    Args:
        since_ms: wall time of the first line.
        requester: prefix of the key or of the name; empty: every requester.
        application: name; empty: every application, and lines about none.
    """

    since_ms: int = 0
    requester: _Words = ""
    application: _Words = ""


class AuditLine(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One request to an agent and its outcome.

    Args:
        number: position among the lines of one agent.
        at_ms: wall time of the agent's answer, milliseconds since 1970-01-01 UTC.
        requester: role and key, or the user id of a requester at the Unix socket; `key`: public key, hex.
        action: a verb of `permissions.VERBS`, or `read log`; `details`: its arguments, never a secret.
        origin: address or process of the requester.
        allowed: whether the requester has the permission; `reason`: one word that says why not.
        outcome: why a permitted request failed, or the text of the refusal; empty: the request succeeded.
        suppressed: earlier refused attempts of the same key that were counted but not written.
    """

    number: int
    at_ms: int
    requester: str
    key: str
    action: str
    application: str
    details: str
    origin: str
    allowed: bool
    reason: str
    outcome: str
    suppressed: int = 0


class QueryAudit(Message, frozen=True, gc=False, tag=440):
    """Request for audit lines of the receiver after the line `after`, at most `limit`.

    Args:
        verify: check all lines that the receiver keeps, and report faults.
    """

    request: int
    wanted: AuditFilter
    after: int
    limit: int
    verify: bool


class AuditLines(Message, frozen=True, gc=False, tag=441):
    """Audit lines in the order of their numbers.

    Args:
        reached: value of `after` for the next query; `has_more`: whether further lines exist.
        kept: number of lines in all, filled when they were verified; `faults`: faults found, in sentences.
        heads: hash of the last line of each chain.
        known: other nodes that the answering node knows.
    """

    request: int
    lines: tuple[AuditLine, ...] = ()
    reached: int = 0
    has_more: bool = False
    kept: int = 0
    faults: Annotated[tuple[str, ...], msgspec.Meta(max_length=32)] = ()
    heads: Annotated[dict[str, str], msgspec.Meta(max_length=8)] = {}
    known: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=1_024)] = ()


class ReadAudit(Effect, frozen=True, gc=False):
    """Read audit lines from the driver. `Completed.result`: an `AuditLines` whose `request` and `known` carry no meaning."""

    request: int
    ask: QueryAudit


AuditMessage = QueryAudit | AuditLines
