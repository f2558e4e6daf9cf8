"""Each planted mistake of the counting is found by what `test_uses` looks at; the right code never fails there."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from agiledart_node.records.kinds import NAMES, NODE_NAMES, Kind
from agiledart_node.records.records import Records
from agiledart_node.registering import registering, uses
from agiledart_node.registering.registering import Registering
from agiledart_node.registering.uses import Judged, Use, Uses
from agiledart_node.wire.effects import KeyJudged
from agiledart_node.wire.events import KeyMet
from tests.simulation import test_uses

Replace = Callable[[Any, str, Any], None]


def one_too_many(replace: Replace) -> None:
    """A token of n uses lets in n + 1."""
    right = uses.judged

    def judged(known: Uses | None, met: KeyMet, now: int, *, is_closed: bool) -> tuple[Uses, Judged]:
        return right(known, msgspec.structs.replace(met, allowed=met.allowed + 1), now, is_closed=is_closed)

    replace(registering, "judged", judged)


def in_before_written(replace: Replace) -> None:
    """A key is let in when it was found good, and not written down."""
    right = Registering._judged

    def judge(self: Registering, known: Uses | None, events: list[KeyMet]) -> tuple[Uses | None, list[Judged]]:
        _, verdicts = right(self, known, events)
        return known, verdicts

    replace(Registering, "_judged", judge)


def writes_over_others(replace: Replace) -> None:
    """What another node has written meanwhile is taken for one's own."""
    right = Records.store

    async def store(self: Records, key: Any, expected: int, value: bytes) -> Any:
        answer = await right(self, key, expected, value)
        return msgspec.structs.replace(answer, ok=True, reason="") if answer.reason == "conflict" else answer

    replace(Records, "store", store)


def counts_again(replace: Replace) -> None:
    """Who was counted and comes again is counted again."""
    replace(uses, "_found", lambda known, key: Judged())
    right = uses._with

    def doubled(known: Uses, more: list[Use]) -> Uses:
        return msgspec.structs.replace(known, members=(*known.members, *more)) if more else right(known, more)

    replace(uses, "_with", doubled)


def keeps_one_side(replace: Replace) -> None:
    """Of two copies of a record the later one stays."""
    later = Kind(uses.USES_CODEC, uses.USES.is_at, lambda first, second: second)
    replace(uses, "merged_uses", lambda first, second: second)
    import agiledart_node.parts as parts

    replace(parts, "_KINDS", (later, uses.TOKENS, NAMES, NODE_NAMES))


def forgets_the_known(replace: Replace) -> None:
    """What nodes remember is not put back into a record that was lost."""
    right = uses.judged

    def judged(known: Uses | None, met: KeyMet, now: int, *, is_closed: bool) -> tuple[Uses, Judged]:
        return right(known, msgspec.structs.replace(met, known=()), now, is_closed=is_closed)

    replace(registering, "judged", judged)


def receipts_without_end(replace: Replace) -> None:
    """A receipt counts beyond the uses."""
    right = uses.judged

    def judged(known: Uses | None, met: KeyMet, now: int, *, is_closed: bool) -> tuple[Uses, Judged]:
        more = met.counted_at and known is not None
        return right(known, msgspec.structs.replace(met, allowed=9_999) if more else met, now, is_closed=is_closed)

    replace(registering, "judged", judged)


def everybody_when_the_ring_is_silent(replace: Replace) -> None:
    """Who cannot be judged is let in."""
    replace(
        Registering,
        "_answer",
        lambda self, event, verdict: self._desk.emit(
            KeyJudged(event.request, *(Judged(number=1) if verdict.reason == "unregistered" else verdict))
        ),
    )


def two_merged() -> None:
    test_uses.test_two_rings_that_merge_keep_both_counts_and_report_the_excess()


def crowd() -> None:
    test_uses.test_a_crowd_of_a_hundred_for_ninety_under_loss()


FOUND_BY: dict[Callable[[Replace], None], Callable[[], None]] = {
    one_too_many: test_uses.test_the_third_of_two_is_refused_elsewhere_and_after_the_root_has_died,
    in_before_written: test_uses.test_a_token_of_one_use_lets_in_one_key_and_says_whose_it_was,
    writes_over_others: crowd,
    counts_again: test_uses.test_a_token_of_one_use_lets_in_one_key_and_says_whose_it_was,
    keeps_one_side: two_merged,
    forgets_the_known: test_uses.test_a_ring_that_has_forgotten_learns_from_who_remembers,
    receipts_without_end: test_uses.test_a_receipt_counts_where_the_ring_has_forgotten_and_never_beyond_the_uses,
    everybody_when_the_ring_is_silent: test_uses.test_who_is_in_no_ring_lets_nobody_in,
}


@pytest.mark.parametrize("mutant", FOUND_BY, ids=lambda mutant: mutant.__name__)
def test_a_planted_mistake_is_found(mutant: Callable[[Replace], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(lambda owner, name, value: monkeypatch.setattr(owner, name, value))
    with pytest.raises(AssertionError):
        FOUND_BY[mutant]()


def test_equal_uses_are_one() -> None:
    """Holders that go on telling each other agree: what is merged again is the same."""
    one, two = (Uses(bytes(32), 1, 0, "agent", "", (Use(bytes([n]) * 32, n),)) for n in (1, 2))
    both = uses.merged_uses(one, two)
    assert [use.key[0] for use in both.members] == [1, 2]
    assert uses.merged_uses(both, one) is both
    assert uses.merged_uses(two, both) is both
    assert both.excess == 1
