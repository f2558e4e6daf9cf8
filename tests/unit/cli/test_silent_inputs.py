"""Texts about sources that may be silent, before an application is submitted."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from agiledart import Topology, csv, null, tcp
from agiledart_cli.verbs.silent_inputs import waiting_input_texts


class Row(NamedTuple):
    """A row."""

    at: int
    key: int


def joined(left: Any, right: Any, timeout: timedelta | None = None) -> Topology:
    made = Topology("matches")
    payments, orders = (
        made.source(name, connector, rows=Row, event_time=lambda row: row.at, idle_timeout=patience).key_by(
            lambda row: row.key
        )
        for name, connector, patience in (("payments", left, None), ("orders", right, timeout))
    )
    pairs = payments.interval_join("matched", orders, earliest=timedelta(0), latest=timedelta(seconds=1))
    pairs.sink("out", null())
    return made


@pytest.mark.parametrize(
    ("made", "silent"),
    [
        (lambda: joined(tcp("h", 1), tcp("h", 2)), "payments or orders is silent"),
        (lambda: joined(tcp("h", 1), tcp("h", 2), timedelta(seconds=5)), "payments is silent"),
        (lambda: joined(tcp("h", 1), csv("orders.csv")), ""),
    ],
)
def test_live_sources_that_wait_for_each_other_are_warned_of(made: Callable[[], Topology], silent: str) -> None:
    texts = waiting_input_texts(made().specification())
    assert len(texts) == bool(silent)
    for text in texts:
        assert text.startswith("matched takes rows of payments and orders in order of time: while ")
        assert silent in text
