"""Event time at a source: disorder, fast clocks, silence."""

import pytest

from agiledart_dataflow.data.position import END, EXPIRY
from agiledart_dataflow.event_time.event_clock import MAX_EARLY, PROMISE_STEP_MS, EventClock, Late

S = 1_000_000_000


def due(clock: EventClock) -> list[tuple[int, object]]:
    """Rows that may leave, taken out."""
    taken = list(clock.due)
    clock.due.clear()
    return taken


def test_rows_are_sorted_within_the_tolerance_and_late_ones_counted() -> None:
    clock = EventClock(10)
    for time_ms in (100, 95, 109, 101, 103):
        clock.accept(time_ms, f"r{time_ms}", 0)
    assert due(clock) == [(95, "r95")]
    clock.accept(98, "late", 0)
    assert clock.late == 1
    clock.release(END)
    assert [row for _, row in due(clock)] == ["r100", "r101", "r103", "r109"]


def test_late_rows_get_the_time_that_was_complete() -> None:
    clock = EventClock(0, lateness_ms=5, keeps_late=True)
    for time_ms in (10, 20, 17, 8, 21):
        clock.accept(time_ms, time_ms, 0)
    assert due(clock) == [(10, 10), (20, 20), (20, Late(17, 3, aside=False)), (20, Late(8, 12, aside=True)), (21, 21)]
    assert clock.late == 0, "rows that are kept are counted when they go aside"


def test_a_fast_clock_advances_time_no_further_than_the_cap() -> None:
    clock = EventClock(0, max_ahead_ms=1_000)
    clock.accept(5_000, "now", wall_ms=5_000)
    clock.accept(90_000, "an hour ahead", wall_ms=5_010)
    clock.accept(5_900, "also now", wall_ms=5_900)
    assert clock.newest == 6_010
    assert clock.early == 1
    assert [row for _, row in due(clock)] == ["now"], (
        "5,900 is late against 6,010: the cap is how far one clock may push"
    )
    clock.accept(90_500, "its time has come", wall_ms=90_200)
    assert [row for _, row in due(clock)] == ["an hour ahead", "its time has come"]


def test_rows_of_fast_clocks_do_not_wait_without_bound() -> None:
    clock = EventClock(0, max_ahead_ms=1)
    assert {clock.accept(10_000 + i, i, wall_ms=0) for i in range(MAX_EARLY)} == {None}
    assert clock.accept(99_999, "one too many", wall_ms=0) == "too far ahead"


def test_a_silent_source_advances_time_by_the_clock_after_its_timeout() -> None:
    clock = EventClock(50, idle_timeout_ms=5_000)
    clock.accept(1_000, "row", 0)
    clock.pass_time(0, 0, has_read=True)
    clock.pass_time(4 * S, 0, has_read=False)
    assert clock.promise() == (950, EXPIRY, END), "not silent for long enough"
    clock.pass_time(6 * S, 0, has_read=False)
    assert due(clock) == [(1_000, "row")]
    assert clock.promise() == (1_000 + 6_000 - 50, EXPIRY, END)
    clock.accept(6_000, "older than the promise", 0)
    assert clock.late == 1
    clock.accept(7_000, "row again", 0)
    clock.pass_time(7 * S, 0, has_read=True)
    clock.pass_time(8 * S, 0, has_read=False)
    assert clock.newest == 7_000, "it is not idle any more"


def test_a_source_that_never_read_anything_promises_the_present() -> None:
    clock = EventClock(10, idle_timeout_ms=1_000)
    clock.pass_time(0, 50_000, has_read=False)
    assert clock.promise() is None
    clock.pass_time(2 * S, 52_000, has_read=False)
    assert clock.promise() == (51_990, EXPIRY, END)


def test_a_wall_clock_advances_time_in_steps() -> None:
    clock = EventClock(100, clock="wall")
    clock.pass_time(0, 10_000, has_read=False)
    clock.pass_time(1, 10_000 + PROMISE_STEP_MS - 1, has_read=False)
    assert clock.promise() == (9_900, EXPIRY, END)
    clock.pass_time(2, 10_000 + PROMISE_STEP_MS, has_read=False)
    assert clock.promise() == (9_900 + PROMISE_STEP_MS, EXPIRY, END)


@pytest.mark.parametrize("waiting", [(5, "row")])
def test_no_watermark_is_promised_while_rows_are_due(waiting: tuple[int, str]) -> None:
    clock = EventClock(0, clock="wall")
    clock.accept(*waiting, 0)
    clock.pass_time(0, 1_000, has_read=True)
    assert clock.promise() is None
