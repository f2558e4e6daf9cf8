"""Keys that are unevenly spread: groups move from the fullest instance to the emptiest, or one key group is too hot for any."""

from collections.abc import Sequence
from dataclasses import dataclass

UNEVEN = 0.8
"""Keys are uneven where the first instance is full at less than this share of what all could do."""


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """One key group.

    Attributes:
        rate: rows/s, from a sample.
        state_bytes: of its state, an estimate.
    """

    rate: float
    state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class GroupMove:
    """A key group gets another owner within the stage."""

    group: int
    source: int
    target: int


def is_uneven(capacity: float, balanced_capacity: float) -> bool:
    """Whether the spread of keys costs more than a few instances would."""
    return capacity < UNEVEN * balanced_capacity


def hot_group(groups: Sequence[GroupLoad], rate: float, busy_share: float) -> int | None:
    """The hottest group, if one instance cannot keep up with it alone: more instances do not help. None: there is none."""
    if not groups:
        return None
    hottest = max(range(len(groups)), key=lambda group: (groups[group].rate, -group))
    return hottest if groups[hottest].rate > busy_share * rate else None


def hot_text(groups: Sequence[GroupLoad], hot: int) -> str:
    """What is to be said of the hottest group, for people."""
    return f"key group {hot} alone has {share_of(groups, hot):.0%} of the rows, more than an instance can do: more do not help"


def share_of(groups: Sequence[GroupLoad], group: int) -> float:
    """Of the stage's rows."""
    return groups[group].rate / sum(one.rate for one in groups)


def balancing_moves(
    owners: Sequence[int], groups: Sequence[GroupLoad], rates: Sequence[float], most: int = 16
) -> tuple[GroupMove, ...]:
    """Moves that even out the busy shares of the instances, each from the fullest to the emptiest at its time.

    Among groups whose move makes the fuller one of the two less full, the one with the least state per row moved goes
    first: what it costs is state, what it brings is rows.

    Args:
        owners: index of the instance of each group.
        groups: their loads, as many.
        rates: true rate of each instance, all above 0.
        most: moves at one time.
    """
    table = list(owners)
    busy = [0.0] * len(rates)
    for owner, load in zip(table, groups, strict=True):
        busy[owner] += load.rate / rates[owner]
    moves: list[GroupMove] = []
    while len(moves) < most:
        source = max(range(len(busy)), key=lambda index: (busy[index], -index))
        target = min(range(len(busy)), key=lambda index: (busy[index], index))
        if busy[target] >= UNEVEN * busy[source]:
            break
        useful = [
            group
            for group, owner in enumerate(table)
            if owner == source
            and groups[group].rate > 0
            and busy[target] + groups[group].rate / rates[target] < busy[source]
        ]
        if not useful:
            break
        group = min(useful, key=lambda one: (groups[one].state_bytes / groups[one].rate, -groups[one].rate, one))
        busy[source] -= groups[group].rate / rates[source]
        busy[target] += groups[group].rate / rates[target]
        table[group] = target
        moves.append(GroupMove(group, source, target))
    return tuple(moves)
