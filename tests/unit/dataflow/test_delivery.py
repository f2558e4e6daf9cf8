"""`Delivery`: all consequences of the name are its properties, and parts and records hold the requested one."""

import pytest

from agiledart import Topology
from agiledart_dataflow.plan.delivery import DELIVERIES, SAVING, Delivery
from agiledart_kernel.errors import TopologyError


@pytest.mark.parametrize(
    ("word", "is_saved", "duplicates"),
    [("exactly-once", True, False), ("at-least-once", True, True), ("at-most-once", False, False)],
)
def test_a_delivery_name_determines_what_is_saved_and_duplicated(word: str, is_saved: bool, duplicates: bool) -> None:
    delivery = Topology("x", delivery=word).delivery
    assert delivery == word
    assert (delivery.is_saved, delivery.duplicates) == (is_saved, duplicates)
    assert Delivery.of(is_saved=is_saved, duplicates=duplicates) is delivery
    assert f'"{delivery}"' in SAVING or not is_saved


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
