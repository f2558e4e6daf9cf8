"""Owner table: the instance that owns each of the 128 key groups, one table for each generation of a stage.

A row with a key has the key's group; rows without keys take the groups in turn. When a stage changes its number of instances, its
next table moves as few groups as possible: each move is state that travels, or rows that wait.
"""

from collections.abc import Sequence

from agiledart_dataflow.data.partitioning import Owners
from agiledart_kernel.limits import KEY_GROUPS

ONE_OWNER_PER_GROUP: Owners = bytes(range(KEY_GROUPS))
"""Table with as many instances as there are groups."""


def owners_by_key(instances: int) -> Owners:
    """Return the first table of a keyed stage: contiguous ranges, whose sizes differ by at most one."""
    return bytes(group * instances // KEY_GROUPS for group in range(KEY_GROUPS))


def owners_round_robin(instances: int) -> Owners:
    """Return the first table of a stage without keys: owners in turn, since successive rows have successive groups."""
    return bytes(group % instances for group in range(KEY_GROUPS))


def next_owners(owners: Owners, remaining: Sequence[int], instances: int) -> Owners:
    """Return the table for another number of instances that moves the fewest groups for even shares, which differ by at most one.

    Args:
        owners: the previous table.
    remaining: instances of it that continue, in the order of their new indices 0, 1, …; the groups of all others move.
        instances: of the new table, at least as many as remain.
    """
    held: list[list[int]] = [[group for group, owner in enumerate(owners) if owner == old] for old in remaining]
    held += [[] for _ in range(instances - len(remaining))]
    free = [group for group, owner in enumerate(owners) if owner not in remaining]
    least, larger = divmod(KEY_GROUPS, instances)
    # The instances with most groups may keep one more than the others; among equals the first.
    order = sorted(range(instances), key=lambda index: (-len(held[index]), index))
    share = {index: least + (rank < larger) for rank, index in enumerate(order)}
    donors = [index for index in range(instances) if len(held[index]) > share[index]]
    for rank, index in enumerate(donors):
        free += _given_away(held[index], len(held[index]) - share[index], rank, len(donors))
    table = bytearray(KEY_GROUPS)
    free.sort()
    lacking = [index for index in range(instances) if len(held[index]) < share[index]]
    while free:  # in turn, so that a new instance's groups are as far apart as those of the others
        for index in lacking:
            if len(held[index]) < share[index] and free:
                held[index].append(free.pop(0))
    for index, groups in enumerate(held):
        for group in groups:
            table[group] = index
    return bytes(table)


def _given_away(groups: list[int], count: int, giver: int, givers: int) -> list[int]:
    """Remove `count` groups and return them, evenly spread among the instance's groups and those that other donors give."""
    removed = [groups[(number * givers + giver) * len(groups) // (count * givers)] for number in range(count)]
    groups[:] = [group for group in groups if group not in removed]
    return removed


def moved_groups(before: Owners, after: Owners, remaining: Sequence[int]) -> tuple[int, ...]:
    """Return the groups whose owner is another instance than before."""
    now = {old: new for new, old in enumerate(remaining)}
    return tuple(group for group in range(KEY_GROUPS) if now.get(before[group]) != after[group])


def groups_of(owners: Owners, index: int) -> tuple[int, ...]:
    """Return the groups of one instance, ascending."""
    return tuple(group for group, owner in enumerate(owners) if owner == index)


def ranges_text(groups: Sequence[int]) -> str:
    """Return ascending groups as a text for people: `0-31,40`."""
    parts: list[str] = []
    first = last = -1
    for group in (*groups, -1):
        if group == last + 1 and parts:
            last = group
            parts[-1] = f"{first}-{last}"
        elif group >= 0:
            first = last = group
            parts.append(str(group))
    return ",".join(parts)


def are_owners(table: bytes, instances: int) -> bool:
    """Return whether a table gives every group one of `instances` owners."""
    return len(table) == KEY_GROUPS and max(table) < instances
