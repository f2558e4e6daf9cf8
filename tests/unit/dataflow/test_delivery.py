"""`Delivery`: all consequences of the name are its properties, and parts and records hold the requested one."""

import pytest

from agiledart import Topology
from agiledart_dataflow.plan.delivery import DELIVERIES, Delivery
from agiledart_kernel.errors import TopologyError


@pytest.mark.parametrize(
    ("word", "is_saved", "duplicates", "saves_less"),
    [
        ("survive", True, True, True),
        ("exactly-once", True, False, False),
        ("at-least-once", True, True, False),
        ("at-most-once", False, False, False),
    ],
)
def test_a_delivery_name_determines_saving_and_duplicates(
    word: str, is_saved: bool, duplicates: bool, saves_less: bool
) -> None:
    delivery = Topology("x", delivery=word).delivery
    assert delivery == word
    assert (delivery.is_saved, delivery.duplicates, delivery.saves_less) == (is_saved, duplicates, saves_less)
    assert Delivery.of(is_saved=is_saved, duplicates=duplicates, saves_less=saves_less) is delivery


def test_without_a_word_an_application_survives() -> None:
    assert Topology("x").delivery is Delivery.SURVIVE
    assert Delivery.named("") is Delivery.SURVIVE


@pytest.mark.parametrize(
    ("word", "kind", "emits"),
    [
        ("survive", "log", True),
        ("survive", "csv", False),
        ("at-least-once", "csv", True),
        ("exactly-once", "log", False),
    ],
)
def test_a_surviving_run_cuts_files_and_shows_rows_of_logs_at_once(word: str, kind: str, emits: bool) -> None:
    assert Delivery(word).emits_at_once(kind) is emits


def test_an_unknown_delivery_name_is_rejected_with_the_valid_ones() -> None:
    with pytest.raises(TopologyError, match="not 'twice'") as refused:
        Topology("x", delivery="twice")
    assert all(word in str(refused.value) for word in DELIVERIES)


def test_lost_node_policies_are_allowed_with_every_delivery_that_survives_one() -> None:
    for word in DELIVERIES:
        if Delivery(word).is_saved:
            assert Topology("x", delivery=word, on_source_lost="move").if_lost["source"] == "move"
        else:
            with pytest.raises(TopologyError, match="without it nothing survives its node"):
                Topology("x", delivery=word, on_source_lost="move")
