"""Response schemas about permissions: bans, the audit, tokens, secrets, memberships. Conventions as in `responses`."""

import msgspec


class BanRow(msgspec.Struct, frozen=True):
    """One ban.

    Args:
        target: a key or the hash of a token, hex; `by`: the key of the admin who signed the ban.
        until_ms: time at which the ban ends or ended; `given_ms`: time of the signature.
        in_force: whether the ban applies now.
    """

    target: str
    until_ms: int
    reason: str
    by: str
    given_ms: int
    in_force: bool


class BansResponse(msgspec.Struct, frozen=True):
    """Response to `bans`, `ban` and `unban`."""

    bans: list[BanRow]


class AuditRow(msgspec.Struct, frozen=True):
    """One request to an agent. `node`: name of the agent; other fields as in `audit_messages.AuditLine`."""

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
    """One agent that answered an audit query.

    Args:
        after: position to send back under this `node_id` to continue; `has_more`: whether further lines exist.
        kept: number of lines that the agent keeps, filled when they were verified; `faults`: faults found, in sentences.
        heads: hash of the last line of each chain of the agent.
    """

    node: str
    node_id: str
    after: int
    has_more: bool
    kept: int
    faults: list[str]
    heads: dict[str, str]


class AuditResponse(msgspec.Struct, frozen=True):
    """Response to `audit`."""

    rows: list[AuditRow]
    nodes: list[AuditNode]
    silent_nodes: list[str]


class TokenMember(msgspec.Struct, frozen=True):
    """A key that joined with a token: the key in hex, the time since it joined, and whether it is banned now."""

    key: str
    at_ms: int
    is_banned: bool


class TokenRow(msgspec.Struct, frozen=True):
    """A token and the keys that joined with it.

    Args:
        token: hash of the token's link, hex; bans name this hash. The token itself is never shown.
        role, scope: rights of the keys that join with it; empty until the first key has joined.
        uses: number of keys that it admits, 0 until the first key has joined; `used`: number of keys that joined.
        excess: keys admitted beyond `uses`, because separated rings counted independently.
        join_before_ms: time until which it admits keys.
        state: `open`, `used up`, `expired`, `revoked` (admits no more keys) or `banned` (its members are excluded as well).
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
    """Response to `token list`."""

    tokens: list[TokenRow]


class SecretRow(msgspec.Struct, frozen=True):
    """A secret that a node stores, without its text. `owner`: key of the user who set it, hex; `set_ms`: time of that."""

    name: str
    application: str
    node: str
    owner: str
    set_ms: int


class SecretsResponse(msgspec.Struct, frozen=True):
    """Response to `secrets`, and to `secret` with the secret that was stored."""

    secrets: list[SecretRow]
    silent_nodes: list[str]


class RenewalResponse(msgspec.Struct, frozen=True):
    """Response to `RenewUserMembership`.

    Args:
        until: new end of the membership, seconds since 1970.
        chain: the signed links, hex; empty when the agent renewed its own membership, which it keeps itself.
    """

    until: int
    chain: list[str]
