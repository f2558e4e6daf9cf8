"""Signed entries: the signed commands that an application's record keeps as proof of the rights that it shows.

Any agent can write a record, so nodes trust the signatures of users, not the writer. The owner signed a command to submit it, each
share rests on a signed command to share it, and a stop on a signed command to stop it. Every reader verifies a record here before
it acts. Observations of an agent (a lost host, all rows processed) have no signature.

Commands are identified by verb, subject and signer; of equal ones the latest is valid. So a user without a permission cannot
replace the command of a user with it. That holds for verified signatures: readers, writers and merges first remove entries with an
invalid signature or about another application.
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
"""Function from a kept command to its content and signer; None: it is invalid, or its signer is banned."""

VerifySignature = Callable[[bytes], VerifiedCommand | None]
"""The same without regard to bans: None only for an invalid signature. All nodes agree on the result, at any time."""

_VERBS: Final = ("share", "stop", "submit")
"""Verbs of signed entries."""

MAX_SIGNED_ENTRY_BYTES: Final = 128 << 10
"""Size limit of all signed entries of a record."""

_SKEW_MS: Final = SKEW_SECONDS * 1_000


class Rights(NamedTuple):
    """Rights proven by the commands in a record.

    Args:
        owner: empty: no signature proves the owner.
        shared: keys with which it is shared, in the order of the shares; `formerly_shared`: including revoked ones.
    """

    owner: bytes = b""
    shared: tuple[bytes, ...] = ()
    formerly_shared: tuple[bytes, ...] = ()


def principal_of(verified: VerifiedCommand) -> Principal:
    """Return the signer of a command, with the rights of its grant."""
    return Principal.of(verified.grant)


def rights(
    name: str, owner: bytes, signed_commands: Iterable[bytes], verify_unless_banned: VerifyUnlessBanned
) -> Rights:
    """Return the rights that these commands prove for an application with this alleged owner."""
    verified = [command for raw in signed_commands if raw and (command := verify_unless_banned(raw)) is not None]
    verified = [command for command in verified if command.signed_command.terms.application == name]
    submissions = [
        command for command in verified if command.signed_command.terms.verb == "submit" and command.grant.key == owner
    ]
    if not submissions:
        return Rights()
    since_ms = min(command.signed_command.wall_ms for command in submissions)
    shares = _shares(verified, ApplicationOwnership(name, owner), since_ms)
    return Rights(owner, tuple(key for key, is_given in shares if is_given), tuple(key for key, _ in shares))


def _shares(known: list[VerifiedCommand], application: ApplicationOwnership, since_ms: int) -> list[tuple[bytes, bool]]:
    """Return (key, whether it is shared with that key), in the order of the commands."""
    latest: dict[bytes, tuple[int, bool]] = {}
    for verified in known:
        terms, wall_ms = verified.signed_command.terms, verified.signed_command.wall_ms
        if (
            terms.verb != "share"
            or wall_ms < since_ms - _SKEW_MS
            or refusal(principal_of(verified), "share", application)
        ):
            continue
        key = _key_in(terms)
        if wall_ms >= latest.get(key, (0, False))[0]:
            latest[key] = wall_ms, not terms.argument("revoke")
    return [(key, is_given) for key, (_, is_given) in sorted(latest.items(), key=lambda item: (item[1][0], item[0]))]


def _key_in(terms: CommandTerms) -> bytes:
    try:
        return bytes.fromhex(terms.argument("key"))
    except ValueError:
        return b""


def rights_of(record: ApplicationRecord, verify_unless_banned: VerifyUnlessBanned) -> Rights:
    """Return the rights that the commands in a record prove."""
    return rights(record.name, record.owner_key, (record.signed_command, *record.signed_entries), verify_unless_banned)


def is_stop_authorised(
    record: ApplicationRecord, begun: VerifiedCommand, verify_unless_banned: VerifyUnlessBanned
) -> bool:
    """Return whether a user with the permission, now or then, commanded the end of the version that `begun` submitted."""
    proven = rights_of(record, verify_unless_banned)
    for raw in record.signed_entries:
        verified = verify_unless_banned(raw)
        if verified is None or (verified.signed_command.terms.verb, verified.signed_command.terms.application) != (
            "stop",
            record.name,
        ):
            continue
        application = ApplicationOwnership(record.name, proven.owner, shared=proven.formerly_shared)
        if verified.signed_command.wall_ms >= begun.signed_command.wall_ms and not refusal(
            principal_of(verified), "stop", application
        ):
            return True
    return False


def without_unproven_rights(
    record: ApplicationRecord, verify_unless_banned: VerifyUnlessBanned, signed: VerifySignature
) -> ApplicationRecord:
    """Return a record as nodes act on it: without unsigned rights and without invalid commands.

    A `stopped` state without a user's command is unverified: the hosts revoke it.
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
    before = msgspec.structs.asdict(record)
    if all(before[name] == value for name, value in changed.items()):
        return record
    return msgspec.structs.replace(record, **changed)


def _beginning(record: ApplicationRecord, signed: VerifySignature) -> VerifiedCommand | None:
    """Return the command that submitted a record's version, if it is for this name and these settings."""
    verified = signed(record.signed_command)
    if verified is None or (verified.signed_command.terms.verb, verified.signed_command.terms.application) != (
        "submit",
        record.name,
    ):
        return None
    return verified if verified.signed_command.terms.contents[:1] == (content_hash(record.specification),) else None


def with_command_of_part(record: ApplicationRecord, part: DeploymentPart | None) -> ApplicationRecord:
    """Return a run's record as a host of that run reads it: with command and owner of the host's part.

    The record alone does not distinguish two versions with the same settings, and any agent can write another owner with
    a command of that owner into it. The host has verified the owner of its part.
    """
    if part is None or (record.version, record.number) != (part.version, part.number) or record.is_forgotten:
        return record
    if part.signed_command not in (b"", record.signed_command):
        record = msgspec.structs.replace(record, signed_command=part.signed_command)
    if (owner := owner_of(part)) in (b"", record.owner_key):
        return record
    signed_entries = merged_signed_entries(record.signed_entries, part.signed_entries)
    return msgspec.structs.replace(record, owner_key=owner, signed_entries=signed_entries)


def owner_of(part: DeploymentPart) -> bytes:
    """Return the owner of a part; in parts that do not name one, it is the submitter."""
    try:
        return part.owner or (signer_of(part.signed_command)[1] if part.signed_command else b"")
    except Refused:
        return b""


# ---- entries that a record keeps


def without_forged_entries(record: ApplicationRecord, signed: VerifySignature) -> ApplicationRecord:
    """Return the record without forged entries: with an invalid signature, or about another application."""
    signed_entries = tuple(raw for raw in record.signed_entries if _is_genuine_entry(record.name, signed(raw)))
    return (
        record
        if len(signed_entries) == len(record.signed_entries)
        else msgspec.structs.replace(record, signed_entries=signed_entries)
    )


def _is_genuine_entry(name: str, verified: VerifiedCommand | None) -> bool:
    return (
        verified is not None
        and verified.signed_command.terms.application == name
        and verified.signed_command.terms.verb in _VERBS
    )


def with_signed_entry(signed_entries: tuple[bytes, ...], raw: bytes) -> tuple[bytes, ...]:
    """Return the signed entries with one more."""
    return merged_signed_entries(signed_entries, (raw,) if raw else ())


def with_stop(record: ApplicationRecord | None, raw: bytes) -> ApplicationRecord | None:
    """Return a stopped record with its signed command; None stays None."""
    return (
        record
        if record is None
        else msgspec.structs.replace(record, signed_entries=with_signed_entry(record.signed_entries, raw))
    )


def with_stop_request(record: ApplicationRecord, raw: bytes) -> ApplicationRecord | None:
    """Return the record of an application that ends after its sources, with the command for that; None: unchanged."""
    changed = msgspec.structs.replace(
        record, stopping=True, signed_entries=with_signed_entry(record.signed_entries, raw)
    )
    return None if changed == record else changed


def merged_signed_entries(ours: tuple[bytes, ...], theirs: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Merge the entries of both sides; of one kind the latest is kept. Beyond the limit the oldest revocations are dropped.

    Signatures are not verified here: callers do that before (`without_forged_entries`).
    """
    if not theirs or ours == theirs:
        return ours
    latest: dict[tuple[str, str, bytes], tuple[tuple[bool, bool, int], bytes]] = {}
    for raw in (*ours, *theirs):
        try:
            signed_command, (_, giver) = parse_signed_command(raw), signer_of(raw)
        except Refused:
            continue
        terms = signed_command.terms
        weight = terms.verb == "submit", not terms.argument("revoke"), signed_command.wall_ms
        name = terms.verb, terms.argument("key"), giver
        known = latest.get(name)
        if known is None or (weight[2], raw) > (known[0][2], known[1]):
            latest[name] = weight, raw
    heaviest = sorted(latest.values(), reverse=True)[:MAX_SIGNED_ENTRIES]
    return tuple(sorted(raw for _, raw in heaviest))


def inherited_entries(last: ApplicationRecord | None) -> tuple[bytes, ...]:
    """Return the entries of a version that the next one keeps: the first command of the proven owner, and the shares."""
    if last is None or last.is_forgotten or not last.owner_key:
        return ()
    return tuple(sorted({*_ownership_proofs(last)[:1], *_of_verb("share", last.signed_entries)}))


def signed_entries_for(record: ApplicationRecord, signer: bytes) -> tuple[bytes, ...]:
    """Return the proof that a run of this signer is its owner's; empty where the signer is the owner."""
    if not record.owner_key or signer == record.owner_key:
        return ()
    shares = [
        raw for raw in _of_verb("share", record.signed_entries) if _key_in(parse_signed_command(raw).terms) == signer
    ]
    return (*_ownership_proofs(record)[:1], *shares[:2])


def _ownership_proofs(record: ApplicationRecord) -> list[bytes]:
    """Return the owner's commands to submit it, the first one first."""
    every = _of_verb("submit", (*record.signed_entries, record.signed_command))
    return sorted((raw for raw in every if signer_of(raw)[1] == record.owner_key), key=_given_ms)


def _of_verb(verb: str, signed_commands: Iterable[bytes]) -> list[bytes]:
    matching = []
    for raw in signed_commands:
        try:
            if parse_signed_command(raw).terms.verb == verb and len(raw) <= MAX_SIGNED_COMMAND_BYTES:
                matching.append(raw)
        except Refused:
            continue
    return matching


def _given_ms(raw: bytes) -> int:
    try:
        return parse_signed_command(raw).wall_ms
    except Refused:
        return 0
