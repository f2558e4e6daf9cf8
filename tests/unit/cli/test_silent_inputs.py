"""Texts about silent sources: in `status`, and before an application is submitted."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from agiledart import Topology, csv, null, tcp
from agiledart_cli.verbs.silent_inputs import silent_input_texts, waiting_input_texts


class Row(NamedTuple):
    """A row."""

    at: int
    key: int


def status(silent_ms: int, **more: Any) -> dict[str, Any]:
    awaited = {"sources": ["orders"], "held": ["payments"], "since_ms": 1, "silent_ms": silent_ms, "rows": 71}
    instances = [{"awaited_input": awaited}, {}, {"awaited_input": awaited}]
    return {"stages": [{"name": "matched+match", "instances": instances}], **more}


def test_a_silent_source_is_named_with_whose_rows_wait_and_what_helps() -> None:
    said = "payments waits for orders, silent for 52 s; saved meanwhile; `idle_timeout=` lets it go on"
    assert silent_input_texts(status(52_000, epoch={"committed": 3})) == [said]
    assert silent_input_texts(status(52_000)) == [said.replace("saved meanwhile; ", "")]


def test_a_moment_without_rows_is_not_shown() -> None:
    assert silent_input_texts(status(1_000)) == []
    assert silent_input_texts({"stages": [{"name": "out", "instances": [{}]}]}) == []


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
