"""Taps kept by an agent: bounded, numbered, forgotten without a reader."""

from agiledart_agent.executors.taps import FORGET_SECONDS, MAX_ROWS, MAX_TAPS, Taps
from agiledart_executor.wire.agent_messages import InstanceName, SampledRow, TapSample

KEY = ("app", 1, "step")


def sampled(count: int, passed: int, instance: int = 0) -> TapSample:
    return TapSample("step", InstanceName(2, instance), passed, tuple(SampledRow(n, f"{n}") for n in range(count)))


def test_rows_are_numbered_so_that_each_reader_continues() -> None:
    taps = Taps(lambda: 0.0)
    assert taps.read(KEY, 0).rows == ()
    taps.add("app", 1, sampled(3, 30))
    taps.add("app", 1, sampled(1, 5, instance=1))
    told = taps.read(KEY, 0)
    assert [row.number for row in told.rows] == [1, 2, 3, 4]
    assert [row.instance for row in told.rows] == [0, 0, 0, 1]
    assert told.passed == 35
    assert [row.number for row in taps.read(KEY, 3).rows] == [4]


def test_rows_without_a_tap_are_not_kept() -> None:
    taps = Taps(lambda: 0.0)
    taps.add("app", 1, sampled(3, 30))
    taps.read(("app", 2, "step"), 0)
    taps.add("app", 1, sampled(3, 30))
    assert taps.read(("app", 2, "step"), 0).rows == ()


def test_taps_are_bounded_in_rows_and_number_and_expire() -> None:
    now = [0.0]
    taps = Taps(lambda: now[0])
    taps.read(KEY, 0)
    taps.add("app", 1, sampled(MAX_ROWS + 50, 1))
    assert len(taps.read(KEY, 0).rows) == MAX_ROWS
    for number in range(MAX_TAPS - 1):
        assert not taps.read(("app", 1, f"other{number}"), 0).refused
    assert "tapped here already" in taps.read(("app", 1, "one more"), 0).refused
    assert not taps.read(KEY, 0).refused
    now[0] = FORGET_SECONDS + 1
    taps.forget_old()
    assert len(taps) == 0
