"""Grants: what a key may do, stated by a chain of signed links from the network's authority key down to it.

A link states: "the holder of `key` may act as `role` within `scope` from `not_before` to `not_after`", or may *invite*
one key to act so. It names its parent by hash, and its signature covers the very bytes that were received. The
authority's public key is the network's id, so any node can verify any other without help. Callers pass in the functions
that sign and check signatures, so this module loads no cryptography. Source: the admission spec, sections 2 and 4;
decision 0004.
"""

from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from typing import Annotated, Final, Literal

import msgspec

from agiledart_kernel.errors import Refused
from agiledart_kernel.limits import MAX_CHAIN_LINKS, MAX_LINK_BYTES

LINK_CONTEXT: Final = b"agiledart-link/1\0"
SIGNATURE_BYTES: Final = 64
SKEW_SECONDS: Final = 300
"""Seconds by which a signer's clock may run ahead of the verifier's."""

Role = Literal["admin", "agent", "submitter", "reader", "writer", "provisioner", "executor"]
Use = Literal["act", "invite"]
ROLES: Final[tuple[Role, ...]] = ("admin", "agent", "submitter", "reader", "writer", "provisioner", "executor")
OPERATOR_ROLES: Final[tuple[Role, ...]] = ("reader", "submitter", "admin")
"""Roles that the operator of a new agent's machine may get."""
TOKEN_ROLES: Final[tuple[Role, ...]] = tuple(role for role in ROLES if role != "executor")
"""Roles that a join token may give. Executors get their grants from their agent."""

Sign = Callable[[bytes], bytes]
"""Message → Ed25519 signature by some key."""

CheckSignature = Callable[[bytes, bytes, bytes], bool]
"""(public key, signature, message) → is the signature good? Raises nothing."""

REASONS: Final = (
    "length", "form", "another network", "order", "weak key", "signature", "policy", "outlives its parent",
    "wider scope", "expired", "not yet valid", "banned", "an invitation is not a member", "another key",
)  # fmt: skip
"""Every reason for which `verify_chain` refuses."""

_Key = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
_Seconds = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
_Scope = Annotated[str, msgspec.Meta(max_length=128, pattern=r"^((app|sink|feed):[^\x00-\x20\x7f]+)?\Z")]

# Points of small order on the curve and their second encodings, sign bit cleared: with such a "key" one signature fits
# many messages.
_WEAK_KEYS: Final = frozenset(
    bytes.fromhex(text)
    for text in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)


_Most = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class Quota(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """Bounds on what the holder of a grant may use; 0: as much as agents allow by default.

    Args:
        applications: number of applications that run in the network at one time.
        executors, memory_mb, disk_mb: on each node, counted as an agent counts its own bounds.
    """

    applications: _Most = 0
    executors: _Most = 0
    memory_mb: _Most = 0
    disk_mb: _Most = 0

    @property
    def text(self) -> str:
        """The quota as text, `applications=2 disk_mb=100`; empty: no bound."""
        return " ".join(f"{name}={most}" for name, most in msgspec.structs.asdict(self).items() if most)


NO_QUOTA: Final = Quota()


class ChainLink(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """Signed body of one link.

    Args:
        network: the authority's public key.
        parent: `link_hash` of the signed link above; zeros in the first.
        key: the key to which the link belongs.
        use: may the key act itself, or only invite one key to act?
        scope: "" for everything, `app:NAME`, `sink:NAME` or `feed:NAME`.
        not_before, not_after: validity in seconds since 1970, both ends included.
        depth: number of levels of further admins that an admin may appoint.
        quota: of a submitter. A link without one is encoded as before quotas existed.
    """

    network: _Key
    parent: _Key
    key: _Key
    use: Use
    role: Role
    scope: _Scope
    not_before: _Seconds
    not_after: _Seconds
    depth: Annotated[int, msgspec.Meta(ge=0, le=3)] = 0
    quota: Quota = NO_QUOTA


class Grant(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Rights that a verified chain gives to its last key.

    Args:
        issuer: the key that signed the last link: for an executor, its agent's.
        links: hash of each link, first to last.
        keys: the key of each link. A ban names a link or a key.
        invitation: hash of the invitation that this grant was redeemed from, or empty.
    """

    role: Role
    scope: str
    key: bytes
    not_before: int
    not_after: int
    depth: int
    issuer: bytes
    links: tuple[bytes, ...]
    keys: tuple[bytes, ...]
    invitation: bytes = b""
    quota: Quota = NO_QUOTA

    def is_banned(self, banned: Collection[bytes]) -> bool:
        """Return whether a ban names one of this grant's links or keys."""
        return any(link in banned for link in self.links) or any(key in banned for key in self.keys)


_DECODER: Final = msgspec.msgpack.Decoder(ChainLink)
_ENCODER: Final = msgspec.msgpack.Encoder()


def link_hash(signed: bytes) -> bytes:
    """Return the name of a signed link, by which its children and bans refer to it."""
    return sha256(LINK_CONTEXT + signed).digest()


def is_proper_key(key: bytes) -> bool:
    """Return whether this can be a public key. False for the points of small order."""
    return len(key) == 32 and key[:31] + bytes((key[31] & 0x7F,)) not in _WEAK_KEYS


def decode_link(signed: object) -> ChainLink:
    """Decode the body of a signed link. It checks form and size, not the signature. Raises `Refused` (`length` or `form`)."""
    if not isinstance(signed, bytes) or not SIGNATURE_BYTES < len(signed) <= SIGNATURE_BYTES + MAX_LINK_BYTES:
        raise Refused("length", f"a link has {SIGNATURE_BYTES + 1} to {SIGNATURE_BYTES + MAX_LINK_BYTES} bytes")
    try:
        return _DECODER.decode(memoryview(signed)[SIGNATURE_BYTES:])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Refused("form", str(error)[:200]) from None


def sign_link(
    network: bytes,
    sign: Sign,
    chain: Sequence[bytes],
    *,
    key: bytes,
    use: Use,
    role: Role,
    not_before: int,
    not_after: int,
    scope: str = "",
    depth: int = 0,
    quota: Quota = NO_QUOTA,
) -> tuple[bytes, ...]:
    """Return the chain with one more link. It signs whatever it is given: `verify_chain` enforces the policy."""
    parent = link_hash(chain[-1]) if chain else bytes(32)
    fields = (network, parent, key, use, role, scope, not_before, not_after, depth)
    body = _ENCODER.encode(fields if quota == NO_QUOTA else (*fields, quota))
    return (*chain, sign(LINK_CONTEXT + body) + body)


def may_sign(above: ChainLink | None, link: ChainLink) -> bool:
    """Return whether the holder of `above` (None: the authority) may grant what `link` grants. This is the whole policy."""
    if (link.depth and link.role != "admin") or (link.quota != NO_QUOTA and link.role != "submitter"):
        return False
    if above is None:
        return link.role != "executor"
    if above.use == "invite":
        return link.use == "act" and link.role == above.role and link.depth == 0 and link.quota == above.quota
    if above.role == "admin":
        return link.role != "executor" and (link.role != "admin" or link.depth < above.depth)
    return above.role == "agent" and link.role == "executor" and link.use == "act" and link.scope.startswith("app:")


def _check_validity_period(above: ChainLink | None, link: ChainLink, now_seconds: int) -> None:
    if above is not None:
        if link.not_after > above.not_after or link.not_before < above.not_before:
            raise Refused("outlives its parent")
        if above.scope and link.scope != above.scope:
            raise Refused("wider scope", f"{link.scope or 'everything'!s} under {above.scope}")
    if link.not_after < now_seconds:
        raise Refused("expired", f"{now_seconds - link.not_after} s ago")
    if link.not_before > now_seconds + SKEW_SECONDS:
        raise Refused("not yet valid", f"begins in {link.not_before - now_seconds} s")


def verify_chain(
    network: bytes,
    chain: Sequence[bytes],
    key: bytes,
    now_seconds: int,
    check_signature: CheckSignature,
    banned: Collection[bytes] = (),
) -> Grant:
    """Return what a chain allows `key` to do in our network. Raises `Refused` with the first of `REASONS` that applies.

    Args:
        network: *our* network's id, never the id that the peer names.
        key: the public key that the peer has proven to hold.
        now_seconds: seconds since 1970.
        banned: hashes of links, and keys, that are no longer valid.
    """
    if not isinstance(chain, (list, tuple)) or not 0 < len(chain) <= MAX_CHAIN_LINKS:
        raise Refused("length", f"a chain has 1 to {MAX_CHAIN_LINKS} links")
    signer, parent, invitation = network, bytes(32), b""
    above: ChainLink | None = None
    hashes: list[bytes] = []
    keys: list[bytes] = []
    issuer = network
    for signed in chain:
        link = decode_link(signed)
        if link.network != network:
            raise Refused("another network")
        if link.parent != parent:
            raise Refused("order", "a link does not name the one before it")
        if not is_proper_key(link.key) or not is_proper_key(signer):
            raise Refused("weak key")
        if not check_signature(signer, signed[:SIGNATURE_BYTES], LINK_CONTEXT + signed[SIGNATURE_BYTES:]):
            raise Refused("signature")
        if not may_sign(above, link):
            signer_text = f"{above.use} {above.role}" if above else "authority"
            raise Refused("policy", f"{signer_text} may not grant {link.use} {link.role}")
        _check_validity_period(above, link, now_seconds)
        parent = link_hash(signed)
        if parent in banned or link.key in banned:
            raise Refused("banned")
        if link.use == "invite":
            invitation = parent
        hashes.append(parent)
        keys.append(link.key)
        issuer, signer, above = signer, link.key, link
    assert above is not None, "a chain has at least one link"
    if above.use != "act":
        raise Refused("an invitation is not a member")
    if above.key != key:
        raise Refused("another key")
    return Grant(
        above.role, above.scope, key, above.not_before, above.not_after, above.depth,
        issuer, tuple(hashes), tuple(keys), invitation, above.quota,
    )  # fmt: skip
