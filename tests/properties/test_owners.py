"""Tables of owners through any number of changes: each group has one owner, shares are even, no fewer groups could have moved."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agiledart_dataflow.data.partitioning import Owners
from agiledart_dataflow.state.owner_table import (
    are_owners,
    groups_of,
    moved_groups,
    next_owners,
    owners_by_key,
    owners_round_robin,
)
from agiledart_kernel.limits import KEY_GROUPS


def most_that_can_stay(owners: Owners, kept: list[int], instances: int) -> int:
    """Groups that keep their owner at best, when `larger` of the instances may hold one more than the others."""
    least, larger = divmod(KEY_GROUPS, instances)
    held = [len(groups_of(owners, old)) for old in kept]
    return sum(min(count, least) for count in held) + min(larger, sum(count > least for count in held))


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[list[int], int]]:
    """(remaining instances, how many there are then), one after the other; the first number of instances stands at the head."""
    number = draw(st.integers(1, 128))
    made: list[tuple[list[int], int]] = [([], number)]
    for _ in range(draw(st.integers(1, 8))):
        kept = draw(st.lists(st.integers(0, number - 1), unique=True, max_size=number))
        number = draw(st.integers(max(1, len(kept)), 128))
        made.append((kept, number))
    return made


@given(changes(), st.booleans())
def test_the_minimum_number_of_groups_moves(made: list[tuple[list[int], int]], by_key: bool) -> None:
    (_, number), *rest = made
    owners = owners_by_key(number) if by_key else owners_round_robin(number)
    for kept, instances in rest:
        after = next_owners(owners, kept, instances)
        assert are_owners(after, instances)
        assert next_owners(owners, kept, instances) == after
        sizes = [len(groups_of(after, index)) for index in range(instances)]
        assert sum(sizes) == KEY_GROUPS
        assert max(sizes) - min(sizes) <= 1
        moved = moved_groups(owners, after, kept)
        assert len(moved) == KEY_GROUPS - most_that_can_stay(owners, kept, instances)
        for new, old in enumerate(kept):
            stayed = [group for group in groups_of(owners, old) if group not in moved]
            assert all(after[group] == new for group in stayed)
        owners = after


@given(st.integers(1, 128))
def test_the_current_number_moves_nothing(number: int) -> None:
    for owners in (owners_by_key(number), owners_round_robin(number)):
        assert next_owners(owners, range(number), number) == owners


@given(st.integers(1, 64))
def test_a_new_instance_takes_key_groups_far_apart(number: int) -> None:
    """Rows that follow each other have neighbouring groups: an owner of many adjacent groups would get all rows of some
    seconds.
    """
    after = next_owners(owners_round_robin(number), range(number), number + 1)
    mine = groups_of(after, number)
    if len(mine) > 2:
        gaps = [later - earlier for earlier, later in pairwise(mine)]
        assert max(gaps) <= 4 * KEY_GROUPS // len(mine)
