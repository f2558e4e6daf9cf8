"""Bans: signed commands by which a key, or a chain link and all grants derived from it, is no longer valid.

The order in which bans arrive does not matter: the same set of bans gives the same answer on every node.

A ban is a signed command with the verb `ban`, given by an admin without a scope. Of two bans of one target the later
one counts, so an unban is a ban that has ended. Bans are evaluated from the top of the chains down: when an admin is
banned from above, the bans that this admin signed are void. No admin can ban its own key or a key or link above it.
Source: the admission spec, section 4.
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
"""Longest duration of a ban; a membership is never longer."""

RANGES: Final = 256
"""Number of ranges by which two sets are compared. The first byte of a target selects its range."""

_RANGE_BYTES: Final = 4
_EMPTY: Final = sha256().digest()[:_RANGE_BYTES] * RANGES


class Ban(msgspec.Struct, frozen=True, gc=False):
    """One ban.

    Args:
        target: a public key, or the hash of a link.
        until: seconds since 1970 at which the ban ends; a time in the past revokes it.
        reason: text for people.
        by: public key that signed the ban.
        depth: length of that key's chain.
        above: keys and links of that chain.
        wall_ms: time of the signature, in milliseconds since 1970.
        raw: the signed command.
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
        """Rank of the ban. Of two bans of one target the ban with the higher rank counts."""
        return self.wall_ms, command_hash(self.raw)


def ban_terms(target: bytes, until: int, reason: str) -> CommandTerms:
    """Return the terms of the command that bans `target`."""
    return CommandTerms(VERB, "", (target,), sorted_arguments((("until", str(until)), ("reason", reason[:MAX_REASON]))))


def parse_ban(raw: bytes, verified: VerifiedCommand) -> Ban:
    """Return the ban in a verified command. Raises `Refused` (`role`, `form`, `own`)."""
    terms, grant = verified.signed_command.terms, verified.grant
    until = terms.argument("until")
    if terms.verb != VERB or len(terms.contents) != 1 or not until.isdecimal() or len(until) > 12:
        raise Refused("form", "this command is not a ban")
    if grant.role != "admin" or grant.scope:
        raise Refused("role", f"the role {grant.role} may not ban")
    above = (*grant.keys, *grant.links)
    if terms.contents[0] in above or terms.contents[0] == verified.signed_command.network:
        raise Refused("own", "an admin cannot ban its own key or one above it")
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
    """All bans that a node knows, at most `MAX_BANS`. A full set takes no ban of a further target."""

    def __init__(self) -> None:
        self._by_target: dict[bytes, Ban] = {}
        self.refused = 0

    def __len__(self) -> int:
        return len(self._by_target)

    def add(self, ban: Ban) -> bool:
        """Add a ban. Return whether it replaces what was known of its target."""
        known = self._by_target.get(ban.target)
        if known is not None and known.rank >= ban.rank:
            return False
        if known is None and len(self._by_target) >= MAX_BANS:
            self.refused += 1
            return False
        self._by_target[ban.target] = ban
        return True

    def forget_old(self, now_seconds: int) -> None:
        """Drop bans whose longest possible duration has ended: everything that they applied to has expired."""
        for ban in [ban for ban in self._by_target.values() if now_seconds > ban.wall_ms // 1_000 + MAX_SECONDS]:
            del self._by_target[ban.target]

    def all(self) -> tuple[Ban, ...]:
        """Return all bans in order of their targets."""
        return tuple(ban for _, ban in sorted(self._by_target.items()))

    def in_range(self, number: int) -> tuple[Ban, ...]:
        """Return the bans whose target begins with this byte."""
        return tuple(ban for ban in self.all() if ban.target[0] == number)

    def digest(self) -> bytes:
        """Return the digest of the set: four bytes for each range, or nothing for an empty set."""
        if not self._by_target:
            return b""
        ranges = [sha256() for _ in range(RANGES)]
        for ban in self.all():
            ranges[ban.target[0]].update(command_hash(ban.raw))
        return b"".join(range_hash.digest()[:_RANGE_BYTES] for range_hash in ranges)

    def in_force(self) -> dict[bytes, int]:
        """Return target → end of the ban, for each valid ban: no signer in its chain is banned from above."""
        counted: dict[bytes, int] = {}
        for ban in sorted(self._by_target.values(), key=lambda ban: (ban.depth, *ban.rank)):
            if not any(counted.get(name, 0) > ban.wall_ms // 1_000 for name in ban.above):
                counted[ban.target] = ban.until
        return counted


def differing(ours: bytes, theirs: bytes) -> list[int]:
    """Return the numbers of the ranges in which two digests differ."""
    ours, theirs = ours or _EMPTY, theirs or _EMPTY
    step = _RANGE_BYTES
    return [n for n in range(RANGES) if ours[n * step : (n + 1) * step] != theirs[n * step : (n + 1) * step]]


class Banned(Collection[bytes]):
    """Keys and links that are banned now, for `verify_chain`. A ban expires by itself.

    Args:
        wall_seconds: the wall clock.

    Attributes:
        until: target → seconds since 1970 at which its ban ends.
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
