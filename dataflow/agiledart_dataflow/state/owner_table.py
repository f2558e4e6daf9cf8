"""Who owns which key group: a table of 128 instances, one for each term of a stage.

Rows with a key have the key's group; rows without have the group of their turn. Where a stage changes its number, its next table
moves as few groups as it can: each is state that travels, or rows that wait.
"""

from collections.abc import Sequence

from agiledart_dataflow.data.partitioning import Owners
from agiledart_kernel.limits import KEY_GROUPS

ONE_OWNER_PER_GROUP: Owners = bytes(range(KEY_GROUPS))
"""As many instances as there are groups."""


def owners_by_key(instances: int) -> Owners:
    """The first table of a stage by key: contiguous ranges, whose sizes differ by one at the most."""
    return bytes(group * instances // KEY_GROUPS for group in range(KEY_GROUPS))


def owners_round_robin(instances: int) -> Owners:
    """The first table of a stage without keys: one after the other, since rows that follow each other have groups that do."""
    return bytes(group % instances for group in range(KEY_GROUPS))


def next_owners(owners: Owners, kept: Sequence[int], instances: int) -> Owners:
    """The table of another number of instances, with as few groups moved as even shares allow: sizes differ by one at the most.

    Args:
        owners: the table before.
        kept: instances of it that go on, in the order of their new indices 0, 1, …; the groups of all others move.
        instances: of the new table, at least as many as are kept.
    """
    held: list[list[int]] = [[group for group, owner in enumerate(owners) if owner == old] for old in kept]
    held += [[] for _ in range(instances - len(kept))]
    free = [group for group, owner in enumerate(owners) if owner not in kept]
    least, larger = divmod(KEY_GROUPS, instances)
    # Who holds most may keep one more than the others; among equals the first.
    order = sorted(range(instances), key=lambda index: (-len(held[index]), index))
    share = {index: least + (rank < larger) for rank, index in enumerate(order)}
    givers = [index for index in range(instances) if len(held[index]) > share[index]]
    for rank, index in enumerate(givers):
        free += _given_away(held[index], len(held[index]) - share[index], rank, len(givers))
    table = bytearray(KEY_GROUPS)
    free.sort()
    lacking = [index for index in range(instances) if len(held[index]) < share[index]]
    while free:  # in turn, so that a new instance's groups are as far from each other as those before
        for index in lacking:
            if len(held[index]) < share[index] and free:
                held[index].append(free.pop(0))
    for index, groups in enumerate(held):
        for group in groups:
            table[group] = index
    return bytes(table)


def _given_away(groups: list[int], count: int, giver: int, givers: int) -> list[int]:
    """Takes so many groups out, evenly spread over those there are, and over those that other givers take out."""
    gone = [groups[(number * givers + giver) * len(groups) // (count * givers)] for number in range(count)]
    groups[:] = [group for group in groups if group not in gone]
    return gone


def moved_groups(before: Owners, after: Owners, kept: Sequence[int]) -> tuple[int, ...]:
    """Groups whose owner is another instance than before."""
    now = {old: new for new, old in enumerate(kept)}
    return tuple(group for group in range(KEY_GROUPS) if now.get(before[group]) != after[group])


def groups_of(owners: Owners, index: int) -> tuple[int, ...]:
    """The groups of one instance, rising."""
    return tuple(group for group, owner in enumerate(owners) if owner == index)


def ranges_text(groups: Sequence[int]) -> str:
    """Rising groups as people read them: `0-31,40`."""
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
    """Whether a table says of every group who of so many instances owns it."""
    return len(table) == KEY_GROUPS and max(table) < instances
