"""Answers about who may: bans, the audit, secrets. As in `bodies`."""

import msgspec


class BanRow(msgspec.Struct, frozen=True):
    """One ban.

    Args:
        target: a key or the hash of a token, hex; `by`: the key of the admin.
        until_ms: when it ends, or ended; `given_ms`: when it was signed.
        in_force: now.
    """

    target: str
    until_ms: int
    reason: str
    by: str
    given_ms: int
    in_force: bool


class BansResponse(msgspec.Struct, frozen=True):
    """`bans`, and the answer to `ban` and `unban`."""

    bans: list[BanRow]


class AuditRow(msgspec.Struct, frozen=True):
    """Something that somebody wanted of an agent. `node`: the agent; the rest as in `audit_messages.AuditLine`."""

    node: str
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
    suppressed: int


class AuditNode(msgspec.Struct, frozen=True):
    """One agent that answered.

    Args:
        after: what to give back under its `node_id` to continue; `has_more`: then there is more.
        kept: lines that it keeps, when they were looked through; `faults`: what is wrong with them, in sentences.
        heads: hash of the last line of each of its chains.
    """

    node: str
    node_id: str
    after: int
    has_more: bool
    kept: int
    faults: list[str]
    heads: dict[str, str]


class AuditResponse(msgspec.Struct, frozen=True):
    """`audit`."""

    rows: list[AuditRow]
    nodes: list[AuditNode]
    silent_nodes: list[str]


class TokenMember(msgspec.Struct, frozen=True):
    """A key that came by a token: in hex, since when, whether it is banned now."""

    key: str
    at_ms: int
    is_banned: bool


class TokenRow(msgspec.Struct, frozen=True):
    """A token and who came by it.

    Args:
        token: the hash of its link, hex: what bans name. Never the token itself.
        role, scope: what it makes of those who come; empty while nobody has.
        uses: how many it lets in, 0 while nobody has come; `used`: how many came; `excess`: beyond what it allows, because rings
            that were apart counted apart.
        join_before_ms: until when it lets in.
        state: `open`, `used up`, `expired`, `revoked` (makes no more members), `banned` (and those it made are out).
    """

    token: str
    role: str
    scope: str
    uses: int
    used: int
    excess: int
    join_before_ms: int
    state: str
    members: list[TokenMember]


class TokensResponse(msgspec.Struct, frozen=True):
    """`token list`."""

    tokens: list[TokenRow]


class SecretRow(msgspec.Struct, frozen=True):
    """A secret that a node keeps; never its text. `owner`: key of who set it, hex; `set_ms`: when."""

    name: str
    application: str
    node: str
    owner: str
    set_ms: int


class SecretsResponse(msgspec.Struct, frozen=True):
    """`secrets`, and the answer to `secret`: what was kept."""

    secrets: list[SecretRow]
    silent_nodes: list[str]


class RenewalResponse(msgspec.Struct, frozen=True):
    """The answer to `Renew`.

    Args:
        until: when the membership ends now, seconds since 1970.
        chain: the signed links, hex; empty when the agent has renewed its own, which it keeps itself.
    """

    until: int
    chain: list[str]
