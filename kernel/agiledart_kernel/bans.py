"""Bans: signed orders that a key, or a link of a chain and all that came from it, counts no more. The same set, the same answer,
in whatever order they came.

A ban is an order with the verb `ban`, of an admin without a scope. Of two about one target the later one counts, so an unban is a
ban that has ended. What an admin banned counts no more when somebody above bans that admin: bans are counted from the top of the
chains down. Nobody can ban a key or link of the chain above itself. Source: the admission spec, section 4.
"""

from collections.abc import Callable, Collection, Iterator
from hashlib import sha256
from typing import Final

import msgspec

from agiledart_kernel.errors import Refused
from agiledart_kernel.limits import MAX_BANS
from agiledart_kernel.signed_commands import CommandTerms, VerifiedCommand, command_hash, sorted_arguments

VERB: Final = "ban"
MAX_REASON: Final = 128
MAX_SECONDS: Final = 3_650 * 86_400
"""No ban is for longer: neither is a membership."""

RANGES: Final = 256
"""A set is compared by the first byte of its targets."""

_RANGE_BYTES: Final = 4
_EMPTY: Final = sha256().digest()[:_RANGE_BYTES] * RANGES


class Ban(msgspec.Struct, frozen=True, gc=False):
    """One ban.

    Args:
        target: a public key, or the hash of a link.
        until: seconds since 1970 at which it ends; in the past: it was taken back.
        reason: for people.
        by: the key that signed, `depth` the length of its chain, `above` the keys and links of that chain.
        wall_ms: when it was signed.
        raw: the signed order.
    """

    target: bytes
    until: int
    reason: str
    by: bytes
    depth: int
    above: tuple[bytes, ...]
    wall_ms: int
    raw: bytes

    @property
    def rank(self) -> tuple[int, bytes]:
        """Of two about one target the one with the higher rank counts."""
        return self.wall_ms, command_hash(self.raw)


def ban_terms(target: bytes, until: int, reason: str) -> CommandTerms:
    """What the order for a ban says."""
    return CommandTerms(VERB, "", (target,), sorted_arguments((("until", str(until)), ("reason", reason[:MAX_REASON]))))


def parse_ban(raw: bytes, verified: VerifiedCommand) -> Ban:
    """The ban that a verified order is; raises `Refused` (`role`, `form`, `own`)."""
    terms, grant = verified.signed_command.terms, verified.grant
    until = terms.argument("until")
    if terms.verb != VERB or len(terms.contents) != 1 or not until.isdecimal() or len(until) > 12:
        raise Refused("form", "this order is no ban")
    if grant.role != "admin" or grant.scope:
        raise Refused("role", f"a {grant.role} bans nobody")
    above = (*grant.keys, *grant.links)
    if terms.contents[0] in above or terms.contents[0] == verified.signed_command.network:
        raise Refused("own", "nobody can ban himself or those above him")
    seconds = min(int(until), verified.signed_command.wall_ms // 1_000 + MAX_SECONDS)
    return Ban(
        terms.contents[0],
        seconds,
        terms.argument("reason"),
        grant.key,
        len(grant.keys),
        above,
        verified.signed_command.wall_ms,
        raw,
    )


class BanSet:
    """All bans that a node knows, at most `MAX_BANS`: beyond that no further target is taken."""

    def __init__(self) -> None:
        self._by_target: dict[bytes, Ban] = {}
        self.refused = 0

    def __len__(self) -> int:
        return len(self._by_target)

    def add(self, ban: Ban) -> bool:
        """Whether it is new, and counts before what was known of its target."""
        known = self._by_target.get(ban.target)
        if known is not None and known.rank >= ban.rank:
            return False
        if known is None and len(self._by_target) >= MAX_BANS:
            self.refused += 1
            return False
        self._by_target[ban.target] = ban
        return True

    def forget_old(self, now_seconds: int) -> None:
        """Drop those that nobody needs any more: whatever they were about has ended."""
        for ban in [ban for ban in self._by_target.values() if now_seconds > ban.wall_ms // 1_000 + MAX_SECONDS]:
            del self._by_target[ban.target]

    def all(self) -> tuple[Ban, ...]:
        """In order of their targets."""
        return tuple(ban for _, ban in sorted(self._by_target.items()))

    def in_range(self, number: int) -> tuple[Ban, ...]:
        """Those whose target begins with this byte."""
        return tuple(ban for ban in self.all() if ban.target[0] == number)

    def digest(self) -> bytes:
        """Four bytes for each range; empty for an empty set."""
        if not self._by_target:
            return b""
        ranges = [sha256() for _ in range(RANGES)]
        for ban in self.all():
            ranges[ban.target[0]].update(command_hash(ban.raw))
        return b"".join(one.digest()[:_RANGE_BYTES] for one in ranges)

    def in_force(self) -> dict[bytes, int]:
        """Target → until when, of those that count: signed by nobody who is himself banned from above."""
        counted: dict[bytes, int] = {}
        for ban in sorted(self._by_target.values(), key=lambda ban: (ban.depth, *ban.rank)):
            if not any(counted.get(name, 0) > ban.wall_ms // 1_000 for name in ban.above):
                counted[ban.target] = ban.until
        return counted


def differing(ours: bytes, theirs: bytes) -> list[int]:
    """The ranges in which two digests differ."""
    ours, theirs = ours or _EMPTY, theirs or _EMPTY
    step = _RANGE_BYTES
    return [n for n in range(RANGES) if ours[n * step : (n + 1) * step] != theirs[n * step : (n + 1) * step]]


class Banned(Collection[bytes]):
    """What is banned now, for `verify_chain`: a ban ends by itself.

    Args:
        wall_seconds: the clock.

    Attributes:
        until: target → seconds since 1970.
    """

    def __init__(self, wall_seconds: Callable[[], float]) -> None:
        self._wall_seconds = wall_seconds
        self.until: dict[bytes, int] = {}

    def __contains__(self, name: object) -> bool:
        until = self.until.get(name) if isinstance(name, bytes) else None
        return until is not None and until > self._wall_seconds()

    def __iter__(self) -> Iterator[bytes]:
        return (name for name in self.until if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
