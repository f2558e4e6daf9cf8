"""Uses of a token: the keys that joined with it, and whether further ones may join. Pure; `token_registry` talks to the ring.

A token's record is stored at the key of its link's hash and changes by compare-and-set. After a partition with two roots the merge
keeps all keys of both copies: they are members and know it. They may exceed the token's limit, which is reported.
"""

from datetime import UTC, datetime
from typing import Annotated, NamedTuple

import msgspec

from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.limits import MAX_RECORD_BYTES
from agiledart_kernel.node_id import NodeId, key_of_name, node_id_of_key
from agiledart_kernel.registrations import MAX_USES
from agiledart_node.records.record_kind import RecordKind
from agiledart_node.wire.events import KeyPresented

MAX_TOKENS = 1_000
"""Tokens on the list; those that expired longest ago are dropped from it, and are still counted."""

_Key = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
_Seconds = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class TokenUse(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A key that joined, and the time by the clock of the admitting node."""

    key: _Key
    wall_seconds: _Seconds


class TokenUses(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The record of a token.

    Args:
        token: the hash of its link.
        allowed: number of keys that may join; `join_before`: seconds since 1970 until which they may; `role`, `scope`: of the
            keys. For people: the counting node reads them from the token's signature.
        members: keys that joined, in that order.
    """

    token: _Key
    allowed: int
    join_before: _Seconds
    role: Annotated[str, msgspec.Meta(max_length=16)]
    scope: Annotated[str, msgspec.Meta(max_length=128)]
    members: Annotated[tuple[TokenUse, ...], msgspec.Meta(max_length=2 * MAX_USES)] = ()

    @property
    def excess(self) -> int:
        """Keys beyond the token's limit."""
        return max(0, len(self.members) - self.allowed)


class TokenUseDecision(NamedTuple):
    """Decision on a key. `reason`: one of `registrations.REFUSALS`; empty: it is admitted, as this use."""

    reason: str = ""
    detail: str = ""
    number: int = 0
    wall_seconds: int = 0


USES_CODEC: Codec[TokenUses] = Codec(TokenUses, MAX_RECORD_BYTES)
_Listed = Annotated[tuple[tuple[_Seconds, _Key], ...], msgspec.Meta(max_length=MAX_TOKENS)]
LIST_CODEC: Codec[tuple[tuple[int, bytes], ...]] = Codec(_Listed, MAX_RECORD_BYTES)
LIST_KEY = key_of_name("tokens", "all")


def uses_key(token: bytes) -> NodeId:
    """Return the key of a token's record."""
    return key_of_name("token", token.hex())


def register_use(
    uses: TokenUses | None, met: KeyPresented, wall_seconds: int, *, is_closed: bool
) -> tuple[TokenUses, TokenUseDecision]:
    """Count a key, or refuse it; return the record after that.

    Args:
        uses: the record; None: the ring has none.
        wall_seconds: the clock; 0: unknown.
        is_closed: an admin has revoked the token.
    """
    is_new = uses is None
    if uses is None:
        uses = TokenUses(met.token, met.allowed, met.join_before, met.role, met.scope)
    known = [TokenUse(key, at) for key, at in met.known]
    uses = _with(uses, known)
    counted = _found(uses, met.key)
    if counted.number:
        return uses, counted
    if not met.allowed:
        return uses, TokenUseDecision(
            "unregistered", "it is not registered, and its grant does not show the limits of its token"
        )
    if met.counted_at:  # a known node signed its registration, but the ring has lost it
        if is_new or len(uses.members) < met.allowed:
            uses = _with(uses, [TokenUse(met.key, met.counted_at)])
            return uses, _found(uses, met.key)
    elif is_closed:
        return uses, TokenUseDecision("revoked", "an admin has revoked this token")
    elif wall_seconds > met.join_before:
        return uses, TokenUseDecision("token expired", f"it admitted keys until {time_text(met.join_before)}")
    if len(uses.members) >= met.allowed:
        return uses, TokenUseDecision("used up", _used_by(uses, met.allowed))
    uses = _with(uses, [TokenUse(met.key, wall_seconds)])
    return uses, _found(uses, met.key)


def _with(uses: TokenUses, more: list[TokenUse]) -> TokenUses:
    there = {use.key for use in uses.members}
    new = [use for use in more if use.key not in there]
    if not new:
        return uses
    return msgspec.structs.replace(uses, members=(*uses.members, *sorted(new, key=_rank))[: 2 * MAX_USES])


def _found(uses: TokenUses, key: bytes) -> TokenUseDecision:
    for number, use in enumerate(uses.members, start=1):
        if use.key == key:
            return TokenUseDecision(number=number, wall_seconds=use.wall_seconds)
    return TokenUseDecision()


def _used_by(uses: TokenUses, allowed: int) -> str:
    last = uses.members[-1]
    user = f"node {node_id_of_key(last.key).short}, key {last.key.hex()[:16]}, at {time_text(last.wall_seconds)}"
    return f"by {user}" if allowed == 1 else f"{len(uses.members):,} times, the last by {user}"


def time_text(wall_seconds: int) -> str:
    """Return a wall time for people, in UTC."""
    return f"{datetime.fromtimestamp(wall_seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _rank(use: TokenUse) -> tuple[int, bytes]:
    return use.wall_seconds, use.key


def merged_uses(earlier: TokenUses, later: TokenUses) -> TokenUses:
    """Return the keys of both sides, in the order in which they joined; of a key on both sides, the first time."""
    first: dict[bytes, TokenUse] = {}
    for use in (*earlier.members, *later.members):
        if use.key not in first or _rank(use) < _rank(first[use.key]):
            first[use.key] = use
    members = tuple(sorted(first.values(), key=_rank)[: 2 * MAX_USES])
    if members == later.members:
        return later
    return earlier if members == earlier.members else msgspec.structs.replace(later, members=members)


def merged_list(
    earlier: tuple[tuple[int, bytes], ...], later: tuple[tuple[int, bytes], ...]
) -> tuple[tuple[int, bytes], ...]:
    """Return all tokens; beyond the limit, without those that expired longest ago."""
    both = tuple(sorted(dict.fromkeys((*earlier, *later)))[-MAX_TOKENS:])
    return later if both == later else earlier if both == earlier else both


def decoded_uses(token: bytes, value: bytes) -> TokenUses | None:
    """Return the record of this token in a value; None: the value is not one."""
    try:
        uses = USES_CODEC.decode(value)
    except RemoteProtocolError:
        return None
    return uses if uses.token == token else None


USES = RecordKind(USES_CODEC, lambda uses, key: uses_key(uses.token) == key, merged_uses)
TOKENS = RecordKind(LIST_CODEC, lambda listed, key: key == LIST_KEY, merged_list)
