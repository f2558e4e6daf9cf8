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
from agiledart_kernel.orders import MAX_ORDER_BYTES, Terms, Verified, content_hash, order_giver, read_order
from agiledart_kernel.permissions import Application, Asker, refusal
from agiledart_node.records.application import MAX_DEEDS, STOPPED, ApplicationRecord

Believed = Callable[[bytes], Verified | None]
"""A kept order → what it says and who gave it; None: it counts no more, or never did."""

Signed = Callable[[bytes], Verified | None]
"""The same, whatever bans say: None only where its giver did not sign it. All nodes say the same of an order, at any time."""

_VERBS: Final = ("share", "stop", "submit")
"""What deeds do."""

MAX_DEED_BYTES: Final = 128 << 10
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
    once: tuple[bytes, ...] = ()


def asker_of(verified: Verified) -> Asker:
    """Who gave an order. An agent's key signs for who opens its socket, and that is an admin."""
    grant = verified.grant
    return Asker("admin", "", grant.key) if grant.role == "agent" else Asker.of(grant)


def rights(name: str, owner: bytes, orders: Iterable[bytes], believed: Believed) -> Rights:
    """What these orders prove of an application that is said to be this owner's."""
    known = [one for raw in orders if raw and (one := believed(raw)) is not None]
    known = [one for one in known if one.order.terms.application == name]
    titles = [one for one in known if one.order.terms.verb == "submit" and one.grant.key == owner]
    if not titles:
        return Rights()
    since_ms = min(one.order.wall_ms for one in titles)
    said = _shares(known, Application(name, owner), since_ms)
    return Rights(owner, tuple(key for key, is_given in said if is_given), tuple(key for key, _ in said))


def _shares(known: list[Verified], application: Application, since_ms: int) -> list[tuple[bytes, bool]]:
    """(key, whether it is shared with that), in the order in which it was said."""
    latest: dict[bytes, tuple[int, bool]] = {}
    for one in known:
        terms, wall_ms = one.order.terms, one.order.wall_ms
        if terms.verb != "share" or wall_ms < since_ms - _SKEW_MS or refusal(asker_of(one), "share", application):
            continue
        key = _key_in(terms)
        if wall_ms >= latest.get(key, (0, False))[0]:
            latest[key] = wall_ms, not terms.argument("revoke")
    return [(key, is_given) for key, (_, is_given) in sorted(latest.items(), key=lambda each: (each[1][0], each[0]))]


def _key_in(terms: Terms) -> bytes:
    try:
        return bytes.fromhex(terms.argument("key"))
    except ValueError:
        return b""


def rights_of(record: ApplicationRecord, believed: Believed) -> Rights:
    """What the orders in a record prove."""
    return rights(record.name, record.owner_key, (record.order, *record.deeds), believed)


def is_stop_ordered(record: ApplicationRecord, begun: Verified, believed: Believed) -> bool:
    """Whether a user who may, or might when he did, has ordered the end of the version that the order `begun` began."""
    proven = rights_of(record, believed)
    for raw in record.deeds:
        one = believed(raw)
        if one is None or (one.order.terms.verb, one.order.terms.application) != ("stop", record.name):
            continue
        application = Application(record.name, proven.owner, shared=proven.once)
        if one.order.wall_ms >= begun.order.wall_ms and not refusal(asker_of(one), "stop", application):
            return True
    return False


def judged(record: ApplicationRecord, believed: Believed, signed: Signed) -> ApplicationRecord:
    """A record as it is acted on: without the rights that nobody has signed, and without orders that prove nothing.

    `stopped` that no user has ordered is hearsay: those who run it take it back.
    """
    if record.is_forgotten:
        return record
    record = with_signed_deeds(record, signed)
    begun = _beginning(record, signed)
    if begun is None and record.order:
        record = msgspec.structs.replace(record, order=b"")
    proven = rights_of(record, believed)
    is_wished = record.stopping or record.state == STOPPED
    is_ordered = not is_wished or (begun is not None and is_stop_ordered(record, begun, believed))
    changed = {
        "owner_key": proven.owner,
        "shared_keys": proven.shared,
        "stopping": record.stopping and is_ordered,
        "by_hearsay": record.by_hearsay or (record.state == STOPPED and not is_ordered),
    }
    if all(getattr(record, name) == value for name, value in changed.items()):
        return record
    return msgspec.structs.replace(record, **changed)


def _beginning(record: ApplicationRecord, signed: Signed) -> Verified | None:
    """The order with which a record's version was submitted, if it is for this name and these settings."""
    one = signed(record.order)
    if one is None or (one.order.terms.verb, one.order.terms.application) != ("submit", record.name):
        return None
    return one if one.order.terms.contents[:1] == (content_hash(record.specification),) else None


def as_begun(record: ApplicationRecord, part: DeploymentPart | None) -> ApplicationRecord:
    """A run's record as a node reads it that has a part of that run: begun by the order that the part carries, whatever it says.

    Of two versions with the same settings a record alone does not tell which order began which.
    """
    if part is None or (record.version, record.number) != (part.version, part.number):
        return record
    if part.order in (b"", record.order) or record.is_forgotten:
        return record
    return msgspec.structs.replace(record, order=part.order)


# ---- what a record keeps


def with_signed_deeds(record: ApplicationRecord, signed: Signed) -> ApplicationRecord:
    """The record without deeds that are none: that their givers did not sign, or that are about something else."""
    deeds = tuple(raw for raw in record.deeds if _is_deed(record.name, signed(raw)))
    return record if len(deeds) == len(record.deeds) else msgspec.structs.replace(record, deeds=deeds)


def _is_deed(name: str, one: Verified | None) -> bool:
    return one is not None and one.order.terms.application == name and one.order.terms.verb in _VERBS


def with_deed(deeds: tuple[bytes, ...], raw: bytes) -> tuple[bytes, ...]:
    """The deeds with one more."""
    return merged_deeds(deeds, (raw,) if raw else ())


def with_stop(record: ApplicationRecord | None, raw: bytes) -> ApplicationRecord | None:
    """A record that says `stopped`, with the order for that; None stays None."""
    return record if record is None else msgspec.structs.replace(record, deeds=with_deed(record.deeds, raw))


def with_wish(record: ApplicationRecord, raw: bytes) -> ApplicationRecord | None:
    """The record of an application that is to end when its sources have, with the order for that; None: it says so."""
    wished = msgspec.structs.replace(record, stopping=True, deeds=with_deed(record.deeds, raw))
    return None if wished == record else wished


def merged_deeds(ours: tuple[bytes, ...], theirs: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """All deeds of both sides; of those of one kind the latest. What is too much goes: the oldest that took something back.

    They are taken at their word: who has a judge asks it before (`with_signed_deeds`).
    """
    if not theirs or ours == theirs:
        return ours
    found: dict[tuple[str, str, bytes], tuple[tuple[bool, bool, int], bytes]] = {}
    for raw in (*ours, *theirs):
        try:
            order, (_, giver) = read_order(raw), order_giver(raw)
        except Refused:
            continue
        terms = order.terms
        weight = terms.verb == "submit", not terms.argument("revoke"), order.wall_ms
        name = terms.verb, terms.argument("key"), giver
        known = found.get(name)
        if known is None or (weight[2], raw) > (known[0][2], known[1]):
            found[name] = weight, raw
    kept = sorted(found.values(), reverse=True)[:MAX_DEEDS]
    return tuple(sorted(raw for _, raw in kept))


def inherited(last: ApplicationRecord | None) -> tuple[bytes, ...]:
    """What the next version keeps of the deeds of the last one, of which the owner is proven: his first order, and his shares."""
    if last is None or last.is_forgotten or not last.owner_key:
        return ()
    return tuple(sorted({*_titles(last)[:1], *_of_verb("share", last.deeds)}))


def deeds_for(record: ApplicationRecord, signer: bytes) -> tuple[bytes, ...]:
    """What a host needs to see that a run of this signer is its owner's: nothing, where that is the signer."""
    if not record.owner_key or signer == record.owner_key:
        return ()
    shares = [raw for raw in _of_verb("share", record.deeds) if _key_in(read_order(raw).terms) == signer]
    return (*_titles(record)[:1], *shares[:2])


def _titles(record: ApplicationRecord) -> list[bytes]:
    """The owner's orders to submit it, the first one first."""
    every = _of_verb("submit", (*record.deeds, record.order))
    return sorted((raw for raw in every if order_giver(raw)[1] == record.owner_key), key=_given_ms)


def _of_verb(verb: str, orders: Iterable[bytes]) -> list[bytes]:
    found = []
    for raw in orders:
        try:
            if read_order(raw).terms.verb == verb and len(raw) <= MAX_ORDER_BYTES:
                found.append(raw)
        except Refused:
            continue
    return found


def _given_ms(raw: bytes) -> int:
    try:
        return read_order(raw).wall_ms
    except Refused:
        return 0
