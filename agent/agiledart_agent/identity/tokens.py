"""Join tokens: `adart1…`, a string that makes its holder a member once it is redeemed for a key of the holder's own.

A token is a chain that ends in an invited fresh key, that key's secret, a record of its uses and expiry, and addresses
to contact. The key that signed the invitation signs the record. A token is a secret: it never stands in a log, an error
or a repr. Uses are counted at the ring (`agiledart_node.registering`). Source: the admission spec, sections 4 and 5;
decision 0004.
"""

import base64
import binascii
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from agiledart_agent.identity.clock_check import ClockIsWrong
from agiledart_agent.identity.identity import Issuer
from agiledart_kernel.errors import OperationFailed, Refused
from agiledart_kernel.grants import (
    NO_QUOTA,
    OPERATOR_ROLES,
    TOKEN_ROLES,
    ChainLink,
    Quota,
    Role,
    decode_link,
    link_hash,
    sign_link,
    verify_chain,
)
from agiledart_kernel.limits import MAX_CHAIN_LINKS, MAX_TOKEN_RECORD_BYTES
from agiledart_kernel.registrations import (
    MAX_USES,
    TokenRecord,
    decode_token_record,
    sign_token_record,
    verify_token_record,
)
from agiledart_transport.certificates import check_signature, public_bytes

PREFIX: Final = "adart1"
MAX_TOKEN_TEXT: Final = 8_192
MAX_ADDRESSES: Final = 8

_CHECKSUM_BYTES: Final = 4
_DAY: Final = 86_400

_Address = Annotated[str, msgspec.Meta(min_length=3, max_length=270, pattern=r"^[^\x00-\x20\x7f]+\Z")]


class _TokenWire(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    chain: Annotated[tuple[bytes, ...], msgspec.Meta(min_length=1, max_length=MAX_CHAIN_LINKS - 1)]
    secret: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    record: Annotated[bytes, msgspec.Meta(min_length=65, max_length=MAX_TOKEN_RECORD_BYTES)]
    addresses: Annotated[tuple[_Address, ...], msgspec.Meta(max_length=MAX_ADDRESSES)]
    operator: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=MAX_CHAIN_LINKS - 1)] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """A parsed token. `text` and `secret` are secrets.

    Attributes:
        network: id of the network to which it admits.
        role, scope: of its holder.
        chain: ends in the invitation.
        record: checked against the chain; `signed_record`: as its holder presents it.
        addresses: agents to contact first, `host:port`.
        operator: a second chain to the same invited key, for the operator of a new agent's machine; empty: none.
    """

    text: str
    network: bytes
    role: Role
    scope: str
    chain: tuple[bytes, ...]
    secret: bytes
    record: TokenRecord
    signed_record: bytes
    addresses: tuple[str, ...]
    operator: tuple[bytes, ...] = ()

    def __repr__(self) -> str:
        return f"Token({self.role}, {self.record.token.hex()[:8]})"


@dataclass(frozen=True, slots=True)
class TokenDescription:
    """Output of `agiledart token show`: everything but the secret. Times in seconds since 1970."""

    token: str
    network: str
    role: str
    scope: str
    uses: int
    join_before: int
    member_for: int
    is_expired: bool
    issued_by: str
    addresses: tuple[str, ...]
    quota: dict[str, int]
    operator: str


def create_token(
    issuer: Issuer,
    *,
    now_seconds: int,
    addresses: Sequence[str],
    role: Role = "agent",
    uses: int = 20,
    expires: int = _DAY,
    member_for: int = 365 * _DAY,
    scope: str = "",
    depth: int = 0,
    quota: Quota = NO_QUOTA,
    operator: str = "",
) -> str:
    """Return a new token as text. Raises `OperationFailed` when it cannot be signed so.

    Args:
        issuer: from `Identity.issuer()`.
        expires: seconds for which it makes members.
        member_for: seconds of membership, cut to the issuer's own.
        scope: "", "app:NAME" or "sink:NAME".
        quota: bounds of a submitter.
        operator: role of the operator of a new agent, one of `OPERATOR_ROLES`; empty: it only hosts.
    """
    if not 1 <= uses <= MAX_USES:
        raise OperationFailed(f"A token has 1 to {MAX_USES:,} uses, not {uses:,}.")
    if expires <= 0 or member_for <= 0:
        raise OperationFailed("A token and the membership that it gives must last for some time.")
    if role not in TOKEN_ROLES:
        raise OperationFailed("Executors get their grants from their agent; there is no token for them.")
    if role == "agent" and scope:
        raise OperationFailed("An agent serves all applications: a token for agents has no scope.")
    if operator and (role != "agent" or operator not in OPERATOR_ROLES):
        raise OperationFailed(f"The operator of a new agent is one of {', '.join(OPERATOR_ROLES)}; users need none.")
    if quota != NO_QUOTA and "submitter" not in (role, operator):
        raise OperationFailed(f"Only submitters have quotas: a token for a new {role} has none.")
    join_before = now_seconds + expires
    not_before, not_after = now_seconds, join_before + member_for
    if issuer.chain:
        above = decode_link(issuer.chain[-1])
        not_before, not_after = max(not_before, above.not_before), min(not_after, above.not_after)
    secret = ed25519.Ed25519PrivateKey.generate()

    def invitation(invited: Role) -> tuple[bytes, ...]:
        chain = sign_link(
            issuer.network, issuer.sign, issuer.chain, key=public_bytes(secret), use="invite", role=invited,
            not_before=not_before, not_after=not_after, scope=scope, depth=depth,
            quota=quota if invited == "submitter" else NO_QUOTA,
        )  # fmt: skip
        _verify_invitation(issuer.network, chain, secret, now_seconds)
        return chain

    try:
        chain = invitation(role)
        operators = invitation(operator) if operator else ()
    except Refused as error:
        raise OperationFailed(f"No such token can be signed here: {error}.") from None
    record = sign_token_record(issuer.sign, TokenRecord(link_hash(chain[-1]), uses, join_before, member_for))
    wire = msgspec.msgpack.encode(
        _TokenWire(chain, secret.private_bytes_raw(), record, tuple(addresses)[:MAX_ADDRESSES], operators)
    )
    return _to_text(wire)


def parse_token(text: str) -> Token:
    """Parse the text of a token. Raises `OperationFailed` with a message that does not repeat the text.

    It checks everything but time: form, checksum, that the secret belongs to the invitation, that the record is signed.
    """
    text = text.strip()
    wire = _from_text(text)
    try:
        link = decode_link(wire.chain[-1])
        record = decode_token_record(wire.record)
        secret = ed25519.Ed25519PrivateKey.from_private_bytes(wire.secret)
        signer = decode_link(wire.chain[-2]).key if len(wire.chain) > 1 else link.network
        # At the start of the invitation every link above it is valid, so this leaves the clock out.
        _verify_invitation(link.network, wire.chain, secret, link.not_before)
        if wire.operator:
            _check_operator(wire, secret, link)
    except (Refused, msgspec.MsgspecError, ValueError) as error:
        reason = error.reason if isinstance(error, Refused) else "form"
        raise OperationFailed(f"The token is not valid ({reason}). Make a new one: agiledart token create") from None
    try:
        if link.use != "invite":
            raise Refused("policy")
        verify_token_record(wire.record, link_hash(wire.chain[-1]), signer, check_signature)
    except Refused:
        raise OperationFailed("The token is not valid (its record). Make a new one: agiledart token create") from None
    return Token(
        text, link.network, link.role, link.scope, wire.chain, wire.secret, record, wire.record, wire.addresses,
        wire.operator,
    )  # fmt: skip


def user_key(token: Token) -> ed25519.Ed25519PrivateKey:
    """Return the key of a user of `token`: the same at every time and place, unlike an agent's (HKDF, RFC 5869)."""
    derivation = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"agiledart: key of a token's holder")
    return ed25519.Ed25519PrivateKey.from_private_bytes(derivation.derive(token.secret))


def redeem(token: Token, public_key: bytes, now_seconds: int, invited: tuple[bytes, ...] = ()) -> tuple[bytes, ...]:
    """Return the chain that makes `public_key` a member: the token's, with one `act` link.

    `invited`: the chain of an agent's token for its operator, instead.

    Membership ends after `member_for`, and never after the invitation. Raises `OperationFailed`, and `ClockIsWrong`
    while the clock is behind that of the token's issuer.
    """
    if now_seconds > token.record.join_before:
        ago = _span(now_seconds - token.record.join_before)
        raise OperationFailed(
            f"The token is refused: it expired {ago} ago. Make a new one where it came from: agiledart token create"
        )
    invited = invited or token.chain
    invitation = decode_link(invited[-1])
    secret = ed25519.Ed25519PrivateKey.from_private_bytes(token.secret)
    # Valid from the start of the invitation: otherwise a newcomer whose clock is ahead would become a member later in
    # the eyes of others.
    not_before = invitation.not_before
    chain = sign_link(
        token.network, secret.sign, invited, key=public_key, use="act", role=invitation.role,
        not_before=not_before, not_after=min(invitation.not_after, now_seconds + token.record.member_for),
        scope=invitation.scope, quota=invitation.quota,
    )  # fmt: skip
    try:
        verify_chain(token.network, chain, public_key, now_seconds, check_signature)
    except Refused as error:
        kind = ClockIsWrong if error.reason == "not yet valid" else OperationFailed
        raise kind(
            f"The token cannot be used: {error}. Check this clock, or make a new one: agiledart token create"
        ) from None
    return chain


def describe(token: Token, now_seconds: int) -> TokenDescription:
    """Return the public part of a token."""
    record = token.record
    issuer = decode_link(token.chain[-2]).key if len(token.chain) > 1 else token.network
    return TokenDescription(
        token=record.token.hex()[:16],
        network=token.network.hex(),
        role=token.role,
        scope=token.scope,
        uses=record.uses,
        join_before=record.join_before,
        member_for=record.member_for,
        is_expired=now_seconds > record.join_before,
        issued_by="authority" if issuer == token.network else f"admin {issuer.hex()[:16]}",
        addresses=token.addresses,
        quota=msgspec.structs.asdict(decode_link((token.operator or token.chain)[-1]).quota),
        operator=decode_link(token.operator[-1]).role if token.operator else "",
    )


def read_token(argument: str) -> str:
    """Return the token of an argument: itself, `@FILE`, or `-` for stdin. Every user sees arguments in `ps`."""
    try:
        if argument == "-":
            if sys.stdin.isatty():
                sys.stderr.write("Paste the token and press Enter: ")
                sys.stderr.flush()
                return sys.stdin.readline(MAX_TOKEN_TEXT + 1).strip()
            return sys.stdin.read(MAX_TOKEN_TEXT + 1).strip()
        if argument.startswith("@"):
            with Path(argument[1:]).expanduser().open(encoding="ascii", errors="replace") as file:
                return file.read(MAX_TOKEN_TEXT + 1).strip()
    except OSError as error:
        raise OperationFailed(f"{argument[1:]} cannot be read: {error.strerror}.") from None
    return argument.strip()


# ----------------------------------------------------------------------------------------------------------------
# private

_DECODE_WIRE: Final = msgspec.msgpack.Decoder(_TokenWire)


def _verify_invitation(
    network: bytes, chain: tuple[bytes, ...], secret: ed25519.Ed25519PrivateKey, now_seconds: int
) -> None:
    """Raise `Refused` unless the holder of `secret` may sign members by this chain: tried by signing one."""
    link = decode_link(chain[-1])
    probe = sign_link(
        network, secret.sign, chain, key=public_bytes(secret), use="act", role=link.role,
        not_before=link.not_before, not_after=link.not_after, scope=link.scope, quota=link.quota,
    )  # fmt: skip
    verify_chain(network, probe, public_bytes(secret), now_seconds, check_signature)


def _check_operator(wire: _TokenWire, secret: ed25519.Ed25519PrivateKey, link: ChainLink) -> None:
    """Raise `Refused` unless the second chain of an agent's token invites an operator, for the same key and network."""
    invited = decode_link(wire.operator[-1])
    if link.role != "agent" or invited.use != "invite" or invited.role not in OPERATOR_ROLES:
        raise Refused("policy")
    _verify_invitation(link.network, wire.operator, secret, invited.not_before)


def _checksum(wire: bytes) -> bytes:
    return sha256(PREFIX.encode() + wire).digest()[:_CHECKSUM_BYTES]


def _to_text(wire: bytes) -> str:
    return PREFIX + base64.b32encode(wire + _checksum(wire)).decode().rstrip("=").lower()


def _from_text(text: str) -> _TokenWire:
    if not text.lower().startswith(PREFIX):
        raise OperationFailed(f"That is not a join token: one begins with {PREFIX}. Make one: agiledart token create")
    coded = text[len(PREFIX) :].upper()
    try:
        if len(text) > MAX_TOKEN_TEXT:
            raise ValueError
        raw = base64.b32decode(coded + "=" * (-len(coded) % 8))
        wire, checksum = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
        if checksum != _checksum(wire):
            raise ValueError
        return _DECODE_WIRE.decode(wire)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise OperationFailed("The join token is damaged: a character is missing or wrong. Copy it again.") from None


def _span(seconds: int) -> str:
    for unit, length in (("d", _DAY), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
