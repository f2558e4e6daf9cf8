"""Errors that a policy drops: reported at once, then less and less often, and always counted."""

from typing import NamedTuple

from agiledart import Topology, collect, records
from agiledart_dataflow.runtime.error_reports import MAX_KINDS, OTHERS, QUIET_LOOKS, ErrorReports
from agiledart_executor.local_runs.local_run import run_topology


class Row(NamedTuple):
    """A number."""

    value: int


def inner(record: int) -> float:
    return 1 / record


def half(record: int) -> float:
    return inner(record - record)


def noted(reports: ErrorReports, times: int = 1, policy: str = "skip") -> None:
    """One step raises for some records."""
    for record in range(times):
        try:
            half(record)
        except ZeroDivisionError as error:
            reports.note("half", half, error, record, policy)


def test_the_first_error_is_reported_at_once_with_place_record_and_frames() -> None:
    reports = ErrorReports()
    noted(reports, 3)
    (text,) = reports.take()
    lines = text.splitlines()
    assert lines[0].startswith("skipped: test_error_reports.py:")
    assert "in half: ZeroDivisionError: division by zero for record 0" in lines[0]
    assert lines[-3].strip().endswith("in half")
    assert lines[-2].strip().endswith("in inner")
    assert lines[-1] == "  … and 2 more ZeroDivisionError in half since the last report"


def test_a_repeated_error_is_silenced_but_counted() -> None:
    reports = ErrorReports()
    told, counted = 0, 0
    for _ in range(200):
        noted(reports, 5)
        for text in reports.take():
            told += 1
            counted += 1 if "more" not in text else 1 + int(text.split("… and ")[1].split()[0])
    assert len(QUIET_LOOKS) <= told <= len(QUIET_LOOKS) + 3
    (rest,) = reports.rest()
    assert rest.startswith("half: ")
    assert counted + int(rest.split()[1]) == 1000


def test_another_kind_of_error_is_reported_at_once() -> None:
    reports = ErrorReports()
    noted(reports)
    reports.take()
    reports.note("half", half, KeyError("zone"), {"a": 1}, "dead_letter")
    (text,) = reports.take()
    assert text.startswith("dead letter: ")
    assert "KeyError: 'zone' for record {'a': 1}" in text


def test_errors_with_ever_new_names_are_bounded() -> None:
    reports = ErrorReports()
    for number in range(1000):
        reports.note("half", half, type(f"Error{number}", (Exception,), {})(), number)
    texts = reports.take()
    assert len(texts) == MAX_KINDS + 1
    assert f"{1000 - MAX_KINDS - 1} more {OTHERS}" in texts[-1]


def test_without_errors_nothing_is_reported() -> None:
    assert ErrorReports().take() == []
    assert ErrorReports().rest() == []


def invert(row: Row) -> Row:
    return Row(1 // row.value)


def test_a_run_reports_what_it_dropped() -> None:
    said: list[str] = []
    made = Topology("t")
    rows = records([Row(n % 2) for n in range(10)], row_type=Row)
    made.source("rows", rows, event_time=lambda row: 0).map(invert, on_error="skip").sink("o", collect)
    done = run_topology(made, on_log=said.append)
    assert done.summary.steps["invert"].skipped == 5
    assert "skipped: test_error_reports.py:" in said[0]
    assert "4 more ZeroDivisionError in invert" in said[0]
