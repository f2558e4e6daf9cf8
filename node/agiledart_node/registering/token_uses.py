"""The uses of a token: which keys came by it, and who may still come. Pure; `registering` has the ring.

A token's record stands at the key of its link's hash and changes by compare-and-set. Of two copies (a partition had two roots) all
keys stay: they are members, and were told so. That may be more than the token allows, and is reported.
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
"""Tokens that the list knows; those that expired longest ago fall out of it, and are counted all the same."""

_Key = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
_Seconds = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class TokenUse(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A key that came, and when by the clock of who let it in."""

    key: _Key
    wall_seconds: _Seconds


class TokenUses(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The record of a token.

    Args:
        token: the hash of its link.
        allowed: how many keys may come; `join_before`: seconds since 1970 until which they may; `role`, `scope`: what they
            become. For people: whoever counts reads them in what the token's maker has signed.
        members: who came, in the order in which they came.
    """

    token: _Key
    allowed: int
    join_before: _Seconds
    role: Annotated[str, msgspec.Meta(max_length=16)]
    scope: Annotated[str, msgspec.Meta(max_length=128)]
    members: Annotated[tuple[TokenUse, ...], msgspec.Meta(max_length=2 * MAX_USES)] = ()

    @property
    def excess(self) -> int:
        """Keys beyond what the token allows."""
        return max(0, len(self.members) - self.allowed)


class TokenUseDecision(NamedTuple):
    """What becomes of a key. `reason`: one of `registrations.REFUSALS`; empty: it is in, as this use."""

    reason: str = ""
    detail: str = ""
    number: int = 0
    wall_seconds: int = 0


USES_CODEC: Codec[TokenUses] = Codec(TokenUses, MAX_RECORD_BYTES)
_Listed = Annotated[tuple[tuple[_Seconds, _Key], ...], msgspec.Meta(max_length=MAX_TOKENS)]
LIST_CODEC: Codec[tuple[tuple[int, bytes], ...]] = Codec(_Listed, MAX_RECORD_BYTES)
LIST_KEY = key_of_name("tokens", "all")


def uses_key(token: bytes) -> NodeId:
    """Where the record of a token lies."""
    return key_of_name("token", token.hex())


def register_use(
    uses: TokenUses | None, met: KeyPresented, wall_seconds: int, *, is_closed: bool
) -> tuple[TokenUses, TokenUseDecision]:
    """Count a key, or refuse it; the record as it is then.

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
    found = _found(uses, met.key)
    if found.number:
        return uses, found
    if not met.allowed:
        return uses, TokenUseDecision("unregistered", "it was never counted, and does not show what its token allows")
    if met.counted_at:  # somebody we know has signed that it was counted: the ring has forgotten
        if is_new or len(uses.members) < met.allowed:
            uses = _with(uses, [TokenUse(met.key, met.counted_at)])
            return uses, _found(uses, met.key)
    elif is_closed:
        return uses, TokenUseDecision("revoked", "an admin has revoked this token")
    elif wall_seconds > met.join_before:
        return uses, TokenUseDecision("token expired", f"it let in until {time_text(met.join_before)}")
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
    who = f"node {node_id_of_key(last.key).short}, key {last.key.hex()[:16]}, at {time_text(last.wall_seconds)}"
    return f"by {who}" if allowed == 1 else f"{len(uses.members):,} times, the last by {who}"


def time_text(wall_seconds: int) -> str:
    """A wall time for people, wherever they are."""
    return f"{datetime.fromtimestamp(wall_seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _rank(use: TokenUse) -> tuple[int, bytes]:
    return use.wall_seconds, use.key


def merged_uses(earlier: TokenUses, later: TokenUses) -> TokenUses:
    """All that came on either side, in the order in which they came; of one that came on both, the first time."""
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
    """All tokens, but for those that expired longest ago when they are too many."""
    both = tuple(sorted(dict.fromkeys((*earlier, *later)))[-MAX_TOKENS:])
    return later if both == later else earlier if both == earlier else both


def decoded_uses(token: bytes, value: bytes) -> TokenUses | None:
    """The record of this token that a value is; None: it is none."""
    try:
        uses = USES_CODEC.decode(value)
    except RemoteProtocolError:
        return None
    return uses if uses.token == token else None


USES = RecordKind(USES_CODEC, lambda uses, key: uses_key(uses.token) == key, merged_uses)
TOKENS = RecordKind(LIST_CODEC, lambda listed, key: key == LIST_KEY, merged_list)
