"""Overload and user errors in `status` and `top`, which omit them when there are none."""

from typing import Any

import pytest

from agiledart_cli.top.top_sample import ApplicationLine, StepLine, TopSnapshot
from agiledart_cli.top.top_view import picture
from agiledart_cli.verbs.application_view import print_sums

SUMMARY: dict[str, Any] = {
    "records_in": 1_000, "late": 1, "malformed": {}, "results": {"report": 700},
    "steps": {"parse": {"rows_in": 900, "rows_out": 895, "dropped": 0, "skipped": 3, "dead_letters": 2}},
}  # fmt: skip


def test_status_reports_shed_spooled_and_skipped_rows(capsys: pytest.CaptureFixture[str]) -> None:
    print_sums(SUMMARY | {"shed": {"oldest": 60, "disk_full": 4}, "spooled_ever": 50, "spooled": 7})
    said = capsys.readouterr().out
    assert "shed 64 (60 oldest, 4 disk full)" in said
    assert "spooled 50 (7 still on disk)" in said
    assert "parse: its code raised an exception: 3 skipped, 2 dead letters (see: agiledart logs)" in said


def test_status_omits_what_did_not_happen(capsys: pytest.CaptureFixture[str]) -> None:
    print_sums(SUMMARY | {"steps": {}, "shed": {}, "spooled_ever": 0})
    said = capsys.readouterr().out
    assert "shed" not in said
    assert "spooled" not in said
    assert "raised" not in said


def shown(shed: int, errors: int) -> str:
    """The whole picture of one application with one step."""
    application = ApplicationLine("taxi", 1, "running", 5.0, shed=shed, spooled=shed // 2)
    step = StepLine("taxi", "parse", 1, ["a1"], errors=errors)
    return "\n".join(
        line.text for line in picture(TopSnapshot("a1", 1, 2.0, [], [application], [step]), 120, None, "name")
    )


def test_top_has_overload_columns_only_when_needed() -> None:
    assert "SHED" not in shown(0, 0)
    assert "ERRORS" not in shown(0, 0)
    lines = shown(1_234, 56)
    assert "SHED" in lines
    assert "SPOOL" in lines
    assert "1,234" in lines
    assert "617" in lines
    assert "ERRORS" in lines
    assert "56" in lines
