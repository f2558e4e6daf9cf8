"""The choice of how a part survives: a table by hand, and each row of the module's table has a case."""

import pytest

from agiledart_recovery import survival
from agiledart_recovery.survival import Rewind, SourceTraits, Survival, rewind_of, survival_of

MIB = 1 << 20


@pytest.mark.parametrize(
    ("length", "machines", "has_state", "how"),
    [
        (0, 5, False, Survival.RESTARTED),
        (9 * MIB, 0, False, Survival.RESTARTED),
        (0, 5, True, Survival.COPIED),
        (MIB, 1, True, Survival.COPIED),
        (MIB + 1, 5, True, Survival.CODED),
        (1, 0, True, Survival.KEPT),
        (9 * MIB, 0, True, Survival.KEPT),
    ],
)
def test_how_a_step_survives(length: int, machines: int, has_state: bool, how: Survival) -> None:
    assert survival_of(length, machines, has_state=has_state) is how


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (SourceTraits(rereads=True), Rewind.AGAIN),
        (SourceTraits(rereads=True, is_clocked=True), Rewind.AGAIN),
        (SourceTraits(rereads=True, merges=True), Rewind.AGAIN),
        (SourceTraits(rereads=True, merges=True, is_clocked=True), Rewind.LOG),
        (SourceTraits(rereads=True, spools=True), Rewind.LOG),
        (SourceTraits(rereads=True, follows=True), Rewind.FOLLOWED),
        (SourceTraits(rereads=False), Rewind.LOST),
        (SourceTraits(rereads=False, is_clocked=True), Rewind.LOST),
        (SourceTraits(rereads=False, merges=True), Rewind.LOG),
        (SourceTraits(rereads=False, confirms=True), Rewind.LOG),
        (SourceTraits(rereads=False, spools=True), Rewind.LOG),
    ],
)
def test_rows_of_a_source_that_are_read_again(source: SourceTraits, what: Rewind) -> None:
    assert rewind_of(source) is what


def test_the_table_names_each_choice() -> None:
    assert survival.__doc__ is not None
    for choice in (*Survival, *Rewind):
        assert f"`{choice.name}`" in survival.__doc__, choice
