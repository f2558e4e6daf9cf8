"""A direct link that is slow but alive, on emulated hosts: rows leave it, return once it heals, do not follow each change."""

from typing import Any

import pytest
from benchmarks.routes.__main__ import run
from benchmarks.routes.hosts import CannotEmulate
from benchmarks.routes.scenarios import SCENARIOS

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak]

LEFT_S, RETURNED_S = 5.0, 30.0
"""Longest time until rows leave a link of 300 ms beside relays of 20 ms, and until they take it again."""

MOVES_A_MINUTE = 2.0


def measured(scenario: str) -> dict[str, Any]:
    """Return the figures of a run whose rows are those of one process; skip where there are no emulated hosts."""
    try:
        figures = run(SCENARIOS[scenario], 1)
    except CannotEmulate as error:
        pytest.skip(f"NOT RUN: {error}")
    assert (figures["state"], figures["rows_missing"], figures["as_run"]) == ("finished", 0, True), figures
    return figures


def test_rows_leave_a_slow_link_and_return_once_it_is_fast() -> None:
    figures = measured("slow-direct")
    assert figures["left_after_s"] is not None, figures
    assert figures["left_after_s"] <= LEFT_S, figures
    assert figures["by"] in ("a2", "a3"), figures
    assert figures["returned_after_s"] is not None, figures
    assert figures["returned_after_s"] <= RETURNED_S, figures


def test_rows_do_not_follow_a_link_that_flaps() -> None:
    assert (figures := measured("slow-flapping"))["moves_a_minute"] <= MOVES_A_MINUTE, figures
