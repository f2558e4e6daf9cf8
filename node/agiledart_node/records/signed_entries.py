"""Deeds: the signed orders that an application's record keeps, on which the rights that it tells of rest.

Any agent can write a record, so a record is believed for what its users have signed, not for who wrote it. Its owner signed an
order to submit it, whom it is shared with says an order to share it, and that it was stopped one to stop it. Whoever reads a
record asks here before it acts. What an agent has seen itself (a host is gone, all rows came through) nobody can sign for it.

Orders are told apart by verb, whom they are about and who gave them; of equal ones the latest counts. So who may not gives no
order that takes the place of one of somebody who may. That holds for orders that were signed: whoever reads, writes or merges a
record leaves out first what its giver did not sign, or what is about another application.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_kernel.errors import Refused
from agiledart_kernel.grants import SKEW_SECONDS
from agiledart_kernel.permissions import ApplicationOwnership, Principal, refusal
from agiledart_kernel.signed_commands import (
    MAX_SIGNED_COMMAND_BYTES,
    CommandTerms,
    VerifiedCommand,
    content_hash,
    parse_signed_command,
    signer_of,
)
from agiledart_node.records.application import MAX_SIGNED_ENTRIES, STOPPED, ApplicationRecord

VerifyUnlessBanned = Callable[[bytes], VerifiedCommand | None]
"""A kept order → what it says and who gave it; None: it counts no more, or never did."""

VerifySignature = Callable[[bytes], VerifiedCommand | None]
"""The same, whatever bans say: None only where its giver did not sign it. All nodes say the same of an order, at any time."""

_VERBS: Final = ("share", "stop", "submit")
"""What deeds do."""

MAX_SIGNED_ENTRY_BYTES: Final = 128 << 10
"""Of all deeds of a record."""

_SKEW_MS: Final = SKEW_SECONDS * 1_000


class Rights(NamedTuple):
    """What the orders in a record prove.

    Args:
        owner: empty: nobody has signed that it is his.
        shared: keys with which it is shared, in the order in which that was said; `once`: also those from which it was taken back.
    """

    owner: bytes = b""
    shared: tuple[bytes, ...] = ()
    formerly_shared: tuple[bytes, ...] = ()


def principal_of(verified: VerifiedCommand) -> Principal:
    """Who gave an order. An agent's key signs for who opens its socket, and that is an admin."""
    grant = verified.grant
    return Principal("admin", "", grant.key) if grant.role == "agent" else Principal.of(grant)


def rights(
    name: str, owner: bytes, signed_commands: Iterable[bytes], verify_unless_banned: VerifyUnlessBanned
) -> Rights:
    """What these orders prove of an application that is said to be this owner's."""
    known = [one for raw in signed_commands if raw and (one := verify_unless_banned(raw)) is not None]
    known = [one for one in known if one.signed_command.terms.application == name]
    titles = [one for one in known if one.signed_command.terms.verb == "submit" and one.grant.key == owner]
    if not titles:
        return Rights()
    since_ms = min(one.signed_command.wall_ms for one in titles)
    said = _shares(known, ApplicationOwnership(name, owner), since_ms)
    return Rights(owner, tuple(key for key, is_given in said if is_given), tuple(key for key, _ in said))


def _shares(known: list[VerifiedCommand], application: ApplicationOwnership, since_ms: int) -> list[tuple[bytes, bool]]:
    """(key, whether it is shared with that), in the order in which it was said."""
    latest: dict[bytes, tuple[int, bool]] = {}
    for one in known:
        terms, wall_ms = one.signed_command.terms, one.signed_command.wall_ms
        if terms.verb != "share" or wall_ms < since_ms - _SKEW_MS or refusal(principal_of(one), "share", application):
            continue
        key = _key_in(terms)
        if wall_ms >= latest.get(key, (0, False))[0]:
            latest[key] = wall_ms, not terms.argument("revoke")
    return [(key, is_given) for key, (_, is_given) in sorted(latest.items(), key=lambda each: (each[1][0], each[0]))]


def _key_in(terms: CommandTerms) -> bytes:
    try:
        return bytes.fromhex(terms.argument("key"))
    except ValueError:
        return b""


def rights_of(record: ApplicationRecord, verify_unless_banned: VerifyUnlessBanned) -> Rights:
    """What the orders in a record prove."""
    return rights(record.name, record.owner_key, (record.signed_command, *record.signed_entries), verify_unless_banned)


def is_stop_authorised(
    record: ApplicationRecord, begun: VerifiedCommand, verify_unless_banned: VerifyUnlessBanned
) -> bool:
    """Whether a user who may, or might when he did, has ordered the end of the version that the order `begun` began."""
    proven = rights_of(record, verify_unless_banned)
    for raw in record.signed_entries:
        one = verify_unless_banned(raw)
        if one is None or (one.signed_command.terms.verb, one.signed_command.terms.application) != (
            "stop",
            record.name,
        ):
            continue
        application = ApplicationOwnership(record.name, proven.owner, shared=proven.formerly_shared)
        if one.signed_command.wall_ms >= begun.signed_command.wall_ms and not refusal(
            principal_of(one), "stop", application
        ):
            return True
    return False


def without_unproven_rights(
    record: ApplicationRecord, verify_unless_banned: VerifyUnlessBanned, signed: VerifySignature
) -> ApplicationRecord:
    """A record as it is acted on: without the rights that nobody has signed, and without orders that prove nothing.

    `stopped` that no user has ordered is hearsay: those who run it take it back.
    """
    if record.is_forgotten:
        return record
    record = without_forged_entries(record, signed)
    begun = _beginning(record, signed)
    if begun is None and record.signed_command:
        record = msgspec.structs.replace(record, signed_command=b"")
    proven = rights_of(record, verify_unless_banned)
    is_wished = record.stopping or record.state == STOPPED
    is_ordered = not is_wished or (begun is not None and is_stop_authorised(record, begun, verify_unless_banned))
    changed = {
        "owner_key": proven.owner,
        "shared_keys": proven.shared,
        "stopping": record.stopping and is_ordered,
        "is_unverified": record.is_unverified or (record.state == STOPPED and not is_ordered),
    }
    if all(getattr(record, name) == value for name, value in changed.items()):
        return record
    return msgspec.structs.replace(record, **changed)


def _beginning(record: ApplicationRecord, signed: VerifySignature) -> VerifiedCommand | None:
    """The order with which a record's version was submitted, if it is for this name and these settings."""
    one = signed(record.signed_command)
    if one is None or (one.signed_command.terms.verb, one.signed_command.terms.application) != ("submit", record.name):
        return None
    return one if one.signed_command.terms.contents[:1] == (content_hash(record.specification),) else None


def with_command_of_part(record: ApplicationRecord, part: DeploymentPart | None) -> ApplicationRecord:
    """A run's record as a node reads it that has a part of that run: begun by the order that the part carries, whatever it says.

    Of two versions with the same settings a record alone does not tell which order began which.
    """
    if part is None or (record.version, record.number) != (part.version, part.number):
        return record
    if part.signed_command in (b"", record.signed_command) or record.is_forgotten:
        return record
    return msgspec.structs.replace(record, signed_command=part.signed_command)


# ---- what a record keeps


def without_forged_entries(record: ApplicationRecord, signed: VerifySignature) -> ApplicationRecord:
    """The record without deeds that are none: that their givers did not sign, or that are about something else."""
    signed_entries = tuple(raw for raw in record.signed_entries if _is_genuine_entry(record.name, signed(raw)))
    return (
        record
        if len(signed_entries) == len(record.signed_entries)
        else msgspec.structs.replace(record, signed_entries=signed_entries)
    )


def _is_genuine_entry(name: str, one: VerifiedCommand | None) -> bool:
    return one is not None and one.signed_command.terms.application == name and one.signed_command.terms.verb in _VERBS


def with_signed_entry(signed_entries: tuple[bytes, ...], raw: bytes) -> tuple[bytes, ...]:
    """The deeds with one more."""
    return merged_signed_entries(signed_entries, (raw,) if raw else ())


def with_stop(record: ApplicationRecord | None, raw: bytes) -> ApplicationRecord | None:
    """A record that says `stopped`, with the order for that; None stays None."""
    return (
        record
        if record is None
        else msgspec.structs.replace(record, signed_entries=with_signed_entry(record.signed_entries, raw))
    )


def with_stop_request(record: ApplicationRecord, raw: bytes) -> ApplicationRecord | None:
    """The record of an application that is to end when its sources have, with the order for that; None: it says so."""
    wished = msgspec.structs.replace(
        record, stopping=True, signed_entries=with_signed_entry(record.signed_entries, raw)
    )
    return None if wished == record else wished


def merged_signed_entries(ours: tuple[bytes, ...], theirs: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """All deeds of both sides; of those of one kind the latest. What is too much goes: the oldest that took something back.

    They are taken at their word: who has a judge asks it before (`without_forged_entries`).
    """
    if not theirs or ours == theirs:
        return ours
    found: dict[tuple[str, str, bytes], tuple[tuple[bool, bool, int], bytes]] = {}
    for raw in (*ours, *theirs):
        try:
            signed_command, (_, giver) = parse_signed_command(raw), signer_of(raw)
        except Refused:
            continue
        terms = signed_command.terms
        weight = terms.verb == "submit", not terms.argument("revoke"), signed_command.wall_ms
        name = terms.verb, terms.argument("key"), giver
        known = found.get(name)
        if known is None or (weight[2], raw) > (known[0][2], known[1]):
            found[name] = weight, raw
    kept = sorted(found.values(), reverse=True)[:MAX_SIGNED_ENTRIES]
    return tuple(sorted(raw for _, raw in kept))


def inherited_entries(last: ApplicationRecord | None) -> tuple[bytes, ...]:
    """What the next version keeps of the deeds of the last one, of which the owner is proven: his first order, and his shares."""
    if last is None or last.is_forgotten or not last.owner_key:
        return ()
    return tuple(sorted({*_ownership_proofs(last)[:1], *_of_verb("share", last.signed_entries)}))


def signed_entries_for(record: ApplicationRecord, signer: bytes) -> tuple[bytes, ...]:
    """What a host needs to see that a run of this signer is its owner's: nothing, where that is the signer."""
    if not record.owner_key or signer == record.owner_key:
        return ()
    shares = [
        raw for raw in _of_verb("share", record.signed_entries) if _key_in(parse_signed_command(raw).terms) == signer
    ]
    return (*_ownership_proofs(record)[:1], *shares[:2])


def _ownership_proofs(record: ApplicationRecord) -> list[bytes]:
    """The owner's orders to submit it, the first one first."""
    every = _of_verb("submit", (*record.signed_entries, record.signed_command))
    return sorted((raw for raw in every if signer_of(raw)[1] == record.owner_key), key=_given_ms)


def _of_verb(verb: str, signed_commands: Iterable[bytes]) -> list[bytes]:
    found = []
    for raw in signed_commands:
        try:
            if parse_signed_command(raw).terms.verb == verb and len(raw) <= MAX_SIGNED_COMMAND_BYTES:
                found.append(raw)
        except Refused:
            continue
    return found


def _given_ms(raw: bytes) -> int:
    try:
        return parse_signed_command(raw).wall_ms
    except Refused:
        return 0
