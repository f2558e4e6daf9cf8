"""The silent input in an executor's report: taken where it is well-formed, else left out."""

from typing import Any

import pytest

from agiledart_node.wire.awaited_input_row import AwaitedInputRow, awaited_input_of

REPORT: dict[str, Any] = {"sources": ["orders"], "held": ["payments"], "since_ms": 7, "silent_ms": 52_000, "rows": 71}


def test_a_silent_input_is_taken_from_a_report() -> None:
    assert awaited_input_of({"awaited_input": REPORT}) == AwaitedInputRow(["orders"], ["payments"], 7, 52_000, 71)


@pytest.mark.parametrize(
    "report",
    [{}, {"awaited_input": None}, {"awaited_input": {**REPORT, "rows": -1}}, {"awaited_input": {"sources": 3}}],
)
def test_a_malformed_one_is_left_out(report: dict[str, Any]) -> None:
    assert awaited_input_of(report) is None
