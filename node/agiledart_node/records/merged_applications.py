"""Merge of two records of an application.

Records of one run: an end reported by its hosts comes before an unverified report, and a requested drain stays. Records of two
runs: the later version gets the record; of equal versions, submitted on both sides of a partition, the run with the smaller number.
The record lists the other run (`Rival`), and its hosts end it.

The awkward case is `failed`, reported by a bystander, against `running`. Without a partition the first follows the second; if the
bystander was cut off, it is wrong; the values do not show which. So an unverified report ranks above `running`. The coordinator
knows better and revokes it with a value above both (`revivals`).
"""

import msgspec

from agiledart_node.records.application import (
    DEPLOYING,
    FAILED,
    FINISHED,
    MAX_HISTORY,
    MAX_REASON,
    MAX_RIVALS,
    RECORD_CODEC,
    RUNNING,
    STOPPED,
    ApplicationRecord,
    HistoryEntry,
    Rival,
    application_key,
    kept_history,
)
from agiledart_node.records.record_kind import RecordKind
from agiledart_node.records.signed_entries import VerifySignature, merged_signed_entries, without_forged_entries

_UNVERIFIED_RANK = {DEPLOYING: 0, RUNNING: 1, FAILED: 2}
_CONFIRMED_RANK = {FAILED: 1, STOPPED: 2, FINISHED: 3}
_PLACES = ("coordinator", "nodes", "guards", "assignment", "paths", "attempt", "seconds_to_running")
"""Fields set from `running` on: a node that recorded an end before that does not know the placement."""


def state_precedence(record: ApplicationRecord) -> tuple[int, ...]:
    """Return the weight of a record's state against another one of the same run; permanent states weigh most."""
    if record.is_final and not record.is_unverified:
        return 1, _CONFIRMED_RANK[record.state]
    return 0, record.revivals, record.attempt, _UNVERIFIED_RANK[record.state]


def merged_applications(earlier: ApplicationRecord, later: ApplicationRecord) -> ApplicationRecord:
    """Merge two records of a name; return one of them where it contains everything."""
    if earlier.number != later.number:
        return _merged_runs(earlier, later)
    if earlier.is_forgotten or later.is_forgotten:
        return later if later.is_forgotten else earlier
    base, other = (earlier, later) if state_precedence(earlier) > state_precedence(later) else (later, earlier)
    if other.assignment and not base.assignment:
        places = msgspec.structs.asdict(other)
        base = msgspec.structs.replace(base, **{name: places[name] for name in _PLACES})
    changed = {
        "history": merged_history(base.history, other.history),
        "stopping": base.stopping or other.stopping,
        "summary": base.summary or other.summary,
        "changes": base.changes or other.changes,
        "rivals": merged_rivals(base.rivals, other.rivals),
        "signed_entries": merged_signed_entries(base.signed_entries, other.signed_entries),
    }
    before = msgspec.structs.asdict(base)
    if all(before[name] == value for name, value in changed.items()):
        return base
    return msgspec.structs.replace(base, **changed)


def _merged_runs(earlier: ApplicationRecord, later: ApplicationRecord) -> ApplicationRecord:
    """Merge two runs of a name: one gets the record, which lists the other, unless that was over before the first began."""
    chosen, other = sorted((earlier, later), key=lambda record: (-record.version, record.number))
    known = {rival.number: rival for rival in chosen.rivals}
    is_rival = chosen.version == other.version or other.number in known
    rivals = merged_rivals(chosen.rivals, (*((as_rival(other),) if is_rival else ()), *_of_version(chosen, other)))
    return chosen if rivals == chosen.rivals else msgspec.structs.replace(chosen, rivals=rivals)


def _of_version(chosen: ApplicationRecord, other: ApplicationRecord) -> tuple[Rival, ...]:
    """Return the third runs that the other record lists; none about runs of another version."""
    if chosen.version != other.version:
        return ()
    return tuple(rival for rival in other.rivals if rival.number != chosen.number)


def as_rival(record: ApplicationRecord) -> Rival:
    """Return a run as the record of another run of the same name lists it."""
    return Rival(
        record.number,
        record.version,
        record.state,
        record.reason,
        record.submitted_to,
        record.changed_ms,
        record.is_unverified,
    )


def with_rival_ended(
    record: ApplicationRecord, number: int, state: str, reason: str, wall_ms: int
) -> ApplicationRecord | None:
    """Return the record with the end of another run that it lists; None when that end is known."""
    known = next((rival for rival in record.rivals if rival.number == number), None)
    if known is None or _weight(known)[0]:
        return None
    ended = msgspec.structs.replace(known, state=state, reason=reason[:MAX_REASON], at_ms=wall_ms, is_unverified=False)
    entry = HistoryEntry(wall_ms, record.state, f"another run, submitted to {known.submitted_to}: {state}. {reason}")
    return msgspec.structs.replace(
        record,
        rivals=tuple(ended if rival.number == number else rival for rival in record.rivals),
        history=kept_history(record.history, entry),
    )


def merged_rivals(ours: tuple[Rival, ...], theirs: tuple[Rival, ...]) -> tuple[Rival, ...]:
    """Return all listed runs, each in its strongest state; those with the smallest numbers where there are too many."""
    if not theirs:
        return ours
    strongest = {rival.number: rival for rival in ours}
    for rival in theirs:
        known = strongest.get(rival.number)
        if known is None or _weight(rival) > _weight(known):
            strongest[rival.number] = rival
    return tuple(strongest[number] for number in sorted(strongest)[:MAX_RIVALS])


def _weight(rival: Rival) -> tuple[int, int, int, str]:
    confirmed_rank = _CONFIRMED_RANK[rival.state] if rival.state in _CONFIRMED_RANK and not rival.is_unverified else 0
    return confirmed_rank, _UNVERIFIED_RANK.get(rival.state, 3), rival.at_ms, rival.reason


def merged_history(base: tuple[HistoryEntry, ...], other: tuple[HistoryEntry, ...]) -> tuple[HistoryEntry, ...]:
    """Return both histories in the order of their times, with the last entry of the first at the end.

    Nothing changes when `base` contains the other already, even after its oldest entries were dropped.
    """
    is_full = len(base) == MAX_HISTORY and other[-1:] and other[-1] in base
    if is_full or all(entry in base for entry in other):
        return base
    if not base:
        return other
    known = {*base, *other} - {base[-1]}
    rest = sorted(known, key=lambda entry: (entry.at_ms, entry.state, entry.text))
    newest = rest if len(rest) < MAX_HISTORY else [rest[0], *rest[len(rest) - MAX_HISTORY + 2 :]]
    return (*newest, base[-1])


def applications(signed: VerifySignature | None = None) -> RecordKind:
    """Return the kind of application records on the ring.

    Args:
        signed: verifies signed entries before a merge, so that no forged one replaces a signed one; None: nothing is signed in
            this world.
    """

    def merge(earlier: ApplicationRecord, later: ApplicationRecord) -> ApplicationRecord:
        if signed is not None:
            earlier, later = without_forged_entries(earlier, signed), without_forged_entries(later, signed)
        return merged_applications(earlier, later)

    return RecordKind(
        RECORD_CODEC, lambda record, key: application_key(record.name) == key and record.is_consistent(), merge
    )


APPLICATIONS = applications()
"""Application records in a world without keys."""
