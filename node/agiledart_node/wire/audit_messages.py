"""What agents ask each other for `agiledart audit`, and the lines that they answer with."""

from typing import Annotated

import msgspec

from agiledart_kernel.machine import Effect, Message
from agiledart_kernel.peer import Peer

_Words = Annotated[str, msgspec.Meta(max_length=256)]


class AuditFilter(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Which lines.

    Args:
        since_ms: wall time of the first.
        requester: beginning of the key or of the name; empty: all.
        application: empty: any, and what is about none.
    """

    since_ms: int = 0
    requester: _Words = ""
    application: _Words = ""


class AuditLine(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Something that somebody wanted of an agent.

    Args:
        number: counts the lines of one agent.
        at_ms: wall time of the agent's answer, milliseconds since 1970-01-01 UTC.
        requester: role and key, or the user id of who came by the Unix socket; `key`: public key, hex.
        action: a verb of `permissions.VERBS`, or `read log`; `details`: its arguments, never a secret.
        origin: address, or process.
        allowed: may who asked do that? `reason`: why not, one word.
        outcome: why it came to nothing although it was allowed, or the sentence of the refusal; empty: it was done.
        suppressed: refused attempts of the same key before this one that were counted only.
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
    """Lines of yours behind this number, at most so many.

    Args:
        verify: look through all that you keep, and say what is wrong.
    """

    request: int
    wanted: AuditFilter
    after: int
    limit: int
    verify: bool


class AuditLines(Message, frozen=True, gc=False, tag=441):
    """Lines in the order of their numbers.

    Args:
        reached: give it back as `after`; `has_more`: then there is more.
        kept: lines in all, filled when they were verified; `faults`: what is wrong, in sentences.
        heads: hash of the last line of each chain.
        known: other nodes that the answering one knows.
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
    """What the driver keeps of it. `Completed.result`: an `AuditLines`, whose `request` and `known` mean nothing."""

    request: int
    ask: QueryAudit


AuditMessage = QueryAudit | AuditLines
