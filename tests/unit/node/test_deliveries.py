"""The delivery that a user signed is the one that hosts carry out: in orders, in parts, in records."""

from typing import Any

import msgspec
import pytest

from agiledart_dataflow.plan.delivery import DELIVERIES, Delivery
from agiledart_node.records.application import RECORD_CODEC, RUNNING, ApplicationRecord
from agiledart_node.records.command_verifier import command_terms
from agiledart_node.wire.commands import Submit
from tests.unit.node.test_node import SCHEDULER, part


@pytest.mark.parametrize("word", DELIVERIES)
def test_parts_and_records_carry_the_delivery_guarantee(word: str) -> None:
    delivery = Delivery(word)
    fields: dict[str, Any] = {
        "by_epoch": delivery.is_saved,
        "duplicates": delivery.duplicates,
        "saves_less": delivery.saves_less,
    }
    assert part(**fields).delivery is delivery
    record = ApplicationRecord("x", 1, 7, 7, RUNNING, SCHEDULER, **fields)
    assert record.delivery is delivery


def test_a_command_names_the_delivery_guarantee_unless_nothing_is_saved() -> None:
    said = {}
    for word in DELIVERIES:
        terms = command_terms(Submit("x", b"", b"", delivery=word))
        assert terms is not None
        said[word] = terms.argument("delivery")
    assert said == {
        "survive": "survive", "exactly-once": "exactly-once", "at-least-once": "at-least-once", "at-most-once": "",
    }  # fmt: skip


def test_a_record_without_a_delivery_guarantee_has_the_older_format() -> None:
    """Older agents wrote one word less: they saved exactly-once."""
    made = ApplicationRecord("x", 1, 7, 7, RUNNING, SCHEDULER, by_epoch=True)
    before = msgspec.msgpack.encode(msgspec.msgpack.decode(RECORD_CODEC.encode(made))[:-2])
    assert RECORD_CODEC.decode(before).delivery is Delivery.EXACTLY_ONCE
