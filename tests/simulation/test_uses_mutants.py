"""Each planted mistake of the counting is found by what `test_uses` looks at; the right code never fails there."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from agiledart_node.records.record_kind import NAMES, NODE_NAMES, RecordKind
from agiledart_node.records.records import Records
from agiledart_node.registering import token_registry, token_uses
from agiledart_node.registering.token_registry import TokenRegistry
from agiledart_node.registering.token_uses import TokenUse, TokenUseDecision, TokenUses
from agiledart_node.wire.effects import KeyDecision
from agiledart_node.wire.events import KeyPresented
from tests.simulation import test_uses

Replace = Callable[[Any, str, Any], None]


def one_too_many(replace: Replace) -> None:
    """A token of n uses lets in n + 1."""
    right = token_uses.register_use

    def register_use(
        known: TokenUses | None, met: KeyPresented, now: int, *, is_closed: bool
    ) -> tuple[TokenUses, TokenUseDecision]:
        return right(known, msgspec.structs.replace(met, allowed=met.allowed + 1), now, is_closed=is_closed)

    replace(token_registry, "register_use", register_use)


def in_before_written(replace: Replace) -> None:
    """A key is let in when it was found good, and not written down."""
    right = TokenRegistry._register_uses

    def judge(
        self: TokenRegistry, known: TokenUses | None, events: list[KeyPresented]
    ) -> tuple[TokenUses | None, list[TokenUseDecision]]:
        _, verdicts = right(self, known, events)
        return known, verdicts

    replace(TokenRegistry, "_register_uses", judge)


def writes_over_others(replace: Replace) -> None:
    """A value written meanwhile by another node is taken for one's own."""
    right = Records.store

    async def store(self: Records, key: Any, expected: int, value: bytes) -> Any:
        answer = await right(self, key, expected, value)
        return msgspec.structs.replace(answer, ok=True, reason="") if answer.reason == "conflict" else answer

    replace(Records, "store", store)


def counts_again(replace: Replace) -> None:
    """A counted node that returns is counted again."""
    replace(token_uses, "_found", lambda known, key: TokenUseDecision())
    right = token_uses._with

    def doubled(known: TokenUses, more: list[TokenUse]) -> TokenUses:
        return msgspec.structs.replace(known, members=(*known.members, *more)) if more else right(known, more)

    replace(token_uses, "_with", doubled)


def keeps_one_side(replace: Replace) -> None:
    """Of two copies of a record the later one stays."""
    later = RecordKind(token_uses.USES_CODEC, token_uses.USES.is_at, lambda first, second: second)
    replace(token_uses, "merged_uses", lambda first, second: second)
    import agiledart_node.node_parts as parts

    replace(parts, "_KINDS", (later, token_uses.TOKENS, NAMES, NODE_NAMES))


def forgets_the_known(replace: Replace) -> None:
    """Receipts on nodes are not put back into a record that was lost."""
    right = token_uses.register_use

    def register_use(
        known: TokenUses | None, met: KeyPresented, now: int, *, is_closed: bool
    ) -> tuple[TokenUses, TokenUseDecision]:
        return right(known, msgspec.structs.replace(met, known=()), now, is_closed=is_closed)

    replace(token_registry, "register_use", register_use)


def receipts_without_end(replace: Replace) -> None:
    """A receipt counts beyond the uses."""
    right = token_uses.register_use

    def register_use(
        known: TokenUses | None, met: KeyPresented, now: int, *, is_closed: bool
    ) -> tuple[TokenUses, TokenUseDecision]:
        more = met.counted_at and known is not None
        return right(known, msgspec.structs.replace(met, allowed=9_999) if more else met, now, is_closed=is_closed)

    replace(token_registry, "register_use", register_use)


def everybody_when_the_ring_is_silent(replace: Replace) -> None:
    """A node that cannot be verified is admitted."""
    replace(
        TokenRegistry,
        "_answer",
        lambda self, event, verdict: self._context.emit(
            KeyDecision(event.request, *(TokenUseDecision(number=1) if verdict.reason == "unregistered" else verdict))
        ),
    )


def two_merged() -> None:
    test_uses.test_two_rings_that_merge_keep_both_counts_and_report_the_excess()


def crowd() -> None:
    test_uses.test_ninety_of_a_hundred_joiners_are_admitted_under_loss()


FOUND_BY: dict[Callable[[Replace], None], Callable[[], None]] = {
    one_too_many: test_uses.test_a_use_beyond_the_limit_is_refused_elsewhere_and_after_the_root_died,
    in_before_written: test_uses.test_a_token_of_one_use_admits_one_key_and_names_it,
    writes_over_others: crowd,
    counts_again: test_uses.test_a_token_of_one_use_admits_one_key_and_names_it,
    keeps_one_side: two_merged,
    forgets_the_known: test_uses.test_a_ring_that_lost_its_counts_learns_them_from_members,
    receipts_without_end: test_uses.test_a_receipt_counts_when_the_ring_lost_it_but_never_beyond_the_limit,
    everybody_when_the_ring_is_silent: test_uses.test_a_non_member_admits_no_node,
}


@pytest.mark.parametrize("mutant", FOUND_BY, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: Callable[[Replace], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(lambda owner, name, value: monkeypatch.setattr(owner, name, value))
    with pytest.raises(AssertionError):
        FOUND_BY[mutant]()


def test_equal_uses_count_once() -> None:
    """Replicas that go on exchanging values agree: merging again changes nothing."""
    one, two = (TokenUses(bytes(32), 1, 0, "agent", "", (TokenUse(bytes([n]) * 32, n),)) for n in (1, 2))
    both = token_uses.merged_uses(one, two)
    assert [use.key[0] for use in both.members] == [1, 2]
    assert token_uses.merged_uses(both, one) is both
    assert token_uses.merged_uses(two, both) is both
    assert both.excess == 1
