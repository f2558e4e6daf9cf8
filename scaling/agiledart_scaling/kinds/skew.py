"""Skewed keys: move key groups from the fullest instance to the emptiest, or detect a group too hot for one instance."""

from collections.abc import Sequence
from dataclasses import dataclass

UNEVEN = 0.8
"""Keys are uneven when the first instance is full at less than this share of the capacity of all instances."""


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """Load of one key group.

    Attributes:
        rate: rows/s, from a sample.
        state_bytes: size of its state, an estimate.
    """

    rate: float
    state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class GroupMove:
    """Move of a key group to another owner within the stage."""

    group: int
    source: int
    target: int


def is_uneven(capacity: float, balanced_capacity: float) -> bool:
    """Return whether the skew of the keys costs more capacity than a few instances would."""
    return capacity < UNEVEN * balanced_capacity


def hot_group(groups: Sequence[GroupLoad], rate: float, busy_share: float) -> int | None:
    """Return the hottest group if one instance cannot keep up with it alone; None: there is none.

    More instances do not help such a group.
    """
    if not groups:
        return None
    hottest = max(range(len(groups)), key=lambda group: (groups[group].rate, -group))
    return hottest if groups[hottest].rate > busy_share * rate else None


def hot_text(groups: Sequence[GroupLoad], hot: int) -> str:
    """Return the sentence about the hottest group that people read."""
    return (
        f"key group {hot} alone has {share_of(groups, hot):.0%} of the rows, more than one instance can process; "
        "more instances do not help"
    )


def share_of(groups: Sequence[GroupLoad], group: int) -> float:
    """Return the group's share of the stage's rows."""
    return groups[group].rate / sum(load.rate for load in groups)


def balancing_moves(
    owners: Sequence[int], groups: Sequence[GroupLoad], rates: Sequence[float], most: int = 16
) -> tuple[GroupMove, ...]:
    """Return moves that even out the busy shares of the instances, each from the then fullest to the then emptiest.

    A group qualifies if the target would then be less full than the source was. Of these, the group with the least state per row
    moves first: state is the cost of a move, rows are its gain.

    Args:
        owners: index of the instance of each group.
        groups: their loads, as many.
        rates: true rate of each instance in rows/s, all above 0.
        most: highest number of moves at one time.
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
        group = min(useful, key=lambda g: (groups[g].state_bytes / groups[g].rate, -groups[g].rate, g))
        busy[source] -= groups[group].rate / rates[source]
        busy[target] += groups[group].rate / rates[target]
        table[group] = target
        moves.append(GroupMove(group, source, target))
    return tuple(moves)
